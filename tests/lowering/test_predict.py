"""What loops are predicted to take, beside the least that a processor allows."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay, te, tir
from sterna.ir.types import flatten_type
from sterna.isa.processor import Processor
from sterna.lowering.predict import bound_of, predict
from sterna.lowering.work import Work
from sterna.model.report import KernelReport
from sterna.relay.expr import Function
from sterna.support.dtype import DataType
from sterna.tir.stmt import PrimFunc

SIZE = 4096
ONE = Processor(vector_bits=128, threads=1)
FOUR = Processor(vector_bits=128, threads=4)


def graph(make: Any, *shapes: tuple[int, ...]) -> Function:
    """A typed function of inputs of these shapes."""
    given = tuple(relay.var(f"x{at}", shape=shape) for at, shape in enumerate(shapes))
    module = sterna.IRModule.from_expr(Function(given, make(*given)))
    function = relay.transform.InferType()(module)["main"]
    assert isinstance(function, Function) and flatten_type(function.body.checked_type)
    return function


RELU = graph(relay.nn.relu, (SIZE,))
SUM = graph(relay.sum, (SIZE,))


def relu_loops(lanes: int, stride: int = 1, parallel: bool = False) -> PrimFunc:
    a = te.placeholder((SIZE * stride,), name="a")
    b = te.compute((SIZE,), lambda i: te.max(a[i * stride], te.const(0, "float32")), name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(s[b].op.axis[0], factor=64)
    if parallel:
        s[b].parallel(outer)
    if lanes > 1:
        s[b].vectorize(s[b].split(inner, factor=lanes)[1])
    lowered = sterna.lower(s, [a, b], name="main")["main"]
    assert isinstance(lowered, PrimFunc)
    return lowered


def cycles(function: Function, loops: PrimFunc, processor: Processor = ONE) -> float:
    found = predict(function, loops, processor)
    assert found is not None and found.cycles >= found.bound
    return found.cycles


def test_vectors_are_near_the_bound_and_scalars_are_not() -> None:
    found = predict(RELU, relu_loops(16), ONE)
    assert found is not None and found.bound == SIZE / 4 and found.cycles < 2 * found.bound
    assert cycles(RELU, relu_loops(1)) > 3 * found.bound


def test_lanes_that_lie_apart_are_loaded_one_by_one() -> None:
    assert cycles(RELU, relu_loops(16, stride=3)) > 1.5 * cycles(RELU, relu_loops(16))


def test_threads_share_a_parallel_loop_alone() -> None:
    alone = cycles(RELU, relu_loops(16, parallel=True))
    assert cycles(RELU, relu_loops(16, parallel=True), FOUR) == pytest.approx(alone / 4, rel=0.1)
    assert cycles(RELU, relu_loops(16), FOUR) == cycles(RELU, relu_loops(16))


def test_a_sum_of_one_chain_waits_for_its_latency() -> None:
    a = te.placeholder((SIZE,), name="a")
    k = te.reduce_axis((0, SIZE), name="k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="b")
    loops = sterna.lower(te.create_schedule(b.op), [a, b], name="main")["main"]
    assert isinstance(loops, PrimFunc)
    assert cycles(SUM, loops) >= ONE.throughput.latency * SIZE


def test_what_only_the_run_tells_is_not_predicted() -> None:
    a = te.placeholder((SIZE,), name="a")
    b = te.compute((SIZE,), lambda i: tir.call_pure_extern("float32", "expm1f", a[i]), name="b")
    loops = sterna.lower(te.create_schedule(b.op), [a, b], name="main")["main"]
    assert isinstance(loops, PrimFunc)
    assert predict(RELU, loops, ONE) is None


def test_bounds_are_the_longest_of_operations_and_bytes() -> None:
    products = Work(flops=8_000_000, bytes=3_000, written_bytes=1_000, packing_overhead=0)
    assert bound_of(products, DataType("float32"), ONE) == 8_000_000 / 2 / 4 / 2
    with_dots = Processor(vector_bits=128, has_dot4=True)
    assert bound_of(products, DataType("int8"), with_dots) == 8_000_000 / 2 / 16 / 2
    copy = Work(flops=10, bytes=2 << 20, written_bytes=1 << 20, packing_overhead=0)
    assert bound_of(copy, DataType("float32"), ONE) == (2 << 20) / 8


def kernel(predicted: float | None, bound: float | None) -> KernelReport:
    return KernelReport("slow", 1, (), (), "", "", "", {}, {}, 1, 1, 0, 0.0, predicted, bound)


@pytest.mark.parametrize(("predicted", "bound", "far"), [
    (100_000, 30_000, True), (100_000, 40_000, False), (9_000, 1_000, False), (None, None, False),
], ids=["far", "near", "short", "unknown"])
def test_kernels_over_three_times_their_bound_are_far(
    predicted: float | None, bound: float | None, far: bool
) -> None:
    assert kernel(predicted, bound).is_far == far


def test_a_report_marks_kernels_that_are_far_from_their_bound() -> None:
    x = relay.var("x", shape=(128, 128))
    report = sterna.compile(Function((x,), relay.nn.relu(x))).report()
    (good,) = report.to_dict()["kernels"]
    assert good["bound_cycles"] > 0 and not good["over_three_times_bound"]
    assert "x bound" in str(report) and "Over three times" not in str(report)
    object.__setattr__(report, "kernels", [kernel(100_000, 10_000)])
    assert "10.0!" in str(report)
    assert "Over three times their bound, as predicted: slow 10 x\n" in str(report)
    assert report.to_dict()["kernels"][0]["over_three_times_bound"]


def test_predictions_are_plain_numbers() -> None:
    x, w = relay.var("x", shape=(8, 64)), relay.const(np.ones((32, 64), "float32"))
    (only,) = sterna.compile(Function((x,), relay.nn.dense(x, w))).report().kernels
    assert isinstance(only.predicted_cycles, float) and isinstance(only.times_bound, float)
