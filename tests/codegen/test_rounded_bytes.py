"""Bytes of rounded floats that fit 16 bits: exact, and without a conversion on AArch64."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.codegen.llvm.rounded_bytes import bounds, rounded
from sterna.ir.expr import Call
from sterna.support.dtype import DataType
from sterna.tir.stmt import BufferStore, statements_in


def scaled(kind: str, ratio: float, zero: float, bound: float, saturates: bool) -> Any:
    """Bytes of nearbyint(clip(a * b * ratio) + zero), of int16, by either form."""
    a, b = (te.placeholder((4096,), "int16", name) for name in "ab")
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def value(i: Any) -> Any:
        product = (a[i].astype("int32") * b[i].astype("int32")).astype("float32")
        held = te.min(tvm.tir.const(bound, "float32"), te.max(
            tvm.tir.const(-bound, "float32"), product * tvm.tir.const(ratio, "float32")))
        whole = te.nearbyint(held + tvm.tir.const(zero, "float32"))
        if saturates:
            return Call(DataType(kind), "saturate", (whole.astype("int32"),))
        wide = Call(DataType("int32"), "saturate", (whole,))
        return te.min(tvm.tir.const(high, "int32"),
                      te.max(tvm.tir.const(low, "int32"), wide)).astype(kind)

    made = te.compute((4096,), value, name="made")
    schedule = te.create_schedule(made.op)
    schedule[made].vectorize(schedule[made].split(made.op.axis[0], factor=16)[1])
    return schedule, [a, b, made]


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("kind,zero", [
    ("int8", -128.0), ("int8", 3.0), ("uint8", 0.0), ("uint8", 255.0)])
def test_bytes_are_the_nearest(kind: str, zero: float, saturates: bool) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-255, 256, 4096).astype("int16") for _ in range(2))
    b[:600] = 1  # halves, which go to even numbers
    for ratio in (0.5, 0.0149999997, 3e38):
        schedule, operands = scaled(kind, ratio, zero, 512.0, saturates)
        out = tvm.nd.empty((4096,), kind)
        tvm.build(schedule, operands, "llvm -mcpu=native")(tvm.nd.array(a), tvm.nd.array(b), out)
        with np.errstate(over="ignore"):
            product = (a.astype("int32") * b).astype("float32") * np.float32(ratio)
        held = np.clip(product, -512, 512) + np.float32(zero)
        ends = np.iinfo(kind)
        wanted = np.clip(np.rint(held), ends.min, ends.max).astype(kind)
        np.testing.assert_array_equal(out.numpy(), wanted)


@pytest.mark.parametrize("saturates", [False, True])
def test_no_conversion_is_left_on_aarch64(saturates: bool) -> None:
    target = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon"
    for bound, converts in ((512.0, False), (40000.0, True)):
        schedule, operands = scaled("uint8", 0.3, 7.0, bound, saturates)
        text = tvm.build(schedule, operands, target).get_source("asm")
        assert ("fcvt" in text) is converts, text
        assert converts or "sqxtun" in text


@pytest.mark.parametrize("cpu", ["cascadelake", "haswell"])
def test_no_ends_are_asked_for_on_x86(cpu: str) -> None:
    """What surely fits 32 bits is converted by the instruction that rounds, other floats not."""
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    for bound, compares in ((512.0, False), (3e9, True)):
        schedule, operands = scaled("uint8", 3.0, 7.0, bound, False)
        text = str(tvm.build(schedule, operands, target).get_source("asm"))
        assert ("vcmp" in text) is compares


def test_bounds_are_those_of_what_is_computed() -> None:
    byte, word = te.var("byte", "uint8"), te.var("word", "int16")
    x = te.var("x", "float32")
    assert bounds(byte.astype("float32")) == (0, 255)
    assert bounds(byte.astype("int16").astype("int32").astype("float32")) == (0, 255)
    assert bounds(word.astype("float32")) == (-32768, 32767)
    low, high = bounds(byte.astype("float32") * -2.0 + 3.0) or (0, 0)
    assert -508 < low <= -507 and 3 <= high < 3.01
    assert bounds(x) is None and bounds(te.min(x, 3.0)) is None  # NaN is below nothing
    assert bounds(word.astype("float32") * 3e38) is not None
    assert bounds(word.astype("float32") * 3e38 * 0.0) is None


def test_what_may_be_out_of_16_bits_is_converted() -> None:
    schedule, operands = scaled("int8", 1.0, 0.0, 32768.0, saturates=True)
    function = tvm.lower(schedule, operands)["main"]
    stores = [s for s in statements_in(function.body) if isinstance(s, BufferStore)]
    assert stores and all(rounded(store.value) is None for store in stores)  # type: ignore[arg-type]
