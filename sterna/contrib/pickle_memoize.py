"""Results of functions kept for the next call of the same arguments.

    @memoize("my.reference.data")
    def reference_data(): ...

The classic module keeps them on disk as well, as pickles, which run code of whoever writes there;
here they live as long as the process.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_kept: dict[str, dict[Any, Any]] = {}


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator; functions of one key share what is kept. Each call gets a copy of its own."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            known = _kept.setdefault(key, {})
            asked = (function.__qualname__, args, tuple(sorted(kwargs.items())))
            if asked not in known:
                known[asked] = function(*args, **kwargs)
            made: T = copy.deepcopy(known[asked])
            return made

        return call

    return decorate
