"""Threads of a GPU: their names, and who shares which memory.

A kernel runs a grid of blocks, and each block a number of threads; both are counted in three
dimensions. Virtual threads are loops that a schedule treats as threads.
"""

from sterna.ir.expr import INT32, Call, StringImm
from sterna.tir.stmt import Evaluate, For, Stmt, statements_in

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
LAUNCHED = (*BLOCKS, *THREADS)
"""The threads whose numbers a launch says, in the order in which it says them."""

DYNAMIC = "shared.dyn"
"""The scope of memory that a block gets as much of as a launch says."""

ROLLED = "rolled"
"""What a loop is annotated by that stays one: written out it would take too many registers."""

BEGINS_EARLY = "begins_early"
"""A kernel's attribute: a launch may start it before the kernel in front of it has ended, for which
its code waits before it touches memory."""

ON_HOST = "on_host"
"""A function's attribute: it runs on the host as it is, and arrays of these names lie there. Of
others, which lie on a device, it asks the shapes alone."""

PLAIN = "plain"
"""A function's attribute: the same for GPUs that cannot run its kernels."""

# Which scopes are one piece of memory for a whole grid, a block or a thread.
GRID, BLOCK, THREAD = range(3)


def rank_of_thread(tag: str) -> int:
    """What the iterations of a loop over threads of a name are: blocks or threads of a block."""
    return GRID if tag.startswith("blockIdx") else BLOCK


def rank_of_scope(scope: str) -> int:
    """Who has one piece of memory of a scope in common."""
    if scope in ("", "global"):
        return GRID
    return BLOCK if is_shared(scope) else THREAD


def is_shared(scope: str) -> bool:
    """Whether the threads of a block have memory of a scope in common."""
    return scope.split(".")[0] == "shared"


def has_threads(stmt: Stmt) -> bool:
    """Whether loops over threads are inside a statement."""
    return any(isinstance(one, For) and one.kind == "thread" for one in statements_in(stmt))


def barrier() -> Stmt:
    """Threads of a block wait here for each other, and then see what each has written."""
    return Evaluate(Call(INT32, "storage_sync", (StringImm("shared"),)))


def is_barrier(stmt: Stmt) -> bool:
    """Whether a statement is such a wait."""
    return (
        isinstance(stmt, Evaluate)
        and isinstance(stmt.value, Call)
        and stmt.value.op == "storage_sync"
    )
