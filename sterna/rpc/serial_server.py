"""A server at the end of a serial line: one session after the other."""

import hmac
import os
import select
import sys
import time
import traceback
from typing import NoReturn

from sterna.rpc import frames
from sterna.rpc.files import SessionFolder
from sterna.rpc.handshake import (
    ACCEPTED,
    SESSION,
    WRONG_KEY,
    Hello,
    Refused,
    Verdict,
    run_server_side,
)
from sterna.rpc.processes import adopt_orphans, end_all_children
from sterna.rpc.serial_line import SerialStream
from sterna.rpc.serving import ServerPeer
from sterna.rpc.settings import ServerSettings
from sterna.rpc.streams import StreamEnded
from sterna.rpc.worker import GRANTED, prepare
from sterna.support.options import options


def serve_line(file: int, settings: ServerSettings) -> NoReturn:
    """Serve whoever comes at the other end, each in a process of its own."""
    adopt_orphans()
    while True:
        folder = SessionFolder()
        reads, writes = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.close(reads)
            _work(file, writes, str(folder.path), settings)
        os.close(writes)
        _wait(reads)
        os.close(reads)
        end_all_children(worker)
        folder.remove_all()


def _wait(reads: int) -> None:
    """Until the worker has ended, or its session's time is over."""
    left: float | None = None
    while select.select([reads], [], [], left)[0]:
        granted = os.read(reads, GRANTED.size)
        if not granted:
            return
        (milliseconds,) = GRANTED.unpack(granted)
        left = milliseconds / 1000 or None


def _work(file: int, granted: int, folder: str, settings: ServerSettings) -> NoReturn:
    try:
        prepare(folder, settings)
        _serve(file, granted, folder, settings)
    except (Refused, StreamEnded, TimeoutError) as error:
        if not settings.silent:
            print(f"rpc: a session ended: {error}", file=sys.stderr, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(file: int, granted: int, folder: str, settings: ServerSettings) -> None:
    limits = settings.limits
    stream = SerialStream(file, opens=False)

    def decide(hello: Hello) -> Verdict:
        own = settings.key.encode()
        if own and not hmac.compare_digest(hello.key.encode(), own):
            return Verdict(WRONG_KEY)
        asked = [ms for ms in (hello.timeout_ms, int(limits.session_s * 1000)) if ms]
        timeout_ms = min(asked, default=0)
        os.write(granted, GRANTED.pack(timeout_ms))
        return Verdict(
            ACCEPTED, False, timeout_ms, frames.MOST_HEAD, limits.most_memory, settings.key
        )

    stream.wait_for_bytes()
    stream.set_deadline(time.monotonic() + limits.handshake_s)
    hello = run_server_side(stream, options.rpc_secret, frozenset({SESSION}), decide)
    stream.set_deadline(None)
    held = SessionFolder(limits.disk_bytes, folder)
    ServerPeer(stream, held, hello.most_head, limits.most_memory).serve()
