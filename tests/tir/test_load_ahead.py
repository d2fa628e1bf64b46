"""Loads for the next iteration: what moves, what stays, and that numbers do not change."""

import numpy as np
import pytest

import sterna
from sterna import te
from sterna.ir.expr import Call
from sterna.te import Schedule, Tensor
from sterna.tir.passes.load_ahead import HINT, load_ahead
from sterna.tir.stmt import (
    LOADS_AHEAD,
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    statements_in,
)

ROWS, COLUMNS, DEPTH = 5, 8, 24


def a_product(
    pragma: bool, depth: int = DEPTH, fetched: bool = False
) -> tuple[Schedule, list[Tensor]]:
    """A tile of sums in registers, whose rows are loaded four steps at once."""
    a = te.placeholder((ROWS, depth), name="a")
    b = te.placeholder((depth, COLUMNS), name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    schedule = te.create_schedule(c.op)
    tile = schedule.cache_write(c, "local")
    held = schedule.cache_read(a, "local", [tile])
    stage = schedule[tile]
    (i, j), (k,) = stage.op.axis, stage.op.reduce_axis
    outer, inner = stage.split(k, factor=4)
    stage.reorder(outer, inner, i, j)
    stage.unroll(inner)
    stage.unroll(i)
    stage.vectorize(j)
    schedule[held].compute_at(stage, outer)
    row, step = schedule[held].op.axis
    schedule[held].unroll(row)
    schedule[held].vectorize(step)
    if pragma:
        stage.pragma(outer, "load_ahead", True)
    if fetched:
        stage.prefetch(a, outer, 1)
        stage.prefetch(b, outer, 1)
    return schedule, [a, b, c]


def lowered(pragma: bool, fetched: bool = False) -> PrimFunc:
    made = sterna.lower(*a_product(pragma, fetched=fetched))["main"]
    assert isinstance(made, PrimFunc)
    return made


def loops_ahead(func: PrimFunc) -> list[For]:
    loops = [stmt for stmt in statements_in(func.body) if isinstance(stmt, For)]
    return [loop for loop in loops if LOADS_AHEAD in loop.annotations]


def is_prefetch(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        return is_prefetch(stmt.body)
    if not isinstance(stmt, Evaluate) or not isinstance(stmt.value, Call):
        return False
    return stmt.value.op == "prefetch"


def test_registers_are_filled_behind_their_last_use() -> None:
    (loop,) = loops_ahead(lowered(True))
    stores = [s for s in statements_in(loop.body) if isinstance(s, BufferStore)]
    filled = [place for place, store in enumerate(stores) if store.buffer.name == "a.local"]
    used = [place for place, store in enumerate(stores) if store.buffer.name == "c.local"]
    # the first row's register is free once the row has added its last product
    assert len(filled) == ROWS and filled[0] == used[-ROWS] + 1
    assert stores[-1].buffer.name == "b.ahead"
    assert not any(isinstance(s, Allocate) for s in statements_in(loop.body))


def test_prefetches_of_several_lines_stand_at_the_head() -> None:
    (loop,) = loops_ahead(lowered(True, fetched=True))
    assert isinstance(loop.body, SeqStmt)
    fetching = [is_prefetch(stmt) for stmt in loop.body.stmts]
    assert fetching[:2] == [True, True] and not any(fetching[2:])


def test_no_hint_stays_and_unmarked_loops_stay_as_they_are() -> None:
    marked, plain = lowered(True), lowered(False)
    assert not any(isinstance(s, AttrStmt) and s.key == HINT for s in statements_in(marked.body))
    assert not loops_ahead(plain)
    assert load_ahead(plain).body is plain.body


@pytest.mark.parametrize("depth", [4, 8, 24])
def test_numbers_are_those_of_loads_in_turn(depth: int) -> None:
    """A sum of a single turn has no next one, and no element beyond the last is read."""
    rng = np.random.default_rng(3)
    a, b = rng.random((ROWS, depth), "float32"), rng.random((depth, COLUMNS), "float32")
    results = []
    for pragma in (False, True):
        schedule, args = a_product(pragma, depth)
        built = sterna.build(schedule, args, target="llvm")
        out = sterna.nd.empty((ROWS, COLUMNS))
        built(sterna.nd.array(a), sterna.nd.array(b), out)
        results.append(out.numpy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], a @ b, rtol=1e-5)
