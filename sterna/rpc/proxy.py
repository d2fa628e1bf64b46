"""The proxy: servers that cannot be reached come here and meet their clients."""

import asyncio

from sterna.rpc import frames
from sterna.rpc.addresses import Certificate
from sterna.rpc.async_side import AsyncServer, AsyncSide, InThread
from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.handshake import BUSY, PROXY, SESSION, Hello, Verdict

# A client waits so long for a server with its key.
WAIT_S = 30.0
# A server that waits is asked this often whether it is still there, and answers within this time.
PING_S = 10.0
CHUNK = 1 << 18


class Waiting:
    """A server that waits for a client."""

    def __init__(self, side: AsyncSide) -> None:
        self.side = side
        self.wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done = asyncio.Event()


class ProxyServer(AsyncServer):
    """Pairs servers and clients and passes their bytes on."""

    name = "proxy"

    def __init__(self, silent: bool = False, certificate: Certificate | None = None) -> None:
        super().__init__(silent, certificate)
        self._waiting: dict[str, list[Waiting]] = {}
        self._news = asyncio.Condition()

    async def serve(self, side: AsyncSide) -> None:
        """Serve a connection."""
        found: list[Waiting] = []

        async def decide(hello: Hello) -> Verdict:
            if hello.service == PROXY:
                return Verdict(name="proxy")
            waiting = await self._take(hello.key)
            if waiting is None:
                return Verdict(BUSY)
            found.append(waiting)
            return Verdict(is_proxied=True, name="proxy")

        try:
            hello = await side.shake_hands(frozenset({SESSION, PROXY}), decide)
            if hello.service == PROXY:
                await self._keep(hello.key, Waiting(side))
            else:
                self.say(f"{side.host}:{side.port} has a session on '{hello.key}'")
                await _pass_on(side, found[0].side)
        finally:
            for waiting in found:
                waiting.done.set()

    async def _keep(self, key: str, waiting: Waiting) -> None:
        """Hold a server's connection until a client wants it, and then until that one is done."""
        self.say(f"'{key}' at {waiting.side.host}:{waiting.side.port} waits for a client")
        async with self._news:
            self._waiting.setdefault(key, []).append(waiting)
            self._news.notify_all()
        try:
            while not waiting.wanted.done():
                await asyncio.wait({waiting.wanted}, timeout=PING_S)
                if not waiting.wanted.done():
                    async with asyncio.timeout(PING_S):
                        await waiting.side.send(frames.pack(frames.PING))
                        await waiting.side.take_return()
            async with asyncio.timeout(PING_S):
                await waiting.side.call("proxy.begin")
            waiting.ready.set_result(None)
            await waiting.done.wait()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, RPCProtocolError):
            if not waiting.ready.done():
                waiting.ready.set_exception(ConnectionResetError("the server has left"))
                waiting.ready.exception()
            raise
        finally:
            self._leave(key, waiting)

    def _leave(self, key: str, waiting: Waiting) -> None:
        """It waits no longer."""
        queue = [each for each in self._waiting.pop(key, []) if each is not waiting]
        if queue:
            self._waiting[key] = queue

    async def _take(self, key: str) -> Waiting | None:
        """A server with a key that is ready for a client; None if none comes in time."""
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    async with self._news:
                        await self._news.wait_for(lambda: key in self._waiting)
                        waiting = self._waiting[key][0]
                        self._leave(key, waiting)
                    waiting.wanted.set_result(None)
                    try:
                        await asyncio.shield(waiting.ready)
                    except ConnectionResetError:
                        continue
                    except asyncio.CancelledError:  # the server shall come again for another client
                        waiting.done.set()
                        raise
                    return waiting
        except TimeoutError:
            return None


async def _pass_on(one: AsyncSide, other: AsyncSide) -> None:
    """Pass bytes both ways until one side ends."""

    async def pump(source: AsyncSide, target: AsyncSide) -> None:
        while data := await source.reader.read(CHUNK):
            await target.send(data)

    pumps = {asyncio.ensure_future(pump(*pair)) for pair in ((one, other), (other, one))}
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


class Proxy(InThread):
    """A proxy in a thread of this process."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9090,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        *,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        certificate = None if tls_cert is None else Certificate(tls_cert, tls_key)
        super().__init__(ProxyServer(silent, certificate), host, port, port_end, reuse_addr)
