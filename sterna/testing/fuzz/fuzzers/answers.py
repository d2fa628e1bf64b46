"""Answers of a server that lies: a client gets values, or exceptions that say so."""

import builtins
import struct
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.rpc import frames, values
from sterna.rpc.client import RPCSession
from sterna.rpc.errors import RPCError
from sterna.rpc.remote import ClientPeer
from sterna.runtime import Device, ndarray
from sterna.support.dtype import DataType
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers.frames import Given, Maker
from sterna.testing.fuzz.tape import Tape

HANDLES = (0, 1, 2, 7, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
EXTENTS = (0, 1, 16, 1 << 20, 1 << 40, (1 << 63) - 1)
KINDS = [
    name for name, each in sorted(vars(builtins).items())
    if isinstance(each, type) and issubclass(each, BaseException)
]
VALUES: tuple[Any, ...] = (
    None, 0, 1, 1.5, True, "x", "", b"", bytes(16), [], ["a", 1], (1, 2), [[1, [2]]], [1.5, 2.5],
    [["architecture", ["elf", "x86", 64]]], [["architecture", 5]], [["architecture", [[]]]],
    Device(1, 0), DataType("float32"),
)
# What the client itself says of devices and functions that a server does not have.
REFUSALS = ("there is no remote device", "is no device type", "has no function", "has ended")


class Server(Maker):
    """Makes answers, and requests of a server's, that are right, more or less."""

    def some_value(self) -> bytes:
        """A value, or a thing of the server's."""
        chance, head = self.chance, bytearray()
        kind = chance.randrange(5)
        if kind < 2:
            values.encode(head, chance.choice(VALUES), self._codec)
        elif kind == 2:
            count = chance.choice((0, 1, 2, 33))
            owner, device = chance.choice((0, 0, 0, 1, 2)), chance.choice((0, 1, 2, 100, -1))
            head += struct.pack(
                "<BBQQiiBBHI", values.ARRAY, owner, chance.choice(HANDLES),
                chance.choice((0, 0, 8)), device, chance.choice((0, 1)),
                chance.choice((0, 1, 2, 4)), chance.choice((0, 1, 4, 8, 32)), 1, count,
            )
            head += struct.pack(f"<{count}q", *(chance.choice(EXTENTS) for _ in range(count)))
        else:
            tag = values.FUNCTION if kind == 3 else values.MODULE
            head += struct.pack("<BBQ", tag, chance.choice((0, 0, 1, 2)), chance.choice(HANDLES))
        return bytes(head)

    def any_frame(self) -> bytes:
        """An answer, or what a server may ask of a client."""
        chance = self.chance
        some = b"".join(self.some_value() for _ in range(chance.randint(0, 3)))
        error = values.RemoteError(chance.choice(KINDS), "told", chance.choice(("", "there")))
        own = struct.pack("<BBQ", values.FUNCTION, values.RECEIVERS, chance.choice((0, 1, 2)))
        size = chance.choice((0, 1, 16))
        return chance.choice((
            frames.pack(frames.RETURN, self.some_value()),
            frames.pack(frames.RETURN, self.some_value()),
            frames.pack(frames.RETURN, bytes([values.NONE]), size) + bytes(size),
            self.frame(frames.EXCEPTION, error),
            frames.pack(frames.CALL, own + some),
            frames.pack(frames.FREE, some),
            frames.pack(chance.choice(frames.KINDS), some),
        ))


def uses_of(session: RPCSession) -> list[Callable[[], object]]:
    """What programs do with a session."""
    peer = session._peer
    return [
        lambda: peer.call("f", 1, "x", lambda *args: list(args)),
        lambda: session.get_function("f")(1, print),
        lambda: session.load_module("a.so")["f"](1),
        lambda: session.load_module("a.so").imported_modules,
        lambda: session.load_module("a.so").time_evaluator("f", session.cpu(0))(1),
        lambda: session.download("a"),
        lambda: session.download_linked_module("a"),
        lambda: session.listdir(),
        lambda: session.upload(bytes(3), "a"),
        lambda: session.cpu(0).exist,
        lambda: session.cpu(0).sync(),
        lambda: ndarray.array(np.ones(4, "float32"), session.cpu(0)).numpy(),
        peer.architecture,
    ]


class Answers(Fuzzer):
    """Values, errors of the server's, and the end of the session: nothing else may happen."""

    name = "answers"
    about = "broken answers for the RPC client's side"
    seconds = 20.0
    memory = 8 << 30

    def check(self, tape: Tape) -> str:
        """Use one session for a while."""
        session = RPCSession(ClientPeer(Given(Server(tape).some_frames()), "there"))
        ending = "answered"
        for _ in range(tape.randint(1, 4)):
            try:
                tape.choice(uses_of(session))()
            except Exception as error:
                ending = "refused"
                self._judge(error)
        session.close()
        return ending

    def _judge(self, error: Exception) -> None:
        """Raise again what neither the server said nor the protocol forbids."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        is_told = last.name in ("request", "lookup")
        if not is_told and not isinstance(error, RPCError) and (
            not any(words in str(error) for words in REFUSALS)
        ):
            raise error


FUZZER = Answers()
