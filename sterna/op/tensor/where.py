"""Selection: one of two tensors, element by element."""


import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, same_dtype, tensor
from sterna.op.elementwise import elementwise
from sterna.relay.op import BROADCAST, Case, OpRecord, register


def _infer(attrs: None, condition: Type, x: Type, y: Type) -> TensorType:
    test, a, b = tensor(condition, "condition"), tensor(x, "x"), tensor(y, "y")
    same_dtype([a, b], ["x", "y"])
    return TensorType(broadcast_shapes(broadcast_shapes(test.shape, a.shape), b.shape), a.dtype)


register(OpRecord(
    "where",
    inputs=("condition", "x", "y"),
    infer=_infer,
    compute=elementwise("where", lambda attrs, condition, x, y: build.select(condition, x, y)),
    reference=lambda attrs, condition, x, y: np.where(condition.astype(bool), x, y),
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
