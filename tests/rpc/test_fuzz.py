"""Broken frames and broken handshakes end a connection, and nothing else happens."""

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from sterna import nd, rpc
from sterna.rpc import frames as codec
from sterna.rpc import values
from sterna.rpc.client import RPCSession
from sterna.rpc.files import SessionFolder
from sterna.rpc.handshake import SESSION, Hello, client_side
from sterna.rpc.remote import ClientPeer
from sterna.rpc.serving import ServerPeer
from sterna.testing.fuzz.fuzzers import answers, frames
from sterna.testing.fuzz.runner import fuzz
from tests.rpc.support import TestServer, limited


def test_no_frame_harms_a_server(search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    (tally,) = fuzz([frames.FUZZER], search_seconds, seed, None)
    assert tally.endings["answered"] > tally.cases // 2, "the frames are no good"
    if tally.findings:
        pytest.fail(f"seed {seed}: {tally.findings[0].error}\n{tally.findings[0].program}")


def test_no_answer_harms_a_client(search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    (tally,) = fuzz([answers.FUZZER], search_seconds / 2, seed, None)
    assert tally.endings["answered"], "the answers are no good"
    if tally.findings:
        pytest.fail(f"seed {seed}: {tally.findings[0].error}\n{tally.findings[0].program}")


def test_memory_that_is_none() -> None:
    """A client says that its server gave no memory, no times or a handle that cannot be freed."""
    none, times = bytes([values.NONE]), bytes([values.LIST, 0, 0, 0, 0])
    function = struct.pack("<BBQ", values.FUNCTION, values.SENDERS, 1)
    too_large = struct.pack("<BBQ", values.FUNCTION, values.SENDERS, 1 << 63)
    module = struct.pack("<BBQ", values.MODULE, values.SENDERS, 1)
    for heads, use, words in (
        (
            [bytes([values.TRUE]), none],
            lambda remote: nd.empty((4,), "int8", remote.cpu(0)), "no memory",
        ),
        ([none], lambda remote: remote.download("a"), "NoneType as the result of rpc.download"),
        ([too_large], lambda remote: remote.get_function("f"), "a handle 9223372036854775808"),
        (
            [module, function, function, times],
            lambda remote: remote.load_module("a").time_evaluator("f", remote.cpu(0))(), "no times",
        ),
    ):
        sent = b"".join(codec.pack(codec.RETURN, head) for head in heads)
        with pytest.raises(rpc.RPCError, match=words):
            use(RPCSession(ClientPeer(frames.Given(sent), "there")))


@pytest.mark.parametrize("kind", [*codec.KINDS])
@pytest.mark.parametrize("tag", [values.FUNCTION, values.MODULE, values.ARRAY])
def test_things_that_are_not_there_in_any_frame(tmp_path: Path, kind: int, tag: int) -> None:
    """A handle of nothing, where it may stand and where only numbers may, is answered."""
    head = bytes([tag, values.RECEIVERS, *bytes(8)])
    if tag == values.ARRAY:
        head += struct.pack("<QiiBBHI", 0, 1, 0, 2, 32, 1, 0)
    stream = frames.Given(codec.pack(kind, head))
    ServerPeer(stream, SessionFolder(1 << 20, str(tmp_path))).serve()
    assert stream.sent or kind == codec.CLOSE


def test_no_greeting_harms_a_server(
    capfd: pytest.CaptureFixture[str], search_seconds: float
) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    chance = random.Random(seed)
    server = TestServer(silent=False, limits=limited(handshake_s=3.0, handshakes=64))
    end = time.monotonic() + search_seconds / 10
    while time.monotonic() < end:
        said = next(client_side(Hello(SESSION, "board"), None))
        assert isinstance(said, bytes)
        hello = bytearray(said)
        for _ in range(chance.randint(0, 4)):
            hello[chance.randrange(len(hello))] = chance.randrange(256)
        hello += chance.randbytes(chance.choice([0, 1, 32, 100]))
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
            sock.sendall(hello[: chance.randint(1, len(hello))])
            if chance.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
            else:
                sock.settimeout(0.05)
                with contextlib.suppress(OSError):
                    sock.recv(100)
    with server.connect() as remote:
        assert remote.get_function("test.add_one")(1) == 2
    server.stop()
    assert "Traceback" not in capfd.readouterr().err, f"seed {seed}"


def test_a_server_lives_through_all_of_it(server: TestServer) -> None:
    """The same frames over a socket, a few."""
    for kind in range(256):
        if kind % 16 == 0:
            remote = server.connect(key="board")
        stream = remote._peer.stream
        try:
            stream.send(bytes([0x53, 0x46, kind, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]))
        except rpc.RPCError:
            continue
        except ConnectionError:
            continue
    with server.connect(key="board") as remote:
        assert remote.get_function("test.add_one")(1) == 2
