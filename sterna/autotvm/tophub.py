"""Schedules that others have tuned: none are fetched here, untuned kernels start ahead of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sterna.autotvm.dispatch import apply_history_best


@contextmanager
def context(target: Any, extra_files: Sequence[str] | None = None) -> Iterator[None]:
    """What is built inside uses the best of logs; the cost model where they say nothing."""
    with apply_history_best(list(extra_files or ())):
        yield
