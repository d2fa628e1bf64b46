"""im2col: when channels stay first, and its numbers on this machine."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.relay.expr import RelayExpr
from sterna.relay.interpreter import interpret
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Plan
from sterna.schedule.implementations.im2col import (
    IMPLEMENTATION,
    Tile,
    tiles,
    ways_of_copying,
)
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from tests.schedule.implemented import implement, names_in, run_built

NEON = Processor(128, 32, by_element_fma=True, l1_bytes=64 << 10, l2_bytes=1 << 20)
X86_64 = "llvm -mtriple=x86_64-linux-gnu"
AVX512 = Processor(512, 32, l1_bytes=48 << 10, l2_bytes=2 << 20)


def conv(data: Any, outputs: int, window: tuple[int, int] = (1, 1), **attrs: Any) -> RelayExpr:
    """A convolution with channels first and known weights."""
    inputs = data.checked_type.shape[1] // attrs.get("groups", 1)
    weight = np.random.default_rng(7).standard_normal((outputs, inputs, *window), "float32")
    made: RelayExpr = relay.nn.conv2d(data, relay.const(weight / inputs), **attrs)
    return made


def layouts_in(mod: Any) -> list[str]:
    """The layouts of the data of all convolutions."""
    found: list[str] = []

    def look(expr: Any) -> None:
        if hasattr(getattr(expr, "attrs", None), "kernel_layout"):
            found.append(expr.attrs.data_layout)

    relay.analysis.post_order_visit(mod["main"], look)
    return found


@pytest.mark.parametrize("processor", [NEON, AVX512], ids=["neon", "avx512"])
def test_a_pointwise_convolution_alone_keeps_its_layout(processor: Processor) -> None:
    x = relay.var("x", shape=(1, 64, 28, 28))
    mod = implement(relay.nn.relu(conv(x, 256)), processor)
    assert (names_in(mod), layouts_in(mod)) == (["im2col"], ["NCHW"])
    assert "layout_transform" not in str(mod)


def test_channels_lie_last_beside_a_convolution_that_gains_by_it() -> None:
    x = relay.var("x", shape=(1, 64, 28, 28))
    mod = implement(conv(relay.nn.relu(conv(x, 64, (3, 3), padding=1)), 256), NEON)
    assert layouts_in(mod) == ["NHWC", "NHWC"]


def test_a_chain_of_pointwise_convolutions_has_one_layout() -> None:
    x = relay.var("x", shape=(1, 32, 40, 40))
    mod = implement(conv(relay.nn.relu(conv(x, 64)), 32), NEON)
    assert layouts_in(mod) == ["NCHW", "NCHW"]


def test_tiles_fill_the_registers() -> None:
    assert {str(min(found, key=found.__getitem__)) for found in (tiles(NEON, 96, 768),)} <= {
        "8 x 12", "12 x 8"
    }
    found = tiles(AVX512, 140, 3200)
    assert str(min(found, key=found.__getitem__)) == "14 x 32"


@pytest.mark.parametrize(
    ("image", "outputs", "window", "attrs"),
    [
        ((8, 30, 7, 7), 50, (1, 1), {}),
        ((2, 36, 13, 9), 30, (1, 1), {"groups": 3, "strides": (2, 2)}),
        ((1, 3, 64, 48), 40, (16, 16), {"strides": (16, 16)}),
        ((2, 20, 1, 70), 33, (1, 5), {"padding": (0, 2), "dilation": (1, 3)}),
        ((1, 24, 6, 11), 17, (3, 1), {"padding": (1, 0)}),
        ((1, 12, 9, 17), 10, (3, 3), {"padding": (1, 1), "strides": (1, 2)}),
        ((2, 5, 28, 28), 5, (3, 3), {"padding": 1, "strides": 2, "groups": 5}),
        ((1, 6, 7, 7), 6, (5, 5), {"padding": 2, "groups": 6}),
    ],
    ids=["batch", "groups", "patches", "row", "column", "window", "lines apart", "lines"],
)
def test_numbers(
    image: tuple[int, ...], outputs: int, window: tuple[int, int], attrs: dict[str, Any]
) -> None:
    x = relay.var("x", shape=image)
    bias = relay.const(np.linspace(-1, 1, outputs, dtype="float32"))
    made = conv(x, outputs, window, **attrs)
    func = relay.Function((x,), relay.nn.relu(relay.nn.bias_add(made, bias)))
    check_numbers(func, {})


@pytest.mark.parametrize("copied", ["rows", "cut_rows"])
@pytest.mark.parametrize("strides", [1, 2])
def test_numbers_of_lines_that_are_copied_whole(copied: str, strides: int) -> None:
    x = relay.var("x", shape=(1, 6, 15, 15))
    made = conv(x, 10, (3, 3), strides=strides, groups=2)
    check_numbers(relay.Function((x,), made), {"copied": copied})


@pytest.mark.parametrize(("shape", "window", "attrs"), [
    ((2, 66, 15, 9), (3, 3), {"strides": (2, 1), "padding": (2, 1, 1, 0), "groups": 2}),
    ((1, 40, 1, 150), (1, 5), {"dilation": (1, 3)}),
    ((1, 300, 9, 11), (1, 1), {"strides": (2, 2)}),
    ((1, 70, 12, 7), (3, 1), {}),
], ids=["border", "row", "pixels", "column"])
def test_numbers_of_some_channels_at_a_time(
    shape: tuple[int, ...], window: tuple[int, int], attrs: dict[str, Any]
) -> None:
    """Of 300 channels 100 at once, of 33 11, of 40 20; of 70 channels 35."""
    x = relay.var("x", shape=shape)
    made = conv(x, 14, window, **attrs)
    func = relay.Function((x,), relay.nn.relu(made))
    depth, steps = shape[1] // attrs.get("groups", 1), window[0] * window[1]
    chunks = -(-depth // -(-128 // steps))
    channels = {"channels": str(-(-depth // chunks))}
    check_numbers(func, channels | {"copied": "tiles"})


@pytest.mark.parametrize("size, stride, channels", [(80, 2, 15), (80, 1, 15), (14, 1, 256)])
def test_images_that_are_far_come_by_some_channels(size: int, stride: int, channels: int) -> None:
    kind = DataType("float32")
    made = Contraction(
        1, (size, size), 256, (size // stride,) * 2, 32, kind, kind, kind, window=(3, 3),
        strides=(stride,) * 2, before=(1, 1), after=(1, 1), data_layout="NCHW", out_layout="NCHW",
    )
    assert IMPLEMENTATION.plan(made, AVX512).integer("channels") == channels


@pytest.mark.parametrize("shape", [(2, 9, 13, 17), (1, 6, 8, 8), (3, 5, 1, 131)])
@pytest.mark.parametrize("outputs", [1, 3, 40])
def test_numbers_of_pixels_that_are_read_in_place(shape: tuple[int, ...], outputs: int) -> None:
    x = relay.var("x", shape=shape)
    made = relay.add(conv(x, outputs), relay.const(np.float32(0.5)))
    check_numbers(relay.Function((x,), made), {"copied": "in_place"})


@pytest.mark.parametrize(("outputs", "fetches"), [(8, True), (96, False)])
def test_pixels_that_are_read_in_place_once_are_fetched_ahead(outputs: int, fetches: bool) -> None:
    x = relay.var("x", shape=(1, 64, 32, 32))
    func = relay.Function((x,), conv(x, outputs))
    answers = {"layouts": "NCHW -> NCHW", "implementation": "im2col", "copied": "in_place"}
    target = f"{X86_64} -mcpu=skylake-avx512"
    with tvm.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        code = relay.build(tvm.IRModule.from_expr(func), target=target).get_lib().get_source("asm")
    assert ("prefetch" in code) == fetches


def check_numbers(func: relay.Function, more: dict[str, str]) -> None:
    """As im2col, with some more answers, against the interpreter."""
    image = func.params[0].checked_type.concrete_shape  # type: ignore[attr-defined]
    answers = {"layouts": "NCHW -> NCHW", "implementation": "im2col", **more}
    with tvm.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        lib = relay.build(tvm.IRModule.from_expr(func), target="native")
    data = np.random.default_rng(3).standard_normal(image, "float32")
    want = interpret(func, data)
    np.testing.assert_allclose(run_built(lib, x=data), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("processor", [NEON, AVX512], ids=["neon", "avx512"])
@pytest.mark.parametrize(
    ("width", "depth", "copied"),
    [(14, 1, ["rows"]), (32, 1, ["tiles"]), (95, 451, ["tiles", "cut_rows"])],
)
def test_lines_are_copied_whole_unless_tiles_share_their_width(
    width: int, depth: int, copied: list[str], processor: Processor
) -> None:
    kind = DataType("float32")
    made = Contraction(
        1, (2 * width + 1,) * 2, 8 * depth, (width,) * 2, 8, kind, kind, kind, window=(3, 3),
        strides=(2, 2), groups=8, data_layout="NCHW", out_layout="NCHW",
    )
    ways = ways_of_copying(made, Tile(1, 2 * processor.lanes(made.out)), processor)
    assert min(ways, key=ways.__getitem__) == copied[processor is AVX512 and len(copied) > 1]


@pytest.mark.parametrize("way", ["packed", "as they lie"])
def test_weights_that_only_the_run_knows_are_packed_as_it_begins_or_read(way: str) -> None:
    x, w = relay.var("x", shape=(1, 12, 9, 9)), relay.var("w", shape=(10, 6, 3, 3))
    func = relay.Function((x, w), relay.nn.conv2d(x, w, groups=2, padding=1))
    answers = {"layouts": "NCHW -> NCHW", "free weights": way}
    with tvm.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        mod = relay.optimize(tvm.IRModule.from_expr(func), target=X86_64)[0]
        lib = relay.build(tvm.IRModule.from_expr(func), target="native")
    assert names_in(mod) == ["im2col"]
    assert ("transpose" in str(mod)) == (way == "packed")
    rng = np.random.default_rng(4)
    data, weight = (rng.standard_normal(s, "float32") for s in ((1, 12, 9, 9), (10, 6, 3, 3)))
    want = interpret(func, data, weight)
    np.testing.assert_allclose(run_built(lib, x=data, w=weight), want, rtol=2e-5, atol=2e-5)


def test_free_weights_are_read_as_they_lie_by_few_tiles() -> None:
    """Unless products take numbers from the lanes of a vector."""
    for size, processor, packs in ((7, AVX512, 0), (28, AVX512, 1), (7, NEON, 1)):
        x, w = relay.var("x", shape=(1, 64, size, size)), relay.var("w", shape=(96, 64, 1, 1))
        mod = implement(relay.Function((x, w), relay.nn.conv2d(x, w)), processor)
        assert (names_in(mod), str(mod).count("transpose(")) == (["im2col"], packs)


@pytest.mark.parametrize(("inner", "names"), [(1, []), (2, ["im2col"])])
def test_free_weights_of_single_channels_stay_as_they_lie(inner: int, names: list[str]) -> None:
    """im2col would copy every element for each place of the window."""
    x = relay.var("x", shape=(1, 16 * inner, 28, 28))
    w = relay.var("w", shape=(16 * inner, inner, 3, 3))
    mod = implement(relay.Function((x, w), relay.nn.conv2d(x, w, groups=16, padding=1)), NEON)
    assert (names_in(mod), layouts_in(mod)) == (names, ["NCHW"])


@pytest.mark.parametrize(("image", "channels", "message"), [
    ((9, 9), 12, "the border is made only by chunks"), ((1, 9), 6, "the border is made only"),
    ((9, 9), 6, ""),
])
def test_only_chunks_of_several_lines_make_a_border(
    image: tuple[int, int], channels: int, message: str
) -> None:
    kind = DataType("float32")
    high = image[0] > 1
    made = Contraction(
        1, image, 12, image, 8, kind, kind, kind, window=(3 if high else 1, 3), strides=(1, 1),
        before=(int(high), 1), after=(int(high), 1), data_layout="NCHW", out_layout="NCHW",
    )
    plan = Plan.of(
        "im2col", rows=8, columns=16, panel=1, channels=channels, shares=1, lanes=16, by_lanes=0,
        copied="tiles",
    )
    packed = [TensorType((1, 1, made.products, 8), kind)]
    if message:
        with pytest.raises(ValueError, match=message):
            IMPLEMENTATION.expect(made, plan, packed)
    else:
        IMPLEMENTATION.expect(made, plan, packed)


@pytest.mark.parametrize(("stride", "layout"), [(2, "NCHW"), (1, "NHWC")])
def test_strided_windows_with_large_weights_read_pixels_from_panels(
    stride: int, layout: str
) -> None:
    """Their pixels lie far apart; without a stride Winograd's way computes less."""
    x, weight = relay.var("x", shape=(1, 256, 28, 28)), np.ones((256, 256, 3, 3), "float32")
    made = relay.nn.conv2d(x, relay.const(weight), strides=stride, padding=1)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=1"
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(made)))
    text = str(relay.optimize(module, target)[0])
    assert ('data_layout="NHWC"' in text) is (layout == "NHWC")
