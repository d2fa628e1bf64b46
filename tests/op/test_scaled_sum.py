"""Sums of bytes under another scale: for all pairs, by multiply-adds or without them."""

from fractions import Fraction

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.qnn.scaled_sum import ScaledSumAttrs, sums_are_exact
from sterna.relay.op import call, find
from sterna.support.dtype import DataType
from tests.schedule.byte_layers import MACHINES, check

UINT8 = DataType("uint8")
RATIOS = [(0.7310586, 1.1192029, -91.3), (0.0123, 2.5, 0.0), (1.0, 0.333333, 128.0)]


def rounded_once(exact: Fraction) -> float:
    """The float32 nearest to a number: that of float64, or a neighbour of it."""
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    found = min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view("uint32")) & 1))
    return float(found)


def test_it_is_rounded_once() -> None:
    """The operator's own reference against numbers that are never rounded."""
    ratios = [np.float32(x) for x in RATIOS[0]]
    first = [rounded_once(b * Fraction(float(ratios[1])) + Fraction(float(ratios[2])))
             for b in range(256)]
    a, b = np.mgrid[0:256:5, 0:256:3].astype("uint8")
    want = [rounded_once(int(x) * Fraction(float(ratios[0])) + Fraction(first[y]))
            for x, y in zip(a.flat, b.flat, strict=True)]
    attrs = ScaledSumAttrs(*RATIOS[0], UINT8)
    reference = find("qnn.scaled_sum").reference
    assert reference is not None
    np.testing.assert_array_equal(
        reference(attrs, a, b).ravel(), np.clip(np.rint(want), 0, 255).astype("uint8")
    )


@pytest.mark.parametrize("target", MACHINES)
def test_all_pairs(target: str) -> None:
    a, b = np.mgrid[0:256, 0:256].astype("uint8")
    x, y = (relay.var(name, shape=a.shape, dtype="uint8") for name in "xy")
    for ratios in RATIOS:
        attrs = ScaledSumAttrs(*ratios, UINT8)
        assert sums_are_exact(attrs, UINT8, UINT8)
        made = call("qnn.scaled_sum", x, y, **dict(attrs.items()))
        first = (b.astype("float64") * attrs.rhs_ratio + attrs.start).astype("float32")
        total = (a.astype("float64") * attrs.lhs_ratio + first).astype("float32")
        check(made, {"x": a, "y": b}, np.clip(np.rint(total), 0, 255).astype("uint8"), target, 3)


def test_digits_that_float64_has_no_room_for_are_noticed() -> None:
    attrs = ScaledSumAttrs(1e20, 1e-20, 0.0, UINT8)
    assert not sums_are_exact(attrs, UINT8, UINT8)


def test_a_multiply_add_for_each_operand() -> None:
    x, y = (relay.var(name, shape=(64, 64), dtype="uint8") for name in "xy")
    made = call("qnn.scaled_sum", x, y, lhs_ratio=0.7, rhs_ratio=0.3, out_dtype="uint8")
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    with tvm.transform.PassContext(opt_level=3):
        code = relay.build(tvm.IRModule.from_expr(made), target=target).get_lib().get_source("asm")
    assert "vfmadd" in code and "pd\t" not in code


def test_what_it_takes() -> None:
    x = relay.var("x", shape=(4,), dtype="int16")
    with pytest.raises(Exception, match="lhs and rhs are integers of 8 bits, not int16"):
        relay.transform.InferType()(tvm.IRModule.from_expr(call("qnn.scaled_sum", x, x)))
    with pytest.raises(ValueError, match="start is a finite float32, not inf"):
        ScaledSumAttrs(start=float("inf"))
