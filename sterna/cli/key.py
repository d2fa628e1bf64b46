"""sterna key: a pair of keys that compiled files are signed and trusted with."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.commands import COMMANDS
from sterna.cli.models import expect_file
from sterna.cli.output import add_json, show
from sterna.support.keys import make_keys

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "key", help=COMMANDS["key"],
        description="Make a pair of keys (Ed25519, PEM): `sterna compile --sign` takes the secret "
        "one, `sterna run --trust` the public one.",
    )
    parser.add_argument(
        "output", metavar="FILE", help="where the secret key goes; the public one ends in .pub"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the keys and say where they are."""
    secret = Path(options.output)
    expect_file("FILE", options.output)
    public = secret.with_suffix(".pub")
    make_keys(secret, public)
    data = {"secret": str(secret), "public": str(public)}
    show(options, data, lambda: f"{secret}: keep it to yourself, and sign with it (--sign)\n"
         f"{public}: give it to those who are to trust your files (--trust)")
    return 0
