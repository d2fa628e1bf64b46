"""Room for walking deep programs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# A function of hundreds of arguments checks them in as many nested steps, each of which takes
# several calls to walk through. Python's own calls need no C stack, so this is no risk.
DEEP = 50_000


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Lets Python's calls nest deeper while the body runs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
