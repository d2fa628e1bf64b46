"""Strangers who connect and do not prove themselves keep nobody out, and are gone in time."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sterna import rpc
from sterna.rpc.half_open import HalfOpen
from sterna.testing.fuzz import wire
from tests.rpc.c_server import running
from tests.rpc.support import SECRET, limited, serving, wait_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [100.0]
    monkeypatch.setattr("sterna.rpc.half_open.time.monotonic", lambda: now[0])
    yield now


# ---- who must go ----


def test_the_oldest_goes_when_all_places_are_taken(clock: list[float]) -> None:
    places: HalfOpen[int] = HalfOpen(3, 3)
    for number, address in enumerate(["a", "b", "c"]):
        assert places.in_the_way("d") is None
        places.add(number, address)
        clock[0] += 0.25
    assert places.in_the_way("d") == (0, 0.25)  # it has a moment left
    clock[0] += 1
    assert places.in_the_way("d") == (0, 0)
    places.discard(0)
    assert places.in_the_way("d") is None and len(places) == 2


def test_an_address_takes_its_own_places_only(clock: list[float]) -> None:
    places: HalfOpen[int] = HalfOpen(4, 2)
    places.add(0, "honest")
    places.add(1, "flood")
    places.add(2, "flood")
    clock[0] += 5
    assert places.in_the_way("flood") == (1, 0)
    assert places.in_the_way("another") is None
    places.discard(1)
    places.discard(1)
    assert places.in_the_way("flood") is None


# ---- servers ----


def flood(port: int, stack: ExitStack, count: int) -> list[socket.socket]:
    """Connections of somebody who says nothing; later ones may wait to be accepted."""
    made = []
    for _ in range(count):
        sock = socket.socket()
        stack.callback(sock.close)
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        made.append(sock)
    return made


def test_a_flood_keeps_nobody_out_of_a_server() -> None:
    limits = limited(handshakes=8, handshakes_each=8, handshake_s=60.0)
    with ExitStack() as stack:
        server = stack.enter_context(serving(limits=limits))
        flood(server.port, stack, 20)
        start = time.monotonic()
        with server.connect() as remote:
            assert remote.get_function("test.add_one")(1) == 2
            assert time.monotonic() - start < 20  # and not the minute that each may take
            flood(server.port, stack, 20)
            assert remote.get_function("test.add_one")(1) == 2  # who is in stays


def test_a_flood_keeps_nobody_out_of_a_server_in_c(sanitized: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running([sanitized]))
        flood(server.port, stack, 30)
        start = time.monotonic()
        with rpc.connect("127.0.0.1", server.port) as remote:
            assert remote.listdir() == []
            assert time.monotonic() - start < 8
            flood(server.port, stack, 30)
            assert remote.listdir() == []


@pytest.mark.parametrize("make", [rpc.Tracker, rpc.Proxy])
def test_a_flood_keeps_nobody_out_of_a_tracker_or_proxy(
    make: Callable[..., rpc.Tracker | rpc.Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.rpc.async_side.HANDSHAKE_S", 60.0)
    monkeypatch.setattr("sterna.rpc.async_side.MOST_HALF_OPEN", 8)
    monkeypatch.setattr("sterna.rpc.half_open.GRACE_S", 0.1)
    served = make(port=0, silent=True)
    with ExitStack() as stack:
        stack.callback(served.terminate)
        flood(served.port, stack, 40)
        for service in (2, 3):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            sock.settimeout(20)
            status = wire.shake_hands(sock, service=service)
            assert status == (0 if (service == 2) == (make is rpc.Tracker) else 6)


# ---- one deadline for the whole handshake ----


@pytest.mark.parametrize("make", [rpc.Tracker, rpc.Proxy])
def test_slow_steps_share_one_deadline(
    make: Callable[..., rpc.Tracker | rpc.Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    monkeypatch.setattr("sterna.rpc.async_side.HANDSHAKE_S", 1.0)
    served = make(port=0, silent=True)
    first = wire.hello(SECRET.encode(), "some key")
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port)) as sock:
        sock.settimeout(0.1)
        said, parts = b"", [first[:20], first[20:50], first[50:], b"1", b"2", b"3", b"4"]
        ended = False
        while not ended:
            assert time.monotonic() - start < 3
            try:
                if parts:
                    sock.sendall(parts.pop(0))
                    time.sleep(0.3)
                part = sock.recv(100)
                said += part
                ended = not part
            except TimeoutError:
                pass
            except OSError:
                ended = True
    assert len(said) <= 40  # a hello, and no verdict
    served.terminate()


def test_who_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.async_side.HANDSHAKE_S", 0.5)
    tracker = rpc.Tracker(port=0, silent=True)
    with ExitStack() as stack:
        strangers = flood(tracker.port, stack, 5)
        server = tracker._server
        wait_until(lambda: len(server._tasks) == 5, 10)
        wait_until(lambda: not server._tasks, 10)
        assert len(server._half_open) == 0 and all(each.recv(1) == b"" for each in strangers)
    tracker.terminate()
