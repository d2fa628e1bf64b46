"""python -m sterna.exec.query_rpc_tracker: prints which servers a tracker knows and who waits."""

from sterna.exec.rpc_arguments import parser_of, run_or_explain
from sterna.rpc.errors import RPCError
from sterna.rpc.tracker_client import connect_tracker
from sterna.support.options import options


def main() -> None:
    """Print the tracker's summary."""
    parser = parser_of(str(__doc__))
    host = options.tracker_host or "127.0.0.1"
    port = options.tracker_port or 9190
    parser.add_argument("--host", default=host, help="the tracker's host (%(default)s)")
    parser.add_argument("--port", type=int, default=port, help="the tracker's port (%(default)s)")
    parser.add_argument("--tls-ca", help="certificates to know the tracker by")
    args = parser.parse_args()
    try:
        with connect_tracker(args.host, args.port, tls_ca=args.tls_ca) as tracker:
            print(tracker.text_summary(), end="")
    except RPCError as error:
        raise ValueError(str(error)) from None


if __name__ == "__main__":
    run_or_explain(main)
