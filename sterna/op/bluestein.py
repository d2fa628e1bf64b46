"""Bluestein's algorithm (the chirp z-transform): Fourier transforms of lengths with large primes.

With w[k] = exp(-pi i k * k / n), the transform X of x is a convolution:

    X[k] = w[k] * sum over j of (x[j] * w[j]) * conj(w[k - j])

It is computed by two transforms of a longer line, of a length with small factors only.
"""

import math
from collections.abc import Callable
from typing import TypeGuard

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType
from sterna.op.fourier import Complex, Transform, circle, factors, times
from sterna.op.indexing import INT64
from sterna.op.statements import statements
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# A pass costs its length times its factor: from a factor above this one on, two transforms of a
# line up to four times as long, whose passes are of radix 4, cost half of it and less.
LARGEST_FACTOR = 31


def tables_of(length: Dim, dtype: DataType, name: str) -> list[Tensor]:
    """What transforms of a length look up: their twiddle factors; chirps and their spectrum."""
    if not _has_large_factor(length):
        return circle(length, dtype, name)
    whole = _longer(length)
    twiddles = circle(whole, dtype, name)
    chirps = [_chirp(function, length, dtype, f"{name}_{which}")
              for function, which in ((t.cos, "chirp_cos"), (t.sin, "chirp_sin"))]

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        def load(k: Expr) -> Complex:
            """The conjugated chirp: that of k, and of -k, which is at the end of the line."""
            near, far = k < length, k > whole - length
            place = build.select(near, k, build.select(far, whole - k, 0))
            place = ib.let("place", place)
            inside = build.logical_or(near, far)
            zero = build.const(0, dtype)
            return (build.select(inside, ins[2][place], zero),
                    build.select(inside, ins[3][place], zero))

        def store(k: Expr, *parts: Expr) -> None:
            for which, part in enumerate(parts):
                outs[0][which, k] = part * build.const(1 / whole, dtype)

        Transform(ib, whole, dtype, ins[:2], inverse=False).run(load, store, whole)

    kind = TensorType((2, whole), dtype)
    spectrum = statements(kind, [*twiddles, *chirps], fill, f"{name}_spectrum")
    return [*twiddles, *chirps, *spectrum]


def transform_of(
    ib: IRBuilder, length: Dim, dtype: DataType, tables: list[BufferVar], inverse: bool
) -> "Transform | ChirpTransform":
    """The statements that transform a line, with the tables of tables_of."""
    if not _has_large_factor(length):
        return Transform(ib, length, dtype, tables, inverse)
    return ChirpTransform(ib, length, dtype, tables, inverse)


class ChirpTransform:
    """The statements that transform a line of complex numbers by a convolution."""

    def __init__(
        self, ib: IRBuilder, length: int, dtype: DataType, tables: list[BufferVar], inverse: bool
    ) -> None:
        self.length, self.dtype, self.inverse = length, dtype, inverse
        self.whole = _longer(length)
        self.line = Transform(ib, self.whole, dtype, tables[:2], inverse=False)
        self.chirps, self.spectrum = tables[2:4], tables[4]

    def run(
        self, load: Callable[[Expr], Complex], store: Callable[[Expr, Expr, Expr], None], count: Dim
    ) -> None:
        """From load(place) to store(place, real, imaginary) for the first places."""
        line, zero = self.line, build.const(0, self.dtype)
        parts = line.allocate()

        def chirped(k: Expr) -> Complex:
            real, imaginary = (build.cast(self.dtype, part) for part in load(k))
            # The inverse is the transform with both parts exchanged, before and after.
            given = (imaginary, real) if self.inverse else (real, imaginary)
            return times(given, self._chirp(k))

        line.fill(parts, chirped, 0, self.length)
        line.fill(parts, lambda k: (zero, zero), self.length, self.whole)
        found = line.passes(parts)

        def convolved(k: Expr) -> Complex:
            """Conjugated, so that the next transform is the inverse one, conjugated."""
            given = (parts[0][found + k], parts[1][found + k])
            real, imaginary = times(given, (self.spectrum[0, k], self.spectrum[1, k]))
            return line.ib.let("re", real), line.ib.let("im", -imaginary)

        line.fill(parts, convolved, 0, self.whole)
        found = line.passes(parts)
        scale = build.const(1 / self.length, self.dtype)
        with line.ib.for_range(0, count, name="k") as k:
            value = times((parts[0][found + k], -parts[1][found + k]), self._chirp(k))
            if self.inverse:
                value = (value[1] * scale, value[0] * scale)
            store(k, *value)

    def _chirp(self, k: Expr) -> Complex:
        return self.chirps[0][k], -self.chirps[1][k]


def _has_large_factor(length: Dim) -> TypeGuard[int]:
    return isinstance(length, int) and max(factors(length), default=1) > LARGEST_FACTOR


def _longer(length: int) -> int:
    """The least length with room for the convolution: a power of two, or 3 or 5 times one."""
    room = 2 * length - 1
    return min(odd << max(0, math.ceil(math.log2(room / odd))) for odd in (1, 3, 5))


def _chirp(
    function: Callable[[Expr], Expr], length: int, dtype: DataType, name: str
) -> Tensor:
    """cos or sin of pi k * k / length, the square without its whole circles."""
    part = build.const(math.pi / length, "float64")

    def value(k: Expr) -> Expr:
        square = build.cast(INT64, k) * build.cast(INT64, k) % (2 * length)
        return build.cast(dtype, function(build.cast("float64", square) * part))

    made: Tensor = compute((length,), value, name=name)
    return made
