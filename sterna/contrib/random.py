"""Random tensors by NumPy's generator, as opaque operations of this process."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna import te
from sterna.runtime import NDArray, register_func
from sterna.support.dtype import DataType
from sterna.support.numpy_dtype import numpy_dtype
from sterna.tir.external import call_packed

PREFIX = "tvm.contrib.random."
_generator = np.random.default_rng()


def _put(out: NDArray, values: Any) -> None:
    out.copyfrom(np.asarray(values).astype(numpy_dtype(str(out.dtype))))


def _seed(number: int) -> None:
    global _generator
    _generator = np.random.default_rng(number)


def _randint(low: int, high: int, out: NDArray) -> None:
    _put(out, _generator.integers(low, high, out.shape))


def _uniform(low: float, high: float, out: NDArray) -> None:
    _put(out, _generator.uniform(low, high, out.shape))


def _normal(loc: float, scale: float, out: NDArray) -> None:
    _put(out, _generator.normal(loc, scale, out.shape))


def _fill(out: NDArray) -> None:
    if DataType(out.dtype).is_float:
        _uniform(-1.0, 1.0, out)
    else:
        _randint(0, 2 if DataType(out.dtype).is_bool else 100, out)


_functions: dict[str, Callable[..., None]] = {
    "seed": _seed, "randint": _randint, "uniform": _uniform, "normal": _normal,
    "random_fill": _fill,
}
for _name, _function in _functions.items():
    register_func(PREFIX + _name, _function, override=True)


def _tensor(name: str, size: Sequence[int], dtype: str, *numbers: int | float) -> te.Tensor:
    made: te.Tensor = te.extern(
        size, [], lambda ins, outs: call_packed(PREFIX + name, *numbers, outs[0]),
        name=name, dtype=dtype,
    )
    return made


def randint(low: int, high: int, size: Sequence[int], dtype: str = "int32") -> te.Tensor:
    """Whole numbers from low to high - 1."""
    return _tensor("randint", size, dtype, int(low), int(high))


def uniform(low: float, high: float, size: Sequence[int]) -> te.Tensor:
    """Numbers from low to high."""
    return _tensor("uniform", size, "float32", float(low), float(high))


def normal(loc: float, scale: float, size: Sequence[int]) -> te.Tensor:
    """Numbers around loc, with this standard deviation."""
    return _tensor("normal", size, "float32", float(loc), float(scale))
