"""The values kept by cached fixtures."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np

from sterna import runtime
from sterna.runtime import ndarray as nd

_OPAQUE = (type, types.ModuleType, types.FunctionType, np.ndarray)


class FixtureCache:
    """The values of one fixture, one for each distinct set of arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values: dict[Hashable, Any] = {}

    def get(
        self, owner: type | None, arguments: Mapping[str, object], make: Callable[[], Any]
    ) -> Any:
        """A copy of the value for these arguments, made by ``make()`` the first time.

        ``owner`` is the test class for a fixture that is a method.
        """
        key = (owner, tuple((name, self._key(name, arguments[name])) for name in sorted(arguments)))
        if key not in self._values:
            self._values[key] = make()
        return self._copy(self._values[key])

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def _key(self, argument: str, value: object) -> Hashable:
        try:
            return _freeze(value)
        except Exception as error:
            raise TypeError(
                f"cached fixture {self.name!r} cannot tell the values of its argument "
                f"{argument!r} (a {type(value).__name__}) apart: {error}. Make them picklable or "
                "hashable, or remove cache_return_value=True."
            ) from error

    def _copy(self, value: Any) -> Any:
        try:
            memo: dict[int, Any] = {id(array): _copy_array(array) for array in _find_arrays(value)}
            return copy.deepcopy(value, memo)
        except Exception as error:
            raise TypeError(
                f"cached fixture {self.name!r} returned a {type(value).__name__}, which cannot be "
                f"deep-copied for each test: {error}. Return values that can be copied, or remove "
                "cache_return_value=True."
            ) from error


def _copy_array(array: runtime.NDArray) -> runtime.NDArray:
    return nd.array(array.numpy(), array.device)


def _find_arrays(value: object) -> Iterable[runtime.NDArray]:
    """The NDArrays in a value, in containers and in the attributes of objects."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, runtime.NDArray):
            yield item
        elif isinstance(item, _OPAQUE):
            continue
        elif isinstance(item, dict):
            todo.extend(item.keys())
            todo.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo.extend(item)
        else:
            todo.extend(_attributes(item))


def _attributes(item: object) -> Iterable[object]:
    yield from getattr(item, "__dict__", {}).values()
    for cls in type(item).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(item, name):
                yield getattr(item, name)


def _freeze(value: object) -> Hashable:
    """A hashable stand-in that is the same for equal values of the same type."""
    kind = type(value)
    if value is None or kind in (str, bytes, int, bool):
        return (kind, value)
    if kind in (float, complex):
        # repr() tells 0.0 from -0.0, and NaN is the same as NaN.
        return (kind, repr(value))
    if isinstance(value, (type, types.FunctionType)):
        return (kind, value)
    if isinstance(value, runtime.NDArray):
        return (kind, str(value.device), _freeze(value.numpy()))
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return (kind, value.dtype, value.shape, value.tobytes())
    if type(value) is dict:
        return (kind, tuple((_freeze(key), _freeze(item)) for key, item in value.items()))
    if type(value) in (list, tuple):
        return (kind, tuple(_freeze(item) for item in cast(Sequence[object], value)))
    if type(value) in (set, frozenset):
        return (kind, frozenset(_freeze(item) for item in cast(AbstractSet[object], value)))
    try:
        return (kind, pickle.dumps(value))
    except Exception:
        # What cannot be pickled is told apart by its own equality.
        if isinstance(value, Hashable):
            return (kind, value)
        raise
