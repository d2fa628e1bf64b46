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

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

_kept: dict[str, dict[Any, Any]] = {}


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator; functions of one key share what is kept. Each call gets a copy of its own.

    What a function takes from around it tells its results apart as its arguments do.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            known = _kept.setdefault(key, {})
            around = [cell.cell_contents for cell in function.__closure__ or ()]
            asked = function.__qualname__, *map(_as_key, (around, args, sorted(kwargs.items())))
            if asked not in known:
                known[asked] = function(*args, **kwargs)
            made: T = copy.deepcopy(known[asked])
            return made

        return call

    return decorate


def _as_key(value: Any) -> Any:
    """What tells a value from others, also from those that are equal but of another type."""
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_as_key, value))
    if isinstance(value, dict):
        return dict, tuple((name, _as_key(each)) for name, each in value.items())
    if isinstance(value, np.ndarray):
        return np.ndarray, value.shape, str(value.dtype), value.tobytes()
    return type(value), value
