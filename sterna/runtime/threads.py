"""The thread pool that parallel loops run on."""

from sterna.runtime import _core


def num_threads() -> int:
    """How many threads a parallel loop may use, the caller's included."""
    return _core.num_threads()


def set_num_threads(threads: int) -> None:
    """Use this many threads from now on; 0 restores the default."""
    _core.set_num_threads(threads)
