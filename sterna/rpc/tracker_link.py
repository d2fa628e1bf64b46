"""A server's line to its tracker, in a process of its own so that neither waits for the other."""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from sterna.rpc.addresses import open_stream
from sterna.rpc.errors import RPCError
from sterna.rpc.handshake import TRACKER, Hello, run_client_side
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.processes import close_files_but
from sterna.rpc.settings import ServerSettings
from sterna.rpc.streams import StreamEnded
from sterna.support.options import options

EVERY_S = 2.0
ANSWER_S = 10.0
RETRY_S = 1.0


class TrackerLink:
    """The server's end of the line: tells its state, and hears when to offer itself anew."""

    def __init__(self, settings: ServerSettings, port: int, match_key: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._process = os.fork()
        if self._process == 0:
            _run(theirs, settings, port, match_key)
        theirs.close()

    def tell(self, match_key: str, holder: str) -> None:
        """What the tracker shall know."""
        with contextlib.suppress(OSError):  # its process ended; that is noticed by read
            self.socket.sendall(json.dumps([match_key, holder]).encode() + b"\n")

    def read(self) -> bool:
        """Take what was heard: that the match key is no longer good; False if its process ended."""
        return bool(self.socket.recv(64))

    def end(self) -> None:
        """End the line."""
        self.socket.close()
        os.waitpid(self._process, 0)


def _run(pipe: socket.socket, settings: ServerSettings, port: int, match_key: str) -> NoReturn:
    close_files_but({pipe.fileno()})
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _Line(pipe, settings, port, match_key).run()
    finally:
        os._exit(0)


class _Line:
    def __init__(
        self, pipe: socket.socket, settings: ServerSettings, port: int, match_key: str
    ) -> None:
        self._pipe, self._settings, self._port = pipe, settings, port
        self._state: list[Any] = [match_key, ""]
        self._said = b""
        self._was_lost = False

    def run(self) -> None:
        """Keep the tracker informed until the server ends."""
        assert self._settings.tracker is not None
        host, port = self._settings.tracker
        while True:
            try:
                self._talk(host, port)
            except (RPCError, PermissionError, StreamEnded, TimeoutError, OSError) as error:
                if not self._was_lost and not self._settings.silent:
                    print(f"rpc: no tracker at {host}:{port}: {error}", file=sys.stderr, flush=True)
                self._was_lost = True
            self._listen(RETRY_S)

    def _talk(self, host: str, port: int) -> None:
        stream = open_stream(host, port, self._settings.tls_ca, ANSWER_S)
        try:
            run_client_side(stream, Hello(TRACKER, self._settings.key), options.rpc_secret)
            peer = PlainPeer(stream)
            self._was_lost = False
            while True:
                stream.set_deadline(time.monotonic() + ANSWER_S)
                is_good = peer.call(
                    "tracker.update", self._settings.key, self._settings.custom_addr or "",
                    self._port, *self._state,
                )
                if not is_good:
                    self._pipe.sendall(b"x")
                self._listen(EVERY_S)
        finally:
            stream.close()

    def _listen(self, seconds: float) -> None:
        """Wait for news from the server; it has gone when the pipe is closed."""
        ready, _, _ = select.select([self._pipe], [], [], seconds)
        if not ready:
            return
        news = self._pipe.recv(4096)
        if not news:
            os._exit(0)
        self._said += news
        *lines, self._said = self._said.split(b"\n")
        if lines:
            self._state = json.loads(lines[-1])
