"""Regions of images, different elements, and caches of ONNX."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.support import check, run_evaluator

RNG = np.random.default_rng(13)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


ROIS = np.array([[0.3, 1.1, 9.7, 6.2], [4.0, 2.0, 17.9, 12.1], [5.0, 5.0, 9.2, 7.1]], "float32")
IMAGES = np.array([0, 1, 1])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("places", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, places: str) -> None:
    how: dict[str, Any] = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}
    how.update(mode=mode, tolerance=1e-4)
    data = floats(2, 3, 7, 9)
    check("RoiAlign", data, ROIS, IMAGES, opset=16, coordinate_transformation_mode=places,
          sampling_ratio=2, **how)
    check("RoiAlign", data, ROIS, IMAGES, opset=10, **how)


def test_max_roi_pool() -> None:
    regions = np.concatenate([IMAGES[:, None], ROIS], 1).astype("float32")
    check("MaxRoiPool", floats(2, 3, 7, 9), regions, pooled_shape=[3, 2], spatial_scale=0.5)


def test_non_max_suppression() -> None:
    corners = RNG.uniform(0, 1, (2, 12, 2)).astype("float32")
    boxes = np.concatenate([corners, corners + 0.3], 2)
    scores = RNG.uniform(0, 1, (2, 3, 12)).astype("float32")
    most, overlap, least = np.array([4]), np.float32(0.3), np.float32(0.5)
    check("NonMaxSuppression", boxes, scores, most, overlap, least)
    check("NonMaxSuppression", boxes, scores, most, overlap, center_point_box=1)
    check("NonMaxSuppression", boxes, scores)


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique(is_sorted: int) -> None:
    data = RNG.integers(0, 3, (4, 2, 2)).astype("float32")
    check("Unique", data, outputs=4, sorted=is_sorted)
    check("Unique", np.concatenate([data, data[1:2]]), outputs=4, axis=0, sorted=is_sorted)
    check("Unique", data, axis=-1, sorted=is_sorted)


def test_tensor_scatter() -> None:
    cache, update = floats(2, 3, 5, 4), floats(2, 3, 2, 4)
    how: dict[str, Any] = {"opset": 24, "reference": run_evaluator}
    check("TensorScatter", cache, update, **how)
    check("TensorScatter", cache, update, np.array([1, 3]), **how)
    check("TensorScatter", cache, update, np.array([4, 2]), mode="circular", **how)
    check("TensorScatter", floats(2, 6, 3), floats(2, 6, 2), np.array([1, 0]), axis=2, **how)


def test_steps_of_training() -> None:
    how: dict[str, Any] = {"domain": "ai.onnx.preview.training", "reference": run_evaluator}
    rate, norm = np.float32(0.1), 0.01
    for count in (np.int64(0), np.int64(3)):
        pairs = [floats(3), floats(2, 2), floats(3), floats(2, 2)]
        states = [abs(floats(3)), abs(floats(2, 2))]
        check("Adagrad", rate, count, *pairs, *states, outputs=4, norm_coefficient=norm,
              decay_factor=0.1, epsilon=1e-5, **how)
        check("Adam", rate, count, *pairs, *pairs[:2], *states, outputs=6, alpha=0.8, beta=0.9,
              epsilon=1e-2, norm_coefficient=norm, norm_coefficient_post=0.1, **how)
        for mode in ("standard", "nesterov"):
            check("Momentum", rate, count, *pairs, *states, outputs=4, alpha=0.9, beta=0.7,
                  mode=mode, norm_coefficient=norm, **how)
