"""Servers to test with."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sterna import rpc
from sterna.rpc.settings import Limits, ServerSettings
from tests.support import ROOT, clean_environment

SECRET = "correct horse battery staple"


class TestServer:
    """A process of tests/rpc/serve.py."""

    __test__ = False

    def __init__(self, port: int = 0, secret: str | None = None, **settings: Any) -> None:
        variables = clean_environment(STERNA_RPC_SECRET=secret or "")
        chosen = ServerSettings(**{"silent": True, **settings}).to_json()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.rpc.serve", "127.0.0.1", str(port), chosen],
            cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def connect(self, **settings: Any) -> rpc.RPCSession:
        """A session on it."""
        return rpc.connect("127.0.0.1", self.port, **settings)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def serving(**settings: Any) -> Iterator[TestServer]:
    """A server for the length of a block."""
    server = TestServer(**settings)
    try:
        yield server
    finally:
        server.stop()


def limited(**limits: Any) -> Limits:
    """Limits of a server."""
    return Limits(**limits)


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def leftovers() -> set[str]:
    """Folders of sessions that exist."""
    return {entry.name for entry in os.scandir("/tmp") if entry.name.startswith("sterna-rpc-")}
