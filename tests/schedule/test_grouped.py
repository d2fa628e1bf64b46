"""Grouped convolutions: a register tile lies in one group, whatever its channels are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.lowering.lower_kernel import lower_kernel
from sterna.op.nn._conv_layout import alter_conv2d
from sterna.op.nn._conv_shape import contraction_of
from sterna.op.nn.conv import reference_conv
from sterna.relay.layout import from_plain, layout_of, to_plain
from sterna.schedule.implementations.direct import packing_of
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import group_widths

NEON = Processor(128, 32, by_element_fma=True)
AVX512 = Processor(512, 32, threads=3)
PROCESSORS = {
    "neon": NEON,
    "neon in parts": Processor(128, 32, by_element_fma=True, l1_bytes=2048, l2_bytes=512),
    "avx2": Processor(256, 16, threads=2),
    "avx512": AVX512,
    "avx512 in parts": Processor(512, 32, l1_bytes=256, l2_bytes=512, threads=2),
}


@dataclass(frozen=True)
class Grouped:
    """A convolution of some groups of so many input and output channels."""

    groups: int
    inputs: int
    outputs: int
    window: tuple[int, int]
    image: tuple[int, int]
    data_layout: str
    attrs: dict[str, Any]
    processor: str


@st.composite
def grouped(draw: st.DrawFn) -> Grouped:
    """Windows that fit into the image, with or without a border."""
    window = draw(st.sampled_from([(1, 1), (3, 3), (1, 3), (5, 2)]))
    dilation = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    least = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    return Grouped(
        groups=draw(st.sampled_from([2, 3, 4, 5, 8])),
        inputs=draw(st.sampled_from([2, 3, 4, 5, 8, 12, 16])),
        outputs=draw(st.sampled_from([1, 2, 3, 4, 6, 8, 17, 20, 24, 32])),
        window=window,
        image=(least[0] + draw(st.integers(0, 8)), least[1] + draw(st.integers(0, 14))),
        data_layout=draw(st.sampled_from(["NCHW", "NHWC"])),
        attrs={
            "strides": draw(st.sampled_from([(1, 1), (2, 2), (1, 2)])),
            "dilation": dilation,
            "padding": draw(st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 1, 0)])),
        },
        processor=draw(st.sampled_from(list(PROCESSORS))),
    )


def check(layer: Grouped, kernel_layout: str = "") -> tuple[Any, dict[str, Any]]:
    """The kernel with packed weights gives what NumPy gives; its attributes and its choices.

    kernel_layout: one that a user has chosen.
    """
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, layer.groups * layer.inputs, *layer.image), "float32")
    shape = (layer.groups * layer.outputs, layer.inputs, *layer.window)
    weight = rng.standard_normal(shape, "float32")
    own = from_plain(data, "NCHW", layout_of(layer.data_layout))
    call = relay.nn.conv2d(
        relay.var("x", shape=own.shape), relay.const(weight), groups=layer.groups,
        data_layout=layer.data_layout, kernel_layout="OIHW", **layer.attrs,
    )
    call.checked_type  # noqa: B018  (arguments get their types)
    plain: Any = call.attrs
    want = to_plain(reference_conv(plain, own, weight), layout_of(layer.data_layout), "NCHW")
    processor = PROCESSORS[layer.processor]
    altered: Any = alter_conv2d(plain, call.args, processor) or plain
    contraction = contraction_of(
        altered, TensorType(from_plain(data, "NCHW", layout_of(altered.data_layout)).shape),
        TensorType(shape),
    )
    assert contraction is not None
    packing = kernel_layout or packing_of(contraction, processor).weights
    altered = altered.replace(kernel_layout=packing)
    laid = from_plain(data, "NCHW", layout_of(altered.data_layout))
    packed = from_plain(weight, "OIHW", layout_of(altered.kernel_layout))
    x, w = relay.var("x", shape=laid.shape), relay.var("w", shape=packed.shape)
    made = relay.nn.relu(relay.nn.conv2d(x, w, **dict(altered.items())))
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(made))["main"].body.op
    lowered = lower_kernel(kernel, "kernel", processor)
    out = tvm.nd.empty(kernel.body.checked_type.shape)
    built = tvm.build(lowered.function, target="llvm")["kernel"]
    built(tvm.nd.array(laid), tvm.nd.array(packed), out)
    have = to_plain(out.numpy(), layout_of(altered.out_layout or altered.data_layout), "NCHW")
    np.testing.assert_allclose(have, np.maximum(want, 0), rtol=1e-4, atol=1e-5 * abs(want).max())
    return altered, lowered.choices


@given(grouped())
@settings(max_examples=20, derandomize=True)
def test_grouped_convolutions(layer: Grouped) -> None:
    altered, _ = check(layer)
    (block,) = layout_of(altered.kernel_layout).blocks_of("O")
    assert layer.outputs % block == 0 or block % layer.outputs == 0, "no group is torn"


@pytest.mark.parametrize("processor", ["neon", "avx512"])
@pytest.mark.parametrize("channels", [(4, 4), (17, 17), (68, 68), (20, 80)])
def test_channels_of_well_known_networks(channels: tuple[int, int], processor: str) -> None:
    layer = Grouped(4, *channels, (1, 1), (3, 14), "NCHW", {}, processor)
    altered, _ = check(layer)
    assert altered.data_layout == "NHWC"
    assert layout_of(altered.kernel_layout).blocks_of("O")


@pytest.mark.parametrize("channels", [(4, 4), (3, 4), (2, 4), (2, 2)])
def test_small_groups_share_a_vector(channels: tuple[int, int]) -> None:
    """A register holds the numbers of four groups or more; their products take them by shuffles."""
    attrs = {"strides": (1, 2), "padding": (1, 1, 1, 1)}
    altered, choices = check(Grouped(16, *channels, (3, 3), (5, 9), "NHWC", attrs, "avx512"))
    assert altered.kernel_layout == "OHWI16o"
    assert choices["tile"] == "5 x 16"


@pytest.mark.parametrize("processor", ["neon", "avx512"])
@pytest.mark.parametrize("kernel_layout", ["OHWI8o", "HWIO", "OHWI12o"])
def test_blocks_of_a_user_may_cross_groups(kernel_layout: str, processor: str) -> None:
    layer = Grouped(4, 8, 6, (1, 3), (3, 9), "NHWC", {}, processor)
    check(layer, kernel_layout)


def test_tiles_divide_the_channels_of_a_group() -> None:
    assert group_widths(68, 4) == (17, 4, 2, 1)
    assert group_widths(68, 16) == (68, 34, 17, 4, 2, 1)
    assert group_widths(4, 16) == (4, 2, 1)


def test_weights_come_once_where_the_image_of_a_group_is_near() -> None:
    """The whole image is large, but a block of channels reads that of its group alone."""
    x, weight = relay.var("x", shape=(1, 7, 7, 2048)), np.ones((2048, 64, 3, 3), "float32")
    made = relay.nn.conv2d(
        x, relay.const(weight), groups=32, padding=1, data_layout="NHWC", kernel_layout="OIHW"
    )
    module = tvm.IRModule.from_expr(relay.Function((x,), made))
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=1"
    kernels = tvm.compile(module, target=target).report().kernels
    (taken,) = [kernel.decisions["weights"] for kernel in kernels if "weights" in kernel.decisions]
    assert str(taken).startswith("parts")
