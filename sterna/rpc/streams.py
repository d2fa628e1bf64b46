"""Streams of bytes that a session runs over: sockets, with TLS or without, and pipes."""

import contextlib
import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import IO, Any, Protocol

BUFFER = 1 << 16
SOCKET_BUFFER = 4 << 20

# A stream that waits looks this often whether its time is over.
TICK_S = 1.0

# A peer whose machine is gone without a word is noticed after at most
# KEEP_ALIVE_IDLE_S + KEEP_ALIVE_TRIES * KEEP_ALIVE_EACH_S.
KEEP_ALIVE_IDLE_S = 10
KEEP_ALIVE_EACH_S = 5
KEEP_ALIVE_TRIES = 3


class StreamEnded(ConnectionError):
    """The other side closed the stream, or the line is dead."""


class Stream(Protocol):
    """Bytes to and from another side."""

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        """Send everything."""

    def receive(self, count: int) -> bytes:
        """Exactly so many bytes; what is announced is not allocated before it comes."""

    def receive_into(self, view: memoryview) -> None:
        """Fill a view."""

    def set_deadline(self, at: float | None) -> None:
        """Waiting ends with a TimeoutError at a time of time.monotonic()."""

    def close(self) -> None:
        """End it; twice does no harm."""


class BufferedStream:
    """What streams have in common: reading ahead, so that a small frame is one read."""

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._deadline: float | None = None

    def _read_some(self, view: memoryview) -> int:
        """Wait for bytes and read at least one."""
        raise NotImplementedError

    def receive(self, count: int) -> bytes:
        """Exactly so many bytes; what is announced is not allocated before it comes."""
        if count > BUFFER:
            return self._receive_long(count)
        while self._end - self._start < count:
            self._fill()
        start = self._start
        self._start += count
        return bytes(self._view[start : start + count])

    def _fill(self) -> None:
        if self._start:
            kept = self._end - self._start
            self._buffer[:kept] = self._buffer[self._start : self._end]
            self._start, self._end = 0, kept
        self._end += self._read_some(self._view[self._end :])

    def _receive_long(self, count: int) -> bytes:
        made = bytearray(self.take_read_ahead())
        while len(made) < count:
            piece = min(count - len(made), max(BUFFER, len(made)))
            at = len(made)
            made += bytes(piece)
            with memoryview(made) as view:
                self.receive_into(view[at:])
        return bytes(made)

    def receive_into(self, view: memoryview) -> None:
        """Fill a view."""
        at = min(len(view), self._end - self._start)
        view[:at] = self._view[self._start : self._start + at]
        self._start += at
        while at < len(view):
            at += self._read_some(view[at:])

    def has_read_ahead(self) -> bool:
        """Whether bytes are here that no file descriptor shows."""
        return self._end > self._start

    def receive_some(self) -> bytes:
        """At least one byte, and what else is there."""
        if self._end == self._start:
            self._fill()
        return self.take_read_ahead()

    def fileno(self) -> int:
        """What to wait on for bytes to read."""
        raise NotImplementedError

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        """Send everything."""
        raise NotImplementedError

    def close(self) -> None:
        """End it; twice does no harm."""
        raise NotImplementedError

    def take_read_ahead(self) -> bytes:
        """What was read ahead, for somebody else who reads on."""
        found = bytes(self._view[self._start : self._end])
        self._start = self._end = 0
        return found

    def set_deadline(self, at: float | None) -> None:
        """Waiting ends with a TimeoutError at a time of time.monotonic()."""
        self._deadline = at

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError("no answer came in time")


class SocketStream(BufferedStream):
    """A connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.socket = sock
        sock.setblocking(True)
        tune(sock)
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._gathers = not isinstance(sock, ssl.SSLSocket)

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        """Send everything."""
        if bulk is None or not len(bulk):
            self._send_all(data)
        elif self._gathers and len(bulk) < SOCKET_BUFFER:
            self._send_together(data, bulk)
        else:
            self._send_all(data)
            self._send_all(bulk)

    def _send_all(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._send_some(self._send, view) :]

    def _send_some(self, send: Callable[[Any], int], data: Any) -> int:
        """How many bytes went; they may be none, but not for longer than the deadline allows."""
        try:
            count = send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            count = 0
        except OSError as error:
            raise StreamEnded(f"the connection is lost: {error}") from None
        self._check_deadline()
        return count

    def fileno(self) -> int:
        """What to wait on for bytes to read."""
        return self.socket.fileno()

    def has_read_ahead(self) -> bool:
        """Whether bytes are here that no file descriptor shows."""
        sock = self.socket
        return super().has_read_ahead() or (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0)

    def _send_together(self, data: bytes, bulk: memoryview) -> None:
        sent = self._send_some(self.socket.sendmsg, [data, bulk])
        if sent < len(data):
            self._send_all(data[sent:])
            sent = len(data)
        if sent < len(data) + len(bulk):
            self._send_all(bulk[sent - len(data) :])

    def _read_some(self, view: memoryview) -> int:
        while True:
            try:
                count = self._recv_into(view)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._check_deadline()
                continue
            except OSError as error:
                raise StreamEnded(f"the connection is lost: {error}") from None
            if count:
                self._check_deadline()  # also of a side that sends a little again and again
                return count
            raise StreamEnded("the other side closed the connection")

    def set_deadline(self, at: float | None) -> None:
        """Waiting ends with a TimeoutError at a time of time.monotonic()."""
        super().set_deadline(at)
        # The kernel wakes whoever waits up, which costs nothing while answers come.
        tick = 0.0 if at is None else min(TICK_S, max(0.01, (at - time.monotonic()) / 4))
        _set_time(self.socket, socket.SO_RCVTIMEO, tick)
        _set_time(self.socket, socket.SO_SNDTIMEO, tick)

    def close(self) -> None:
        """End it; twice does no harm."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def _set_time(sock: socket.socket, option: int, seconds: float) -> None:
    seconds = max(seconds, 0)
    value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, option, value)


def tune(sock: socket.socket) -> None:
    """Small messages go at once, large ones in large pieces, and a dead line is noticed."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEP_ALIVE_EACH_S),
            ("TCP_KEEPCNT", KEEP_ALIVE_TRIES),
            ("TCP_USER_TIMEOUT", 1000 * (KEEP_ALIVE_IDLE_S + 4 * KEEP_ALIVE_EACH_S)),
        ):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # a socket of another family has none of these
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        if sock.getsockopt(socket.SOL_SOCKET, option) < SOCKET_BUFFER:
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)


class PipeStream(BufferedStream):
    """Two pipes: one to read from, one to write to."""

    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        super().__init__()
        self._source, self._target = source, target

    def send(self, data: bytes, bulk: memoryview | None = None) -> None:
        """Send everything."""
        try:
            for part in (data, bulk):
                view = memoryview(part or b"")
                while len(view):
                    view = view[os.write(self._target.fileno(), view) :]
        except (OSError, ValueError) as error:
            raise StreamEnded(f"the pipe is closed: {error}") from None

    def fileno(self) -> int:
        """What to wait on for bytes to read."""
        return self._source.fileno()

    def _read_some(self, view: memoryview) -> int:
        while self._deadline is not None:
            self._check_deadline()
            if select.select([self._source], [], [], TICK_S)[0]:
                break
        try:
            count = os.readv(self._source.fileno(), [view])
        except (OSError, ValueError) as error:
            raise StreamEnded(f"the pipe is closed: {error}") from None
        if not count:
            raise StreamEnded("the other side closed the pipe")
        return count

    def close(self) -> None:
        """End it; twice does no harm."""
        for pipe in (self._target, self._source):
            with contextlib.suppress(OSError):
                pipe.close()
