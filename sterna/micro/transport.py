"""Byte streams to programs on boards."""

import abc
import time

from sterna.micro.project_api.server import (
    IoTimeoutError,
    TransportClosedError,
    TransportTimeouts,
)

__all__ = ["IoTimeoutError", "Transport", "TransportClosedError", "TransportTimeouts"]


class Transport(abc.ABC):
    """A byte stream. It is open inside a with block."""

    @abc.abstractmethod
    def timeouts(self) -> TransportTimeouts:
        """How long to wait for the program that listens; known once it is open."""

    @abc.abstractmethod
    def open(self) -> None:
        """Reach the program."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave it; nothing happens if that was done."""

    @abc.abstractmethod
    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """One to n bytes; IoTimeoutError, or TransportClosedError at the program's end."""

    @abc.abstractmethod
    def write(self, data: bytes, timeout_sec: float | None) -> None:
        """All the bytes; IoTimeoutError or TransportClosedError if they do not go."""

    def read_exactly(self, n: int, timeout_sec: float) -> bytes:
        """So many bytes, within a time for all of them."""
        deadline, parts = time.monotonic() + timeout_sec, b""
        while len(parts) < n:
            parts += self.read(n - len(parts), max(0.0, deadline - time.monotonic()))
        return parts

    def __enter__(self) -> "Transport":
        self.open()
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
