"""Indices with parts that wrap: remainders by powers of two, and numbers of few bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna import te
from sterna.driver import build
from sterna.ir.build import cast
from sterna.ir.expr import Expr


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("width", "factor"), [(4, 32), (8, 64), (16, 64), (32, 128)])
def test_a_remainder_in_a_guarded_loop(width: int, factor: int, dtype: str) -> None:
    """LLVM's vectors of such a loop read on where the remainder begins again."""
    n = te.size_var("n")
    rows = te.placeholder((3, width), dtype, name="rows")
    tiled = te.compute((3, n * width), lambda i, j: rows[i, j % width], name="tiled")
    schedule = te.create_schedule(tiled.op)
    schedule[tiled].split(tiled.op.axis[1], factor=factor)
    run = build(schedule, [rows, tiled, n], "llvm -mcpu=native")
    data = np.arange(3 * width).reshape(3, width).astype(dtype)
    for count in (3, 4, 7):
        got = np.zeros((3, width * count), dtype)
        run(data, got, count)
        np.testing.assert_array_equal(got, np.tile(data, (1, count)))


@pytest.mark.parametrize(("place", "wanted"), [
    (lambda j: cast("int32", cast("int8", j)) + 128, lambda j: j.astype("int8").astype(int) + 128),
    (lambda j: cast("int32", cast("int8", j) + cast("int8", 100)) + 128,
     lambda j: (j + 100).astype("int8").astype(int) + 128),
    (lambda j: cast("int32", cast("uint8", j) * cast("uint8", 3)),
     lambda j: (j * 3).astype("uint8")),
    (lambda j: cast("int32", cast("uint8", j)), lambda j: j.astype("uint8")),
])
@pytest.mark.parametrize("is_split", [False, True])
def test_narrow_numbers_in_an_index(
    is_split: bool, place: Callable[[Any], Expr], wanted: Callable[[Any], Any]
) -> None:
    n = te.size_var("n")
    table = te.placeholder((256,), "uint8", name="table")
    taken = te.compute((n,), lambda j: table[place(j)], name="taken")
    schedule = te.create_schedule(taken.op)
    if is_split:
        schedule[taken].split(taken.op.axis[0], factor=1024)
    run = build(schedule, [table, taken], "llvm -mcpu=native")
    data, got = np.arange(256).astype("uint8")[::-1].copy(), np.zeros(1500, "uint8")
    run(data, got)
    np.testing.assert_array_equal(got, data[wanted(np.arange(1500)).astype("int64")])
