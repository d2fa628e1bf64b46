"""Recurrent networks on GPUs: a kernel for each step, or clusters of blocks for all steps."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.codegen import nvptx
from sterna.lowering.lower_kernel import lower_kernel
from sterna.op.recurrent_shares import Share, Work, sequences_of_cluster
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import Function
from sterna.relay.op import find
from sterna.relay.reference import value_of_type
from sterna.schedule.choose import answering
from sterna.schedule.gpu.limits import Limits
from sterna.support.dtype import DataType
from sterna.target import Target, processor_of
from sterna.testing import requires_opencl
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.split_host_device import split_host_device
from tests.gpu.ptxas import assemble, requires_ptxas
from tests.gpu.test_network_kernels import HOPPER, calls_of, kernels_of, module_of
from tests.op.harness import flatten

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
OTHERS = ("Affine", "Tanh", "Tanh", "Sigmoid", "ScaledTanh", "Tanh")


def network(
    kind: str, given: tuple[str, ...], batch: int, size: int, time: int = 3,
    dtype: str = "float32", **attrs: Any,
) -> Any:
    """A network of random weights, and its data."""
    rng = np.random.default_rng(size)
    count = 2 if attrs.get("direction") == "bidirectional" else 1
    rows, turned = GATES[kind] * size, attrs.get("layout", 0) == 1
    state = (batch, count, size) if turned else (count, batch, size)
    shapes = {
        "weight": (count, rows, 3), "recurrence": (count, rows, size), "bias": (count, 2 * rows),
        "initial_h": state, "initial_c": state, "peepholes": (count, 3 * size),
    }
    parts = {
        name: relay.const(rng.uniform(-0.4, 0.4, shapes[name]).astype(numpy_dtype(dtype)))
        for name in ("weight", "recurrence", *given) if name != "sequence_lens"
    }
    if "sequence_lens" in given:
        parts["sequence_lens"] = relay.const(np.arange(batch).astype("int32") % (time + 2))
    shape = (batch, time, 3) if turned else (time, batch, 3)
    x = relay.var("x", shape=shape, dtype=dtype)
    return getattr(relay.nn, kind)(x, **parts, **attrs).astuple()


AMPERE = "cuda -arch=sm_80"


def steps_of(expr: Any, target: str) -> Function:
    """The kernel of a network's steps."""
    (found,) = [
        each for each in kernels_of(expr, target).values()
        if any("_steps" in str(call.op) for call in calls_of(each))
    ]
    return found


def loops_of(function: Function, target: str) -> Any:
    where = Target(target)
    made = lower_kernel(function, "kernel", processor_of(where), where)
    return loop_pipeline.run(made.function)


def attrs_of(function: Function) -> Any:
    """What the steps are told."""
    return next(call.attrs for call in calls_of(function) if "_steps" in str(call.op))


def check(function: Function, target: str) -> None:
    """Threads in any order give what the reference does, and nothing races."""
    (call,) = [each for each in calls_of(function) if "_steps" in str(each.op)]
    rng = np.random.default_rng(1)
    arrays: list[Any] = []
    for param in function.params:
        kind: Any = param.checked_type
        shape, dtype = kind.concrete_shape, str(kind.dtype)
        arrays.append(
            np.arange(shape[0]).astype(dtype) + 1 if dtype == "int32"
            else rng.uniform(-0.7, 0.7, shape).astype(numpy_dtype(dtype))
        )
    wanted = flatten(value_of_type(
        find(str(call.op)), call.attrs, call.checked_type, [arrays[0], arrays[1:]]))
    outs = [np.zeros_like(want) for want in wanted]
    run_on_device(loops_of(function, target), *arrays, *outs, seed=len(arrays))
    for out, want in zip(outs, wanted, strict=True):
        np.testing.assert_allclose(
            out.astype("float32"), want.astype("float32"),
            rtol=1e-2 if out.dtype != "float32" else 1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "batch", "size", "share", "more"), [
    ("lstm", 2, 5, Share(2, 2, 1, 8), {"given": ("bias", "sequence_lens", "initial_c")}),
    ("lstm", 2, 5, Share(4, 2, 2, 8), {
        "direction": "bidirectional", "activations": OTHERS, "layout": 1,
        "given": ("initial_h", "peepholes")}),
    ("gru", 2, 6, Share(1, 2, 1, 8), {
        "direction": "bidirectional", "linear_before_reset": True, "given": ("bias",)}),
    ("gru", 2, 9, Share(2, 2, 2, 8), {"given": ("bias", "sequence_lens")}),
    ("rnn", 1, 20, Share(2, 1, 1, 8), {"direction": "reverse", "dtype": "bfloat16"}),
    ("lstm", 8, 5, Share(4, 8, 8, 2, tiles=1), {"dtype": "bfloat16", "time": 2}),
])
def test_threads_share_a_step_without_races(
    kind: str, batch: int, size: int, share: Share, more: dict[str, Any]
) -> None:
    with answering({"blocks of a recurrence": str(share)}):
        function = steps_of(network(kind, batch=batch, size=size, **{"given": (), **more}), AMPERE)
    assert attrs_of(function).on_blocks.threads == share.threads
    check(function, AMPERE)


@pytest.mark.parametrize(("kind", "batch", "size", "sequences", "more"), [
    ("rnn", 2, 6, 2, {"direction": "reverse", "given": ("sequence_lens",), "time": 4}),
    ("lstm", 1, 5, 1, {"given": ("bias", "initial_h"), "dtype": "bfloat16", "time": 2}),
])
def test_blocks_of_a_cluster_keep_weights(
    kind: str, batch: int, size: int, sequences: int, more: dict[str, Any]
) -> None:
    with answering({"sequences of a cluster": str(sequences)}):
        function = steps_of(network(kind, batch=batch, size=size, **{"given": (), **more}), HOPPER)
    assert attrs_of(function).in_cluster == sequences
    check(function, HOPPER)


def test_libraries_for_older_gpus_have_kernels_that_these_run() -> None:
    made = network("lstm", ("bias",), 8, 128, dtype="bfloat16")
    found = [
        attrs_of(steps_of(made, HOPPER + plain))
        for plain in ("", " -plain_arch=sm_80", " -plain_arch=sm_53")
    ]
    assert [bool(each.in_cluster) for each in found] == [True, False, False]
    assert [bool(each.tiles) for each in found][1:] == [True, False]


def test_clusters_have_what_registers_keep() -> None:
    large, kind = Limits(256, 49152, 32), DataType("float32")

    def sequences(gates: int, size: int, batch: int, sums: str = "float32") -> int:
        work = Work(gates, size, batch, 1, kind, DataType(sums))
        return sequences_of_cluster(work, work.choose(large))

    assert [sequences(4, 256, batch) for batch in (1, 16, 32)] == [1, 2, 4]
    assert sequences(3, 300, 1) and sequences(1, 400, 1)
    assert not sequences(4, 512, 1) and not sequences(4, 64, 4, "float64")


def test_work_is_shared_by_what_there_is() -> None:
    kind = DataType("float32")
    small, large = Limits(256, 16384, 1), Limits(256, 49152, 32)
    for limits in (small, large):
        for gates in (1, 3, 4):
            for batch, size in ((1, 1), (1, 256), (16, 256), (64, 1000)):
                work = Work(gates, size, batch, 1, kind, kind)
                share = work.choose(limits)
                assert share.threads <= limits.threads
                assert share.shared_numbers(gates) * 4 <= limits.shared_bytes
                assert share.threads >= share.units * share.sequences
    products = Work(4, 512, 32, 1, DataType("bfloat16"), kind, True).choose(large)
    assert products.tiles * 16 == products.units * 4
    assert products.units * products.sequences <= products.threads
    few = Work(4, 256, 16, 1, kind, kind).choose(large)
    assert 64 <= -(-256 // few.units) * -(-16 // few.sequences) <= 264


@requires_ptxas
@pytest.mark.parametrize(("arch", "dtype", "batch"), [
    ("sm_90a", "bfloat16", 16), ("sm_90a", "float32", 64), ("sm_80", "bfloat16", 16),
    ("sm_53", "float16", 1),
])
def test_steps_are_assembled_without_spills(arch: str, dtype: str, batch: int) -> None:
    target = f"cuda -arch={arch}"
    made = steps_of(network("lstm", ("bias",), batch, 256, dtype=dtype), target)
    _, kernels = split_host_device(loops_of(made, target))
    text = nvptx.generate(kernels, arch)
    if len(kernels) == 1:
        assert "st.async" in text and "cluster" in text
    else:
        assert len(kernels) == 3 and text.count("bar.sync") == 2
    found = assemble(text, arch)
    assert not found.spilled_bytes and not found.stack_bytes


@requires_opencl
def test_networks_run_on_opencl() -> None:
    expr = network("gru", ("bias",), 3, 20, linear_before_reset=True, layout=1)
    x = np.random.default_rng(0).standard_normal((3, 3, 3)).astype("float32")
    for got, want in zip(
        tvm.compile(module_of(expr), target="opencl")(x),
        tvm.compile(module_of(expr), target="llvm")(x), strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
