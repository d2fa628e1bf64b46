"""Throws broken frames at the server's side: answers, and the end of the session, may follow."""

import random
from collections.abc import Callable
from pathlib import Path

from sterna.rpc import frames, values
from sterna.rpc.files import SessionFolder
from sterna.rpc.serving import ServerPeer
from sterna.rpc.streams import StreamEnded
from sterna.rpc.values import Handle
from sterna.runtime import Device, register_func
from sterna.support.dtype import DataType
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape

MOST_BYTES = 64 << 20


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

    def some_frames(self) -> bytes:
        """A few frames, of which some are broken."""
        parts = []
        for _ in range(self.chance.randint(1, 12)):
            part = self.any_frame()
            parts.append(part if self.chance.random() < 0.7 else mutate(part, self.chance, (1, 2)))
        return b"".join(parts)


class Frames(Fuzzer):
    """Answers, and the end of the session: nothing else may happen."""

    name = "frames"
    about = "broken frames for the RPC server's side, in Python"
    seconds = 20.0
    memory = 8 << 30

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Make the session's folder, and functions for clients to call."""
        register_func("fuzz.same", lambda *args: list(args), override=True)
        register_func("fuzz.call", lambda function, *args: function(*args), override=True)
        (folder / "session").mkdir(exist_ok=True)
        self._folder = folder
        self._session = SessionFolder(1 << 20, str(folder / "session"))

    def check(self, tape: Tape) -> str:
        """Serve one session."""
        stream = Given(Maker(tape).some_frames())
        ServerPeer(stream, self._session, most_bytes=MOST_BYTES).serve()
        written = {path.name for path in self._folder.iterdir()}
        assert written <= {"session", "tape"}, f"there are files outside: {written}"
        return "answered" if stream.sent else "silent"


FUZZER = Frames()
