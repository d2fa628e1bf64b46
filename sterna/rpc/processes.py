"""Processes that end with everything that they started."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Closed at the far end: POLLRDHUP, which other systems than Linux report as POLLHUP.
FAR_END_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end."""
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(sign: int) -> None:
    """Get a signal when the process that started this one ends."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, sign, 0, 0, 0)


def close_files_but(kept: set[int]) -> None:
    """Close all open files but the standard ones and these."""
    below = 3
    for each in sorted(kept | {1 << 16}):
        os.closerange(below, each)
        below = max(below, each + 1)


def children_of(process: int) -> list[int]:
    """The processes that a process started or adopted."""
    if sys.platform != "linux":
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The second field is a name in parentheses that may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process:
                found.append(int(entry.name))
    return found


def _signal(process: int, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(process, signal.SIGKILL)


def end_all_children(leader: int) -> None:
    """Kill a process's group and then, until there are none, all children of this process."""
    _signal(leader, group=True)
    _signal(leader, group=False)
    while True:
        for child in children_of(os.getpid()):
            _signal(child, group=False)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)
