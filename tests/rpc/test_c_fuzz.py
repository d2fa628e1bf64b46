"""Random and mutated bytes do nothing to the server in C: no crash, no hang, no leak, no growth."""

import io
import random
import socket
import struct
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rpc import wire
from tests.rpc.c_server import Running, memory_of, running

INTERESTING = (0, 1, -1, 2, 7, 8, 31, 32, 33, 64, 255, 256, 4096, 1 << 16, (1 << 31) - 1, 1 << 31,
               (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63))

NAMES = ("x.so", "x.so", "x.tar", "x.tar", "x.o", "d/x", "d", "..", "../x", "/etc/passwd", "", ".",
         "a\0b", "\u00e9", "x" * 600)


# Code, bits and lanes of types that there are.
TYPES = ((0, 8, 1), (1, 1, 4), (2, 16, 1), (2, 64, 65535), (4, 16, 1), (6, 8, 1), (17, 4, 2))


def any_value(rng: random.Random, depth: int = 0) -> bytes:
    """A value of any kind, well-formed."""
    number, handle = rng.choice(INTERESTING), rng.choice((0, 1, 2, 3, 4, 1 << 32, 2**64 - 1))
    kinds = [
        lambda: wire.NONE, lambda: wire.FALSE, lambda: wire.TRUE, lambda: wire.integer(number),
        lambda: wire.real(rng.random()), lambda: wire.text(rng.choice(NAMES)),
        lambda: wire.raw(rng.randbytes(rng.choice((0, 3, 700)))), lambda: wire.CPU,
        lambda: b"\x08" + struct.pack("<ii", rng.randrange(-2, 30), rng.randrange(-2, 3)),
        lambda: wire.FLOAT32, lambda: b"\x07" + struct.pack("<BBH", *rng.choice(TYPES)),
        lambda: wire.shape(*(rng.choice(INTERESTING) for _ in range(rng.randrange(4)))),
        lambda: wire.array(handle, (2, rng.randrange(4)), rng.randrange(20)),
        lambda: wire.function(handle, rng.randrange(2)), lambda: wire.module(handle),
        lambda: b"\x0e" + b"".join(wire.text("e")[1:] for _ in range(3)),
    ]
    if depth < 3:
        kinds.append(
            lambda: wire.listed(*(any_value(rng, depth + 1) for _ in range(rng.randrange(4))))
        )
    return rng.choice(kinds)()


def odd_type(rng: random.Random) -> bytes:
    """Any four bytes for a type; often one of them is 0, or too much."""
    parts = rng.choice((0, 1, 2, 4, 99)), rng.choice((0, 1, 4, 33, 255)), rng.choice((0, 1, 65535))
    return b"\x07" + rng.choice((rng.randbytes(4), struct.pack("<BBH", *parts)))


# The server's functions: what each takes, a letter for each argument; see typical_value.
CALLS = {
    "rpc.get_function": "s", "rpc.module_function": "msb", "rpc.module_kind": "m",
    "rpc.module_imports": "m", "rpc.import_module": "mm", "rpc.load_module": "n",
    "rpc.system_lib": "s", "rpc.link": "n", "rpc.upload": "nirb", "rpc.download": "nii",
    "rpc.remove": "n", "rpc.listdir": "n", "rpc.device_exists": "d", "rpc.device_sync": "d",
    "rpc.time_evaluator": "fdcccccc", "rpc.server_info": "", "tvm.graph_executor.create": "smd",
    "sterna.load_params": "r", "no.such": "i",
}


def archive_of(data: bytes) -> bytes:
    """A tar file with a lib.so."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        info = tarfile.TarInfo("lib.so")
        info.size = len(data)
        made.addfile(info, io.BytesIO(data))
    return buffer.getvalue()[: 512 * 4]


def typical_value(letter: str, rng: random.Random) -> bytes:
    """A value of the kind that an argument has, most of the time."""
    handle = rng.choice((1, 2, 2, 3, 4, 5))
    kinds = {
        "s": lambda: wire.text(rng.choice(("", *CALLS, "{}"))),
        "n": lambda: wire.text(rng.choice(NAMES)),
        "m": lambda: wire.module(handle),
        "f": lambda: wire.function(handle, rng.choice((0, 1))),
        "b": lambda: rng.choice((wire.TRUE, wire.TRUE, wire.FALSE)),
        "i": lambda: wire.integer(rng.choice((0, 0, 0, 8, 512, rng.choice(INTERESTING)))),
        "c": lambda: wire.integer(rng.choice((0, 1, 1, 2))),
        "r": lambda: wire.raw(rng.choice((b"", b"int main;", archive_of(rng.randbytes(600))))),
        "d": lambda: wire.CPU,
    }
    return any_value(rng) if rng.random() < 0.06 else kinds[letter]()


def typical_call(rng: random.Random) -> bytes:
    """A call with about what the function takes."""
    name = rng.choice(tuple(CALLS))
    return wire.call(name, *(typical_value(letter, rng) for letter in CALLS[name]))


# Handle 1 is a function, 2 a module, 3 an array, 4 times a function of the client.
OPENING = (
    wire.call("rpc.get_function", wire.text("rpc.listdir"))
    + wire.call("rpc.system_lib", wire.text(""))
    + wire.frame(wire.ALLOC, wire.CPU, wire.FLOAT32, wire.shape(2, 3), bulk=bytes(24))
    + wire.call(
        "rpc.time_evaluator", wire.function(77, 0), wire.CPU, *map(wire.integer, (1, 1, 0, 1, 0, 1))
    )
    + wire.call(
        "rpc.upload", wire.text("x.so"), wire.integer(0), wire.raw(b"int main;"), wire.TRUE
    )
    + wire.call(
        "rpc.upload", wire.text("x.tar"), wire.integer(0), wire.raw(archive_of(b"")), wire.TRUE
    )
)


def callback(rng: random.Random) -> bytes:
    """A call that calls the client twice, and the client's answers."""
    answers = (
        wire.frame(wire.RETURN, any_value(rng)),
        wire.frame(wire.EXCEPTION, b"\x0e" + wire.text("ValueError")[1:] + 2 * wire.text("e")[1:]),
        wire.frame(wire.PING) + wire.frame(wire.RETURN, wire.NONE),
    )
    return wire.frame(wire.CALL, wire.function(4), any_value(rng)) + b"".join(
        rng.choice(answers) for _ in range(2)
    )


def any_frame(rng: random.Random) -> bytes:
    """A frame that is mostly in order."""
    handle = wire.integer(rng.choice((3, 3, 3, 2, 1, rng.choice(INTERESTING))))
    offset = wire.integer(rng.choice((0, 0, 4, 12, rng.choice(INTERESTING))))
    count = rng.choice((0, 4, 16, 24))
    kind = rng.randrange(16)
    if kind == 0:
        dtype = odd_type(rng) if rng.random() < 0.1 else wire.FLOAT32
        return wire.frame(wire.ALLOC, wire.CPU, dtype, wire.shape(2, 3))
    if kind == 1:
        return wire.frame(
            wire.ALLOC, wire.CPU, wire.FLOAT32, wire.shape(2, 3), bulk=rng.randbytes(24)
        )
    if kind == 2:
        return wire.frame(wire.COPY_TO, handle, offset, bulk=rng.randbytes(count))
    if kind == 3:
        return wire.frame(wire.COPY_FROM, handle, offset, wire.integer(count))
    if kind == 4:
        size = wire.integer(count)
        return wire.frame(wire.COPY_WITHIN, handle, offset, handle, offset, size)
    if kind == 5:
        return wire.frame(wire.FREE, handle, wire.integer(5))
    if kind == 6:
        return wire.frame(wire.PING)
    if kind == 7:
        return callback(rng)
    if kind == 8:
        return wire.frame(wire.CALL, wire.function(rng.randrange(1, 4)), any_value(rng))
    if kind == 9:
        values = (any_value(rng) for _ in range(rng.randrange(4)))
        return wire.frame(rng.randrange(1, 12), *values)
    return typical_call(rng)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, left out, repeated or put in, or the end cut off."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        if not made:
            break
        place, length = rng.randrange(len(made)), rng.choice((1, 1, 4, 8))
        kind = rng.randrange(5)
        if kind == 0:
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[place : place + length] = rng.randbytes(length)
        elif kind == 2:
            del made[place : place + length]
        elif kind == 3:
            number = rng.choice(INTERESTING)
            made[place : place + 8] = struct.pack("<Q", number % 2**64)
        else:
            del made[place:]
    return bytes(made)


def drain(sock: socket.socket) -> None:
    """Take all answers; the server closes when it has read what is no frame, or the end."""
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(1 << 16):
        pass


def attack(server: Running, rng: random.Random) -> None:
    """One connection, of good manners at first or of none."""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
            if rng.random() < 0.1:
                sock.sendall(rng.choice((rng.randbytes(200), mutated(wire.hello(), rng))))
                sock.settimeout(0.2)
            else:
                assert wire.shake_hands(sock) in (0, 5)
                frames = [OPENING, *(any_frame(rng) for _ in range(rng.choice((3, 10, 40))))]
                if rng.random() < 0.7:
                    at = rng.randrange(len(frames))
                    frames[at] = mutated(frames[at], rng)
                sock.sendall(b"".join(frames))
            drain(sock)
    except TimeoutError:
        assert sock.gettimeout() == 0.2, "the server hangs"
    except OSError:
        pass  # it may close while we still send


def storm(server: Running, seed: int, seconds: float) -> int:
    """Attacks until the time is over; how many there were."""
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        attack(server, rng)
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
