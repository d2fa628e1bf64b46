"""How much a kernel computes and moves, for profiles and cost models."""

import math
from dataclasses import dataclass

from sterna.ir.types import TensorType, flatten_type
from sterna.relay.expr import Call, Function
from sterna.relay.op import record_of
from sterna.relay.traverse import post_order


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations and bytes of one run of a kernel."""

    flops: int
    bytes: int


def work_of(function: Function) -> Work:
    """A kernel's multiply-adds, or an operation per element; its operands are moved once."""
    flops = 0
    for expr in post_order(function.body):
        record = record_of(expr)
        if record is None or record.is_view:
            continue
        assert isinstance(expr, Call)
        if record.macs is not None:
            kinds = [arg.checked_type for arg in expr.args]
            flops += 2 * record.macs(expr.attrs, expr.checked_type, *kinds)
        else:
            flops += sum(math.prod(kind.concrete_shape) for kind in flatten_type(expr.checked_type))
    moved = [*(param.checked_type for param in function.params), function.body.checked_type]
    return Work(flops, sum(bytes_of(kind) for part in moved for kind in flatten_type(part)))


def bytes_of(kind: TensorType) -> int:
    """The memory that a tensor takes; elements smaller than a byte share bytes."""
    return (math.prod(kind.concrete_shape) * kind.dtype.bits * kind.dtype.lanes + 7) // 8
