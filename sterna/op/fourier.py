"""Mixed-radix FFT (Stockham): discrete Fourier transforms of any length, as statements.

A length is taken apart into factors, and one pass over the line does each: its cost is the length
times the factor (bluestein.py: large ones). A pass of radix p over lines of n = p * m numbers that
lie s apart turns each into p lines of m numbers, and leaves them in order, so that nothing is
reordered at the end. A length that only the run tells is one factor.
"""

import math
from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.op.indexing import INT64
from sterna.op.statements import variable
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Factors up to this one are written out.
WRITTEN_OUT = 8

Complex = tuple[Expr, Expr]


def factors(length: int) -> list[int]:
    """Fours, then primes."""
    found: list[int] = []
    rest, divisor = length, 4
    while rest > 1:
        if rest % divisor == 0:
            found.append(divisor)
            rest //= divisor
        elif divisor == 4:
            divisor = 2
        elif divisor * divisor > rest:
            divisor = rest
        else:
            divisor += 1 if divisor == 2 else 2
    return found


def circle(length: Dim, dtype: DataType, name: str) -> list[Tensor]:
    """The cosines and the sines of equal parts of a circle."""
    part = build.const(2 * math.pi, "float64") / build.cast("float64", build.as_expr(length))

    def table(function: Callable[[Expr], Expr], which: str) -> Tensor:
        made: Tensor = compute(
            (length,),
            lambda k: build.cast(dtype, function(build.cast("float64", k) * part)),
            name=f"{name}_{which}",
        )
        return made

    return [table(t.cos, "cos"), table(t.sin, "sin")]


def times(a: Complex, b: Complex) -> Complex:
    """The product of two complex numbers."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


class Transform:
    """The statements that transform a line of complex numbers."""

    def __init__(
        self, ib: IRBuilder, length: Dim, dtype: DataType, tables: list[BufferVar], inverse: bool
    ) -> None:
        self.ib, self.length, self.dtype, self.tables = ib, length, dtype, tables
        self.sign = 1 if inverse else -1
        self.inverse = inverse

    def run(
        self, load: Callable[[Expr], Complex], store: Callable[[Expr, Expr, Expr], None], count: Dim
    ) -> None:
        """From load(place) to store(place, real, imaginary) for the first places."""
        parts = self.allocate()
        self.fill(parts, load, 0, self.length)
        begin = self.passes(parts)
        scale = build.const(1.0, self.dtype)
        if self.inverse:
            scale = scale / build.cast(self.dtype, build.as_expr(self.length))
        with self.ib.for_range(0, count, name="k") as k:
            values = [part[begin + k] for part in parts]
            store(k, *[value * scale for value in values] if self.inverse else values)

    def allocate(self) -> list[BufferVar]:
        """Room for a line and for what the next pass makes of it."""
        return [
            self.ib.allocate(self.dtype, (self.length * 2,), name=name)
            for name in ("real", "imaginary")
        ]

    def fill(
        self, parts: list[BufferVar], load: Callable[[Expr], Complex], begin: Dim, end: Dim
    ) -> None:
        """Set places of the line that passes begin with."""
        with self.ib.for_range(begin, end, name="k") as k:
            for part, value in zip(parts, load(k), strict=True):
                part[k] = build.cast(self.dtype, value)

    def passes(self, parts: list[BufferVar]) -> Dim:
        """Transform the line; gives where it begins then."""
        ib, length = self.ib, self.length
        done: Dim = 1
        radices: Sequence[Dim] = factors(length) if isinstance(length, int) else [length]
        for place, radix in enumerate(radices):
            rest = length // (done * radix) if isinstance(length, int) else 1
            offsets = (0, length) if place % 2 == 0 else (length, 0)
            with ib.for_range(0, rest, name="j") as j, ib.for_range(0, done, name="q") as q:
                self._pass(parts, offsets, radix, rest, done, j, q)
            done = done * radix
        return length if len(radices) % 2 else 0

    def _pass(
        self, parts: list[BufferVar], offsets: tuple[Dim, Dim], radix: Dim, rest: Dim, done: Dim,
        j: Expr, q: Expr,
    ) -> None:
        """A butterfly: the transform of `radix` numbers, times their twiddle factors."""
        source, target = offsets

        def read(a: ExprLike) -> Complex:
            return tuple(part[source + q + done * (j + rest * a)] for part in parts)  # type: ignore[return-value]

        def write(r: ExprLike, value: Complex) -> None:
            twiddled = value
            if not (isinstance(rest, int) and rest == 1):
                twiddled = times(value, self._twiddle(j * r * done))
            for part, number in zip(parts, twiddled, strict=True):
                part[target + q + done * (j * radix + r)] = number

        if isinstance(radix, int) and radix <= WRITTEN_OUT:
            self._written_out(radix, read, write)
        else:
            self._by_loops(radix, read, write)

    def _twiddle(self, place: Expr) -> Complex:
        """The twiddle factor at a place of the circle."""
        sine = self.tables[1][place]
        return self.tables[0][place], sine if self.inverse else -sine

    def _written_out(
        self, radix: int, read: Callable[[ExprLike], Complex],
        write: Callable[[ExprLike, Complex], None],
    ) -> None:
        ib = self.ib
        given = [tuple(ib.let("x", part) for part in read(a)) for a in range(radix)]
        for r in range(radix):
            real: Expr = given[0][0]
            imaginary: Expr = given[0][1]
            for a in range(1, radix):
                angle = self.sign * 2 * math.pi * (a * r % radix) / radix
                cosine, sine = _exact(math.cos(angle)), _exact(math.sin(angle))
                x, y = given[a]
                real = _plus(_plus(real, x, cosine), y, -sine)
                imaginary = _plus(_plus(imaginary, x, sine), y, cosine)
            write(r, (ib.let("re", real), ib.let("im", imaginary)))

    def _by_loops(
        self, radix: Dim, read: Callable[[ExprLike], Complex],
        write: Callable[[ExprLike, Complex], None],
    ) -> None:
        ib = self.ib
        step = self.length // radix if isinstance(radix, int) else 1
        with ib.for_range(0, radix, name="r") as r:
            real = variable(ib, self.dtype, "real_sum", build.const(0, self.dtype))
            imaginary = variable(ib, self.dtype, "imaginary_sum", build.const(0, self.dtype))
            with ib.for_range(0, radix, name="a") as a:
                place = build.cast(INT64, a) * build.cast(INT64, r) % radix * step
                twiddled = times(read(a), self._twiddle(ib.let("place", place)))
                real.set(real.get() + twiddled[0])
                imaginary.set(imaginary.get() + twiddled[1])
            write(r, (ib.let("re", real.get()), ib.let("im", imaginary.get())))


def _exact(value: float) -> float:
    """A cosine or sine without the rounding that keeps it from 0, 1 and -1."""
    near = round(value)
    return float(near) if abs(value - near) < 1e-9 else value


def _plus(total: Expr, x: Expr, factor: float) -> Expr:
    if factor == 0:
        return total
    if factor in (1, -1):
        return total + x if factor == 1 else total - x
    return total + x * build.const(factor, x.dtype)
