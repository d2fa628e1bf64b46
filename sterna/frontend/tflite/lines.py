"""Functions of 16-bit numbers by 512 lines between known places, as LiteRT's kernels have them.

A place is moved by half of what a line misses in its middle. LiteRT's softmax has places of
float64; those of its other kernels, and of TFLite Micro, are of float32, which shows in some.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.frontend.calls import call, constant
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

LINES, BITS = 512, 7
LOW, HIGH = -32768, 32767
# What numbers of 16 bits stand for: so much of a range each.
RANGE = HIGH - LOW

Function = Callable[[Array], Array]
Float = type[np.float32] | type[np.float64]


def places_on(
    function: Function, kind: Float, scale: float, out_scale: float, zero: int = 0,
    fused: bool = False,
) -> Array:
    """The function at the ends of all lines, as numbers of 16 bits; by floats of a kind.

    fused: products are not rounded before what is added to them, as compilers for AArch64 have it.
    """

    def values(at: Array) -> Array:
        return np.asarray(function(at.astype(np.float64)).astype(kind))

    def added(a: Array, b: Any, c: Any) -> Array:
        if not fused:
            return np.asarray(a * b + c)
        return np.asarray((a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(kind))

    first, last = (kind(kind(scale) * kind(end - zero)) for end in (LOW, HIGH))
    low, high = (kind(kind(out_scale) * kind(end)) for end in (LOW, HIGH))
    inverse: Any = kind(kind(RANGE + 1) / kind(high - low))
    step: Any = kind(kind(last - first) / kind(LINES))
    at = added(np.arange(LINES + 1).astype(kind), step, first)
    following = values(at[1:])
    middle = _rounded(values(at[:-1] + kind(step / kind(2))) * inverse)
    at[-1] = last
    known = _rounded(values(at) * inverse)
    on_the_line = _rounded(added(following, inverse, known[:-1]) / kind(2))
    known[:-1] -= _rounded((on_the_line - middle) / kind(2))
    return np.clip(known, LOW, HIGH).astype(np.int32)


def _rounded(x: Array) -> Array:
    """To the nearest whole number, halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x))


def on_lines(x: RelayExpr, places: Array) -> RelayExpr:
    """The function of int32 numbers from LOW to HIGH, between its known places."""
    line = call("add", call("right_shift", x, constant(BITS, "int32")),
                constant(LINES // 2, "int32"))
    along = call("bitwise_and", x, constant((1 << BITS) - 1, "int32"))
    base, slope = (call("take", constant(table), line, axis=0)
                   for table in (places[:-1], np.diff(places).astype(np.int32)))
    moved = call("add", call("multiply", slope, along), constant(1 << (BITS - 1), "int32"))
    return call("add", base, call("right_shift", moved, constant(BITS, "int32")))
