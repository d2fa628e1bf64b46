"""Masks that hide later keys make attention causal, however large and however they are written."""

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.driver.relay_build import optimize
from sterna.ir.transform import PassContext
from sterna.target import Target


def triangle(kind: str, length: int) -> relay.RelayExpr:
    """A mask as exporters write it, or as constants are folded."""
    ones = np.tri(length, dtype=bool)
    if kind == "truths":
        return relay.const(ones)
    if kind == "numbers":
        return relay.const(np.where(ones, 0, -np.inf).astype("float32"))
    whole = relay.broadcast_to(relay.const(np.float32(1)), (length, length))
    lower = relay.trilu(whole, relay.const(0, "int64"), upper=False)
    hidden = relay.equal(lower, relay.const(np.float32(0)))
    made: relay.RelayExpr = relay.where(
        hidden, relay.const(np.float32(-np.inf)), relay.const(np.float32(0))
    )
    return made


def attention(kind: str, length: int) -> sterna.IRModule:
    shape = (1, 2, length, 16)
    q, k, v = (relay.var(name, shape=shape) for name in "qkv")
    scores = relay.nn.batch_matmul(q, k, transpose_b=True)
    mask = triangle("spelt" if kind == "shifted" else kind, length)
    if kind == "shifted":
        mask = relay.add(mask, relay.const(np.float32(1)))
    if kind == "truths":
        scores = relay.where(mask, scores, relay.const(np.float32(-np.inf)))
    else:
        scores = relay.add(scores, mask)
    body = relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False)
    return sterna.IRModule.from_expr(relay.Function((q, k, v), body))


@pytest.mark.parametrize("kind", ["truths", "numbers", "spelt", "shifted"])
def test_masks(kind: str) -> None:
    target = Target("cuda -arch=sm_90a")
    with PassContext(3):
        made, _ = optimize(attention(kind, 24), target, {})
    assert ("causal=True" in str(made["main"])) is (kind != "shifted")


@pytest.mark.parametrize("name", ["cuda -arch=sm_90a", "llvm"])
@pytest.mark.parametrize("hidden", [-np.inf, -1.0, None])
def test_masks_of_attention(name: str, hidden: float | None) -> None:
    """A constant mask that hides all later keys is read by nobody; others stay."""
    q, k, v = (relay.var(each, shape=(1, 24, 2, 16)) for each in "qkv")
    lower = np.tri(24, dtype=bool)
    mask = lower if hidden is None else np.where(lower, 0, hidden).astype("float32")
    body = relay.nn.masked_attention(q, k, v, relay.const(mask))
    with PassContext(3):
        made, _ = optimize(
            sterna.IRModule.from_expr(relay.Function((q, k, v), body)), Target(name), {})
    assert ("nn.masked_attention" in str(made["main"])) is (hidden == -1.0)
