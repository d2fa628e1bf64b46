"""The server: listens, gives each connection a guard, and tells a tracker when it is free."""

import contextlib
import hmac
import os
import secrets
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from sterna.rpc.errors import RPCError
from sterna.rpc.guard import run_guard
from sterna.rpc.half_open import HalfOpen
from sterna.rpc.handshake import ACCEPTED, BUSY, MOST_KEY, WRONG_KEY
from sterna.rpc.proxied import ProxyLine
from sterna.rpc.settings import ServerSettings
from sterna.rpc.tracker_link import TrackerLink
from sterna.rpc.worker import KEY_LENGTH
from sterna.runtime import load_extension
from sterna.support.classic import classic_names

RETRY_S = 1.0


@dataclass(slots=True)
class Connection:
    """A connection, its guard, and whether it has become a session."""

    control: socket.socket
    guard: int
    client: str
    is_session: bool = False
    is_turned_out: bool = False
    said: bytes = b""


class ServerLoop:
    """Serves connections until it is told to end. It has one thread: it forks."""

    def __init__(self, listener: socket.socket | None, settings: ServerSettings) -> None:
        """Without a listener it waits for clients at a proxy."""
        self._listener, self._settings = listener, settings
        self._line: ProxyLine | None = None
        self._connections: dict[int, Connection] = {}
        self._selector = selectors.DefaultSelector()
        limits = settings.limits
        self._half_open: HalfOpen[int] = HalfOpen(limits.handshakes, limits.handshakes_each)
        self._at_the_door: tuple[socket.socket, str, int] | None = None
        self._is_accepting = False
        self._was_lost = False
        self._match_key = self._new_match_key()
        self._link: TrackerLink | None = None

    def run(self, alive: int | None = None) -> None:
        """Serve until alive, a pipe that whoever started the server holds, is closed."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, _leave)
        # What a handler raises is lost where Python forks; a byte that came is not.
        woken, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(woken, selectors.EVENT_READ)
        settings = self._settings
        for library in () if settings.no_fork else settings.load_library:
            load_extension(library)
        if settings.tracker is not None:
            self._link = self._new_link()
        if alive is not None:
            self._selector.register(alive, selectors.EVENT_READ)
        if self._listener is not None:
            self._listener.setblocking(False)
        try:
            while True:
                for key, _ in self._selector.select(self._accept_or_wait()):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._line:
                        self._hear_from_proxy()
                    elif key.fd == alive or key.fileobj is woken:
                        return
                    elif self._link is not None and key.fileobj is self._link.socket:
                        self._hear_from_tracker(self._link)
                    else:
                        self._hear(self._connections[key.fd])
        finally:
            signal.set_wakeup_fd(-1)
            self._end()
            woken.close()
            waker.close()

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._at_the_door is not None:
            self._at_the_door[0].close()
        if self._line is not None:
            self._line.close()
        for connection in self._connections.values():
            connection.control.close()
        if self._link is not None:
            self._link.end()
        for connection in self._connections.values():
            os.waitpid(connection.guard, 0)

    # ---- connections ----

    def _accept_or_wait(self) -> float | None:
        """Make ready for the next client; how long to wait until something is to be done again."""
        if self._listener is None:
            return self._look_at_proxy()
        seconds = None if self._at_the_door is None else self._let_in(*self._at_the_door)
        is_accepting = self._at_the_door is None
        if is_accepting and not self._is_accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._is_accepting and not is_accepting:
            self._selector.unregister(self._listener)
        self._is_accepting = is_accepting
        return seconds

    def _look_at_proxy(self) -> float | None:
        """Wait at the proxy if a client may come; how long until that is tried again."""
        most = self._settings.limits.sessions
        may_come = not 0 < most <= len(self._connections)
        if may_come and self._line is None:
            self._wait_at_proxy()
        return RETRY_S if may_come and self._line is None else None

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except OSError:
            return  # the client has gone meanwhile
        self._at_the_door = sock, address[0], address[1]

    def _let_in(self, sock: socket.socket, host: str, port: int) -> float | None:
        """Begin with who has come, in place of the oldest stranger; else how long that stays."""
        while (found := self._half_open.in_the_way(host)) is not None:
            control, seconds = found
            if seconds:
                return seconds
            self._turn_out(self._connections[control])
        self._at_the_door = None
        self._begin(sock, f"{host}:{port}", host)
        return None

    def _turn_out(self, connection: Connection) -> None:
        """End a connection that has not proved itself; its guard says when that is done."""
        self._half_open.discard(connection.control.fileno())
        connection.is_turned_out = True
        connection.control.shutdown(socket.SHUT_WR)

    def _begin(self, sock: socket.socket, client: str, host: str | None = None) -> None:
        """Give a connection its guard. host: of a stranger, who has yet to prove himself."""
        try:
            ours, theirs = socket.socketpair()
            guard = os.fork()
        except OSError as error:  # the machine has no more processes or files to give
            self._say(f"{client} cannot be served: {error}")
            sock.close()
            return
        if guard == 0:
            run_guard(sock, theirs, self._settings)
        sock.close()
        theirs.close()
        self._connections[ours.fileno()] = Connection(ours, guard, client)
        if host is not None:
            self._half_open.add(ours.fileno(), host)
        self._selector.register(ours, selectors.EVENT_READ)

    def _wait_at_proxy(self) -> None:
        assert self._settings.proxy is not None
        where = "the proxy at {}:{}".format(*self._settings.proxy)
        try:
            self._line = ProxyLine(self._settings)
        except (RPCError, PermissionError, OSError) as error:
            if not self._was_lost:
                self._say(f"{where} cannot be reached: {error}")
            self._was_lost = True
            return
        self._was_lost = False
        self._say(f"waits for a client at {where}")
        self._selector.register(self._line, selectors.EVENT_READ)
        if self._line.has_read_ahead():
            self._hear_from_proxy()

    def _hear_from_proxy(self) -> None:
        assert self._line is not None
        try:
            stream = self._line.hear()
        except RPCError as error:
            self._say(f"the proxy has gone: {error}")
            self._selector.unregister(self._line)
            self._line.close()
            self._line = None
            return
        if stream is not None:
            self._selector.unregister(self._line)
            self._line = None
            self._begin(stream.socket, "a client of the proxy")

    def _hear(self, connection: Connection) -> None:
        """A worker asks whether its client may come in, or its guard has ended."""
        try:
            said = connection.control.recv(KEY_LENGTH.size + MOST_KEY)
        except OSError:
            said = b""
        if not said:
            self._forget(connection)
            return
        if connection.is_turned_out:
            return
        connection.said += said
        if len(connection.said) < KEY_LENGTH.size:
            return
        (length,) = KEY_LENGTH.unpack_from(connection.said)
        if len(connection.said) < KEY_LENGTH.size + length or connection.is_session:
            return
        self._half_open.discard(connection.control.fileno())
        status = self._decide(connection.said[KEY_LENGTH.size :])
        if status == ACCEPTED:
            connection.is_session = True
            self._say(f"session of {connection.client} begins")
            if self._link is not None:
                self._match_key = ""
                self._link.tell("", connection.client)
        with contextlib.suppress(OSError):  # it has ended; that is noticed next
            connection.control.sendall(bytes([status]))

    def _decide(self, key: bytes) -> int:
        settings = self._settings
        sessions = sum(each.is_session for each in self._connections.values())
        if self._link is not None:
            good = self._match_key.encode()
            return ACCEPTED if good and hmac.compare_digest(key, good) else WRONG_KEY
        if settings.key and not hmac.compare_digest(key, settings.key.encode()):
            return WRONG_KEY
        return BUSY if 0 < settings.limits.sessions <= sessions else ACCEPTED

    def _forget(self, connection: Connection) -> None:
        self._selector.unregister(connection.control)
        self._half_open.discard(connection.control.fileno())
        del self._connections[connection.control.fileno()]
        connection.control.close()
        os.waitpid(connection.guard, 0)
        if connection.is_session:
            self._say(f"session of {connection.client} has ended")
            self._offer_again()

    # ---- the tracker ----

    def _new_link(self) -> TrackerLink:
        assert self._listener is not None
        link = TrackerLink(self._settings, self._listener.getsockname()[1], self._match_key)
        self._selector.register(link.socket, selectors.EVENT_READ)
        return link

    def _hear_from_tracker(self, link: TrackerLink) -> None:
        if not link.read():  # somebody killed its process
            self._selector.unregister(link.socket)
            link.end()
            self._link = self._new_link()
        self._offer_again()

    def _new_match_key(self) -> str:
        return f"{self._settings.key}:{secrets.token_hex(8)}"

    def _offer_again(self) -> None:
        """Tell the tracker a new match key, if no session is on."""
        if self._link is not None and not any(c.is_session for c in self._connections.values()):
            self._match_key = self._new_match_key()
            self._link.tell(self._match_key, "")

    def _say(self, text: str) -> None:
        if not self._settings.silent:
            print(f"rpc: {text}", file=sys.stderr, flush=True)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


__getattr__ = classic_names(__name__)
