"""AMX with bytes: in the interpreter on every machine, and in machine code where it is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.arrays import Array
from sterna.relay.expr import Call, Function, Var
from sterna.relay.op import Case, Op, find
from sterna.schedule.amx_bands import pack_tiles, parts_of, unpack_tiles
from sterna.schedule.implementation import Plan
from sterna.target import Target, processor_of
from sterna.tir import interpreter
from tests.op.harness import check_case, type_of
from tests.schedule.byte_layers import SIGNS, extremes, quantised
from tests.schedule.implemented import implemented_for, packed_conv2d, run_built

NATIVE = "llvm -mcpu=native"
SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"


@given(st.integers(1, 40), st.integers(1, 3), st.integers(4, 300))
@settings(max_examples=60)
def test_packed_weights_are_the_same(channels: int, segments: int, segment: int) -> None:
    rng, shape = np.random.default_rng(segment), (channels, segments, segment)
    plain = rng.integers(-128, 128, shape).astype("int8")
    count, size = parts_of(segment)
    assert size <= min(segment, 64) and size % 4 == 0 and count * size >= segment
    np.testing.assert_array_equal(unpack_tiles(pack_tiles(plain), *shape), plain)


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
    segments, segment = window[0], window[1] * depth
    if dilation[1] > 1:
        segments, segment = window[0] * window[1], depth
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    data, weight = draw(st.sampled_from(SIGNS))
    shape = (draw(st.integers(1, 2)), height, width, depth)
    plain = extremes(rng, (channels, segments, segment), weight)
    operands = extremes(rng, shape, data), pack_tiles(plain)
    return Case(operands, {
        **packed(draw(st.integers(1, 3))), "channels": channels, "kernel_size": window,
        "strides": strides, "dilation": dilation, "border": draw(st.integers(0, 127)),
        "padding": tuple(draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))),
    })


def packed(threads: int) -> dict[str, Any]:
    """The attributes of every nn.conv2d of bytes in tiles."""
    return {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "int32",
            "implementation": str(Plan.of("amx", threads=threads))}


def check_interpreted(name: str, case: Case) -> None:
    """The statements of an operator's kernel give what its reference gives."""
    record = find(name)
    assert record.attrs is not None and record.reference is not None
    attrs = record.attrs(**case.attrs)
    params = tuple(Var(f"v{n}", type_of(array)) for n, array in enumerate(case.inputs))
    function = Function(params, Call(Op(name), params, attrs))
    loops = lower_kernel(function, "kernel", processor_of(Target(SAPPHIRE))).function
    want = record.reference(attrs, *case.inputs)
    found = np.zeros(want.shape, want.dtype)
    interpreter.run(loops, *case.inputs, found)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("shape", "attrs"), [
    ((2, 3, 3, 13), {"channels": 35, "kernel_size": 1, **packed(2)}),
    ((1, 3, 4, 6), {"channels": 3, "kernel_size": (3, 2), "strides": 2, "padding": (1, 0, 2, 1),
                    "dilation": (1, 2), "border": -3, **packed(1)}),
])
def test_convolutions_in_the_interpreter(shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    segments = 1 if attrs["kernel_size"] == 1 else 6
    weight = pack_tiles(extremes(rng, (attrs["channels"], segments, shape[3]), "int8"))
    case = Case((extremes(rng, shape, "int8"), weight), attrs)
    check_interpreted("nn.conv2d", case)


def test_dense_layers_in_the_interpreter() -> None:
    rng = np.random.default_rng(0)
    weight = pack_tiles(extremes(rng, (19, 1, 20), "int8"))
    case = Case((extremes(rng, (2, 3, 20), "uint8"), weight), {
        "units": 19, "out_dtype": "int32", "implementation": "amx(threads=1)"
    })
    check_interpreted("nn.dense", case)


@given(convolutions())
@settings(max_examples=12)
def test_convolutions_in_machine_code(case: Case) -> None:
    check_case(find("nn.conv2d"), case, NATIVE)


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
        np.testing.assert_array_equal(run_built(lib, **feeds), want)


def chosen(size: int, depth: int, channels: int, target: str) -> list[str]:
    """The implementation of a convolution of single pixels."""
    data = relay.var("x", shape=(1, size, size, depth), dtype="uint8")
    weight = relay.const(np.ones((1, 1, depth, channels), "int8"))
    made = relay.nn.conv2d(
        data, weight, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32"
    )
    return implemented_for(made, target)


def test_the_cheaper_way_is_taken() -> None:
    """Sums of a few products are done before a tile is stored; a processor may have no tiles."""
    assert chosen(32, 256, 64, SAPPHIRE) == ["amx"]
    assert chosen(32, 8, 64, SAPPHIRE) == []
    assert chosen(32, 256, 64, "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server") == []


def test_what_they_take() -> None:
    def made(dtype: str, depth: int, shape: tuple[int, ...], **attrs: Any) -> Any:
        x = relay.var("x", shape=(1, 4, 4, depth), dtype=dtype)
        w = relay.var("w", shape=shape, dtype="int8")
        kinds = {"out_dtype": "int32", **attrs}
        return packed_conv2d(x, Plan.of("amx", threads=1), [w], 20, 1, **kinds)

    assert tuple(made("uint8", 8, (2, 1, 2, 16, 4)).checked_type.shape) == (1, 4, 4, 20)
    with pytest.raises(ValueError, match=(
        r"implementation 'amx\(threads=1\)' does not fit: packed weights are "
        r"\[\(2, 1, 2, 16, 4\)\], not \[\(1, 1, 2, 16, 4\)\]"
    )):
        made("uint8", 8, (1, 1, 2, 16, 4))
    several = "bytes or bfloat16 with channels last, in one group and with at least 4 bytes side by"
    with pytest.raises(ValueError, match=rf"{several}.* not .* float32 int8 int32"):
        made("float32", 8, (2, 1, 2, 16, 4))
    with pytest.raises(ValueError, match=rf"{several}.* not 1x4x4x3 [*] 20x1x1x3"):
        made("uint8", 3, (2, 1, 1, 16, 4))
    for refused in ({"out_dtype": "int16"}, {"out_dtype": "int64"}, {"groups": 2}):
        with pytest.raises(ValueError, match=several):
            made("uint8", 8, (2, 1, 2, 16, 4), **refused)
