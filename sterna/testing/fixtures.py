"""Fixtures whose values can be kept between tests."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sterna.testing.cache import FixtureCache

_caches: dict[str, list[FixtureCache]] = {}


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """Declare a fixture, as ``pytest.fixture`` does.

    With ``cache_return_value=True`` the function runs once for each distinct set of its
    arguments, and every test gets its own deep copy of the value. For values that take long to
    compute, such as reference results.
    """
    if func is None:
        return functools.partial(fixture, cache_return_value=cache_return_value)
    return pytest.fixture(_cached(func) if cache_return_value else func)


def _cached(func: Callable[..., Any]) -> Callable[..., Any]:
    name = func.__name__
    if inspect.isgeneratorfunction(func) or inspect.iscoroutinefunction(func):
        raise TypeError(
            f"fixture {name!r} cannot be cached: it must return its value, not yield or await it; "
            "remove cache_return_value=True"
        )
    if "request" in inspect.signature(func).parameters:
        raise TypeError(
            f"fixture {name!r} cannot be cached: it takes `request`, which differs in every test; "
            "take the fixtures it needs by name, or remove cache_return_value=True"
        )
    cache = FixtureCache(name)
    _caches.setdefault(name, []).append(cache)

    @functools.wraps(func)
    def wrapper(*instance: object, **arguments: object) -> Any:
        owner = type(instance[0]) if instance else None
        return cache.get(owner, arguments, lambda: func(*instance, **arguments))

    return wrapper


class CacheLifetimes:
    """Empties each cache after the last test that uses its fixture."""

    def __init__(self, tests: Iterable[Iterable[str]]) -> None:
        """``tests`` gives the names of the fixtures of each test that will run."""
        self._left = Counter(name for names in tests for name in set(names) if name in _caches)

    def finish(self, names: Iterable[str]) -> None:
        """Note that a test with these fixtures has ended."""
        for name in set(names) & self._left.keys():
            self._left[name] -= 1
            if self._left[name] <= 0:
                for cache in _caches[name]:
                    cache.clear()
