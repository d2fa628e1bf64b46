"""How many operations of arithmetic a computation does."""

import math
from typing import Any

from sterna.ir.expr import BinaryExpr, Call, Expr, IntImm
from sterna.ir.node import Node, post_order
from sterna.te.tensor import ComputeOp, Operation, ProducerLoad, Reduce


def count_flops(op: Operation, of_a_copy: int = 1) -> int:
    """The operations of a stage; of_a_copy: what an element counts that is only moved."""
    if not isinstance(op, ComputeOp):
        return 0
    domain = math.prod(extent_of(axis) for axis in [*op.axis, *op.reduce_axis])
    return domain * sum(_in_expression(each) or of_a_copy for each in op.body)


def _in_expression(body: Expr) -> int:
    counted = 0

    def look(node: Node) -> None:
        nonlocal counted
        if isinstance(node, ProducerLoad):
            return
        is_computed = isinstance(node, BinaryExpr | Call) and node.dtype.is_float
        counted += is_computed or isinstance(node, Reduce)

    post_order(body, look)
    return counted


def extent_of(axis: Any) -> int:
    """The length of a loop."""
    extent = axis.dom.extent
    if not isinstance(extent, IntImm):
        raise ValueError(f"the length of {axis} is not known; workloads have known lengths")
    return int(extent.value)
