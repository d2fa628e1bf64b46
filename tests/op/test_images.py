"""Images: references against torch, types, messages."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.model.stages import Stages
from sterna.target import Target
from tests.op.harness import reference
from tests.op.torch_support import functional, tensor

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [(7, 3), (2, 11), (4, 1)])
def test_resize_is_torchs(size: tuple[int, int]) -> None:
    x = RNG.standard_normal((2, 3, 4, 5))
    stretch = functional().interpolate
    modes: dict[str, dict[str, Any]] = {
        "bilinear": {"method": "linear", "coordinate_transformation_mode": "half_pixel"},
        "bicubic": {"method": "cubic", "cubic_alpha": -0.75},
        "nearest": {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"},
        "nearest-exact": {"method": "nearest_neighbor", "rounding_method": "round_prefer_ceil"},
    }
    for mode, attrs in modes.items():
        want = stretch(tensor(x), size=size, mode=mode).numpy()
        got = reference("image.resize2d", x, size=size, layout="NCHW", **attrs)
        np.testing.assert_allclose(got, want, atol=1e-12)
    for mode, method in (("bilinear", "linear"), ("bicubic", "cubic")):
        want = stretch(tensor(x), size=size, mode=mode, align_corners=True).numpy()
        got = reference("image.resize2d", x, size=size, layout="NCHW", method=method,
                        cubic_alpha=-0.75, coordinate_transformation_mode="align_corners")
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("size", [(7, 3), (2, 11), (4, 2), (9, 9)])
def test_smooth_resize_is_torchs(size: tuple[int, int]) -> None:
    x = RNG.standard_normal((2, 3, 9, 8))
    for mode, method in (("bilinear", "linear"), ("bicubic", "cubic")):
        want = functional().interpolate(tensor(x), size=size, mode=mode, antialias=True).numpy()
        got = reference("image.smooth_resize", x, size=size, method=method, exclude_outside=True)
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_smooth_resize_tells_what_is_wrong() -> None:
    x = relay.var("x", shape=(1, 2, 8, relay.Any()))
    with pytest.raises(ValueError, match="axis 3 is not known"):
        relay.image.smooth_resize(x, size=(4, 4))
    with pytest.raises(ValueError, match="linear, cubic, not 'nearest_neighbor'"):
        relay.image.smooth_resize(x, size=(4,), axes=(2,), method="nearest_neighbor")
    with pytest.raises(ValueError, match="number of sizes is 2"):
        relay.image.smooth_resize(x, size=(4,))


def resized(line: list[float], size: int, **attrs: Any) -> list[float]:
    """A line of numbers at another length."""
    x = np.array(line).reshape(1, 1, -1)
    made: list[float] = reference("image.resize1d", x, size=(size,), layout="NCW", **attrs)[0, 0]
    return list(np.round(made, 6))


def test_nearest_elements() -> None:
    line = [0.0, 1.0, 2.0, 3.0]
    mode = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
    # places 0, 0.5, 1, 1.5, ...
    for rounding, want in {
        "floor": [0, 0, 1, 1, 2, 2, 3, 3], "ceil": [0, 1, 1, 2, 2, 3, 3, 3],
        "round_prefer_floor": [0, 0, 1, 1, 2, 2, 3, 3],
        "round_prefer_ceil": [0, 1, 1, 2, 2, 3, 3, 3], "round": [0, 1, 1, 2, 2, 3, 3, 3],
    }.items():
        assert resized(line, 8, rounding_method=rounding, **mode) == want


def test_coordinates() -> None:
    line = [1.0, 2.0, 3.0, 4.0]
    # the places by hand: scale 0.6 shows 2 of 2.4 elements, around the middle
    symmetric = resized(line, 2, coordinate_transformation_mode="half_pixel_symmetric",
                        scales=(0.6,))
    assert symmetric == [1.666667, 3.333333]
    assert resized(line, 2, scales=(0.6,)) == [1.333333, 3.0]
    assert resized(line, 1, coordinate_transformation_mode="pytorch_half_pixel") == [1.0]
    assert resized(line, 1, coordinate_transformation_mode="align_corners") == [1.0]
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    assert resized(line, 3, roi=(0.5, 1.5), **crop) == [2.5, 4.0, 9.0]
    assert resized(line, 1, roi=(0.0, 1.0), **crop) == [2.5]
    half = resized(line, 4, coordinate_transformation_mode="tf_half_pixel_for_nn",
                   method="nearest_neighbor", rounding_method="floor")
    assert half == line


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_is_torchs(padding: str, corners: bool) -> None:
    sample = functional().grid_sample
    for shape, layout, modes in (
        ((2, 3, 4, 5), "NCHW", ("bilinear", "nearest", "bicubic")),
        ((2, 3, 3, 4, 5), "NCDHW", ("bilinear", "nearest")),
    ):
        x = RNG.standard_normal(shape)
        grid = RNG.uniform(-3, 3, (2, *[6] * (len(shape) - 2), len(shape) - 2))
        moved = np.moveaxis(grid, -1, 1)
        for mode in modes:
            want = sample(tensor(x), tensor(grid), mode, padding, corners).numpy()
            got = reference("image.grid_sample", x, moved, method=mode, layout=layout,
                            padding_mode=padding, align_corners=corners)
            np.testing.assert_allclose(got, want, atol=1e-9)


@pytest.mark.parametrize("corners", [True, False])
def test_affine_grid_is_torchs(corners: bool) -> None:
    for matrix, size in (((2, 2, 3), (4, 5)), ((2, 3, 4), (2, 3, 4))):
        theta = RNG.standard_normal(matrix)
        want = functional().affine_grid(tensor(theta), (2, 1, *size), corners).numpy()
        got = reference("image.affine_grid", theta, target_shape=size, align_corners=corners)
        np.testing.assert_allclose(got, np.moveaxis(want, -1, 1), atol=1e-12)


def test_sizes_that_only_the_run_knows() -> None:
    x = relay.var("x", shape=(1, 3, relay.Any(), 8))
    assert relay.image.resize2d(x, (4, 5)).checked_type == TensorType((1, 3, 4, 5))
    size = relay.var("size", shape=(2,), dtype="int64")
    unknown = TensorType((1, 3, relay.Any(), relay.Any()))
    assert relay.image.resize2d(x, size).checked_type == unknown


def test_mistakes() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    with pytest.raises(ValueError, match="rounding_method is one of round, floor, ceil"):
        relay.image.resize2d(x, (4, 4), rounding_method="up")
    with pytest.raises(ValueError, match="the number of parts of roi is 4, not 0"):
        relay.image.resize2d(x, 4, coordinate_transformation_mode="tf_crop_and_resize")
    with pytest.raises(ValueError, match="padding_mode is one of zeros, border, reflection"):
        grid = relay.var("grid", shape=(1, 2, 4, 4))
        relay.image.grid_sample(x, grid, padding_mode="wrap")


@pytest.mark.parametrize(("times", "target", "vectors"), [
    (2, "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake", True),
    (2, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", True),
    (3, "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake", False),
])
def test_bytes_that_are_repeated_are_shuffled(times: int, target: str, vectors: bool) -> None:
    """Where whole vectors are made of them; else they are stored one by one."""
    x = relay.var("x", shape=(1, 2, 3, 40), dtype="uint8")
    made = relay.image.resize2d(
        x, (3, 40 * times), layout="NCHW", method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric", rounding_method="floor")
    function = relay.Function((x,), made)
    module = tvm.IRModule.from_expr(function)
    text = Stages.of(module, {}, Target(target), opt_level=3).text("tir", "")
    assert ("ramp(" in text) is vectors
    given = np.random.default_rng(0).integers(0, 256, (1, 2, 3, 40), dtype="uint8")
    np.testing.assert_array_equal(tvm.compile(function)(given), given.repeat(times, axis=3))
