"""The command `sterna`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from sterna.cli import demo
from sterna.version import __version__


def make_parser() -> argparse.ArgumentParser:
    """The command line, one subcommand per file of this folder."""
    parser = argparse.ArgumentParser(
        prog="sterna", description="Compile machine-learning models to fast, small programs."
    )
    parser.add_argument("--version", action="version", version=f"sterna {__version__}")
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an error, not only its message"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the result is the process's exit status."""
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except Exception as error:
        if options.debug:
            raise
        Console(stderr=True).print(f"sterna: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
