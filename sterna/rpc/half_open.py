"""Connections that have not proved themselves: who must go for one more of them.

A place is never refused for good: whoever comes takes that of the oldest one, of its own address if
that has its share. An honest client needs a moment for its handshake and gets it: connections are
left alone for GRACE_S, so that whoever fills all places keeps others waiting no longer than that.
"""

import time
from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

GRACE_S = 1.0

Key = TypeVar("Key", bound=Hashable)


class HalfOpen(Generic[Key]):
    """The connections of a server that are in their handshake, oldest first."""

    def __init__(self, most: int, most_each: int) -> None:
        """most_each: how many of one address."""
        self._most, self._most_each = most, most_each
        self._since: dict[Key, tuple[str, float]] = {}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: Key, address: str) -> None:
        """A connection has come in."""
        self._since[key] = address, time.monotonic()
        self._of[address] += 1

    def discard(self, key: Key) -> None:
        """It has proved itself, or has ended; twice does no harm."""
        found = self._since.pop(key, None)
        if found is not None:
            self._of[found[0]] -= 1
            self._of += Counter()  # forgets addresses that have none left

    def in_the_way(self, address: str) -> tuple[Key, float] | None:
        """What must go before one more of an address, and how many seconds it may stay; if any."""
        if self._of[address] >= self._most_each:
            candidates = ((k, since) for k, (of, since) in self._since.items() if of == address)
        elif len(self._since) >= self._most:
            candidates = ((k, since) for k, (_, since) in self._since.items())
        else:
            return None
        key, since = next(candidates)
        return key, max(0.0, since + GRACE_S - time.monotonic())
