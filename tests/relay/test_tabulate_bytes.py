"""Functions of one byte become tables of their values."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.relay import transform
from sterna.relay.expr import RelayExpr, Var
from sterna.relay.op import is_call_of
from sterna.relay.traverse import post_order
from sterna.schedule.kernel import Processor

SHAPE = (2, 3, 40)


def quantized(
    x: RelayExpr, scale: float = 0.05, zero: int = 3, dtype: str = "int8"
) -> Any:
    return relay.qnn.quantize(x, relay.const(scale), relay.const(zero), out_dtype=dtype)


def dequantized(x: RelayExpr, scale: float = 0.04, zero: int = -7) -> Any:
    return relay.qnn.dequantize(x, relay.const(scale), relay.const(zero))


def tabulated(params: tuple[Var, ...], body: RelayExpr, processor: Any = None) -> RelayExpr:
    module = sterna.IRModule.from_expr(relay.Function(params, body))
    passes = [transform.InferType(), transform.TabulateBytes(processor), transform.InferType()]
    main: RelayExpr = transform.Sequential(passes)(module)["main"]
    return main


def count(func: RelayExpr, name: str) -> int:
    return sum(is_call_of(expr, name) for expr in post_order(func))


@pytest.mark.parametrize("given", ["int8", "uint8"])
@pytest.mark.parametrize("made", ["int8", "uint8"])
def test_every_byte_is_looked_up(given: str, made: str) -> None:
    """Through the pass alone, and in a whole build, results are those of the references."""
    x = relay.var("x", shape=(4, 64), dtype=given)
    zero = -7 if given == "int8" else 121
    body = quantized(relay.sigmoid(dequantized(x, zero=zero)), 1 / 200, 3, made)
    func = tabulated((x,), body)
    assert count(func, "take") == 1 and count(func, "sigmoid") == 0
    every = np.arange(256).astype(given).reshape(4, 64)
    real = np.float32(0.04) * (every.astype("float32") - zero)
    wanted = np.rint(1 / (1 + np.exp(-real)) * 200) + 3
    limits = np.iinfo(made)
    found = sterna.compile(relay.Function((x,), body))(every)
    assert found.dtype == made
    assert np.abs(found.astype(int) - np.clip(wanted, limits.min, limits.max)).max() == 0


def test_wide_vectors_compute_what_is_cheap() -> None:
    """A leaky ReLU is looked up where vectors have 4 floats, and computed where they have 16."""
    x = relay.var("x", shape=SHAPE, dtype="int8")
    cheap = quantized(relay.nn.leaky_relu(dequantized(x), alpha=0.1))
    dear = quantized(relay.sigmoid(dequantized(x)))
    for bits, body, looked_up in ((128, cheap, 1), (512, cheap, 0), (128, dear, 1), (512, dear, 1)):
        func = tabulated((x,), body, Processor(bits, 32))
        assert count(func, "take") == looked_up, (bits, looked_up)


def test_whole_function_of_a_byte_is_one_table() -> None:
    """SiLU between bytes reads its operand twice, and rounds in between."""
    x = relay.var("x", shape=SHAPE, dtype="int8")
    gate = quantized(relay.sigmoid(dequantized(x)), 1 / 256, -128)
    body = quantized(dequantized(x) * dequantized(gate, 1 / 256, -128))
    func = tabulated((x,), body)
    assert count(func, "take") == 1 and count(func, "multiply") == 0


def test_two_tensors_are_no_byte() -> None:
    """A product of two inputs stays; what was made of one of them alone is looked up."""
    x, y = (relay.var(name, shape=SHAPE, dtype="int8") for name in "xy")
    gate = quantized(relay.tanh(dequantized(y)))
    func = tabulated((x, y), quantized(dequantized(x) * dequantized(gate)))
    assert count(func, "take") == 1 and count(func, "multiply") == 1 and count(func, "tanh") == 0


def test_bytes_in_between_that_are_read_are_kept() -> None:
    """A table for what is read elsewhere, and one for the end, both of the first bytes."""
    x = relay.var("x", shape=SHAPE, dtype="int8")
    first = quantized(relay.exp(dequantized(x)))
    second = quantized(relay.tanh(dequantized(first)))
    func = tabulated((x,), relay.Tuple((first, second)))
    assert count(func, "take") == 2
    data = np.arange(-120, 120, dtype="int8").reshape(SHAPE)
    got = sterna.compile(relay.Function((x,), relay.Tuple((first, second))))(data)
    plain = sterna.compile(relay.Function((x,), relay.Tuple((first, second))), opt_level=0)(data)
    for one, other in zip(got, plain, strict=True):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


@pytest.mark.parametrize("change", ["channels", "integers", "floats", "shape"])
def test_what_stays(change: str) -> None:
    """Scales of channels, whole numbers alone, floats at an end and other shapes are no tables."""
    x = relay.var("x", shape=SHAPE, dtype="int8")
    if change == "channels":
        scales = relay.const(np.array([0.1, 0.2, 0.3], "float32"))
        body = quantized(relay.tanh(relay.qnn.dequantize(x, scales, relay.const(0), axis=1)))
    elif change == "integers":
        body = relay.cast(relay.cast(x, "int32") // relay.const(2), "int8")
    elif change == "floats":
        body = relay.tanh(dequantized(x))
    else:
        row = relay.reshape(dequantized(x), (6, 40))
        body = quantized(relay.tanh(row))
    assert count(tabulated((x,), body), "take") == 0
