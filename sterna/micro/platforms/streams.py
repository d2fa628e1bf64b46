"""Byte streams: of a program that was started here, and of a serial port."""

import contextlib
import os
import select
import subprocess
import termios
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sterna.micro.project_api.server import IoTimeoutError, TransportClosedError

GRACE = 5.0
SPEEDS = {
    int(name[1:]): getattr(termios, name)
    for name in dir(termios)
    if name[0] == "B" and name[1:].isdigit() and name != "B0"
}


class Stream(Protocol):
    """Something to read from and write to, with times in seconds; None waits for ever."""

    def read(self, most: int, seconds: float | None) -> bytes:
        """One to so many bytes."""

    def write(self, data: bytes, seconds: float | None) -> None:
        """All of them."""

    def close(self) -> None:
        """The end."""


def read_some(descriptor: int, most: int, seconds: float | None) -> bytes:
    """What has come, one byte at least; nothing at all when the other end is closed."""
    if not select.select([descriptor], [], [], seconds)[0]:
        raise IoTimeoutError(f"nothing came within {seconds} s")
    with contextlib.suppress(OSError):  # a terminal whose other end is gone
        return os.read(descriptor, most)
    return b""


def write_all(descriptor: int, data: bytes, seconds: float | None) -> None:
    """Write everything to a descriptor that does not block."""
    deadline = None if seconds is None else time.monotonic() + seconds
    left = memoryview(data)
    while left:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([], [descriptor], [], wait)[1]:
            raise IoTimeoutError(f"{len(left)} bytes could not be sent within {seconds} s")
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(descriptor, left) :]


class ProcessStream:
    """A program's standard input and output."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._name = Path(command[0]).name
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def read(self, most: int, seconds: float | None) -> bytes:
        """What the program wrote."""
        data = read_some(self._out.fileno(), most, seconds)
        if not data:
            raise self._gone()
        return data

    def write(self, data: bytes, seconds: float | None) -> None:
        """What the program is to read."""
        try:
            write_all(self._in.fileno(), data, seconds)
        except BrokenPipeError:
            raise self._gone() from None

    def _gone(self) -> TransportClosedError:
        """It closed its output; its status says whether all went well."""
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return TransportClosedError(f"{self._name} closed its output")
        return TransportClosedError(f"{self._name} ended with status {status}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()


class TtyStream:
    """A serial port, as raw bytes."""

    def __init__(self, port: str, baud: int) -> None:
        if baud not in SPEEDS:
            raise ValueError(f"baud {baud}: a port runs at {', '.join(map(str, sorted(SPEEDS)))}")
        self._port = port
        self._descriptor = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            tty.setraw(self._descriptor)
            settings = termios.tcgetattr(self._descriptor)
            settings[4] = settings[5] = SPEEDS[baud]
            termios.tcsetattr(self._descriptor, termios.TCSANOW, settings)
        except termios.error as error:
            os.close(self._descriptor)
            raise ValueError(f"'{port}' is no serial port: {error}") from None

    def read(self, most: int, seconds: float | None) -> bytes:
        """What came on the line."""
        data = read_some(self._descriptor, most, seconds)
        if not data:
            raise TransportClosedError(f"{self._port} is gone")
        return data

    def write(self, data: bytes, seconds: float | None) -> None:
        """Send on the line."""
        try:
            write_all(self._descriptor, data, seconds)
        except OSError:
            raise TransportClosedError(f"{self._port} is gone") from None

    def close(self) -> None:
        """Leave the port."""
        os.close(self._descriptor)
