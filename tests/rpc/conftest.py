"""One server for the tests of a file that do no harm to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna import rpc
from tests.rpc.c_server import build_sanitized
from tests.rpc.support import TestServer, limited


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests say themselves what secret there is."""
    for name in ("STERNA_RPC_SECRET", "STERNA_RPC_TLS_CA", "TVM_TRACKER_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server in C as a program that notices every mistake in memory."""
    return build_sanitized(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    made = TestServer(key="board", limits=limited(sessions=4))
    yield made
    made.stop()


@pytest.fixture
def remote(server: TestServer) -> Iterator[rpc.RPCSession]:
    with server.connect(key="board") as session:
        yield session
