"""The process that watches over one session and ends it with all that it started."""

import os
import select
import signal
import socket
import time
from typing import NoReturn

from sterna.rpc.files import SessionFolder
from sterna.rpc.processes import (
    FAR_END_CLOSED,
    adopt_orphans,
    close_files_but,
    end_all_children,
)
from sterna.rpc.settings import ServerSettings
from sterna.rpc.worker import GRANTED, run_worker, start_fresh

# A worker whose client has gone may finish by itself for so long.
LEAVES_WITHIN_S = 0.3


def run_guard(sock: socket.socket, control: socket.socket, settings: ServerSettings) -> NoReturn:
    """Serve a connection by a worker, and end when nothing of it is left."""
    close_files_but({sock.fileno(), control.fileno()})
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    adopt_orphans()
    folder = SessionFolder()
    try:
        reads, writes = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.close(reads)
            start = start_fresh if settings.no_fork else run_worker
            start(sock, control, writes, str(folder.path), settings)
        os.close(writes)
        _watch(sock, control, reads, worker, settings)
        end_all_children(worker)
    finally:
        folder.remove_all()
        os._exit(0)


def _watch(
    sock: socket.socket, control: socket.socket, reads: int, worker: int, settings: ServerSettings
) -> None:
    """Wait until the worker has ended, or must."""
    poll = select.poll()
    # What the worker started may hold its end of the pipe open; its number alone tells its end.
    ended = os.pidfd_open(worker) if hasattr(os, "pidfd_open") else -1
    if ended >= 0:
        poll.register(ended, select.POLLIN)
    poll.register(reads, select.POLLIN)
    poll.register(sock, FAR_END_CLOSED)
    poll.register(control, FAR_END_CLOSED)
    end: float | None = time.monotonic() + settings.limits.handshake_s + LEAVES_WITHIN_S
    while end is None or time.monotonic() < end:
        left = None if end is None else max(1, 1000 * (end - time.monotonic()))
        for each, _ in poll.poll(left):
            if each == ended:
                return
            if each == reads:
                granted = os.read(reads, GRANTED.size)
                if len(granted) < GRANTED.size:
                    return  # the worker has ended
                (milliseconds,) = GRANTED.unpack(granted)
                end = time.monotonic() + milliseconds / 1000 if milliseconds else None
            else:
                poll.unregister(each)
                soon = time.monotonic() + LEAVES_WITHIN_S
                end = soon if end is None else min(end, soon)
