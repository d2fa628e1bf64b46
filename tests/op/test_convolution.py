"""Convolutions: references against torch, layouts against each other, types, counts, messages."""

from typing import Any

import numpy as np
import pytest

from sterna import relay, te
from sterna.ir.types import TensorType
from sterna.relay.layout import layout_of, transform
from sterna.relay.op import record_of
from sterna.support.dtype import DataType
from tests.op.torch_support import functional, reference, tensor


def draw(rng: np.random.Generator, rank: int) -> dict[str, Any]:
    return {
        "strides": tuple(rng.integers(1, 4, rank).tolist()),
        "padding": tuple(rng.integers(0, 3, rank).tolist()),
        "dilation": tuple(rng.integers(1, 3, rank).tolist()),
        "groups": int(rng.integers(1, 4)),
    }


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_is_torchs(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(15):
        attrs = draw(rng, rank)
        inner, outer = (int(n) * attrs["groups"] for n in rng.integers(1, 4, 2))
        x = rng.standard_normal((2, inner, *rng.integers(6, 9, rank)))
        w = rng.standard_normal((outer, inner // attrs["groups"], *rng.integers(1, 4, rank)))
        want = getattr(functional(), f"conv{rank}d")(
            tensor(x), tensor(w), None, attrs["strides"], attrs["padding"], attrs["dilation"],
            attrs["groups"],
        )
        np.testing.assert_allclose(reference(f"nn.conv{rank}d", x, w, **attrs), want.numpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolution_is_torchs(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(15):
        attrs = draw(rng, rank)
        limits = [max(pair) for pair in zip(attrs["strides"], attrs["dilation"], strict=True)]
        attrs["output_padding"] = tuple(int(rng.integers(0, limit)) for limit in limits)
        inner, outer = (int(n) * attrs["groups"] for n in rng.integers(1, 4, 2))
        x = rng.standard_normal((2, inner, *rng.integers(5, 7, rank)))
        w = rng.standard_normal((inner, outer // attrs["groups"], *rng.integers(2, 5, rank)))
        want = getattr(functional(), f"conv_transpose{rank}d")(
            tensor(x), tensor(w), None, attrs["strides"], attrs["padding"],
            attrs["output_padding"], attrs["groups"], attrs["dilation"],
        )
        got = reference(f"nn.conv{rank}d_transpose", x, w, **attrs)
        np.testing.assert_allclose(got, want.numpy(), atol=1e-12)


@pytest.mark.parametrize("name", ["nn.conv2d", "nn.conv2d_transpose"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("data", "kernel", "out"),
    [
        ("NHWC", "HWIO", ""),
        ("NHWC", "OHWI4o", "NCHW"),
        ("NCHW2c", "OIHW2i4o", "NCHW4c"),
        ("NCHW4c", "OIHW2i2o2i", "NHWC8c"),
    ],
)
def test_layouts_say_the_same(name: str, groups: int, data: str, kernel: str, out: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 8, 5, 6))
    weights = (8, 8 // groups, 3, 2)
    w = rng.standard_normal(weights)
    plain = "OIHW" if name == "nn.conv2d" else "IOHW"
    attrs: dict[str, Any] = {"strides": (2, 1), "padding": (1, 0, 2, 1), "groups": groups}
    want = reference(name, x, w, **attrs)
    got = reference(
        name,
        transform(x, layout_of("NCHW"), layout_of(data)),
        transform(w, layout_of(plain), layout_of(kernel)),
        data_layout=data, kernel_layout=kernel, out_layout=out, **attrs,
    )
    back = transform(got, layout_of(out or data), layout_of("NCHW"))
    np.testing.assert_allclose(back, want)


def test_a_depthwise_convolution_takes_weights_in_both_forms() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 5, 5)), rng.standard_normal((3, 2, 3, 3))
    by_input = reference("nn.conv2d", x, w, groups=3)
    by_output = reference("nn.conv2d", x, w.reshape(6, 1, 3, 3), groups=3)
    np.testing.assert_array_equal(by_input, by_output)


def test_a_deformed_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 7, 6)), rng.standard_normal((6, 2, 3, 3))
    attrs: dict[str, Any] = {"groups": 2, "padding": 1, "strides": 2}
    still = np.zeros((2, 18, 4, 3))
    want = reference("nn.conv2d", x, w, **attrs)
    np.testing.assert_allclose(reference("nn.deformable_conv2d", x, still, w, **attrs), want)
    halves = np.full((2, 9, 4, 3), 0.5)
    got = reference("nn.modulated_deformable_conv2d", x, still, w, halves, **attrs)
    np.testing.assert_allclose(got, want / 2)


def test_what_a_deformed_window_reads_is_torchs() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 7, 6)), np.eye(3).reshape(3, 3, 1, 1)
    moves = 3 * rng.standard_normal((2, 2, 7, 6))
    rows, columns = np.mgrid[:7, :6]
    grid = np.stack(
        [(columns + moves[:, 1]) * 2 / 5 - 1, (rows + moves[:, 0]) * 2 / 6 - 1], axis=-1
    )
    want = functional().grid_sample(tensor(x), tensor(grid), align_corners=True).numpy()
    np.testing.assert_allclose(reference("nn.deformable_conv2d", x, moves, w), want, atol=1e-12)


def test_attributes_are_normalised() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.conv2d(x, w, strides=2, padding=[1, 2], kernel_size=3)
    assert y.attrs.strides == (2, 2)
    assert y.attrs.padding == (1, 2, 1, 2)
    assert y.attrs.kernel_size == (3, 3)


def test_classic_layouts_of_transposed_weights() -> None:
    x, w = relay.var("x", shape=(1, 3, 8)), relay.var("w", shape=(3, 5, 4))
    y = relay.nn.conv1d_transpose(x, w, (2,), (1,), (1,), 1, 5, (4,), "NCW", "OIW")
    assert y.checked_type == TensorType((1, 5, 16))
    assert y.attrs.kernel_layout == "IOW"


def test_untyped_weights() -> None:
    x = relay.var("x", shape=(1, 8, 9, 9), dtype="float16")
    w = relay.var("w")
    y = relay.nn.conv2d(x, w, channels=6, kernel_size=(3, 3), groups=2, kernel_layout="HWIO")
    assert y.checked_type == TensorType((1, 6, 7, 7), DataType("float16"))
    assert w.checked_type == TensorType((3, 3, 4, 6), DataType("float16"))
    w = relay.var("w")
    y = relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 3), groups=8)
    assert y.checked_type == TensorType((1, 16, 7, 7), DataType("float16"))
    assert w.checked_type == TensorType((8, 2, 3, 3), DataType("float16"))
    w = relay.var("w")
    z = relay.nn.conv2d_transpose(x, w, channels=6, kernel_size=2, strides=2, groups=2)
    assert z.checked_type == TensorType((1, 6, 18, 18), DataType("float16"))
    assert w.checked_type == TensorType((8, 3, 2, 2), DataType("float16"))


def test_extents_that_only_the_run_knows() -> None:
    x = relay.var("x", shape=(relay.Any(), 3, relay.Any(), 8))
    w = relay.var("w", shape=(4, 3, 3, 3))
    assert relay.nn.conv2d(x, w, padding=1).checked_type == TensorType(
        (relay.Any(), 4, relay.Any(), 8)
    )
    y = relay.nn.conv2d_transpose(x, relay.var("v", shape=(3, 4, 2, 2)), strides=2)
    assert y.checked_type == TensorType((relay.Any(), 4, relay.Any(), 16))
    n = te.size_var("n")
    z = relay.nn.conv1d(relay.var("x", shape=(n, 3, 8)), relay.var("w", shape=(4, 3, 3)))
    assert isinstance(z.checked_type, TensorType)
    assert z.checked_type.shape[0] is n


def macs(expr: relay.Call) -> int:
    record = record_of(expr)
    assert record is not None
    assert record.macs is not None
    return record.macs(expr.attrs, expr.checked_type, *[arg.checked_type for arg in expr.args])


def test_multiply_adds() -> None:
    x = relay.var("x", shape=(1, 8, 9, 9))
    assert macs(relay.nn.conv2d(x, relay.var("w", shape=(4, 8, 3, 3)))) == 4 * 7 * 7 * 8 * 9
    assert macs(relay.nn.conv2d(x, relay.var("w", shape=(8, 1, 3, 3)), groups=8)) == 8 * 49 * 9
    transposed = relay.nn.conv2d_transpose(x, relay.var("w", shape=(8, 5, 2, 2)), strides=2)
    assert macs(transposed) == 81 * 8 * 5 * 4
    cut = relay.nn.conv2d_transpose(
        x, relay.var("w", shape=(8, 5, 3, 1)), channels=5, kernel_size=(3, 1), padding=(9, 0),
        dilation=(5, 1),
    )
    assert cut.checked_type.concrete_shape[2:] == (1, 9), "of nine rows the last but five is read"
    assert macs(cut) == 1 * 9 * 8 * 5


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"padding": (1, 2, 3)}, r"padding is 1, 2 or 4 numbers, not 3: \(1, 2, 3\)"),
        ({"padding": -1}, r"padding is not negative: \(-1,\)"),
        ({"strides": (0, 1)}, r"strides is at least 1, not \(0, 1\)"),
        ({"groups": 2}, r"the number of data's channels \(2 groups of 3 in weight\) is 6, not 3"),
        ({"channels": 5}, "weight's number of output channels is 5, not 4"),
        ({"kernel_size": (3, 2)}, r"kernel_size \(3, 2\): an extent of weight"),
        ({"data_layout": "NCDHW"}, "data_layout 'NCDHW' must have the axes N, C, H, W"),
        ({"data_layout": "NCHW4h"}, "data_layout 'NCHW4h' blocks the axis H"),
        ({"out_layout": "NCHW8c"}, "4 channels do not fill whole blocks of 8"),
        ({"dilation": 9}, "a window that reaches over 19 elements does not fit into an extent of"),
    ],
)
def test_mistakes(attrs: dict[str, Any], message: str) -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    with pytest.raises(ValueError, match=message):
        relay.nn.conv2d(x, w, **attrs)
