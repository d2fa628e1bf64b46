"""Hostile peers of the tracker and the proxy: each loses its own connection, and nothing else."""

import asyncio
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from sterna.rpc import frames, handshake, proxy, values
from sterna.rpc.async_side import AsyncServer, AsyncSide
from sterna.rpc.errors import RPCError
from sterna.rpc.handshake import PROXY, SESSION, TRACKER, Hello, Refused
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.proxy import ProxyServer
from sterna.rpc.tracker import TrackerServer
from sterna.support.dtype import DataType
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers.frames import Given
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape

# What waits for others in seconds waits for this many here.
WAIT_S = 0.01
# How a connection may end; all else is a mistake of the server's.
ENDINGS = (
    asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError, Refused,
    RPCError, OSError,
)
KEYS = ("", "a", "b", "c" * 255)
CALLS = ("tracker.update", "tracker.request", "tracker.summary", "none")
ITEMS: tuple[Any, ...] = (
    "", "a", "b", "\0", "x" * 300, 0, 1, -1, 65536, (1 << 63) - 1, -(1 << 63), 1.5, True, None, [],
    ["a", [1]], b"x", DataType("int8"),
)


class Writer:
    """Takes what a server sends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = 0

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def write(self, data: bytes) -> None:
        self.sent += len(data)

    async def drain(self) -> None:
        await asyncio.sleep(0)


class Peer:
    """One that connects: what it says, in pieces."""

    def __init__(self, tape: Tape, services: tuple[int, ...]) -> None:
        self._codec = PlainPeer(Given(b""))
        hello = Hello(tape.choice(services), tape.choice(KEYS), tape.choice((0, 1, 1 << 31)))
        steps = handshake.client_side(hello, None)
        said = next(steps)
        assert isinstance(said, bytes)
        parts = [said, bytes(handshake.PROOF)]
        parts += [self._frame(tape) for _ in range(tape.randint(0, 6))]
        self.parts = [
            part if tape.random() < 0.9 else mutate(part, tape, (1, 2)) for part in parts
        ]
        self.ends_at_once = tape.random() < 0.7

    def _frame(self, tape: Tape) -> bytes:
        kind = tape.choice((frames.CALL, frames.CALL, frames.RETURN, frames.PING, frames.CLOSE))
        items: list[Any] = []
        if kind == frames.CALL:
            name = tape.choice(CALLS)
            usual = {
                "tracker.update": [
                    tape.choice(KEYS), "", 9090, tape.choice("mn"), tape.choice(("", "h"))
                ],
                "tracker.request": [tape.choice(KEYS), "me", tape.choice((0, 1, -(1 << 63)))],
            }.get(name, [])
            items = [name, *usual]
            if tape.random() < 0.2:
                items[tape.randrange(len(items))] = tape.choice(ITEMS)
        elif kind == frames.RETURN:
            items = [tape.choice(ITEMS) for _ in range(tape.choice((0, 1, 1, 1, 2)))]
        head = bytearray()
        for item in items:
            values.encode(head, item, self._codec)
        return frames.pack(kind, head, 0)


class MeetingPoints(Fuzzer):
    """Whatever peers say, a server goes on, and keeps nothing of those who have left."""

    name = "meeting-points"
    about = "hostile peers of the RPC tracker and the RPC proxy"
    seconds = 20.0

    def check(self, tape: Tape) -> str:
        """Let some peers come at once."""
        is_tracker = tape.random() < 0.5
        services = (TRACKER, TRACKER, TRACKER, SESSION) if is_tracker else (SESSION, PROXY)
        peers = [Peer(tape, services) for _ in range(tape.randint(1, 6))]
        server = TrackerServer(silent=True) if is_tracker else ProxyServer(silent=True)
        with ExitStack() as around:
            for name in ("WAIT_S", "PING_S"):
                around.enter_context(patch.object(proxy, name, WAIT_S))
            asyncio.run(_serve_all(server, peers, [tape.randrange(4) for _ in range(32)]))
        if isinstance(server, TrackerServer):
            kept = [*server._matches.servers, *server._matches.waiting]
        else:
            kept = list(server._waiting)
        assert not kept, f"those who have left are still known: {kept}"
        return server.name


async def _serve_all(server: AsyncServer, peers: list[Peer], order: list[int]) -> None:
    tasks = []
    for number, peer in enumerate(peers):
        reader, writer = asyncio.StreamReader(), Writer(1000 + number)
        end = asyncio.get_running_loop().time() + 1
        side = AsyncSide(reader, writer, end, lambda: None)  # type: ignore[arg-type]
        tasks.append(asyncio.ensure_future(server.serve(side)))
        tasks.append(asyncio.ensure_future(_speak(reader, peer, order[number:])))
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, ENDINGS):
            raise each


async def _speak(reader: asyncio.StreamReader, peer: Peer, waits: list[int]) -> None:
    for part, wait in zip(peer.parts, waits, strict=False):
        await asyncio.sleep(wait * WAIT_S / 4)
        reader.feed_data(part)
    if not peer.ends_at_once:
        await asyncio.sleep(3 * WAIT_S)
    reader.feed_eof()


FUZZER = MeetingPoints()
