"""Contractions by halves of words (SMLAD): packed weights, and plain C with the same numbers."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Plan, implementation_of
from sterna.schedule.implementations.halves import packed as packed_words
from sterna.schedule.implementations.planes import packed as packed_planes
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.tir import halves, interpreter
from tests.schedule.byte_layers import convolved, extremes
from tests.schedule.implemented import (
    implement,
    implemented_for,
    names_in,
    packed_conv2d,
    run_built,
)

M4 = Processor(32, 8, has_dot_halves=True, has_spare_memory=False)

# The data (rows, columns, channels), output channels, window, and what else a layer has.
WINDOWS: dict[str, tuple[Any, ...]] = {
    "pointwise": ((5, 5, 8), 6, (1, 1), {}),
    "odd depth": ((3, 3, 7), 5, (1, 1), {}),
    "first": ((9, 6, 1), 4, (5, 4), {"strides": (2, 2), "padding": (2, 1, 2, 1)}),
    "colours": ((7, 9, 3), 2, (3, 3), {"strides": (2, 2), "padding": (0, 0, 1, 1)}),
    "window": ((6, 5, 4), 3, (3, 3), {"padding": (1, 1, 1, 1)}),
    "deep": ((6, 6, 16), 8, (3, 3), {"padding": (1, 1, 1, 1)}),
    "gaps": ((7, 7, 4), 2, (3, 3), {"dilation": (2, 2)}),
    "depthwise": ((5, 7, 3), 3, (3, 3), {"padding": (1, 1, 1, 1), "groups": 3}),
    "one column": ((4, 5, 2), 2, (3, 1), {"padding": (1, 0, 1, 0), "groups": 2}),
    "steps": ((7, 9, 2), 2, (3, 3), {"padding": (0, 0, 1, 1), "groups": 2, "strides": (2, 2)}),
    "planes in bands":
        ((40, 36, 2), 2, (3, 3), {"padding": (1, 1, 1, 1), "groups": 2, "strides": (2, 2)}),
    "planes of wide windows": ((6, 13, 2), 2, (5, 5), {"padding": (2, 2, 2, 2), "groups": 2}),
    "rescaled bands":
        ((40, 36, 4), 4, (3, 3), {"padding": (1, 1, 1, 1), "groups": 4, "strides": (2, 2)}),
    "rescaled wide windows": ((6, 13, 3), 3, (5, 5), {"padding": (2, 2, 2, 2), "groups": 3}),
    "rescaled rows": ((12, 5, 8), 8, (3, 3), {"padding": (1, 1, 1, 1), "groups": 8}),
    "rescaled line": ((1, 47, 8), 8, (1, 10), {"groups": 8}),
    "rescaled short lines": ((3, 34, 8), 8, (1, 3), {"padding": (0, 1, 0, 1), "groups": 8}),
    "rescaled short line by steps": ((6, 71, 8), 8, (1, 5), {"groups": 8, "strides": (1, 2)}),
    "rescaled lines of a tile": ((40, 6, 8), 8, (1, 2), {"padding": (0, 0, 0, 1), "groups": 8}),
    "window of the image": ((13, 1, 8), 8, (13, 1), {"groups": 8}),
    "rescaled to any point by steps":
        ((11, 11, 12), 12, (3, 3), {"padding": (0, 1, 1, 0), "groups": 12, "strides": (2, 2)}),
    "long": ((5, 5, 24), 6, (1, 1), {}),
    "written out": ((31, 31, 8), 16, (1, 1), {"strides": (2, 2)}),
    "rescaled to any point": ((16, 16, 8), 16, (1, 1), {}),
    "rescaled": ((16, 18, 8), 16, (1, 1), {}),
    "rescaled by three": ((15, 15, 12), 13, (1, 1), {}),
    "planes written out": ((24, 24, 4), 4, (3, 3), {"padding": (1, 1, 1, 1), "groups": 4}),
    "gaps and a border":
        ((9, 7, 5), 6, (3, 2), {"padding": (2, 3, 1, 0), "dilation": (2, 2)}),
    "depthwise with gaps":
        ((9, 11, 6), 6, (3, 3), {"padding": (2, 2, 2, 2), "groups": 6, "dilation": (2, 2)}),
    "rescaled rows apart":
        ((12, 9, 4), 4, (3, 1), {"padding": (3, 0, 3, 0), "groups": 4, "dilation": (3, 3)}),
    "rescaled and multiplied":
        ((20, 11, 3), 9, (3, 3), {"padding": (1, 1, 1, 1), "groups": 3}),
    "planes multiplied in bands":
        ((40, 36, 2), 10, (3, 3), {"padding": (1, 1, 1, 1), "groups": 2, "strides": (2, 2)}),
    "even": ((5, 6, 2), 2, (2, 4), {"padding": (0, 1, 1, 2), "groups": 2, "strides": (1, 2)}),
}


def layer(name: str, given: str = "x") -> tuple[Any, dict[str, Array], Array]:
    """A quantised layer of TFLite Micro's arithmetic, its input, and what NumPy says."""
    (rows, columns, inputs), outputs, window, attrs = WINDOWS[name]
    rng = np.random.default_rng(len(name))
    x = extremes(rng, (1, rows, columns, inputs), "int8")
    groups = attrs.get("groups", 1)
    w = extremes(rng, (outputs, *window, inputs // groups), "int8")
    zero, bias = 17, rng.integers(-9000, 9000, outputs).astype("int32")
    is_lowest = name.startswith(("rescaled", "planes")) and "any point" not in name
    point = -128 if is_lowest else -3
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, outputs).astype("int32")
    power = rng.integers(-9, -5, outputs).astype("int32")
    if name.startswith("planes"):
        power[-1] = -2  # which kernels that round by a product have no factor for
    kernel = np.moveaxis(w, 0, -1) if groups == 1 else w.transpose(1, 2, 0, 3)
    made = relay.qnn.conv2d(
        relay.var(given, shape=x.shape, dtype="int8"), relay.const(kernel), relay.const(zero),
        relay.const(0), relay.const(1.0), relay.const(1.0), kernel_size=window, channels=outputs,
        data_layout="NHWC", kernel_layout="HWIO" if groups == 1 else "HWOI", **attrs,
    )
    made = relay.qnn.rescale(
        relay.add(made, relay.const(bias)), relay.const(multiplier), relay.const(power),
        relay.const(0), relay.const(point), axis=3, rounding="TWICE", is_normal=True,
    )
    first = {key: value[0] if key == "dilation" else value for key, value in attrs.items()}
    first["padding"] = attrs.get("padding", 0)
    total = convolved(
        np.moveaxis(x, 3, 1).astype("int64") - zero, np.moveaxis(w, 3, 1).astype("int64"), first
    )
    sums = np.moveaxis(total, 1, 3) + bias
    high = (sums * multiplier + (1 << 30)) >> 31
    half = np.where(high < 0, -1, 0) + (np.int64(1) << -power - 1)
    want = np.clip(((high + half) >> -power) + point, -128, 127)
    return made, {given: x}, want.astype("int8")


@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "depthwise with gaps"])
def test_layers_are_exact(name: str) -> None:
    made, feeds, want = layer(name)
    wanted = "planes" if WINDOWS[name][3].get("groups", 1) > 1 else "halves"
    mod = implement(made, M4, wanted, target="c")
    is_window = name == "window of the image"
    is_rescaled = name.startswith("rescaled") or is_window
    assert names_in(mod) == ([] if is_rescaled else [wanted])
    kind = "window" if is_window else "planes" if wanted == "planes" else "pixels"
    rescaled = f"qnn.rescaled_{kind}"
    assert (rescaled in mod.astext()) == is_rescaled
    built = relay.build(mod, target="c")
    assert "_out(" in built.get_lib().get_source() or not name.endswith("written out")
    np.testing.assert_array_equal(run_built(built, **feeds), want)


@pytest.mark.parametrize(("rows", "depth", "units"), [
    (1, 21, 8), (1, 8, 7), (7, 12, 5), (1, 512, 6), (1, 512, 3), (1, 64, 2), (1, 20, 1),
])
def test_rows_are_exact(rows: int, depth: int, units: int) -> None:
    rng = np.random.default_rng(depth)
    x, w = extremes(rng, (rows, depth), "int8"), extremes(rng, (units, depth), "int8")
    data = relay.var("x", shape=x.shape, dtype="int8")
    made = relay.nn.dense(data, relay.const(w), out_dtype="int32")
    mod = implement(made, M4, "halves", target="c")
    assert names_in(mod) == ["halves"]
    found = run_built(relay.build(mod, target="c"), x=x)
    np.testing.assert_array_equal(found, x.astype("int32") @ w.astype("int32").T)


def test_only_processors_with_the_instructions_take_them() -> None:
    made, _, _ = layer("deep")
    chosen = {"cortex-m4": ["halves"], "cortex-m7": ["halves"], "cortex-m3": ["across"]}
    for cpu, wanted in chosen.items():
        assert implemented_for(made, f"c -mcpu={cpu}") == wanted, cpu
    assert implemented_for(made, "c -mtriple=riscv32-unknown-elf") == ["across"]
    assert implemented_for(made, "c") == []


def described(name: str) -> Contraction:
    (rows, columns, inputs), outputs, window, attrs = WINDOWS[name]
    top, left, bottom, right = attrs.get("padding", (0, 0, 0, 0))
    strides = attrs.get("strides", (1, 1))
    result = ((rows + top + bottom - window[0]) // strides[0] + 1,
              (columns + left + right - window[1]) // strides[1] + 1)
    int8 = DataType("int8")
    return Contraction(
        1, (rows, columns), inputs, result, outputs, int8, int8, DataType("int32"), window,
        strides, before=(top, left), after=(bottom, right), groups=attrs.get("groups", 1),
    )


@pytest.mark.parametrize("name", ["colours", "odd depth", "depthwise", "one column", "even"])
def test_weights_come_back(name: str) -> None:
    made = described(name)
    plan = Plan.of("planes", outputs=made.result[1]) if made.groups > 1 else (
        Plan.of("halves", pixels=1, channels=1))
    rng = np.random.default_rng(3)
    weights = extremes(rng, (made.outputs, *made.window, made.depth), "int8")
    packed = packed_planes(made, weights) if made.groups > 1 else packed_words(weights, 1)
    found = implementation_of(plan).unpack(made, plan, (packed,))
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize(("plan", "message"), [
    (Plan.of("halves", pixels=2, channels=2), "some pixels of a channel, or some channels"),
    (Plan.of("halves", pixels=7, channels=1), "at most 6 sums"),
    (Plan.of("halves", pixels=1, channels=4), "tiles of 4 channels do not hold 6"),
])
def test_plans_that_do_not_fit(plan: Plan, message: str) -> None:
    data = relay.var("x", shape=(1, 5, 5, 8), dtype="int8")
    weights = [np.zeros((6, 2, 1, 4), "int8")]
    with pytest.raises(ValueError, match=message):
        packed_conv2d(data, plan, weights, 6, (1, 1), out_dtype="int32").checked_type  # noqa: B018


# ---- the intrinsics ----


def test_words_as_halves() -> None:
    word = tvm.tir.decl_buffer((4,), "int32", "word")
    out = tvm.tir.decl_buffer((4, 4), "int32", "out")
    ib = tvm.tir.ir_builder.create()
    given, found = ib.buffer_ptr(word), ib.buffer_ptr(out)
    with ib.for_range(0, 4, name="i") as i:
        found[i, 0] = halves.widen_even(given[i])
        found[i, 1] = halves.widen_odd(given[i])
        found[i, 2] = halves.join_halves(given[i], given[3 - i])
        found[i, 3] = halves.high_product(given[i], tvm.tir.const(0x5A827999, "int32"))
    func = tvm.tir.PrimFunc("f", (word.data, out.data), (word, out), ib.get())
    x = np.array([0x7F80FF01, -1, -(1 << 31), (1 << 31) - 1], "int64")
    want = np.stack([
        [halves.even_of_bytes(int(v)) for v in x], [halves.odd_of_bytes(int(v)) for v in x],
        [halves.joined(int(a), int(b)) for a, b in zip(x, x[::-1], strict=True)],
        (x * 0x5A827999 + (1 << 30)) >> 31,
    ], axis=1)
    assert want[0, :2].tolist() == [-0x7FFFFF, 0x7FFFFF]
    for target in ("llvm", "c", None):
        got = np.zeros((4, 4), "int32")
        run = interpreter.run if target is None else (
            lambda func, *arrays, to=target: tvm.build(func, target=to)(*arrays))
        run(func, x.astype("int32"), got)
        np.testing.assert_array_equal(got, want, err_msg=str(target))
    with pytest.raises(TypeError, match="widen_even takes words of type int32, not int8"):
        halves.widen_even(tvm.tir.const(1, "int8"))
