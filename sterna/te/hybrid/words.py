"""What the names of a hybrid script mean that Python does not have, or has for numbers only."""

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from sterna.ir import build
from sterna.tir import op

# Loops by the words that begin them, as ir_builder calls their kinds.
LOOPS = {
    "range": "serial", "serial": "serial", "parallel": "parallel", "vectorize": "vectorize",
    "unroll": "unroll",
}
TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "bfloat16",
)
FUNCTIONS = (
    "abs", "ceil", "cos", "erf", "exp", "floor", "log", "popcount", "power", "round", "rsqrt",
    "sigmoid", "sin", "sqrt", "tan", "tanh", "trunc",
)


class HybridFunction:
    """A function of Python that is read as loops."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        """Tensors of tensors, arrays of arrays."""
        raise NotImplementedError


def _caster(name: str) -> Callable[[Any], Any]:
    return lambda value: build.cast(name, value)


def _extreme(of_two: Callable[..., Any]) -> Callable[..., Any]:
    return lambda first, *others: functools.reduce(of_two, others, first)


WORDS: Mapping[str, Callable[..., Any]] = {
    **{name: _caster(name) for name in TYPES},
    **{name: getattr(op, name) for name in FUNCTIONS},
    "ceil_div": op.ceildiv,
    "len": len,
    "likely": lambda condition: build.call_intrinsic("likely", condition),
    "max": _extreme(build.maximum),
    "min": _extreme(build.minimum),
}
