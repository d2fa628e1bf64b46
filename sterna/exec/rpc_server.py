"""python -m sterna.exec.rpc_server: serves sessions on this machine."""

import argparse
import sys

from sterna.exec.rpc_arguments import add_listening, parser_of, run_or_explain
from sterna.rpc.addresses import check_may_listen, listen, split_address
from sterna.rpc.serial_line import open_line
from sterna.rpc.serial_server import serve_line
from sterna.rpc.server import ServerLoop
from sterna.rpc.server_process import check_settings
from sterna.rpc.settings import Limits, ServerSettings
from sterna.support.options import options


def arguments_of(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line's arguments."""
    parser = parser_of(str(__doc__))
    add_listening(parser, 9090, 9199)
    parser.add_argument(
        "--through-proxy", action="store_true", help="--host and --port are those of a proxy"
    )
    parser.add_argument("--tracker", metavar="HOST:PORT", help="tracker to tell when it is free")
    parser.add_argument("--key", default="", help="name that clients ask for, like rpi4")
    parser.add_argument("--custom-addr", help="address that clients reach this server at")
    parser.add_argument("--load-library", metavar="A.so:B.so", help="libraries to load at first")
    parser.add_argument(
        "--no-fork", action="store_true", help="start a new interpreter for each session"
    )
    parser.add_argument("--serial", metavar="DEVICE", help="serial line to serve, like /dev/ttyS0")
    parser.add_argument("--baud", type=int, default=115200, help="its speed (%(default)s)")
    parser.add_argument("--tls-ca", help="certificates to know the tracker or proxy by")
    most = Limits()
    parser.add_argument(
        "--max-sessions", type=int, default=most.sessions, help="at a time (%(default)s)"
    )
    parser.add_argument("--max-seconds", type=float, default=0, help="longest session; 0: any")
    parser.add_argument(
        "--max-disk", type=int, default=most.disk_bytes, help="bytes of files (%(default)s)"
    )
    parser.add_argument(
        "--max-memory", type=int,
        help="bytes of a session's process; 0: any (three quarters of the machine's)",
    )
    return parser.parse_args(argv)


def settings_of(args: argparse.Namespace) -> ServerSettings:
    """What the arguments say."""
    settings = ServerSettings(
        key=args.key,
        tracker=None if args.tracker is None else split_address(args.tracker),
        proxy=(args.host, args.port) if args.through_proxy else None,
        custom_addr=args.custom_addr,
        load_library=tuple((args.load_library or "").split(":")) if args.load_library else (),
        silent=args.silent,
        no_fork=args.no_fork,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        tls_ca=args.tls_ca,
        limits=Limits(
            sessions=args.max_sessions, session_s=args.max_seconds, disk_bytes=args.max_disk,
            memory_bytes=args.max_memory,
        ),
    )
    check_settings(settings)
    return settings


def main() -> None:
    """Serve until the process is told to end."""
    args = arguments_of()
    settings = settings_of(args)
    if args.serial is not None:
        serve_line(open_line(args.serial, args.baud), settings)
    if args.through_proxy:
        ServerLoop(None, settings).run()
        return
    check_may_listen(args.host, options.rpc_secret)
    listener = listen(args.host, args.port, args.port_end)
    if not args.silent:
        port = listener.getsockname()[1]
        print(f"rpc: listens on {args.host}:{port}", file=sys.stderr, flush=True)
    ServerLoop(listener, settings).run()


if __name__ == "__main__":
    run_or_explain(main)
