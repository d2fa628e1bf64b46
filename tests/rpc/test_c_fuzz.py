"""Random and mutated bytes do nothing to the server in C: no crash, no hang, no leak, no growth."""

import random
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sterna.testing.fuzz import wire
from sterna.testing.fuzz.fuzzers.c_server import any_value, attack
from tests.rpc.c_server import Running, memory_of, running


def storm(server: Running, seed: int, seconds: float) -> int:
    """Attacks until the time is over; how many there were."""
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        attack(server.port, rng)
        count += 1
        assert server.process.poll() is None, f"seed {seed}: the server has ended"
    return count


def test_no_bytes_hurt_the_server(sanitized: Path, search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    with running([sanitized], "--max-sessions", "64", "--max-seconds", "10") as server:
        storm(server, seed, 1)
        server.await_quiet()
        before = memory_of(server.process.pid)
        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(storm, server, seed + i + 1, search_seconds - 2) for i in range(3)]
            assert sum(run.result() for run in runs) > 20
        server.await_quiet()
        assert memory_of(server.process.pid) - before < 8192
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
            assert wire.shake_hands(sock) == 0
            sock.sendall(wire.frame(wire.PING))
            assert wire.answer(sock)[:2] == (wire.RETURN, wire.NONE)


def test_a_session_does_not_grow(sanitized: Path) -> None:
    """Thousands of good and failing requests leave nothing behind."""
    rng = random.Random(5)
    with running([sanitized]) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
            assert wire.shake_hands(sock) == 0
            sizes = []
            for turn in range(3):
                for _ in range(1500 if turn else 500):
                    requests = (
                        wire.frame(wire.ALLOC, wire.CPU, wire.FLOAT32, wire.shape(64, 64)),
                        wire.call("no.such", any_value(rng)),
                        wire.call("rpc.listdir", wire.text("gone")),
                        wire.frame(wire.COPY_TO, wire.integer(9), wire.integer(0), bulk=b"1234"),
                    )
                    for request in requests:
                        sock.sendall(request)
                        kind, head, _ = wire.answer(sock)
                        if kind == wire.RETURN and head[0] == 11:
                            handle = struct.unpack("<Q", head[2:10])[0]
                            sock.sendall(wire.frame(wire.FREE, wire.integer(handle)))
                sizes.append(memory_of(server.session()))
        assert sizes[2] - sizes[1] < 4096, sizes
