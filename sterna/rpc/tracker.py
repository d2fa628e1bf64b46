"""The tracker: servers that are free and clients that want one meet here."""

import asyncio
import heapq
import itertools
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sterna.rpc import frames
from sterna.rpc.addresses import Certificate
from sterna.rpc.async_side import AsyncServer, AsyncSide, InThread
from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.handshake import TRACKER, Hello, Verdict

# A client comes to its server within so long, or the server is offered to another one.
LEASE_S = 8.0
# A server from which nothing comes for so long is forgotten.
SILENCE_S = 10.0


@dataclass(slots=True)
class Registered:
    """A server that the tracker knows of."""

    key: str
    address: str
    port: int
    match_key: str = ""
    holder: str = ""
    leased_at: float | None = None

    @property
    def state(self) -> str:
        """free, leased to a client who has not come yet, or busy."""
        if self.holder:
            return "busy"
        return "free" if self.leased_at is None and self.match_key else "leased"


@dataclass(slots=True, order=True)
class Request:
    """A client that waits."""

    order: tuple[int, int]
    user: str = field(compare=False)
    given: "asyncio.Future[list[Any]]" = field(compare=False)


class Matches:
    """Who is free and who waits."""

    def __init__(self) -> None:
        self.servers: list[Registered] = []
        self.waiting: dict[str, list[Request]] = defaultdict(list)
        self._count = itertools.count()

    def update(self, server: Registered, match_key: str, holder: str) -> bool:
        """A server's news; False if it shall make a new match key."""
        if match_key != server.match_key:
            server.match_key, server.leased_at = match_key, None
        server.holder = holder
        leased = server.leased_at
        if not holder and leased is not None and time.monotonic() - leased > LEASE_S:
            return False
        self._match(server.key)
        return True

    def ask(self, key: str, user: str, priority: int) -> "asyncio.Future[list[Any]]":
        """A client's request, which is given [address, port, match key]."""
        given: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        heapq.heappush(self.waiting[key], Request((-priority, next(self._count)), user, given))
        self._match(key)
        return given

    def _match(self, key: str) -> None:
        queue = self.waiting.get(key, [])
        for server in self.servers:
            if queue and server.key == key and server.state == "free":
                request = heapq.heappop(queue)
                server.leased_at = time.monotonic()
                request.given.set_result([server.address, server.port, server.match_key])
        if not queue:
            self.waiting.pop(key, None)

    def withdraw(self, key: str, given: "asyncio.Future[list[Any]]") -> None:
        """A client that waited has left: nothing of it is kept."""
        queue = [each for each in self.waiting.pop(key, []) if each.given is not given]
        if queue:
            heapq.heapify(queue)
            self.waiting[key] = queue

    def summary(self) -> dict[str, Any]:
        """All of it, for people."""
        keys = sorted({s.key for s in self.servers} | set(self.waiting))
        return {
            "server_info": [
                {"key": f"server:{s.key}", "addr": [s.address, s.port], "state": s.state,
                 "holder": s.holder}
                for s in self.servers
            ],
            "queue_info": {
                key: {
                    "total": sum(s.key == key for s in self.servers),
                    "free": sum(s.key == key and s.state == "free" for s in self.servers),
                    "pending": len(self.waiting.get(key, [])),
                }
                for key in keys
            },
        }


class TrackerServer(AsyncServer):
    """Serves servers and clients."""

    name = "tracker"

    def __init__(self, silent: bool = False, certificate: Certificate | None = None) -> None:
        super().__init__(silent, certificate)
        self._matches = Matches()

    async def serve(self, side: AsyncSide) -> None:
        """Serve a connection."""

        async def accept(hello: Hello) -> Verdict:
            return Verdict()

        await side.shake_hands(frozenset({TRACKER}), accept)
        own: list[Registered] = []
        try:
            while True:
                async with asyncio.timeout(SILENCE_S if own else None):
                    kind, found = await side.read_frame()
                if kind == frames.CLOSE:
                    return
                if kind == frames.PING:
                    await side.answer(None)
                    continue
                if kind != frames.CALL or not found:
                    raise RPCProtocolError(f"a tracker takes calls, not frames of kind {kind}")
                await self._called(side, own, *found)
        finally:
            for server in own:
                self._matches.servers.remove(server)
                self.say(f"{server.key} at {server.address}:{server.port} has left")

    async def _called(self, side: AsyncSide, own: list[Registered], name: Any, *args: Any) -> None:
        wanted = _ARGUMENTS.get(name) if isinstance(name, str) else None
        if wanted is None or tuple(map(type, args)) != wanted:
            await side.answer(TypeError(f"a tracker has no {name!r} of {len(args)} such arguments"))
        elif name == "tracker.update":
            await side.answer(self._update(side, own, *args))
        elif name == "tracker.request":
            await self._request(side, *args)
        elif name == "tracker.summary":
            await side.answer(json.dumps(self._matches.summary()))
        else:
            await side.answer(None)
            self.stop()

    def _update(
        self, side: AsyncSide, own: list[Registered], key: str, address: str, port: int,
        match_key: str, holder: str,
    ) -> bool:
        if not own:
            own.append(Registered(key, address or side.host, port))
            self._matches.servers.append(own[0])
            self.say(f"{key} at {own[0].address}:{port} has come")
        return self._matches.update(own[0], match_key, holder)

    async def _request(self, side: AsyncSide, key: str, user: str, priority: int) -> None:
        given = self._matches.ask(key, user, priority)
        gone = asyncio.ensure_future(side.gone())
        try:
            both: set[asyncio.Future[Any]] = {given, gone}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not given.done():
                await gone
                raise ConnectionResetError("a client that waited has left")
        finally:
            self._matches.withdraw(key, given)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        await side.answer(given.result())


_ARGUMENTS: dict[Any, tuple[type, ...]] = {
    "tracker.update": (str, str, int, str, str),
    "tracker.request": (str, str, int),
    "tracker.summary": (),
    "tracker.stop": (),
}


class Tracker(InThread):
    """A tracker in a thread of this process."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
        *,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        certificate = None if tls_cert is None else Certificate(tls_cert, tls_key)
        super().__init__(TrackerServer(silent, certificate), host, port, port_end, reuse_addr)
