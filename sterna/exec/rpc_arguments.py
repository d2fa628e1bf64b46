"""Arguments that the programs of remote execution have in common."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from sterna.rpc.addresses import Certificate
from sterna.rpc.async_side import AsyncServer, run_in_foreground

SECRET = (
    "STERNA_RPC_SECRET in the environment is the secret that both sides prove to know; without it "
    "only this machine is listened to."
)


def parser_of(description: str) -> argparse.ArgumentParser:
    """A parser that says where the secret comes from."""
    return argparse.ArgumentParser(description=description, epilog=SECRET)


def add_listening(parser: argparse.ArgumentParser, port: int, port_end: int) -> None:
    """Where to listen, how loud, and by which certificate."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=port, help="first port to try (%(default)s)")
    parser.add_argument(
        "--port-end", type=int, default=port_end, help="last port to try (%(default)s)"
    )
    parser.add_argument("--silent", action="store_true", help="print nothing")
    parser.add_argument("--tls-cert", help="certificate, in PEM: speak TLS alone")
    parser.add_argument("--tls-key", help="its private key, if it is in another file")


def serve(
    make: Callable[[bool, Certificate | None], AsyncServer], about: str, port: int, port_end: int
) -> None:
    """Serve as the arguments say, until the process is told to end."""
    parser = parser_of(about)
    add_listening(parser, port, port_end)
    args = parser.parse_args()
    certificate = None if args.tls_cert is None else Certificate(args.tls_cert, args.tls_key)
    server = make(args.silent, certificate)
    run_in_foreground(server, args.host, args.port, args.port_end, args.silent)


def run_or_explain(run: Callable[[], None]) -> NoReturn:
    """Run, and end with one line if that cannot be."""
    try:
        run()
    except (PermissionError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
