"""Sessions without a network: in this process, on a program of this machine, over a serial line."""

import os
import socket
import threading
import time
import weakref
from typing import Any

from sterna.rpc.addresses import CONNECT_S
from sterna.rpc.client import RPCSession, named
from sterna.rpc.files import SessionFolder
from sterna.rpc.handshake import SESSION, Hello, run_client_side, to_milliseconds
from sterna.rpc.programs import start_program
from sterna.rpc.remote import ClientPeer
from sterna.rpc.serial_line import SerialStream, open_line
from sterna.rpc.serving import ServerPeer
from sterna.rpc.streams import PipeStream, SocketStream
from sterna.support.options import options


class LocalSession(RPCSession):
    """A session in this very process, to try programs with: a thread serves it."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        folder = SessionFolder()

        def serve() -> None:
            ServerPeer(SocketStream(there), folder).serve()
            folder.remove_all()

        threading.Thread(target=serve, name="sterna local session", daemon=True).start()
        super().__init__(ClientPeer(SocketStream(here), "this process"))


class SerialSession(RPCSession):
    """A session on a server at the other end of a serial line."""

    def __init__(
        self, path: str, baud: int = 115200, key: str = "", session_timeout: float = 0
    ) -> None:
        hello = Hello(SESSION, key, to_milliseconds(session_timeout))
        file = open_line(path, baud)
        started = time.monotonic()
        try:
            stream = SerialStream(file, opens=True)
            stream.set_deadline(started + CONNECT_S)
            verdict = run_client_side(stream, hello, options.rpc_secret)
        except BaseException as error:
            os.close(file)
            raise named(error, path) from None
        stream.set_deadline(None)
        super().__init__(
            ClientPeer(stream, path, verdict.most_head, verdict.lasts(hello), started)
        )
        weakref.finalize(self._peer, os.close, file)


class PopenSession(RPCSession):
    """A session on a program of this machine, which serves it over its standard streams."""

    def __init__(self, binary: Any, *args: str) -> None:
        """binary is the program's file, or its bytes."""
        self._program = start_program(binary, args)
        assert self._program.process.stdout and self._program.process.stdin
        stream = PipeStream(self._program.process.stdout, self._program.process.stdin)
        super().__init__(ClientPeer(stream, f"the program '{self._program.name}'"))

    def close(self) -> None:
        """End the session and the program."""
        super().close()
        self._program.end()
