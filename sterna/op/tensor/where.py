"""Selection: one of two tensors, element by element."""

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import elementwise
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import BROADCAST, Case, OpRecord, register
from sterna.target import Target


def _infer(attrs: None, condition: Type, x: Type, y: Type) -> TensorType:
    test, a, b = tensor(condition, "condition"), tensor(x, "x"), tensor(y, "y")
    same_dtype([a, b], ["x", "y"])
    return TensorType(broadcast_shapes(broadcast_shapes(test.shape, a.shape), b.shape), a.dtype)


def _of_known_conditions(
    attrs: None, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The operand itself where a constant condition always picks that."""
    condition, x, y = args
    if not isinstance(condition, Constant):
        return None
    holds = to_numpy(condition.data) != 0
    shape = broadcast_shapes(*(tensor_type(arg).shape for arg in (x, y)))
    for picked, always in ((x, holds.all()), (y, not holds.any())):
        whole = broadcast_shapes(shape, tensor_type(condition).shape)
        if always and tensor_type(picked).shape == whole:
            return picked
    return None


register(OpRecord(
    "where",
    inputs=("condition", "x", "y"),
    infer=_infer,
    compute=elementwise("where", lambda attrs, condition, x, y: build.select(condition, x, y)),
    reference=lambda attrs, condition, x, y: np.where(condition.astype(bool), x, y),
    legalize=_of_known_conditions,
    pattern=BROADCAST,
    cases=[
        Case((((2, 3), "bool"), (2, 3), (2, 3))),
        Case((((3, 1), "bool"), (2, 1, 4), ())),
        Case((np.array([0.0, -0.0, 0.5, np.nan], "float32"), ((4,), "int8"), ((1,), "int8"))),
        Case((((2, 3), "bool"), ((2, 3), "bool"), ((3,), "bool"))),
        Case((((2, 3), "int32"), ((3,), "bfloat16"), ((2, 1), "bfloat16"))),
    ],
    doc="x where the condition holds or is not 0, y elsewhere.",
))
