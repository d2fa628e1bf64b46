"""Space-to-depth: steps over few channels as steps by 1 over the pixels of blocks."""

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from sterna import relay
from sterna.op.nn._conv_shape import Conv2DAttrs, contraction_of
from sterna.relay.infer import infer
from sterna.schedule.pixel_blocks import PixelBlocks
from tests.op.harness import evaluate, kind, reference


@given(
    st.sampled_from(["NCHW", "NHWC"]), st.integers(2, 4), st.integers(1, 4),
    st.tuples(*[st.integers(2, 9)] * 2), st.tuples(*[st.integers(0, 3)] * 4),
    st.tuples(*[st.integers(9, 17)] * 2), st.sampled_from([1, 4, 8, 16]),
)
def test_blocks_convolve_as_pixels_do(
    layout: str, step: int, channels: int, window: Any, padding: Any, image: Any, lanes: int
) -> None:
    rng = np.random.default_rng(0)
    axes = {"N": 2, "C": channels, "H": image[0], "W": image[1]}
    x = rng.integers(-9, 10, [axes[axis] for axis in layout]).astype("float32")
    w = rng.integers(-9, 10, (3, *window, channels)).astype("float32")
    given_attrs = {"strides": step, "padding": padding, "data_layout": layout, "out_layout": "NHWC"}
    want = reference("nn.conv2d", x, w, kernel_layout="OHWI", **given_attrs)
    attrs = Conv2DAttrs(kernel_layout="OHWI", **given_attrs)
    made = contraction_of(attrs, kind(x.shape), kind(w.shape))
    assert made is not None
    blocks = PixelBlocks.of(made, lanes)
    assume(blocks is not None)
    assert blocks is not None and blocks.shape[-1] % lanes == 0
    seen = blocks.contraction(made)
    assert (seen.batch, *seen.image, seen.inputs) == blocks.shape
    assert (seen.result, seen.outputs, seen.strides) == (made.result, made.outputs, (1, 1))
    moved = blocks.data(relay.const(x))
    infer(moved)
    weight = blocks.weight(w)
    assert weight.shape == (3, *seen.window, seen.inputs)
    got = reference(
        "nn.conv2d", evaluate(moved, {}), weight, data_layout="NHWC", kernel_layout="OHWI"
    )
    np.testing.assert_array_equal(got, want)
