"""python -m sterna.exec.rpc_proxy: servers that cannot be reached meet their clients here."""

from sterna.exec.rpc_arguments import run_or_explain, serve
from sterna.rpc.proxy import ProxyServer


def main() -> None:
    """Serve until the process is told to end."""
    serve(ProxyServer, str(__doc__), 9090, 9199)


if __name__ == "__main__":
    run_or_explain(main)
