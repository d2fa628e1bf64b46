"""Squares turned over their diagonals in registers, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.contrib import graph_executor
from sterna.ir.visitor import Rewriter
from sterna.lowering.lower_kernel import lower_kernel
from sterna.model.stages import Stages
from sterna.schedule.kernel import Processor
from sterna.schedule.transpose_tile import (
    NARROW_SIDE,
    SIDES,
    side_of_squares,
    transpose_intrinsic,
)
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.tir import Stmt, interpreter
from sterna.tir.stmt import Tensorized


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(("dtype", "side"), [
    *[(dtype, side) for dtype in ("float32", "int32") for side in SIDES],
    *[(dtype, NARROW_SIDE) for dtype in ("uint8", "int8", "int16", "float16")],
])
def test_turned(dtype: str, side: int, target: str) -> None:
    rows, columns = 2 * side, 3 * side
    data = te.placeholder((2, rows, 3, columns), dtype, name="data")
    made = te.compute((2, columns, rows), lambda b, c, r: data[b, r, 1, c], name="made")
    schedule = te.create_schedule(made.op)
    stage = schedule[made]
    batch, column, row = stage.op.axis
    (down, inner), (along, innermost) = (stage.split(axis, factor=side) for axis in (column, row))
    stage.reorder(batch, along, down, inner, innermost)
    stage.tensorize(inner, transpose_intrinsic(dtype, side))
    given = (np.arange(2 * rows * 3 * columns) % 251).reshape(2, rows, 3, columns).astype(dtype)
    out = tvm.nd.empty((2, columns, rows), dtype)
    tvm.build(schedule, [data, made], target=target)(tvm.nd.array(given), out)
    np.testing.assert_array_equal(out.numpy(), given[:, :, 1].transpose(0, 2, 1))


class _Bodies(Rewriter):
    """What machines do, in the place of what it means."""

    def visit_Tensorized(self, done: Tensorized) -> Stmt:
        return done.body


@pytest.mark.parametrize(("shape", "axes", "squares"), [
    ((2, 16, 3, 14), (0, 2, 3, 1), 2), ((2, 3, 14, 16), (0, 3, 1, 2), 2),
    ((9, 17), (1, 0), 4), ((33, 31), (1, 0), 6), ((12, 20), (1, 0), 4),
    ((2, 5, 28, 24), (0, 3, 1, 2), 6),
])
def test_squares_that_stick_out(
    shape: tuple[int, ...], axes: tuple[int, ...], squares: int
) -> None:
    """Rows and columns that are left over take the steps of a square, and no plain loops."""
    given = relay.var("given", shape=shape)
    module = tvm.IRModule.from_expr(relay.Function((given,), relay.transpose(given, axes)))
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1")
    ((loops, *_),) = Stages.of(module, {}, target, 3)._loops("").values()
    assert str(loops).count("tensorized") == squares
    data = np.arange(np.prod(shape), dtype="float32")
    out = np.full_like(data, np.nan)
    interpreter.run(loops.with_body(_Bodies().rewrite(loops.body)), data, out)
    wanted = data.reshape(shape).transpose(axes)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)


def test_which_squares_fit() -> None:
    float32, half = DataType("float32"), DataType("float16")
    assert side_of_squares(Processor(512, 32), float32, 64, 128) == 16
    assert side_of_squares(Processor(256, 16), float32, 64, 24) == 8
    assert side_of_squares(Processor(512, 32), float32, 64, 24) is None
    assert side_of_squares(Processor(512, 32), half, 64, 128) is None
    assert side_of_squares(Processor(32, 8), float32, 64, 128) is None


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "int64"])
@pytest.mark.parametrize(("shape", "axes"), [
    ((2, 16, 24), (0, 2, 1)), ((37, 45), (1, 0)), ((5, 37), (1, 0)), ((37, 5), (1, 0)),
    ((9, 4, 70), (2, 0, 1)), ((3, 70), (1, 0)),
])
def test_transposes_of_any_type_and_size(
    dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    given = relay.var("given", shape=shape, dtype=dtype)
    module = relay.build(
        tvm.IRModule.from_expr(relay.Function((given,), relay.transpose(given, axes))), "llvm"
    )
    executor = graph_executor.GraphModule(module["default"](tvm.cpu()))
    numbers = (np.arange(np.prod(shape)) % 251).reshape(shape)
    data = tvm.nd.array(numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    executor.run(given=data)
    want = data.numpy().transpose(axes)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), want)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
@pytest.mark.parametrize(("shape", "axes"), [
    ((2, None, 24), (0, 2, 1)), ((2, 24, None), (0, 2, 1)), ((None, None), (1, 0)),
    ((None, 3, 20), (2, 1, 0)),
], ids=["rows", "columns", "both", "few between"])
def test_transposes_of_open_extents(
    dtype: str, shape: tuple[int | None, ...], axes: tuple[int, ...]
) -> None:
    given = relay.var("given", shape=[size or relay.Any() for size in shape], dtype=dtype)
    module = tvm.IRModule.from_expr(relay.Function((given,), relay.transpose(given, axes)))
    kernel = relay.create_executor("vm", module, target="llvm").evaluate()
    for one in (0, 1, 3, 7, 8, 9, 31, 70):
        sizes = [(one + 5 * n if size is None else size) for n, size in enumerate(shape)]
        data = (np.arange(np.prod(sizes)) % 251).reshape(sizes).astype(dtype)
        np.testing.assert_array_equal(kernel(data).numpy(), data.transpose(axes))


def test_open_extents_have_squares_too() -> None:
    given = relay.var("given", shape=(4, relay.Any(), 32))
    module = tvm.IRModule.from_expr(relay.Function((given,), relay.transpose(given, (0, 2, 1))))
    opened = relay.optimize(module, target="llvm")[0]["main"]
    kernels: list[relay.Function] = []

    def look(expr: object) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            kernels.append(expr.op)

    relay.analysis.post_order_visit(opened, look)
    (kernel,) = kernels
    loops = lower_kernel(kernel, "kernel", Processor(512, 32), None).function
    assert 'tensorized("transpose")' in str(loops)
