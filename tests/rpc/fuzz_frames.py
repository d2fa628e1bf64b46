"""Throws broken frames at the server's side: python -m tests.rpc.fuzz_frames SEED SECONDS FOLDER.

Nothing but the documented may happen: answers, and the end of the session. What else is raised, and
what takes longer than a few seconds, ends the process with a failure; the bytes are in FOLDER.
"""

import faulthandler
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sterna.rpc import frames, values
from sterna.rpc.files import SessionFolder
from sterna.rpc.serving import ServerPeer
from sterna.rpc.streams import StreamEnded
from sterna.rpc.values import Handle
from sterna.runtime import Device, register_func
from sterna.support.dtype import DataType

MOST_BYTES = 64 << 20
HANG_S = 20


class Given:
    """A stream that gives these bytes and then ends."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.sent = 0

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        self.sent += len(data)

    def receive(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise StreamEnded("it ends here")
        self._at += count
        return self._data[self._at - count : self._at]

    def receive_into(self, view: memoryview) -> None:
        view[:] = self.receive(len(view))

    def set_deadline(self, at: float | None) -> None:
        pass

    def close(self) -> None:
        self._at = len(self._data)


class Maker:
    """Makes frames that are right, more or less."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._codec = ServerPeer(Given(b""), SessionFolder(0, "/nonexistent"))

    def frame(self, kind: int, *items: object, bulk: bytes = b"") -> bytes:
        head = bytearray()
        for item in items:
            values.encode(head, item, self._codec)
        return frames.pack(kind, head, len(bulk)) + bulk

    def alloc(self, shape: tuple[int, ...], dtype: str, bulk: bytes = b"") -> bytes:
        return self.frame(frames.ALLOC, Device(1, 0), DataType(dtype), shape, bulk=bulk)

    def any_frame(self) -> bytes:
        """One of the frames that clients send."""
        chance = self.chance
        handle, size = chance.randint(0, 6), chance.choice([0, 1, 16, 64])
        name = chance.choice(["a", "b/c", "../x", "/y", "a\0", "x.so", "x.tar"])
        function = chance.choice(
            ["rpc.upload", "rpc.download", "rpc.remove", "rpc.listdir", "rpc.load_module",
             "rpc.link", "rpc.get_function", "rpc.module_function", "rpc.server_info",
             "rpc.device_exists", "rpc.time_evaluator", "fuzz.same", "fuzz.call", "none"]
        )
        args = [
            chance.choice([
                name, 0, size, 1.5, True, None, bytes(size), [name, [1]], Device(1, 0),
                DataType("int8"), Handle(values.FUNCTION, handle), Handle(values.MODULE, handle),
                function,
            ])
            for _ in range(chance.randint(0, 5))
        ]
        makers: list[Callable[[], bytes]] = [
            lambda: self.alloc((size,), "uint8"),
            lambda: self.alloc((size,), "uint8", bytes(size)),
            lambda: self.alloc((size, 2), chance.choice(["float32", "int4", "float32x4"])),
            lambda: self.frame(frames.COPY_TO, handle, 0, bulk=bytes(size)),
            lambda: self.frame(frames.COPY_FROM, handle, 0, size),
            lambda: self.frame(frames.COPY_WITHIN, handle, 0, chance.randint(0, 6), 0, size),
            lambda: self.frame(frames.FREE, handle),
            lambda: self.frame(frames.PING),
            lambda: self.frame(frames.CALL, function, *args),
            lambda: self.frame(frames.CALL, "rpc.upload", name, 0, bytes(size), True),
            lambda: self.frame(frames.CALL, Handle(values.FUNCTION, handle), *args),
            lambda: self.frame(frames.RETURN, None),
            lambda: self.frame(frames.INIT, "rpc.Connect", "127.0.0.1", 1),
        ]
        return chance.choice(makers)()

    def broken(self, data: bytes) -> bytes:
        """The same with something changed, cut out, doubled or put in."""
        chance, made = self.chance, bytearray(data)
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(made) + 1)
            what = chance.randrange(4)
            if what == 0 and at < len(made):
                made[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            elif what == 1:
                del made[at : at + chance.choice([1, 4, 8])]
            elif what == 2:
                made[at:at] = made[at : at + 8]
            else:
                made[at:at] = chance.randbytes(chance.choice([1, 4, 8]))
        return bytes(made)


def main() -> None:
    seed, seconds, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    register_func("fuzz.same", lambda *args: list(args))
    register_func("fuzz.call", lambda function, *args: function(*args))
    maker = Maker(random.Random(seed))
    session = SessionFolder(1 << 20, str(folder))
    case = folder.parent / "broken.bin"
    end, count, answered = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        data = b"".join(
            maker.any_frame() if maker.chance.random() < 0.7 else maker.broken(maker.any_frame())
            for _ in range(maker.chance.randint(1, 12))
        )
        case.write_bytes(data)
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        stream = Given(data)
        ServerPeer(stream, session, most_bytes=MOST_BYTES).serve()
        faulthandler.cancel_dump_traceback_later()
        count += 1
        answered += stream.sent > 0
    assert answered > count // 2, f"{answered} of {count} were answered: the frames are no good"
    print(f"{count} sessions")


if __name__ == "__main__":
    main()
