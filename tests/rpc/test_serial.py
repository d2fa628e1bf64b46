"""Serial lines: packets survive what lines do to bytes, and sessions run over them."""

import os
import random
import socket
import subprocess
import sys
import threading
import tty
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sterna as tvm
from sterna import rpc
from sterna.rpc import serial_line
from sterna.rpc.serial_line import DATA, PacketReader, SerialStream, pack_packet
from sterna.rpc.streams import StreamEnded
from tests.support import ROOT, clean_environment

packets = st.tuples(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=64))


@given(st.lists(packets, max_size=5), st.integers(1, 40))
def test_packets_are_found_however_they_come(sent: list[tuple[int, int, bytes]], size: int) -> None:
    line = b"".join(pack_packet(*packet) for packet in sent)
    reader = PacketReader()
    pieces = [line[at : at + size] for at in range(0, len(line), size)]
    assert [packet for piece in pieces for packet in reader.feed(piece)] == sent


@given(st.binary(max_size=300), packets, st.randoms())
def test_noise_and_damage_lose_packets_but_make_none(
    noise: bytes, packet: tuple[int, int, bytes], chance: random.Random
) -> None:
    reader = PacketReader()
    damaged = bytearray(pack_packet(*packet))
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    found = [*reader.feed(noise), *reader.feed(bytes(damaged))]
    assert all(each == packet for each in found)
    assert list(reader.feed(b"\x7e" + pack_packet(*packet))) == [packet]


class BadLine:
    """A line between two sockets that loses and changes some of the bytes."""

    def __init__(self, seed: int, damage: float) -> None:
        self.ends: list[socket.socket] = []
        inner = []
        for _ in range(2):
            ours, theirs = socket.socketpair()
            self.ends.append(ours)
            inner.append(theirs)
        for number, (source, target) in enumerate((inner, inner[::-1])):
            chance = random.Random(seed + number)
            threading.Thread(
                target=self._carry, args=(source, target, chance, damage), daemon=True
            ).start()

    @staticmethod
    def _carry(
        source: socket.socket, target: socket.socket, chance: random.Random, damage: float
    ) -> None:
        while data := bytearray(source.recv(4096)):
            if chance.random() < damage:
                at = chance.randrange(len(data))
                if chance.random() < 0.5:
                    data[at] ^= 1 << chance.randrange(8)
                else:
                    del data[at : at + chance.randint(1, 20)]
            target.sendall(data)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_line, "AGAIN_S", 0.01)


def test_everything_arrives_over_a_bad_line(quick: None) -> None:
    line = BadLine(seed=3, damage=0.2)
    sent = np.random.default_rng(0).bytes(60_000)
    got: list[bytes] = []

    def other_side() -> None:
        stream = SerialStream(line.ends[1].fileno(), opens=False)
        got.append(stream.receive(len(sent)))
        stream.send(got[0][::-1])

    thread = threading.Thread(target=other_side)
    thread.start()
    stream = SerialStream(line.ends[0].fileno(), opens=True)
    stream.send(sent[:100], memoryview(sent[100:]))
    assert stream.receive(len(sent)) == sent[::-1] and got == [sent]
    thread.join(10)


def test_a_line_that_nobody_is_at(quick: None) -> None:
    here, there = socket.socketpair()
    with pytest.raises(StreamEnded, match="nothing answers"):
        SerialStream(here.fileno(), opens=True)
    there.close()
    here.close()


def test_a_packet_that_comes_twice_counts_once(quick: None) -> None:
    here, there = socket.socketpair()
    stream = SerialStream(here.fileno(), opens=False)
    there.sendall(pack_packet(DATA, 0, b"one") * 2 + pack_packet(DATA, 5, b"x"))
    there.sendall(pack_packet(DATA, 1, b"two"))
    assert stream.receive(6) == b"onetwo"
    for each in (here, there):
        each.close()


@pytest.fixture
def device() -> Iterator[str]:
    """A terminal whose other end a server of its own process serves."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    tty.setraw(theirs)
    tty.setraw(ours)
    code = (
        "import sys; from sterna.rpc.serial_server import serve_line\n"
        "from sterna.rpc.settings import ServerSettings\n"
        "serve_line(int(sys.argv[1]), ServerSettings(key='mote', silent=True))"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(ours)], pass_fds=[ours], cwd=ROOT,
        env=clean_environment(STERNA_RPC_SECRET=""),
    )
    yield name
    server.kill()
    server.wait()
    for file in (ours, theirs):
        os.close(file)


def test_sessions_over_a_serial_line(device: str) -> None:
    for _ in range(2):  # the second one begins anew on the same line
        session = rpc.SerialSession(device, key="mote")
        values = np.arange(3000, dtype="float32")
        array = tvm.nd.array(values, session.cpu(0))
        np.testing.assert_array_equal(array.numpy(), values)
        session.upload(b"text", target="a")
        assert session.listdir() == ["a"]
        session.close()
    with pytest.raises(rpc.RPCError, match="another key"):
        rpc.SerialSession(device, key="other")
    session = rpc.SerialSession(device, key="mote", session_timeout=1)
    assert session._peer.timeout_s == 1
    session.close()
