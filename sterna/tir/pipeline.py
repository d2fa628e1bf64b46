"""The passes over loops, in order."""

from collections.abc import Callable

from sterna.tir.passes.flatten_buffers import flatten_buffers
from sterna.tir.passes.hoist_conditions import hoist_conditions
from sterna.tir.passes.lower_prefetch import lower_prefetch
from sterna.tir.passes.partition_loops import partition_loops
from sterna.tir.passes.reuse_storage import reuse_storage
from sterna.tir.passes.simplify import simplify
from sterna.tir.passes.unroll_loops import unroll_loops
from sterna.tir.passes.vectorize_loops import vectorize_loops
from sterna.tir.stmt import PrimFunc

Pass = Callable[[PrimFunc], PrimFunc]


def passes(simple: bool = False) -> list[Pass]:
    """What happens between a schedule's loops and code; simple leaves guards where they are."""
    order: list[Pass] = [
        lower_prefetch,  # first: the other passes know elements, no rectangles
        simplify,
    ]
    if not simple:
        # before vectors: a vector has no room for a guard
        order += [partition_loops, hoist_conditions]
    order += [
        flatten_buffers,  # before vectors: one index to widen instead of several
        reuse_storage,  # after flattening: memory has a size, no longer a shape
        vectorize_loops,
        unroll_loops,  # after vectors: an unrolled body may hold a vectorized loop
        simplify,
    ]
    return order


def run(func: PrimFunc, simple: bool = False) -> PrimFunc:
    """Run all passes over a function."""
    for transform in passes(simple):
        func = transform(func)
    return func
