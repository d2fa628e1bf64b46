"""The process of one session: shakes hands, then serves its client."""

import json
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from typing import NoReturn

from sterna.rpc import frames
from sterna.rpc.chain import make_constructor
from sterna.rpc.files import SessionFolder
from sterna.rpc.handshake import ACCEPTED, SESSION, Hello, Refused, Verdict, run_server_side
from sterna.rpc.processes import end_with_parent
from sterna.rpc.serving import ServerPeer
from sterna.rpc.settings import ServerSettings
from sterna.rpc.streams import SocketStream, StreamEnded
from sterna.runtime import load_extension
from sterna.support.options import options

# From a worker to the server: the client's key, behind its length. The answer: a status.
KEY_LENGTH = struct.Struct("<H")
# From a worker to its guard: the milliseconds that the session may last.
GRANTED = struct.Struct("<Q")


def run_worker(
    sock: socket.socket, control: socket.socket, granted: int, folder: str, settings: ServerSettings
) -> NoReturn:
    """Serve a connection in a process of its own, and end the process."""
    status = 1
    try:
        prepare(folder, settings)
        _serve(sock, control, granted, folder, settings)
        status = 0
    except Refused as error:
        if not settings.silent:
            print(f"rpc: refused: {error}", file=sys.stderr, flush=True)
    except (StreamEnded, TimeoutError, OSError) as error:
        if not settings.silent:
            print(f"rpc: a connection ended: {error}", file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def prepare(folder: str, settings: ServerSettings) -> None:
    """Make the process the session's: its own group, its folder, its limits."""
    end_with_parent(signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    for which, most in settings.limits.of_process():
        _, ceiling = resource.getrlimit(which)
        most = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(which, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write past the limit fails instead


def _serve(
    sock: socket.socket, control: socket.socket, granted: int, folder: str, settings: ServerSettings
) -> None:
    limits = settings.limits
    end = time.monotonic() + limits.handshake_s
    sock.settimeout(limits.handshake_s)
    certificate = settings.certificate()
    if certificate is not None and settings.proxy is None:
        sock = certificate.context().wrap_socket(sock, server_side=True)
    stream = SocketStream(sock)
    stream.set_deadline(end)

    def decide(hello: Hello) -> Verdict:
        key = hello.key.encode()
        control.sendall(KEY_LENGTH.pack(len(key)) + key)
        status = control.recv(1)
        if not status:
            raise StreamEnded("the server was stopped")
        asked = [ms for ms in (hello.timeout_ms, int(limits.session_s * 1000)) if ms]
        timeout_ms = min(asked, default=0)
        if status[0] == ACCEPTED:
            os.write(granted, GRANTED.pack(timeout_ms))
        return Verdict(
            status[0], False, timeout_ms, frames.MOST_HEAD, limits.most_memory, settings.key
        )

    hello = run_server_side(stream, options.rpc_secret, frozenset({SESSION}), decide)
    stream.set_deadline(None)
    for library in settings.load_library if settings.no_fork else ():
        load_extension(library)
    held = SessionFolder(limits.disk_bytes, folder)
    ServerPeer(
        stream, held, hello.most_head, limits.most_memory, make_constructor(stream, held)
    ).serve()


def start_fresh(
    sock: socket.socket, control: socket.socket, granted: int, folder: str, settings: ServerSettings
) -> NoReturn:
    """Become a new interpreter that serves the connection."""
    numbers = [sock.fileno(), control.fileno(), granted]
    for number in numbers:
        os.set_inheritable(number, True)
    task = json.dumps([numbers, folder, settings.to_json()])
    code = f"from {__name__} import main; main()"
    os.execv(sys.executable, [sys.executable, "-c", code, task])


def main() -> NoReturn:
    """What start_fresh starts."""
    (sock, control, granted), folder, settings = json.loads(sys.argv[1])
    run_worker(
        socket.socket(fileno=sock), socket.socket(fileno=control), granted, folder,
        ServerSettings.from_json(settings),
    )

