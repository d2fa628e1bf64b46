"""Functions that do one thing or another by the target that is current."""

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from sterna.target.target import Target

Function = Callable[..., Any]


class GenericFunc:
    """A function, and others that take its place for targets with a key."""

    def __init__(self, default: Function) -> None:
        self._default = default
        self._by_key: dict[str, Function] = {}
        update_wrapper(self, default)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target = Target.current(allow_none=True)
        keys = () if target is None else target.keys
        found = next((self._by_key[key] for key in keys if key in self._by_key), self._default)
        return found(*args, **kwargs)

    def register(
        self, key: str | Sequence[str], func: Function | None = None, override: bool = False
    ) -> Any:
        """Make a function the one for targets with a key; without it a decorator."""
        if func is None:
            return lambda decorated: self.register(key, decorated, override)
        for each in [key] if isinstance(key, str) else key:
            if each in self._by_key and not override:
                raise ValueError(
                    f"{self._default.__name__} has a function for {each} already; override=True "
                    "replaces it"
                )
            self._by_key[each] = func
        return func

    def set_default(self, func: Function, allow_override: bool = False) -> None:
        """Make a function the one for targets without a key of others."""
        if not allow_override:
            raise ValueError(
                f"{self._default.__name__} has a default already; allow_override=True replaces it"
            )
        self._default = func


def generic_func(default: Function) -> GenericFunc:
    """The decorator: what it decorates is the default."""
    return GenericFunc(default)


_named: dict[str, GenericFunc] = {}


def override_native_generic_func(func_name: str) -> Callable[[Function], GenericFunc]:
    """A decorator for a function that others may find by get_native_generic_func."""

    def decorate(function: Function) -> GenericFunc:
        made = _named.setdefault(func_name, GenericFunc(function))
        made.set_default(function, allow_override=True)
        return made

    return decorate


def get_native_generic_func(name: str) -> GenericFunc:
    """The function that override_native_generic_func made under a name."""
    if name not in _named:
        raise ValueError(f"no generic function is named '{name}'")
    return _named[name]
