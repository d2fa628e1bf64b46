"""Places in a row of elements as indices."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import length_of
from sterna.relay.arrays import Array
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor, compute


def _infer(attrs: None, indices: Type, shape: Type) -> TensorType:
    kind = of_kind(tensor(indices, "indices"), "indices", "int", "uint")
    if kind.ndim > 1:
        tensor(kind, "indices", 1)
    rank = length_of(shape, "shape")
    return TensorType((rank, *kind.shape), kind.dtype)


def _compute(attrs: None, out: TensorType, indices: Tensor, shape: Tensor) -> Tensor:
    rank = out.shape[0]
    assert type(rank) is int

    def element(axis: Expr, *i: Expr) -> Expr:
        rest = indices(*i)
        found = rest
        for place in reversed(range(rank)):
            dim = build.cast(out.dtype, shape(place))
            safe = build.select(dim == 0, build.const(1, out.dtype), dim)
            found = build.select(axis == place, rest % safe if place else rest, found)
            rest = rest // safe
        return found

    made: Tensor = compute(out.shape, element, name="T_unravel_index")
    return made


def _reference(attrs: None, indices: Array, shape: Array) -> Array:
    rest, found = indices.astype(np.int64), []
    for place in reversed(range(len(shape))):
        dim = max(1, int(shape[place]))
        found.append(rest % dim if place else rest)
        rest = rest // dim
    return np.stack(found[::-1]).astype(indices.dtype)


register(OpRecord(
    "unravel_index",
    inputs=("indices", "shape"),
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case((np.array([22, 41, 37, 0], "int32"), np.array([7, 6], "int32"))),
        Case((np.array(1621), np.array([6, 7, 8, 9]))),
    ],
    doc="The indices, one row for each dimension of shape, of elements given by their places when "
        "all stand in a row.",
))
