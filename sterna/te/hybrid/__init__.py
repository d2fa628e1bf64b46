"""Hybrid script: tensors by a Python function of loops, which also runs as Python.

    @te.hybrid.script
    def outer(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

Called with tensors it gives what the function returns, as tensors of an opaque operation like those
of te.extern; called with arrays it runs, so that a result can be looked at before it is compiled.
"""

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any

from sterna.ir.expr import Expr
from sterna.te.hybrid.parser import read
from sterna.te.hybrid.runtime import RUNTIME
from sterna.te.hybrid.words import HybridFunction
from sterna.te.tensor import Tensor

__all__ = ["HybridFunction", "script"]


class _Script(HybridFunction):
    """A function that is called with tensors or with arrays."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__(function)
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        if any(isinstance(each, Tensor | Expr) for each in _flat(args)):
            return read(self.function, args)
        own = self.function
        names = {**own.__globals__, **RUNTIME}
        here = FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)
        return here(*args)


def _flat(args: tuple[Any, ...]) -> list[Any]:
    return [part for each in args for part in (each if isinstance(each, list | tuple) else [each])]


def script(function: Callable[..., Any]) -> HybridFunction:
    """The decorator."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise TypeError(f"hybrid.script takes a function of Python with a name, not {function!r}")
    return _Script(function)
