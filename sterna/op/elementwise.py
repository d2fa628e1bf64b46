"""What operators that work element by element share: their computation and their reference."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.op import AttrsType, CallRule
from sterna.te import Tensor, compute
from sterna.te.operation import read_broadcast

P = ParamSpec("P")
R = TypeVar("R")

# An expression where a kernel is written, an array in its reference.
Numbers = TypeVar("Numbers", Expr, Array)


def elementwise(
    name: str, scalar: CallRule[AttrsType, ExprLike]
) -> CallRule[AttrsType, Tensor]:
    """The computation of scalar(attrs, *elements) on broadcast operands."""

    def compute_it(attrs: AttrsType, out: TensorType, *operands: Tensor) -> Tensor:
        def element(*indices: Expr) -> Expr:
            values = [read_broadcast(operand, indices, out.shape) for operand in operands]
            return build.cast(out.dtype, build.as_expr(scalar(attrs, *values)))

        made: Tensor = compute(out.shape, element, name=f"T_{name.rsplit('.', 1)[-1]}")
        return made

    return compute_it


def quiet(function: Callable[P, R]) -> Callable[P, R]:
    """A reference that does not warn of infinities and NaN, which are results like others."""

    def silenced(*args: P.args, **options: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **options)

    return silenced


def in_float64(function: Callable[..., Array]) -> Callable[..., Array]:
    """The reference of a function of floats: computed in float64, rounded once."""

    def computed(attrs: object, *arrays: Array) -> Array:
        wide = [array.astype(np.float64) for array in arrays]
        return np.asarray(function(*wide)).astype(arrays[0].dtype)

    return quiet(computed)
