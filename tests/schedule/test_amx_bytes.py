"""Layers of bytes in tiles: in the interpreter on every machine, and in machine code with AMX."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sterna.op.nn.conv_tiles import ConvTilesAttrs
from tests.op.test_integer_kernels import SIGNS, extremes, quantised

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.ir.types import TensorType
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.arrays import Array
from sterna.relay.expr import Call, Function, Var
from sterna.relay.op import Case, Op, find
from sterna.schedule.amx_kernel import pack_tiles, parts_of, unpack_tiles
from sterna.support.dtype import DataType
from sterna.target import Target, processor_of
from sterna.tir import interpreter
from tests.op.harness import check_case

NATIVE = "llvm -mcpu=native"
SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


@given(st.integers(1, 40), st.integers(1, 3), st.integers(4, 300))
@settings(max_examples=60, deadline=None)
def test_packed_weights_are_the_same(channels: int, runs: int, run: int) -> None:
    plain = np.random.default_rng(run).integers(-128, 128, (channels, runs, run)).astype("int8")
    count, size = parts_of(run)
    assert size <= min(run, 64) and size % 4 == 0 and count * size >= run
    np.testing.assert_array_equal(unpack_tiles(pack_tiles(plain), channels, runs, run), plain)


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """One whose every extent may be odd."""
    window, dilation, strides = (
        (draw(st.integers(1, high)), draw(st.integers(1, high))) for high in (3, 2, 3)
    )
    height, width = (
        draw(st.integers(k * d, 12)) for k, d in zip(window, dilation, strict=True)
    )
    depth, channels = draw(st.integers(4, 80)), draw(st.integers(1, 70))
    runs, run = window[0], window[1] * depth
    if dilation[1] > 1:
        runs, run = window[0] * window[1], depth
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    data, weight = draw(st.sampled_from(SIGNS))
    shape = (draw(st.integers(1, 2)), height, width, depth)
    operands = extremes(rng, shape, data), pack_tiles(extremes(rng, (channels, runs, run), weight))
    return Case(operands, {
        "channels": channels, "kernel_size": window, "strides": strides, "dilation": dilation,
        "padding": tuple(draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))),
        "border": draw(st.integers(0, 127)), "threads": draw(st.integers(1, 3)),
    })


def check_interpreted(name: str, case: Case) -> None:
    """The statements of an operator's kernel give what its reference gives."""
    record = find(name)
    assert record.attrs is not None and record.reference is not None
    attrs = record.attrs(**case.attrs)
    params = tuple(
        Var(f"v{place}", TensorType(array.shape, DataType(str(array.dtype))))
        for place, array in enumerate(case.inputs)
    )
    function = Function(params, Call(Op(name), params, attrs))
    loops = lower_kernel(function, "kernel", processor_of(Target(SAPPHIRE))).function
    want = record.reference(attrs, *case.inputs)
    found = np.zeros_like(want)
    interpreter.run(loops, *case.inputs, found)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("shape", "attrs"), [
    ((2, 3, 3, 13), {"channels": 35, "kernel_size": 1, "threads": 2}),
    ((1, 3, 4, 6), {"channels": 3, "kernel_size": (3, 2), "strides": 2, "padding": (1, 0, 2, 1),
                    "dilation": (1, 2), "border": -3}),
])
def test_convolutions_in_the_interpreter(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    runs = 1 if attrs["kernel_size"] == 1 else 6
    weight = pack_tiles(extremes(rng, (attrs["channels"], runs, shape[3]), "int8"))
    case = Case((extremes(rng, shape, "int8"), weight), attrs)
    check_interpreted("nn.conv2d_tiles", case)


def test_dense_layers_in_the_interpreter() -> None:
    rng = np.random.default_rng(0)
    weight = pack_tiles(extremes(rng, (19, 1, 20), "int8"))
    case = Case((extremes(rng, (2, 3, 20), "uint8"), weight), {"units": 19})
    check_interpreted("nn.dense_tiles", case)


@given(convolutions())
@settings(max_examples=12, deadline=None)
def test_convolutions_in_machine_code(case: Case) -> None:
    check_case(find("nn.conv2d_tiles"), case, NATIVE)


# ---- graphs ----


def built(kind: str, signs: tuple[str, str], target: str) -> tuple[Any, Any, Array]:
    made, feeds, want = quantised(kind, signs, 3)
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(made), target=target), feeds, want


@pytest.mark.parametrize("kind", ["deep", "dense", "few"])
def test_layers_are_multiplied_in_tiles(kind: str) -> None:
    code = built(kind, SIGNS[0], SAPPHIRE)[0].get_lib().get_source("asm")
    assert "tdpbusd" in code and "vpdpbusd" not in code
    for signs in SIGNS[:2]:
        lib, feeds, want = built(kind, signs, NATIVE)
        module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        module.run(**feeds)
        np.testing.assert_array_equal(module.get_output(0).numpy(), want)


def chosen(size: int, depth: int, channels: int, target: str) -> str:
    """The operator that a convolution of single pixels becomes."""
    data = relay.var("x", shape=(1, size, size, depth), dtype="uint8")
    weight = relay.const(np.ones((1, 1, depth, channels), "int8"))
    made = relay.nn.conv2d(
        data, weight, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32"
    )
    passes = [relay.transform.InferType(), relay.transform.Tiles(processor_of(Target(target)))]
    with tvm.transform.PassContext(opt_level=3):
        found = str(tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(made)))
    return "tiles" if "nn.conv2d_tiles" in found else "dots"


def test_the_cheaper_way_is_taken() -> None:
    """Sums of a few products are done before a tile is stored; a processor may have no tiles."""
    assert chosen(32, 256, 64, SAPPHIRE) == "tiles"
    assert chosen(32, 8, 64, SAPPHIRE) == "dots"
    assert chosen(32, 256, 64, "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server") == "dots"


def test_what_they_take() -> None:
    record, attrs = find("nn.conv2d_tiles"), ConvTilesAttrs(20, (1, 1))
    data = TensorType((1, 4, 4, 8), DataType("uint8"))
    with pytest.raises(ValueError, match=r"weight of \(2, 1, 2, 16, 4\)"):
        record.infer(attrs, data, TensorType((1, 1, 2, 16, 4), DataType("int8")))
    with pytest.raises(ValueError, match="integers of 8 bits, not float32 and int8"):
        record.infer(attrs, TensorType((1, 4, 4, 8), DataType("float32")),
                     TensorType((2, 1, 2, 16, 4), DataType("int8")))
    with pytest.raises(ValueError, match="at least 4 of uint8 side by side, not 3"):
        record.infer(attrs, TensorType((1, 4, 4, 3), DataType("uint8")),
                     TensorType((2, 1, 1, 16, 4), DataType("int8")))
