"""The global function registry: the process's functions by name."""

import difflib
from collections.abc import Callable
from typing import Any, Literal, overload

from sterna.runtime import _core
from sterna.runtime._core import PackedFunc

AnyCallable = Callable[..., Any]


@overload
def register_func(func_name: AnyCallable) -> PackedFunc: ...
@overload
def register_func(func_name: str, f: AnyCallable, override: bool = False) -> PackedFunc: ...
@overload
def register_func(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[AnyCallable], PackedFunc]: ...


def register_func(
    func_name: str | AnyCallable, f: AnyCallable | None = None, override: bool = False
) -> PackedFunc | Callable[[AnyCallable], PackedFunc]:
    """Register a function under a name, or under its own.

    Works as register_func("name", f), as @register_func("name") and as @register_func, and gives
    the packed function. A name that is taken is a ValueError unless override is set.
    """
    if not isinstance(func_name, str):
        name = getattr(func_name, "__name__", None)
        if name is None:
            raise TypeError(f"{func_name!r} has no name of its own; give one")
        return register_func(name, func_name, override)
    if f is None:
        return lambda decorated: register_func(func_name, decorated, override)
    return _core.register_global(func_name, f, override)


@overload
def get_global_func(name: str, allow_missing: Literal[False] = False) -> PackedFunc: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunc | None: ...


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """The function registered under a name; a missing one is a ValueError, or None if allowed."""
    found = _core.get_global(name)
    if found is None and not allow_missing:
        near = difflib.get_close_matches(name, _core.list_globals(), n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"no function named '{name}' is registered{hint}")
    return found


def list_global_func_names() -> list[str]:
    """The names of all registered functions, sorted."""
    return _core.list_globals()


def remove_global_func(name: str) -> None:
    """Forget a registered function; a missing one is a ValueError."""
    _core.remove_global(name)
