"""What operators that work element by element share: their computation and their reference."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.te import Tensor, compute
from sterna.te.operation import read_broadcast

Scalar = Callable[..., Any]


def elementwise(name: str, scalar: Scalar) -> Callable[..., Tensor]:
    """The computation of scalar(attrs, *elements) on broadcast operands."""

    def compute_it(attrs: Any, out: TensorType, *operands: Tensor) -> Tensor:
        def element(*indices: Any) -> Expr:
            values = [read_broadcast(operand, indices) for operand in operands]
            return build.cast(out.dtype, build.as_expr(scalar(attrs, *values)))

        made: Tensor = compute(out.shape, element, name=f"T_{name.rsplit('.', 1)[-1]}")
        return made

    return compute_it


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that does not warn of infinities and NaN, which are results like others."""

    def silenced(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return silenced


def in_float64(function: Callable[..., Array]) -> Callable[..., Array]:
    """The reference of a function of floats: computed in float64, rounded once."""

    def computed(attrs: Any, *arrays: Array) -> Array:
        wide = [array.astype(np.float64) for array in arrays]
        return np.asarray(function(*wide)).astype(arrays[0].dtype)

    return quiet(computed)
