"""Histograms hold what was counted; schemes hold 0 and err by half a step inside their range."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sterna.quantization.affine import Affine
from sterna.quantization.entropy import entropy_threshold
from sterna.quantization.histogram import BINS, Histogram
from sterna.quantization.products import Products, outputs
from sterna.quantization.ranges import choose_scheme
from sterna.quantization.rounding import Rounding, rounded
from sterna.relay.arrays import Array

NUMBERS = hnp.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False))


@given(st.lists(NUMBERS, min_size=1, max_size=4))
@settings(max_examples=60)
def test_histograms_count_everything(parts: list[Array]) -> None:
    made = Histogram()
    for part in parts:
        made.add(part)
    whole = np.concatenate(parts)
    assert made.total == whole.size
    assert (made.low, made.high) == (whole.min(), whole.max())
    middles, counts = made.centres()
    assert counts.sum() == whole.size
    assert abs((middles * counts).sum() - whole.astype("float64").sum()) <= (
        made.width * whole.size + 1e-3 * np.abs(whole).sum() + 1e-6)
    other = Histogram()
    other.add(parts[0])
    assert made.joined(other).total == whole.size + parts[0].size


@given(NUMBERS, st.sampled_from(["uint8", "int8"]))
@settings(max_examples=60)
def test_schemes_are_off_by_half_a_step(numbers: Array, dtype: str) -> None:
    scheme = Affine.of_range(float(numbers.min()), float(numbers.max()), dtype)
    assert scheme.nearest(np.zeros(1, "float32"))[0] == 0
    low, high = scheme.ends
    inside = np.clip(numbers, low, high)
    error = np.abs(scheme.nearest(numbers).astype("float64") - inside)
    assert np.all(error <= scheme.scale * 0.502)
    whole = scheme.integers(numbers).astype("float64") - scheme.zero
    assert np.array_equal((whole * scheme.scale).astype("float32"), scheme.nearest(numbers))


def test_an_outlier_is_cut_off_where_its_weights_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (200, 1, 8)).astype("float32")
    rows[3, 0, 0] = 60
    seen = Histogram()
    seen.add(rows)
    blind = Products(rng.normal(0, 1, (1, 4, 8)).astype("float32"))
    blind.weights[..., 0] = 0
    blind.offer(rows)
    scheme = choose_scheme([seen], [blind], "int8")
    assert scheme.ends[1] < 30
    whole = Affine.of_range(seen.low, seen.high, "int8")
    assert blind.input_error(scheme) < blind.input_error(whole)


def test_weights_take_the_scale_that_serves_the_outputs() -> None:
    rng = np.random.default_rng(1)
    layer = Products(rng.normal(0, 1, (2, 3, 5)).astype("float32"))
    layer.offer(rng.normal(0, 1, (64, 2, 5)).astype("float32"))
    whole, scales = layer.quantized_weights()
    assert whole.dtype == np.int8 and scales.shape == (2, 3)
    plain = np.abs(layer.weights).max(2) / 127
    errors = [
        (outputs(layer.patches, np.clip(np.rint(layer.weights / s[..., None]), -127, 127)
                 * s[..., None] - layer.weights) ** 2).mean(0)
        for s in (scales, plain)
    ]
    assert np.all(errors[0] <= errors[1] * (1 + 1e-5))


def test_weights_are_rounded_so_that_errors_make_each_other_good() -> None:
    rng = np.random.default_rng(2)
    common = rng.normal(0, 1, (400, 2, 1))
    rows = (common + 0.1 * rng.normal(0, 1, (400, 2, 150))).astype("float32")
    seen, other = rows[:200], rows[200:]
    weights = rng.normal(0, 1, (2, 3, 150)).astype("float32")
    scales = (np.abs(weights).max(2) / 127).astype("float32")
    whole = Rounding(seen, is_centred=False).whole(weights, scales)
    assert np.array_equal(whole, np.rint(whole)) and np.abs(whole).max() <= 127
    errors = [(outputs(other, made * scales[..., None] - weights) ** 2).mean()
              for made in (whole, rounded(weights, scales))]
    assert errors[0] < 0.3 * errors[1]


def test_means_that_a_bias_takes_up_do_not_count() -> None:
    rng = np.random.default_rng(3)
    rows = (100 + rng.normal(0, 1, (300, 1, 16))).astype("float32")
    errors = []
    for takes_means in (False, True):
        layer = Products(rng.normal(0, 1, (1, 4, 16)).astype("float32"), takes_means)
        layer.offer(rows)
        whole, scales = layer.quantized_weights()
        scheme = Affine.of_range(0.0, 105.0, "uint8")
        errors.append(layer.total_error(scheme, whole * scales[..., None])[0])
    assert errors[1] < errors[0]


def test_patches_are_thinned_evenly_and_stay_few() -> None:
    layer = Products(np.ones((1, 1, 1), "float32"))
    for number in range(5000):
        layer.offer(np.full((1, 1, 1), number, "float32"))
    kept = layer.patches.ravel()
    assert len(kept) <= layer.most and kept[0] == 0 and kept[-1] > 4900
    assert len(set(np.diff(kept))) == 1


def test_the_threshold_by_entropy_leaves_out_a_long_tail() -> None:
    seen = Histogram()
    seen.add(np.random.default_rng(0).normal(0, 1, 100000).astype("float32"))
    seen.add(np.array([200.0], "float32"))
    assert seen.width * BINS / 2 >= 200
    assert 2 < entropy_threshold(seen) < 50
