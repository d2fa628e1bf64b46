"""Servers of many connections in one thread: what the tracker and the proxy have in common."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from sterna.rpc import frames, values
from sterna.rpc.addresses import Certificate, check_may_listen, listen
from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.rpc.handshake import Hello, Refused, Verdict, server_side
from sterna.rpc.peer import describe
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.settings import HANDSHAKE_S
from sterna.rpc.streams import tune
from sterna.support.options import options

MOST_CONNECTIONS = 4096
MOST_HEAD = 1 << 20

Decide = Callable[[Hello], Awaitable[Verdict]]


class AsyncSide:
    """The server's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        address = writer.get_extra_info("peername")
        self.host, self.port = str(address[0]), int(address[1])
        self._codec = PlainPeer(_NoStream())

    async def shake_hands(self, services: frozenset[int], decide: Decide) -> Hello:
        """Do a server's side of the handshake; only decide may take longer than its limit."""
        steps = server_side(options.rpc_secret, services)
        try:
            wanted = next(steps)
            while True:
                if isinstance(wanted, int):
                    async with asyncio.timeout(HANDSHAKE_S):
                        wanted = steps.send(await self.reader.readexactly(wanted))
                elif isinstance(wanted, Hello):
                    wanted = steps.send(await decide(wanted))
                else:
                    await self.send(wanted)
                    wanted = next(steps)
        except StopIteration as done:
            hello: Hello = done.value
            return hello

    async def send(self, data: bytes) -> None:
        """Send everything."""
        self.writer.write(data)
        await self.writer.drain()

    async def read_frame(self) -> tuple[int, list[Any]]:
        """Kind and values of the next frame."""
        packed = await self.reader.readexactly(frames.HEADER.size)
        magic, kind, zero, head, bulk = frames.HEADER.unpack(packed)
        if magic != frames.MAGIC or zero or kind not in frames.KINDS or bulk or head > MOST_HEAD:
            raise RPCProtocolError("what came is no frame that is understood here")
        return kind, values.decode_all(await self.reader.readexactly(head), self._codec)

    async def answer(self, value: Any) -> None:
        """Send a result, or an exception."""
        head = bytearray()
        kind = frames.EXCEPTION if isinstance(value, Exception) else frames.RETURN
        sent = describe(value) if isinstance(value, Exception) else value
        values.encode(head, sent, self._codec)
        await self.send(frames.pack(kind, head))

    async def call(self, *target_and_args: Any) -> Any:
        """Call a function of the other side's by name."""
        head = bytearray()
        for value in target_and_args:
            values.encode(head, value, self._codec)
        await self.send(frames.pack(frames.CALL, head))
        return await self.take_return()

    async def take_return(self) -> Any:
        """Wait for an answer."""
        kind, found = await self.read_frame()
        if kind != frames.RETURN or len(found) != 1:
            raise RPCProtocolError("an answer was expected")
        return found[0]

    async def gone(self) -> None:
        """Wait until the other side, which has nothing to say now, has closed the connection."""
        if await self.reader.read(1):
            raise RPCProtocolError("the other side speaks while it should wait")


class _NoStream:
    """What a codec needs no stream for."""

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        raise AssertionError

    def receive(self, count: int) -> bytes:
        raise AssertionError

    def receive_into(self, view: memoryview) -> None:
        raise AssertionError

    def set_deadline(self, at: float | None) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


class AsyncServer:
    """Listens, and serves each connection by a coroutine."""

    name = "server"

    def __init__(self, silent: bool = False, certificate: Certificate | None = None) -> None:
        self.silent, self._certificate = silent, certificate
        self._ends: asyncio.Event | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, side: AsyncSide) -> None:
        """Serve a connection."""
        raise NotImplementedError

    async def run(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Serve until stop is called."""
        self._ends = asyncio.Event()
        context = None if self._certificate is None else self._certificate.context()
        server = await asyncio.start_server(
            self._connected, sock=listener, ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
        )
        ready()
        async with server:
            await self._ends.wait()
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for writer in left.values():  # a task that had not begun yet has not closed its own
            writer.transport.abort()

    def stop(self) -> None:
        """End, from within the loop."""
        if self._ends is not None:
            self._ends.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_and_close(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _serve_and_close(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if len(self._tasks) <= MOST_CONNECTIONS:
                tune(writer.get_extra_info("socket"))
                await self.serve(AsyncSide(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        except (Refused, RPCError, OSError) as error:
            self.say(str(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def say(self, text: str) -> None:
        """A line for whoever runs the server."""
        if not self.silent:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)


class InThread:
    """An asynchronous server in a thread of this process; it ends with terminate."""

    def __init__(
        self, server: AsyncServer, host: str, port: int, port_end: int, reuse: bool
    ) -> None:
        check_may_listen(host, options.rpc_secret)
        listener = listen(host, port, port_end, reuse)
        self.host, self.port = host, int(listener.getsockname()[1])
        self._server = server
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(server.run(listener, ready.set))
            self._loop.close()

        self._thread = threading.Thread(target=run, name=f"sterna {server.name}", daemon=True)
        self._thread.start()
        ready.wait()

    def terminate(self) -> None:
        """End it; twice does no harm."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._server.stop)
            self._thread.join()


def run_in_foreground(
    server: AsyncServer, host: str, port: int, port_end: int, silent: bool
) -> None:
    """Serve until the process is told to end."""
    check_may_listen(host, options.rpc_secret)
    listener = listen(host, port, port_end)

    def ready() -> None:
        if not silent:
            text = f"{server.name} listens on {host}:{listener.getsockname()[1]}"
            print(text, file=sys.stderr, flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.run(listener, ready))
