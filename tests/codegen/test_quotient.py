"""Quotients that become bytes: by products the same as by division, for every number."""

from fractions import Fraction

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.codegen.llvm.quotient import fused, reciprocal, without_division
from sterna.ir.expr import Call
from sterna.isa.instruction_set import Instructions
from sterna.support.dtype import DataType


def test_fused_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 40, 300).astype("float32")
    factor = np.float32(74.73339)
    addend = (x * np.float32(3e-6)).astype("float32")
    for a, b, found in zip(x, addend, fused(x, factor, addend), strict=True):
        exact = Fraction(float(a)) * Fraction(float(factor)) + Fraction(float(b))
        off = abs(Fraction(float(found)) - exact)
        for other in (np.nextafter(found, np.float32(-1e9)), np.nextafter(found, np.float32(1e9))):
            assert off <= abs(Fraction(float(other)) - exact)


def test_most_scales_have_such_a_reciprocal() -> None:
    scales = np.random.default_rng(1).uniform(0.001, 4, 200).astype("float32")
    found = [reciprocal(float(scale), -128, 127) for scale in scales]
    assert sum(pair is not None for pair in found) >= 195
    assert reciprocal(0.25, -128, 127) is None and reciprocal(1e-30, -128, 127) is None


@pytest.mark.parametrize("kind,zero", [("int8", -128), ("int8", 3), ("uint8", 0), ("uint8", 255)])
def test_compiled_quotients_are_those_of_a_division(kind: str, zero: int) -> None:
    rng = np.random.default_rng(zero % 7)
    scale = np.float32(rng.uniform(0.003, 0.2))
    middles = ((np.arange(-400, 400) + 0.5) * scale).astype("float32")
    near = [middles, *(np.nextafter(middles, np.float32(end)) for end in (-9e9, 9e9))]
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-44], "float32")
    x = np.concatenate([*near, ends])
    data = te.placeholder(x.shape, "float32")
    divisor, offset = (tvm.tir.const(float(value), "float32") for value in (scale, zero))
    made = te.compute(x.shape, lambda i: Call(
        DataType(kind), "saturate", (te.nearbyint(data[i] / divisor) + offset,)))
    schedule = te.create_schedule(made.op)
    _, lane = schedule[made].split(made.op.axis[0], factor=8)
    schedule[made].vectorize(lane)
    built = tvm.build(schedule, [data, made], "llvm -mcpu=native")
    out = tvm.nd.empty(x.shape, kind)
    built(tvm.nd.array(x), out)
    ends_of = np.iinfo(kind)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = np.clip(np.rint(x / scale) + np.float32(zero), ends_of.min, ends_of.max)
    wanted = np.where(np.isnan(x), 0, wanted).astype(kind)
    np.testing.assert_array_equal(out.numpy(), wanted)


def test_an_offset_that_is_no_zero_point_keeps_the_division() -> None:
    x, scale = te.var("x", "float32"), tvm.tir.const(0.3, "float32")
    for offset, is_quick in ((3.0, True), (1e30, False), (0.5, False)):
        total = te.nearbyint(x / scale) + tvm.tir.const(offset, "float32")
        quick = without_division(Call(DataType("int8"), "saturate", (total,)))
        assert (quick is not None) == is_quick


@pytest.mark.parametrize("kind,zero", [("int8", -128), ("int8", 3), ("uint8", 0), ("uint8", 255)])
def test_conversions_round_what_is_held_within_bytes(
    kind: str, zero: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    provides = Instructions.provides
    own = {"rounding_conversion": True, "slow_conversions": False}
    monkeypatch.setattr(
        Instructions, "provides", lambda self, name: own.get(name, provides(self, name)))
    test_compiled_quotients_are_those_of_a_division(kind, zero)
