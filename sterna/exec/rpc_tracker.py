"""python -m sterna.exec.rpc_tracker: clients find free servers here."""

from sterna.exec.rpc_arguments import run_or_explain, serve
from sterna.rpc.tracker import TrackerServer


def main() -> None:
    """Serve until the process is told to end."""
    serve(TrackerServer, str(__doc__), 9190, 9199)


if __name__ == "__main__":
    run_or_explain(main)
