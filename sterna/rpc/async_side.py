"""Servers of many connections in one thread: what the tracker and the proxy have in common."""

import asyncio
import contextlib
import functools
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from sterna.rpc import frames, values
from sterna.rpc.addresses import Certificate, check_may_listen, listen
from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.rpc.half_open import HalfOpen
from sterna.rpc.handshake import Hello, Refused, Verdict, server_side
from sterna.rpc.peer import describe
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.settings import HANDSHAKE_S
from sterna.rpc.streams import tune
from sterna.support.options import options

# Connections that have proved themselves, and those that have not, altogether and of one address.
MOST_CONNECTIONS = 4096
MOST_HALF_OPEN = 512
MOST_HALF_OPEN_EACH = 64
# A machine without files to give gets so long to have some again.
NO_FILES_S = 0.1
# A connection that is closed gets so long to take what was sent at last.
CLOSE_S = 2.0
MOST_HEAD = 1 << 20

Decide = Callable[[Hello], Awaitable[Verdict]]


class AsyncSide:
    """The server's side of a connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: float,
        proved: Callable[[], None],
    ) -> None:
        """end: of the handshake, by the loop's clock. proved is told of a client in its right."""
        self.reader, self.writer = reader, writer
        self._end, self._proved = end, proved
        address = writer.get_extra_info("peername")
        self.host, self.port = str(address[0]), int(address[1])
        self._codec = PlainPeer(_NoStream())

    async def shake_hands(self, services: frozenset[int], decide: Decide) -> Hello:
        """Do a server's side of the handshake; only what decide takes is not counted."""
        clock = asyncio.get_running_loop().time
        steps = server_side(options.rpc_secret, services)
        try:
            wanted = next(steps)
            while True:
                if isinstance(wanted, Hello):
                    self._proved()
                    left = self._end - clock()
                    wanted = steps.send(await decide(wanted))
                    self._end = clock() + left
                    continue
                async with asyncio.timeout_at(self._end):
                    if isinstance(wanted, int):
                        wanted = steps.send(await self.reader.readexactly(wanted))
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


async def _open_streams(
    sock: socket.socket, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection's streams, once its side of TLS has agreed, if there is a context for that."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=context)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; one that does not take the last bytes of it is cut."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()


class AsyncServer:
    """Listens, and serves each connection by a coroutine."""

    name = "server"

    def __init__(self, silent: bool = False, certificate: Certificate | None = None) -> None:
        self.silent, self._certificate = silent, certificate
        self._ends: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._half_open: HalfOpen[asyncio.Task[None]] = HalfOpen(
            MOST_HALF_OPEN, MOST_HALF_OPEN_EACH
        )

    async def serve(self, side: AsyncSide) -> None:
        """Serve a connection."""
        raise NotImplementedError

    async def run(self, listener: socket.socket, ready: Callable[[], None]) -> None:
        """Serve until stop is called."""
        self._ends = asyncio.Event()
        context = None if self._certificate is None else self._certificate.context()
        listener.setblocking(False)
        accepting = asyncio.ensure_future(self._accept(listener, context))
        ready()
        await self._ends.wait()
        left = {accepting, *self._tasks}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        listener.close()

    def stop(self) -> None:
        """End, from within the loop."""
        if self._ends is not None:
            self._ends.set()

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(NO_FILES_S)
                continue
            with contextlib.ExitStack() as unless_served:
                unless_served.callback(sock.close)
                await self._make_room(address[0])
                if len(self._tasks) - len(self._half_open) >= MOST_CONNECTIONS:
                    continue
                task = loop.create_task(self._serve_and_close(sock, context))
                unless_served.pop_all()
            self._tasks.add(task)
            self._half_open.add(task, address[0])
            task.add_done_callback(functools.partial(self._forget, sock))

    async def _make_room(self, address: str) -> None:
        """Wait until there is a place for one more of an address that has not proved itself."""
        while (found := self._half_open.in_the_way(address)) is not None:
            task, seconds = found
            if seconds:
                await asyncio.sleep(seconds)
                continue
            self._half_open.discard(task)
            task.cancel()

    def _forget(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        sock.close()  # a task that had not begun yet has not done so
        self._tasks.discard(task)
        self._half_open.discard(task)

    async def _serve_and_close(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + HANDSHAKE_S
        task = asyncio.current_task()
        assert task is not None
        writer: asyncio.StreamWriter | None = None
        try:
            tune(sock)
            async with asyncio.timeout_at(end):
                reader, writer = await _open_streams(sock, context)
            await self.serve(AsyncSide(reader, writer, end, lambda: self._half_open.discard(task)))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        except (Refused, RPCError, OSError) as error:
            self.say(str(error))
        finally:
            if writer is not None:
                await _close(writer)

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
