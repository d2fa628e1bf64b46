"""Attention of ONNX, held against ONNX's evaluator."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from sterna.frontend import from_onnx
from tests.frontend.support import check, model_of, run_evaluator

RNG = np.random.default_rng(17)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


QUERY, KEY, VALUE = floats(2, 4, 3, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 6)
HOW: dict[str, Any] = {"opset": 25, "reference": run_evaluator, "outputs": 4}


@pytest.mark.parametrize("mode", range(4))
def test_what_the_scores_show(mode: int) -> None:
    cap = 1.5 if mode else 0.0  # the evaluator shows capped scores as raw ones
    check("Attention", QUERY, KEY, VALUE, floats(3, 5), qk_matmul_output_mode=mode, softcap=cap,
          scale=0.7, **HOW)


@pytest.mark.parametrize("causal", [0, 1])
def test_masks(causal: int) -> None:
    seen = RNG.random((2, 4, 3, 5)) < 0.4
    seen[0, 1, 2] = False  # a query that sees no key
    for mask in (seen, seen[0], seen[0, 0, :, :4], floats(3, 5), np.where(seen, 0, -np.inf)):
        given = mask if mask.dtype == bool else mask.astype("float32")
        check("Attention", QUERY, KEY, VALUE, given, is_causal=causal, **HOW)


@pytest.mark.parametrize("causal", [0, 1])
def test_windows_and_caches(causal: int) -> None:
    how: dict[str, Any] = {"is_causal": causal, **HOW}
    past = floats(2, 2, 4, 8), floats(2, 2, 4, 6)
    check("Attention", QUERY, KEY, VALUE, None, *past, **how)
    check("Attention", QUERY, KEY, VALUE, floats(3, 9), *past, left_window_size=2, **how)
    check("Attention", QUERY, KEY, VALUE, left_window_size=1, right_window_size=1, **how)
    counts = np.array([5, 2])
    check("Attention", QUERY, KEY, VALUE, None, None, None, counts, **how)
    check("Attention", QUERY, KEY, VALUE, None, None, None, counts, left_window_size=1,
          right_window_size=2, **how)


def test_heads_side_by_side() -> None:
    flat = floats(2, 3, 32), floats(2, 5, 16), floats(2, 5, 12)
    check("Attention", *flat, q_num_heads=4, kv_num_heads=2, **HOW)


def test_halves_do_not_overflow() -> None:
    query, key = (np.full((1, 1, 2, 64), 60, "float16") for _ in range(2))
    check("Attention", query, key, floats(1, 1, 2, 4).astype("float16"), opset=23, outputs=1,
          reference=run_evaluator, tolerance=2e-3)


def test_attention_tells_what_is_wrong() -> None:
    def fail(message: str, *given: Any, **attrs: Any) -> None:
        names = [f"x{i}" for i in range(len(given))]
        node = helper.make_node("Attention", names, ["y"], name="heads", **attrs)
        feeds = dict(zip(names, given, strict=True))
        with pytest.raises(ValueError, match=message):
            from_onnx(model_of([node], feeds, {}, ["y"], 25))

    fail("4 heads of queries are not a multiple of 3", QUERY, floats(2, 3, 5, 8), VALUE)
    fail("windows reach -1 or more keys", QUERY, KEY, VALUE, left_window_size=-2)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    query, key, value = floats(2, 5, 16), floats(2, 5, 8), floats(2, 5, 6)
    how: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule, "outputs": 2}
    how.update(opset=27, reference=run_evaluator, tolerance=1e-4)
    decay = -abs(floats(2, 5, 8)) if "gated" in rule else None
    beta = abs(floats(2, 5, 2)) / 4 if "delta" in rule else None
    check("LinearAttention", query, key, value, floats(2, 2, 4, 3), decay, beta, **how)
    scalar = None if decay is None else decay[..., :2]
    one = None if beta is None else beta[..., :1]
    check("LinearAttention", query, key, value, None, scalar, one, scale=0.3, **how)
