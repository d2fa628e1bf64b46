"""Squares turned over their diagonals in registers, against NumPy."""

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.schedule.kernel import Processor
from sterna.schedule.transpose_tile import SIDES, side_of_squares, transpose_intrinsic
from sterna.support.dtype import DataType


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_turned(side: int, dtype: str, target: str) -> None:
    rows, columns = 2 * side, 3 * side
    data = te.placeholder((2, rows, 3, columns), dtype, name="data")
    made = te.compute((2, columns, rows), lambda b, c, r: data[b, r, 1, c], name="made")
    schedule = te.create_schedule(made.op)
    stage = schedule[made]
    batch, column, row = stage.op.axis
    (down, inner), (along, innermost) = (stage.split(axis, factor=side) for axis in (column, row))
    stage.reorder(batch, along, down, inner, innermost)
    stage.tensorize(inner, transpose_intrinsic(dtype, side))
    given = np.arange(2 * rows * 3 * columns).reshape(2, rows, 3, columns).astype(dtype)
    out = tvm.nd.empty((2, columns, rows), dtype)
    tvm.build(schedule, [data, made], target=target)(tvm.nd.array(given), out)
    np.testing.assert_array_equal(out.numpy(), given[:, :, 1].transpose(0, 2, 1))


def test_which_squares_fit() -> None:
    float32, half = DataType("float32"), DataType("float16")
    assert side_of_squares(Processor(512, 32), float32, 64, 128) == 16
    assert side_of_squares(Processor(256, 16), float32, 64, 24) == 8
    assert side_of_squares(Processor(512, 32), float32, 64, 24) is None
    assert side_of_squares(Processor(512, 32), half, 64, 128) is None
    assert side_of_squares(Processor(32, 8), float32, 64, 128) is None
