"""Choices on a tape: drawn from a seed and recorded, or replayed.

A case is what a generator makes of the numbers. A tape that ends too early goes on with zeros, and
a number that is too large for what is asked wraps around: any list of numbers is a case.
"""

import random
from collections.abc import Callable, Sequence

_FRACTION = 1 << 53


class Tape(random.Random):
    """Python's generator of random numbers, with a memory."""

    def __init__(
        self, seed: int | None = None, values: Sequence[int] = (),
        listen: Callable[[int], None] = lambda value: None,
    ) -> None:
        """seed: where new numbers come from; None: values are replayed. listen: is told of all."""
        super().__init__(0)
        self.values: list[int] = []
        self._source = None if seed is None else random.Random(seed)
        self._given = values
        self._listen = listen

    def seed(self, *args: object) -> None:
        """It has one of its own."""

    def _draw(self, bound: int) -> int:
        if self._source is not None:
            value = self._source.randrange(bound)
        else:
            place = len(self.values)
            value = self._given[place] % bound if place < len(self._given) else 0
        self.values.append(value)
        self._listen(value)
        return value

    def _randbelow(self, n: int) -> int:
        return self._draw(n)

    def getrandbits(self, k: int) -> int:
        """A number of so many bits."""
        return self._draw(1 << k) if k else 0

    def random(self) -> float:
        """A number from 0 to 1, without 1."""
        return self._draw(_FRACTION) / _FRACTION
