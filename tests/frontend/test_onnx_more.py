"""Images, recurrent networks, quantised tensors and spectra of ONNX."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.support import check, run_evaluator

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


NONE = np.zeros(0, "float32")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("places", ["half_pixel", "align_corners", "asymmetric"])
def test_resize_to_sizes_and_by_scales(mode: str, places: str) -> None:
    data = floats(1, 2, 4, 5)
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": places}
    how["tolerance"] = 1e-4
    scales = np.array([1, 1, 1.5, 2], "float32")
    check("Resize", data, NONE, scales, weights=[1, 2], opset=13, **how)
    check("Resize", data, None, None, np.array([1, 2, 3, 9]), weights=[3], opset=13, **how)


def test_resizes_of_other_kinds() -> None:
    data = floats(1, 2, 4, 5)
    for how in ("round_prefer_ceil", "floor", "ceil"):
        check("Resize", data, None, None, np.array([1, 2, 7, 9]), weights=[3], nearest_mode=how)
    check("Resize", data, None, None, np.array([7, 9]), weights=[3], opset=18, axes=[2, 3],
          mode="linear")
    roi = np.array([0, 0, 0.2, 0.3, 1, 1, 0.8, 1.2], "float32")
    check("Resize", data, roi, None, np.array([1, 2, 6, 7]), weights=[1, 3], mode="linear",
          coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0)
    scales = np.array([1, 1, 2, 3], "float32")
    check("Upsample", data, scales, weights=[1], opset=9)
    check("Upsample", data, opset=7, scales=[1.0, 1.0, 2.0, 3.0])
    check("Resize", data, scales, weights=[1], opset=10)
    for factors in ([0.6, 0.4], [0.6, 2.5], [3, 0.7], [0.5, 1]):
        smaller = np.array([1, 1, *factors], "float32")
        check("Resize", data, smaller, weights=[1], opset=10)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizes_as_the_standard_says(mode: str) -> None:
    data = floats(2, 3, 7, 5)
    how: dict[str, Any] = {"mode": mode, "reference": run_evaluator, "tolerance": 1e-4}
    for places in ("align_corners", "half_pixel", "half_pixel_symmetric", "asymmetric"):
        how["coordinate_transformation_mode"] = places
        for scale in (0.43, 1.7):
            check("Resize", data, None, np.array([scale, 0.6], "float32"), weights=[2], opset=19,
                  axes=[2, 3], **how)
        for policy in ("not_larger", "not_smaller"):
            check("Resize", data, None, None, np.array([4, 9]), weights=[3], opset=19, axes=[3, 1],
                  keep_aspect_ratio_policy=policy, **how)
    check("Resize", data, None, None, np.array([3, 2, 4, 7]), weights=[3], opset=19, **how)
    for axes in ([1], [1, 2], [0, 1, 2]):  # what lies behind them are channels
        check("Resize", data, None, None, np.array([5, 4, 3][: len(axes)]), weights=[3], opset=19,
              axes=axes, **how)
    roi = np.array([0.1, 0.3, 0.8, 1.2], "float32")
    how["coordinate_transformation_mode"] = "tf_crop_and_resize"
    check("Resize", data, roi, None, np.array([4, 9]), weights=[1, 3], opset=19, axes=[1, 2],
          extrapolation_value=2.5, **how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizes_without_aliases(mode: str) -> None:
    data = floats(1, 2, 9, 8)
    how: dict[str, Any] = {"mode": mode, "antialias": 1, "opset": 19, "tolerance": 1e-4}
    how["reference"] = run_evaluator
    scales = np.array([1, 1, 0.4, 1.5], "float32")
    for places in ("align_corners", "half_pixel", "asymmetric"):
        how["coordinate_transformation_mode"] = places
        check("Resize", data, None, scales, weights=[2], exclude_outside=1, **how)
        check("Resize", data, None, None, np.array([3, 7]), weights=[3], axes=[2, 3], **how)


def test_resizes_of_whole_numbers() -> None:
    scales = np.array([1, 1, 0.7, 1.5], "float32")
    for dtype in ("uint8", "int32"):
        data = RNG.integers(0, 255, (1, 2, 6, 5)).astype(dtype)
        for smooth in (0, 1):
            check("Resize", data, None, scales, weights=[2], opset=19, mode="cubic",
                  reference=run_evaluator, antialias=smooth)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample(mode: str, padding: str) -> None:
    grid = RNG.uniform(-1.2, 1.2, (1, 3, 4, 2)).astype("float32")
    check("GridSample", floats(1, 2, 5, 6), grid, mode=mode, padding_mode=padding, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_of_lines_and_volumes(mode: str) -> None:
    how: dict[str, Any] = {"opset": 20, "mode": mode, "tolerance": 1e-4, "align_corners": 1}
    line = RNG.uniform(-1.2, 1.2, (1, 4, 1)).astype("float32")
    volume = RNG.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype("float32")
    for padding in ("zeros", "reflection"):
        how.update(padding_mode=padding, reference=run_evaluator)
        check("GridSample", floats(1, 2, 7), line, **how)
        check("GridSample", floats(1, 2, 4, 3, 5), volume, **how)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_networks(kind: str, gates: int, direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    data, weight, back = floats(4, 2, 3), floats(d, gates * 5, 3), floats(d, gates * 5, 5)
    how: dict[str, Any] = {"hidden_size": 5, "direction": direction, "tolerance": 1e-4}
    many = 3 if kind == "LSTM" else 2
    check(kind, data, weight, back, weights=[1, 2], outputs=many, **how)
    check(kind, data, weight, back, floats(d, gates * 10), np.array([4, 2], "int32"),
          floats(d, 2, 5), weights=[1, 2, 3], outputs=many, **how)


def test_gru_and_lstm_of_other_kinds() -> None:
    data = floats(4, 2, 3)
    check("GRU", data, floats(1, 15, 3), floats(1, 15, 5), floats(1, 30), hidden_size=5,
          linear_before_reset=1, tolerance=1e-4)
    check("LSTM", data, floats(1, 20, 3), floats(1, 20, 5), floats(1, 40), None, floats(1, 2, 5),
          floats(1, 2, 5), floats(1, 15), hidden_size=5, tolerance=1e-4)


def test_quantised_tensors() -> None:
    data = floats(2, 3, 4) * 50
    scale, point = np.float32(0.4), np.uint8(120)
    check("QuantizeLinear", data, scale, point, weights=[1, 2])
    check("QuantizeLinear", data, np.array([0.3, 0.5, 2], "float32"), np.array([1, 2, -3], "int8"),
          weights=[1, 2])
    whole = RNG.integers(-128, 127, (2, 3, 4)).astype("int8")
    check("DequantizeLinear", whole, scale, np.int8(3), weights=[1, 2])
    check("DequantizeLinear", whole, np.array([0.3, 0.5, 2], "float32"))
    check("DynamicQuantizeLinear", data, outputs=3)


def test_products_of_whole_numbers() -> None:
    a = RNG.integers(0, 255, (3, 4)).astype("uint8")
    b = RNG.integers(0, 255, (4, 5)).astype("uint8")
    check("MatMulInteger", a, b, np.uint8(7), np.uint8(9), weights=[1])
    s = np.float32(0.02)
    check("QLinearMatMul", a, s, np.uint8(7), b, s, np.uint8(9), np.float32(0.5), np.uint8(100))
    x = RNG.integers(0, 255, (1, 2, 5, 5)).astype("uint8")
    w = RNG.integers(-9, 9, (3, 2, 3, 3)).astype("int8")
    check("ConvInteger", x, w.astype("uint8"), np.uint8(3), pads=[1, 1, 1, 1])
    check("QLinearConv", x, s, np.uint8(7), w, np.array([0.1, 0.2, 0.3], "float32"),
          np.zeros(3, "int8"), np.float32(0.3), np.uint8(100), np.array([5, 6, 7], "int32"),
          weights=[3, 4, 5, 8])


def test_spectra() -> None:
    check("DFT", floats(1, 10, 1), axis=1, tolerance=1e-4)
    check("DFT", floats(1, 10, 1), axis=1, onesided=1, tolerance=1e-4)
    check("STFT", floats(1, 32, 1), np.int64(8), floats(16), weights=[1, 2], tolerance=1e-4)
    for kind in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        check(kind, np.int64(9), weights=[0])
    numbers = [np.int64(8), np.int64(64), np.int64(8000), np.float32(0), np.float32(4000)]
    check("MelWeightMatrix", *numbers, weights=range(5))
