"""Workloads: functions that give tensors, under names, and keys with their arguments."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from sterna.te import Tensor

Workload = Callable[..., Sequence[Tensor]]

W = TypeVar("W", bound=Workload)

WORKLOADS: dict[str, Workload] = {}


@overload
def register_workload(func_name: W, f: None = None, override: bool = False) -> W: ...


@overload
def register_workload(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[W], W]: ...


@overload
def register_workload(func_name: str, f: W, override: bool = False) -> W: ...


def register_workload(func_name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a function that returns its inputs and outputs; bare, with a name, or as a call."""
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(own: Workload) -> Workload:
        before = WORKLOADS.get(func_name)
        if before is not None and not override and before.__qualname__ != own.__qualname__:
            raise RuntimeError(f"{func_name} is registered already; override=True replaces it")
        WORKLOADS[func_name] = own
        return own

    return register if f is None else register(f)


def make_workload_key(func: str | Workload, args: Sequence[Any]) -> str:
    """What is tuned, as text: a registered function and its arguments."""
    name = func if isinstance(func, str) else func.__name__
    find_workload(name)
    return json.dumps([name, *(_plain(arg) for arg in args)])


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """The tensors of a key: the registered function is called with the key's arguments."""
    name, *args = parse_key(workload_key)
    return list(find_workload(name)(*(_value(arg) for arg in args)))


def parse_key(workload_key: str) -> list[Any]:
    """A key's name and arguments. Raises ValueError for what is no key."""
    try:
        found = json.loads(workload_key)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise ValueError(f"this is no workload key: {workload_key[:80]!r}")
    return found


def find_workload(name: str) -> Workload:
    """A registered function by its name."""
    if name not in WORKLOADS:
        known = ", ".join(WORKLOADS) or "none"
        raise ValueError(
            f"no workload '{name}' is registered (there are: {known}); put "
            "@auto_scheduler.register_workload before the function, in this program too"
        )
    return WORKLOADS[name]


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Tensor):
        return ["TENSOR", [int(str(extent)) for extent in value.shape], str(value.dtype)]
    raise TypeError(f"a workload takes numbers, texts and lists of them, not {value!r}")


def _value(value: Any) -> Any:
    return tuple(_value(each) for each in value) if isinstance(value, list) else value
