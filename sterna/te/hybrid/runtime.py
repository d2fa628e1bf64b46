"""A hybrid script as a program of Python: what its own words do with arrays of NumPy."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sterna.support.numpy_dtype import numpy_dtype
from sterna.te.hybrid.words import LOOPS, TYPES


def _zeros(shape: Any, dtype: str = "float32", scope: str = "global") -> Any:
    return np.zeros(shape, numpy_dtype(dtype))


def _caster(name: str) -> Callable[[Any], Any]:
    return lambda value: np.asarray(value).astype(numpy_dtype(name))[()]


def _rounded(x: Any) -> Any:
    """Halves away from 0, as compiled."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


RUNTIME: Mapping[str, Any] = {
    **dict.fromkeys([*LOOPS, "const_range"], range),
    **{name: _caster(name) for name in TYPES if name != "bool"},
    **{
        name: getattr(np, name)
        for name in ("ceil", "cos", "exp", "floor", "log", "sin", "sqrt", "tan", "tanh", "trunc")
    },
    "allocate": _zeros,
    "bind": lambda tag, extent: range(extent),
    "ceil_div": lambda a, b: -(-a // b),
    "erf": math.erf,
    "likely": lambda condition: condition,
    "output_tensor": _zeros,
    "popcount": lambda x: int(x).bit_count(),
    "power": np.power,
    "round": _rounded,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
