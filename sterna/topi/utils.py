"""Numbers out of shapes, and walks over the operations that schedules are given."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.build import as_expr
from sterna.ir.expr import ExprLike, FloatImm
from sterna.te import ComputeOp, Operation, Schedule, Tensor
from sterna.topi.tag import is_injective

__all__ = [
    "differ", "equal_const_int", "get_const_float", "get_const_int", "get_const_tuple",
    "is_injective", "prod", "simplify", "traverse_inline",
]


def simplify(expr: Any) -> Any:
    """An equal expression, as simple as it gets; numbers and tuples of them alike."""
    if isinstance(expr, list | tuple):
        return type(expr)(simplify(part) for part in expr)
    return expr if isinstance(expr, int | float) else Analyzer().simplify(as_expr(expr))


def get_const_int(expr: ExprLike) -> int:
    """The number that an expression stands for, whatever its variables are."""
    found = build.int_value(expr)
    if found is None:
        found = build.int_value(simplify(expr))
    if found is None:
        raise ValueError(f"a constant integer is needed, not {expr}")
    return found


def get_const_float(expr: ExprLike) -> float:
    """The number that a constant of floating point stands for."""
    if isinstance(expr, int | float):
        return float(expr)
    found = simplify(expr)
    if not isinstance(found, FloatImm):
        raise ValueError(f"a constant number is needed, not {expr}")
    return float(found.value)


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """Whether an expression is this very number."""
    return build.int_value(simplify(expr)) == value


def differ(left: ExprLike, right: ExprLike) -> bool:
    """Whether two extents are known to be different."""
    return build.int_value(simplify(build.as_expr(left) - right)) not in (0, None)


def get_const_tuple(shape: Sequence[ExprLike]) -> tuple[Any, ...]:
    """The extents as numbers; those that are none stay what they are."""
    return tuple(extent if (n := build.int_value(simplify(extent))) is None else n
                 for extent in shape)


def prod(extents: Sequence[ExprLike]) -> Any:
    """The product of all."""
    result: Any = 1
    for extent in extents:
        result = extent if isinstance(result, int) and result == 1 else result * extent
    return result


def traverse_inline(
    schedule: Schedule, final_op: Operation, callback: Callable[[Operation], None]
) -> None:
    """Inlines injective operations, from the last one up, and calls back for each in its turn."""
    visited: set[Operation] = set()

    def visit(op: Operation) -> None:
        if op in visited:
            return
        visited.add(op)
        is_inner = isinstance(op, ComputeOp) and op not in schedule.outputs
        if is_inner and is_injective(op.tag):
            schedule[op].compute_inline()
        for tensor in op.input_tensors:
            if isinstance(tensor, Tensor) and not tensor.op.input_tensors:
                continue
            visit(tensor.op)
        callback(op)

    visit(final_op)
