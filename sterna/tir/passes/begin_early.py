"""Let a kernel begin while the one before it ends.

Its blocks come onto the device and wait there, so that the time of a launch is hidden. What is
written before is seen behind the wait, and nothing is read or written in front of it.
"""

from sterna.tir.effects import calls
from sterna.tir.stmt import Evaluate, For, PrimFunc, Stmt, seq
from sterna.tir.warpgroups import launch_dependents, wait_for_grids


def begin_early(kernel: PrimFunc) -> PrimFunc:
    """for t in n: S   ->   for t in n: launch_dependents(); wait_for_grids(); S

    A kernel that says itself when it waits stays as it is.
    """
    if calls(kernel.body, "wait_for_grids"):
        return kernel
    return kernel.with_body(_inside(kernel.body))


def _inside(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind == "thread":
        return stmt.with_body(_inside(stmt.body), stmt.kind)
    return seq(Evaluate(launch_dependents()), Evaluate(wait_for_grids()), stmt)
