"""Barriers that only one warp needs: its threads wait for each other at hardly any cost.

All of a block that is one warp are such; and of a larger block those between two statements that
only threads of its first warp do, with barriers on both sides of these, as the last steps of a sum
that threads share: nothing else is in between that another warp could touch.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import EQ, INT32, LT, Call, Expr, IntImm, StringImm, Var
from sterna.tir.passes.split_host_device import Launch
from sterna.tir.stmt import Evaluate, IfThenElse, Stmt
from sterna.tir.threads import is_barrier

WARP = 32
"""Threads that run in step."""


def is_one_warp(launch: Launch) -> bool:
    """Whether no block has more threads than a warp."""
    size = launch.block_size
    return size is not None and size <= WARP


def of_one_warp(stmts: Sequence[Stmt], launch: Launch, thread: Var | None) -> list[Stmt]:
    """Statements in which barriers that only the first warp needs are those of a warp.

    thread: the number of a thread along x.
    """
    x, y, z = (build.int_value(extent) for extent in launch.block)
    rows_are_warps = x is not None and x % WARP == 0 and y == 1 and z == 1
    if thread is None or not rows_are_warps:
        return list(stmts)
    made = list(stmts)
    for place in range(2, len(stmts) - 2):
        around = stmts[place - 2 : place + 3]
        waits = all(is_barrier(stmt) for stmt in around[::2])
        if waits and all(_is_of_first_warp(stmt, thread) for stmt in around[1::2]):
            made[place] = warp_barrier()
    return made


def warp_barrier() -> Stmt:
    """Threads of a warp wait here for each other."""
    return Evaluate(Call(INT32, "storage_sync", (StringImm("warp"),)))


def _is_of_first_warp(stmt: Stmt, thread: Var) -> bool:
    if not isinstance(stmt, IfThenElse) or stmt.otherwise is not None:
        return False
    return _holds_in_first_warp(stmt.condition, thread)


def _holds_in_first_warp(condition: Expr, thread: Var) -> bool:
    if not isinstance(condition, LT | EQ) or condition.a is not thread:
        return False
    bound = condition.b
    most = WARP if isinstance(condition, LT) else WARP - 1
    return isinstance(bound, IntImm) and 0 <= bound.value <= most
