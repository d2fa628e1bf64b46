"""sterna rpc-server: the RPC server as a small program that needs no Python."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.commands import COMMANDS
from sterna.cli.models import expect_file, parse_target
from sterna.cli.output import add_json, file_size, progress, show
from sterna.support.progress import stage
from sterna.support.server_program import build_server
from sterna.support.table import show_bytes
from sterna.target import machine_of

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "rpc-server", help=COMMANDS["rpc-server"],
        description="Compile the RPC server, a program of C alone, for a machine. Copy it there, "
        "start it with --help, and connect with sterna.rpc.connect.",
    )
    parser.add_argument(
        "--target", help='what it runs on, such as "llvm -mtriple=aarch64-linux-gnu"; this machine '
        "if not given",
    )
    parser.add_argument(
        "-o", "--output", default="rpc_server", metavar="FILE", help="what to write (rpc_server)"
    )
    parser.add_argument("--cc", help="the C compiler to use")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile the server and tell about it."""
    expect_file("-o", options.output)
    output, triple = Path(options.output), machine_of(parse_target(options.target)).triple
    with progress(options), stage("compile the server"):
        build_server(output, triple, options.cc)
    data = {"output": str(output), "bytes": file_size(output), "triple": triple}
    show(options, data, lambda: f"{output}: {show_bytes(file_size(output))}, for {triple}")
    return 0
