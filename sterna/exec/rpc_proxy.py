"""python -m sterna.exec.rpc_proxy: servers that cannot be reached meet their clients here."""

from sterna.exec.rpc_arguments import add_listening, parser_of, run_or_explain
from sterna.rpc.addresses import Certificate
from sterna.rpc.async_side import run_in_foreground
from sterna.rpc.proxy import ProxyServer


def main() -> None:
    """Serve until the process is told to end."""
    parser = parser_of(str(__doc__))
    add_listening(parser, 9090, 9199)
    args = parser.parse_args()
    certificate = None if args.tls_cert is None else Certificate(args.tls_cert, args.tls_key)
    server = ProxyServer(args.silent, certificate)
    run_in_foreground(server, args.host, args.port, args.port_end, args.silent)


if __name__ == "__main__":
    run_or_explain(main)
