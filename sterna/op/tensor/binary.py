"""Two tensors element by element, with broadcasting."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, same_dtype, tensor
from sterna.relay.op import BROADCAST, Case, OpRecord, register
from sterna.te import Tensor, compute
from sterna.te.operation import read_broadcast


def infer_broadcast(attrs: Any, lhs: Type, rhs: Type) -> TensorType:
    """Both operands have one element type; the result has it too."""
    a, b = tensor(lhs, "lhs"), tensor(rhs, "rhs")
    same_dtype([a, b], ["lhs", "rhs"])
    return TensorType(broadcast_shapes(a.shape, b.shape), a.dtype)


def _binary(name: str, scalar: Callable[[Any, Any], Any], reference: Callable[..., Any]) -> None:
    def compute_it(attrs: Any, out: TensorType, a: Tensor, b: Tensor) -> Tensor:
        made: Tensor = compute(
            out.shape,
            lambda *i: scalar(read_broadcast(a, i), read_broadcast(b, i)),
            name=f"T_{name}",
        )
        return made

    register(OpRecord(
        name,
        inputs=("lhs", "rhs"),
        infer=infer_broadcast,
        compute=compute_it,
        reference=lambda attrs, a, b: reference(a, b).astype(a.dtype),
        pattern=BROADCAST,
        cases=[Case(((2, 3), (2, 3))), Case(((2, 1, 4), (3, 1))), Case(((), (5,)))],
        doc=f"{name} of two tensors, element by element.",
    ))  # fmt: skip


_binary("add", lambda a, b: a + b, np.add)
_binary("subtract", lambda a, b: a - b, np.subtract)
_binary("multiply", lambda a, b: a * b, np.multiply)
