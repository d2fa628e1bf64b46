"""Attributes that are computed when they are first asked for, by one thread only."""

from collections.abc import Callable
from threading import RLock
from typing import Generic, Self, TypeVar, overload

T = TypeVar("T")


class computed_once(Generic[T]):  # a decorator, named like functools.cached_property
    """A cached property whose function runs once, however many threads ask at the same time.

    functools.cached_property has no lock any more: threads that lose a race would hold values that
    nobody else knows, such as code that is freed under their feet.
    """

    def __init__(self, function: Callable[..., T]) -> None:
        self.function, self.lock = function, RLock()
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        held = instance.__dict__
        with self.lock:
            if self.name not in held:
                held[self.name] = self.function(instance)
        value: T = held[self.name]
        return value
