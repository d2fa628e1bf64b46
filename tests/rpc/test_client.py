"""Clients: servers that are slow, dead or hostile do not harm them."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna import rpc
from sterna.rpc import frames, values
from sterna.rpc.handshake import SESSION, Refused, Verdict, run_server_side
from sterna.rpc.peer import Peer
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.remote import ClientPeer
from sterna.rpc.streams import KEEP_ALIVE_IDLE_S, SocketStream, StreamEnded
from sterna.testing.fuzz.fuzzers.frames import Given


@contextmanager
def pretended_server(
    *answers: bytes, grants: int | None = None, drips: bool = False
) -> Iterator[int]:
    """A server that shakes hands, and then answers each frame with given bytes, whatever it is.

    grants: the milliseconds that it allows, else what was asked for. drips: instead of being silent
    in the end it sends parts of an answer that never ends.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        stream = SocketStream(sock)
        try:
            run_server_side(
                stream, None, frozenset({SESSION}),
                lambda hello: Verdict(timeout_ms=hello.timeout_ms if grants is None else grants),
            )
            for answer in answers:
                frames.read(stream, frames.MOST_HEAD)
                stream.send(answer)
            if drips:
                stream.send(frames.HEADER.pack(frames.MAGIC, frames.RETURN, 0, 1 << 20, 0))
            while drips:
                stream.send(b"x")
                time.sleep(0.01)
            stream.receive(1 << 30)
        except (StreamEnded, Refused):
            pass
        stream.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    thread.join(20)
    listener.close()


def head_of(*items: object) -> bytes:
    """The bytes of values."""
    head = bytearray()
    for item in items:
        values.encode(head, item, PlainPeer(Given(b"")))
    return bytes(head)


def test_a_server_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.remote.GRACE_S", 0.3)
    with pretended_server() as port:
        session = rpc.connect("127.0.0.1", port, session_timeout=0.4)
        start = time.monotonic()
        with pytest.raises(rpc.RPCSessionTimeoutError, match=r"session_timeout=0\.4"):
            session.listdir()
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("grants", [0, 1, 100, 400, 5000, (1 << 31) - 1, (1 << 32) - 1])
@pytest.mark.parametrize("drips", [False, True])
def test_no_grant_of_a_server_makes_a_client_wait_longer(
    grants: int, drips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.rpc.remote.GRACE_S", 0.1)
    start = time.monotonic()
    with pretended_server(grants=grants, drips=drips) as port:
        session = rpc.connect("127.0.0.1", port, session_timeout=0.3)
        seconds = f"{min(0.3, grants / 1000 or 0.3):g}"
        with pytest.raises(rpc.RPCSessionTimeoutError, match=f"session_timeout={seconds} "):
            session.listdir()
        assert time.monotonic() - start < 3


def test_a_server_that_reads_slowly_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.remote.GRACE_S", 0.1)
    start = time.monotonic()
    with pretended_server(drips=True) as port:  # it reads nothing at all
        session = rpc.connect("127.0.0.1", port, session_timeout=0.3)
        with pytest.raises((rpc.RPCSessionTimeoutError, rpc.RPCProtocolError)):
            session.upload(bytes(64 << 20), target="large")
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 4294968.0])
def test_times_that_a_hello_cannot_say(seconds: float) -> None:
    with pytest.raises(ValueError, match="session_timeout="):
        rpc.connect("127.0.0.1", 1, session_timeout=seconds)


def test_a_short_time_is_not_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.remote.GRACE_S", 0.1)
    with pretended_server() as port:
        session = rpc.connect("127.0.0.1", port, session_timeout=1e-6)
        with pytest.raises(rpc.RPCSessionTimeoutError):
            session.listdir()


def test_a_dead_line_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = SocketStream(socket.create_connection(listener.getsockname()))
        sock = stream.socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_KEEPIDLE"):
            idle = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle == KEEP_ALIVE_IDLE_S
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        stream.close()


def test_a_server_calls_only_what_it_was_given() -> None:
    by_name = frames.pack(frames.CALL, head_of("tvm.rpc.server.remove", "x"))
    with pretended_server(by_name) as port:
        session = rpc.connect("127.0.0.1", port)
        with pytest.raises(rpc.RPCProtocolError, match="only functions that were passed"):
            session.listdir()
    by_number = frames.pack(
        frames.CALL, bytes([values.FUNCTION, values.RECEIVERS]) + (7).to_bytes(8, "little")
    )
    answer = frames.pack(frames.RETURN, head_of(["a"]))
    with pretended_server(by_number + answer) as port, rpc.connect("127.0.0.1", port) as session:
        assert session.listdir() == ["a"]  # the call was answered with an exception


def test_an_exception_of_the_server_does_not_end_the_client() -> None:
    error = values.RemoteError("SystemExit", "goodbye", "")
    with (
        pretended_server(frames.pack(frames.EXCEPTION, head_of(error))) as port,
        rpc.connect("127.0.0.1", port) as session,
        pytest.raises(RuntimeError, match="SystemExit: goodbye"),
    ):
        session.listdir()


@pytest.mark.parametrize(
    "answer",
    [
        frames.pack(frames.RETURN),
        frames.pack(frames.RETURN, head_of(1, 2)),
        frames.pack(frames.RETURN, head_of(1), 5) + b"12345",
        frames.pack(frames.EXCEPTION, head_of("text")),
        frames.pack(frames.ALLOC, head_of()),
        frames.pack(frames.COPY_FROM, head_of(1, 0, 5)),
        frames.pack(frames.INIT),
        b"x" * 16,
    ],
)
def test_answers_that_make_no_sense_end_the_session(answer: bytes) -> None:
    with pretended_server(answer) as port:
        session = rpc.connect("127.0.0.1", port)
        with pytest.raises(rpc.RPCProtocolError, match=r"127\.0\.0\.1:\d+ broke the protocol"):
            session.listdir()


@settings(max_examples=200)
@given(st.binary(max_size=120), st.sampled_from([b"", *(bytes([k]) for k in range(1, 12))]))
def test_no_bytes_harm_a_client(data: bytes, kind: bytes) -> None:
    if kind:
        data = frames.pack(kind[0], data[:60], 0) + data[60:]
    peer = ClientPeer(Given(data), "a server")
    with contextlib.suppress(Exception):  # what a server says may be any of them, but no crash
        peer.call("rpc.listdir", "")
    peer.end("it was a test")


def test_calls_nest_only_so_deep() -> None:
    session = rpc.LocalSession()
    try:
        peer: Peer = session._peer
        peer._nested = 64
        with pytest.raises(RecursionError, match="more than 64 calls"):
            session.listdir()
        peer._nested = 0
        assert session.listdir() == []
    finally:
        session.close()
