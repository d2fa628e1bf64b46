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
    said: bytes = b""


class ServerLoop:
    """Serves connections until it is told to end. It has one thread: it forks."""

    def __init__(self, listener: socket.socket | None, settings: ServerSettings) -> None:
        """Without a listener it waits for clients at a proxy."""
        self._listener, self._settings = listener, settings
        self._line: ProxyLine | None = None
        self._connections: dict[int, Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._is_accepting = False
        self._was_lost = False
        self._match_key = self._new_match_key()
        self._link: TrackerLink | None = None

    def run(self, alive: int | None = None) -> None:
        """Serve until alive, a pipe that whoever started the server holds, is closed."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, _leave)
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
                self._accept_if_there_is_room()
                is_lost = settings.proxy is not None and self._is_accepting and self._line is None
                for key, _ in self._selector.select(RETRY_S if is_lost else None):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._line:
                        self._hear_from_proxy()
                    elif key.fd == alive:
                        return
                    elif self._link is not None and key.fileobj is self._link.socket:
                        self._hear_from_tracker(self._link)
                    else:
                        self._hear(self._connections[key.fd])
        finally:
            self._end()

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._line is not None:
            self._line.close()
        for connection in self._connections.values():
            connection.control.close()
        if self._link is not None:
            self._link.end()
        for connection in self._connections.values():
            os.waitpid(connection.guard, 0)

    # ---- connections ----

    def _accept_if_there_is_room(self) -> None:
        limits = self._settings.limits
        sessions = sum(each.is_session for each in self._connections.values())
        has_room = len(self._connections) - sessions < limits.handshakes
        if self._listener is None:
            self._is_accepting = has_room and not 0 < limits.sessions <= len(self._connections)
            if self._is_accepting and self._line is None:
                self._wait_at_proxy()
            return
        if has_room and not self._is_accepting:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._is_accepting and not has_room:
            self._selector.unregister(self._listener)
        self._is_accepting = has_room

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, address = self._listener.accept()
        except OSError:
            return  # the client has gone meanwhile
        self._begin(sock, f"{address[0]}:{address[1]}")

    def _begin(self, sock: socket.socket, client: str) -> None:
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
        connection.said += said
        if len(connection.said) < KEY_LENGTH.size:
            return
        (length,) = KEY_LENGTH.unpack_from(connection.said)
        if len(connection.said) < KEY_LENGTH.size + length or connection.is_session:
            return
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
