"""The command `sterna`.

Only the command that is asked for is loaded, so that help comes at once.
"""

import argparse
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import CODES, INTERRUPTED, describe, exit_code
from sterna.cli.output import complain, warn
from sterna.cli.parser import Parser
from sterna.version import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

BROKEN_PIPE = 141


def make_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The command line, with the options of one command."""
    codes = "; ".join(f"{code}: {meaning}" for code, meaning in CODES.items())
    parser = Parser(
        prog="sterna", description="Compile machine-learning models to fast, small programs.",
        epilog=f"`sterna COMMAND --help` tells more. Exit status: {codes}.",
    )
    parser.add_argument("--version", action="version", version=f"sterna {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands: Subparsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, what in COMMANDS.items():
        if name == chosen:
            _add(commands, name)
        else:
            commands.add_parser(name, help=what)
    return parser


def _add(commands: "Subparsers", name: str) -> None:
    importlib.import_module(f"sterna.cli.{name.replace('-', '_')}").add_to(commands)
    commands.choices[name].add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the result is the process's exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        options = make_parser(chosen).parse_args(words)  # which loads the command
    except KeyboardInterrupt:
        complain("interrupted", INTERRUPTED, False)
        return INTERRUPTED
    as_json = bool(getattr(options, "json", False))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            status: int = options.run(options)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        code = exit_code(error)
        complain(describe(error, code, options.debug), code, as_json)
        return code
    except KeyboardInterrupt:
        complain("interrupted", INTERRUPTED, as_json)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
