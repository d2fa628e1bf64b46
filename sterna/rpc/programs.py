"""Programs that serve a session over their standard input and output."""

import contextlib
import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENDS_WITHIN_S = 2.0


class Program:
    """A program that runs, and ends with this object at the latest."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, folder: Any) -> None:
        self.process, self.name = process, name
        self._finalizer = weakref.finalize(self, _end, process, folder)

    def end(self) -> None:
        """End it with all that it has started."""
        self._finalizer()


def _end(process: subprocess.Popen[bytes], folder: Any) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDS_WITHIN_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if folder is not None:
        folder.cleanup()


def start_program(binary: Any, args: Sequence[str] = (), folder: str | None = None) -> Program:
    """Start a program that is given by its file or by its bytes."""
    made = None
    if isinstance(binary, bytes | bytearray | memoryview):
        made = tempfile.TemporaryDirectory(prefix="sterna-rpc-", dir=folder)
        path = Path(made.name) / "server"
        path.write_bytes(binary)
        path.chmod(0o700)
    else:
        path = Path(binary).absolute()
    try:
        process = subprocess.Popen(
            [str(path), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        if made is not None:
            made.cleanup()
        raise type(error)(f"cannot start '{path}': {error.strerror}") from None
    return Program(process, path.name, made)
