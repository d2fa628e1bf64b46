"""Background specialisation: shapes that are called often get programs of their own, meanwhile.

One thread works at a time, and ends when nothing is left to do. What it has made takes the place of
the symbolic program between two calls.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable

from sterna.ir.transform import register_config

HOT_AFTER = "model.specialise_after"
# Shapes of which calls are counted.
MOST_COUNTED = 4096

register_config(
    HOT_AFTER, int, 64,
    "how many calls of one shape let an open model compile a program for it in the background; "
    "0: never",
)


class Background:
    """Work that is done once for what is met often enough."""

    def __init__(self, often: int) -> None:
        self.often = often
        self._met: Counter[Hashable] = Counter()
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.is_cancelled = False

    def met(self, what: Hashable, work: Callable[[], None]) -> None:
        """Count one more; the work begins when there were enough."""
        if self.often <= 0 or self.is_cancelled:
            return
        with self._lock:
            if len(self._met) >= MOST_COUNTED:
                self._met.clear()
            self._met[what] += 1
            if self._met[what] != self.often:
                return
            self._waiting.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sterna specialises")
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self.is_cancelled or not self._waiting:
                    self._waiting.clear()
                    self._thread = None
                    return
                work = self._waiting.popleft()
            work()

    def cancel(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        self.is_cancelled = True
        self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
