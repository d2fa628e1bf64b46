"""What runtimes answer in several ways, decided by the text of the ONNX standard."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.frontend.support import bare_model, run_imported

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def run(op: str, *arrays: Any, opset: int = 19, **attrs: Any) -> Any:
    """What the imported model of one node gives for its first operand; others are weights."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(arrays)]
    held = {name: value for name, value in zip(names, arrays, strict=True) if name}
    feeds = {names[0]: held.pop(names[0])}
    node = helper.make_node(op, names, ["y"], **attrs)
    return run_imported(bare_model([node], feeds, held, ["y"], opset), feeds)[0]


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (2, 3)])
def test_convolutions_of_kernels_smaller_than_the_stride(
    auto_pad: str, kernel: int, stride: int
) -> None:
    """The result has ceil(extent / stride) elements; nothing is padded, and nothing cut off."""
    x, w = floats(1, 2, 7), floats(3, 2, kernel)
    got = run("Conv", x, w, auto_pad=auto_pad, strides=[stride])
    assert got.shape == (1, 3, -(-7 // stride))
    missing = max(0, (got.shape[2] - 1) * stride + kernel - 7)
    first = missing // 2 if auto_pad == "SAME_UPPER" else missing - missing // 2
    want = run("Conv", x, w, pads=[first, missing - first], strides=[stride])
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (2, 3), (1, 4)])
def test_transposed_ones_have_stride_times_the_extent(
    auto_pad: str, kernel: int, stride: int
) -> None:
    """What no product falls on is 0: the odd one at the end, or as SAME_LOWER at the front."""
    x, w = floats(1, 2, 3), floats(2, 3, kernel)
    got = run("ConvTranspose", x, w, auto_pad=auto_pad, strides=[stride])
    assert got.shape == (1, 3, 3 * stride)
    bare = run("ConvTranspose", x, w, strides=[stride])
    more = stride - kernel
    first = more // 2 if auto_pad == "SAME_UPPER" else more - more // 2
    want = np.pad(bare, ((0, 0), (0, 0), (first, more - first)))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("how", [{"ceil_mode": 1}, {"dilations": [2]}, {"kernel_shape": [1]}])
def test_pools_that_pad_by_themselves(op: str, auto_pad: str, how: dict[str, Any]) -> None:
    """ceil(extent / stride) windows, whatever ceil_mode and dilations say."""
    x = floats(1, 2, 9)
    attrs = {"kernel_shape": [3], "strides": [2], **how}
    got = run(op, x, auto_pad=auto_pad, **attrs)
    reach = (attrs["kernel_shape"][0] - 1) * how.get("dilations", [1])[0] + 1
    border = max(0, 4 * 2 + reach - 9)
    first = border // 2 if auto_pad == "SAME_UPPER" else border - border // 2
    attrs.pop("ceil_mode", None)
    want = run(op, x, pads=[first, border - first], **attrs)
    assert got.shape == (1, 2, 5)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("start", [-1, 0, 2, 4])
def test_slices_backward_to_a_large_end(start: int, end: int) -> None:
    """An end is held to the last element, before which nothing lies on the way back."""
    operands = [np.array([value], "int64") for value in (start, end, 0, -1)]
    assert run("Slice", floats(5), *operands).shape == (0,)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_integers_are_resized_alike(mode: str) -> None:
    """The numbers of the exact result, to the nearest whole one: in every type that holds them."""
    image = RNG.integers(40, 90, (1, 1, 3, 4))
    scales = np.array([1, 1, 2, 1.5], "float32")
    exact = run("Resize", image.astype("float32"), None, scales, mode=mode)
    for dtype in ("uint8", "int8", "int32", "int64"):
        got = run("Resize", image.astype(dtype), None, scales, mode=mode)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, exact, atol=0.5001)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers(op: str, dtype: str) -> None:
    """Results have the element type of data, which holds no fraction."""
    data = RNG.integers(1, 50, (3, 4)).astype(dtype)
    axes = np.array([1], "int64")
    want = {
        "ReduceL2": np.sqrt((data * data).sum(1)), "ReduceLogSum": np.log(data.sum(1)),
        "ReduceLogSumExp": np.log(np.exp(data.astype("float64")).sum(1)),
    }[op]
    got = run(op, data, axes, keepdims=0)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.trunc(want))
