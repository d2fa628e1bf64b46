"""What tuning takes, by what it does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sterna.support.table import lay_out

_current: ContextVar["Profiler | None"] = ContextVar("profiler", default=None)


class Profiler:
    """Seconds by row, of everything that is tuned inside of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begin = 0.0

    def __enter__(self) -> "Profiler":
        self._begin = time.perf_counter()
        self._token = _current.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _current.reset(self._token)
        self.seconds["Total"] = time.perf_counter() - self._begin

    def get(self) -> dict[str, float]:
        """Seconds by row."""
        return dict(self.seconds)

    def table(self) -> str:
        """The rows as a table."""
        total = self.seconds.get("Total", 0.0) or 1.0
        return lay_out([
            ("Name", list(self.seconds)),
            ("Time (s)", [f"{seconds:.3f}" for seconds in self.seconds.values()]),
            ("Percentage", [f"{seconds / total:.1%}" for seconds in self.seconds.values()]),
        ])

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Count what is done inside to a row of the profiler around, if there is one."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            profiler = _current.get()
            if profiler is not None:
                taken = time.perf_counter() - begin
                profiler.seconds[name] = profiler.seconds.get(name, 0.0) + taken
