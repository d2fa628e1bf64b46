"""Broken frames for the RPC server in C, under sanitizers: no crash, no hang, nothing left over."""

import atexit
import io
import os
import random
import shutil
import socket
import struct
import subprocess
import tarfile
import time
from pathlib import Path

from sterna.support import native, toolchain
from sterna.testing.fuzz import wire
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import INTERESTING, mutate
from sterna.testing.fuzz.tape import Tape

SANITIZED = ("-std=c11", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
             "-rdynamic", "-lpthread", "-ldl", "-lm")
# A search for leaks takes seconds of every session's process on AArch64; the tests have one.
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=1:allocator_may_return_null=1"}
# Words of sanitizers that no server may utter. Of an array that is too large they only warn.
ALARMS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "DEADLYSIGNAL")

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


def drain(sock: socket.socket) -> None:
    """Take all answers; the server closes when it has read what is no frame, or the end."""
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(1 << 16):
        pass


def attack(port: int, rng: random.Random) -> str:
    """One connection, of good manners at first or of none; how it ended."""
    is_stranger = rng.random() > 0.9
    frames = [OPENING, *(any_frame(rng) for _ in range(rng.choice((3, 10, 40))))]
    if rng.random() < 0.7:
        at = rng.randrange(len(frames))
        frames[at] = mutate(frames[at], rng, (1, 1, 2, 5))
    noise = rng.choice((rng.randbytes(200), mutate(wire.hello(), rng, (1, 1, 2, 5))))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            if is_stranger:
                sock.sendall(noise)
                sock.settimeout(0.2)
            else:
                assert wire.shake_hands(sock) in (0, 5)
                sock.sendall(b"".join(frames))
            drain(sock)
    except TimeoutError:
        assert is_stranger, "the server hangs"
    except OSError:
        return "closed"  # it may close while we still send
    return "stranger" if is_stranger else "served"


class CServer(Fuzzer):
    """A server that goes on, whatever it is sent."""

    name = "c-server"
    about = "broken frames for the RPC server in C, under sanitizers"
    seconds = 60.0
    memory = None  # sanitizers reserve all there is

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def missing(self) -> str | None:
        """Sanitizers come with compilers."""
        return None if shutil.which("gcc") else "needs gcc"

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Compile the server."""
        self._folder, self._log = folder, folder / "log"
        sources = [native.rpc_server_source(), native.runtime_source()]
        toolchain.link_executable(folder / "server", sources, SANITIZED, "gcc", needs_runtime=False)

    def check(self, tape: Tape) -> str:
        """Attack the server once."""
        self._start()
        assert self._process is not None
        ending = attack(self._port, tape)
        said = self._log.read_text("utf-8", "replace")
        alarms = [said.find(alarm) for alarm in ALARMS if alarm in said]
        if alarms or self._process.poll() is not None:
            self._process.kill()
            self._process = None
            begin = max(0, min(alarms, default=0) - 300)
            raise AssertionError(f"the server says:\n{said[begin : begin + 5000]}")
        return ending

    def _start(self) -> None:
        if self._process is not None:
            return
        settings = {**os.environ, **SETTINGS, "TMPDIR": str(self._folder)}
        settings.pop("STERNA_RPC_SECRET", None)
        with open(self._log, "wb") as log:
            words = [str(self._folder / "server"), "--port", "0", "--max-seconds", "10"]
            words += ["--max-memory", "0"]  # a sanitizer's own is more than any limit
            self._process = subprocess.Popen(words, stderr=log, env=settings, cwd=os.sep)
        atexit.register(self._process.kill)
        end = time.monotonic() + 60
        while b"\n" not in self._log.read_bytes():
            assert self._process.poll() is None and time.monotonic() < end, self._log.read_text()
            time.sleep(0.01)
        self._port = int(self._log.read_text().splitlines()[0].rpartition(":")[2])


FUZZER = CServer()
