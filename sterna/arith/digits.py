"""Mixed-radix index maps (quasi-affine iterators): indices as numerals of variables' digits.

An index such as i//4, j*8 + i%4 or (i*6 + j)%5 is a sum of digits with weights. A digit is a part
of something that counts from 0: (number // lower) % size, or number // lower for all that is above.
Numbers are variables, and sums that have no gaps. Where each weight leaves room for the digits
below it, the sum tells what each digit is, as a numeral does; the digits tell the variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.ir import build
from sterna.ir.expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Mul, Sub, Var


class NoDigits(ValueError):
    """An expression is no sum of digits."""


@dataclass(eq=False, slots=True)
class Number:
    """What counts from 0 to below its extent."""

    source: "Var | Numeral | Digit"
    """A variable, a sum, or a digit that this one counts down from its last value."""
    extent: Expr
    digits: dict[tuple[int, int | None], "Digit"] = field(default_factory=dict)

    def digit(self, lower: int, size: int | None) -> "Digit | None":
        """Its part (number // lower) % size, without a size number // lower; None if that is 0."""
        total = build.int_value(self.extent)
        if size == 1 or (total is not None and lower >= total):
            return None
        if size is not None and total is not None and lower * size >= total:
            size = None
        return self.digits.setdefault((lower, size), Digit(self, lower, size))


@dataclass(eq=False, slots=True)
class Digit:
    """A part of a number; the same part is the same object."""

    number: Number
    lower: int
    size: int | None

    @property
    def extent(self) -> Expr:
        """How many values it takes."""
        if self.size is not None:
            return build.const(self.size)
        whole = self.number.extent
        return build.floordiv(whole + (self.lower - 1), self.lower)

    @property
    def last(self) -> int | None:
        """Its largest value, if that is known."""
        count = build.int_value(self.extent)
        return None if count is None else count - 1


@dataclass(eq=False, slots=True)
class Numeral:
    """A sum of digits with weights, and a constant."""

    weights: dict[Digit, int]
    constant: int = 0

    def rising(self) -> list[tuple[int, Digit]]:
        """Weights and digits, smallest first."""
        return sorted(((w, d) for d, w in self.weights.items()), key=lambda pair: pair[0])

    def span(self) -> tuple[Expr, Expr]:
        """The smallest and the largest value; both occur where the digits do not depend."""
        low: Expr = build.const(self.constant)
        high: Expr = low
        for digit, weight in self.weights.items():
            reach = (digit.extent - 1) * weight
            low, high = (low, high + reach) if weight > 0 else (low + reach, high)
        return low, high


class Digits:
    """Reads expressions of variables that count from 0 to below their extents."""

    def __init__(self, extents: Mapping[Var, Expr]) -> None:
        self.numbers: list[Number] = []
        self.variables = {var: self._number(var, extent) for var, extent in extents.items()}
        self._joined: dict[tuple[frozenset[tuple[Digit, int]], int], Number] = {}
        self._own: dict[tuple[Digit, bool], Number] = {}

    def _number(self, source: "Var | Numeral | Digit", extent: Expr) -> Number:
        self.numbers.append(Number(source, extent))
        return self.numbers[-1]

    # ---- from expressions to digits ----

    def read(self, expr: Expr) -> Numeral:
        """An expression as a sum of digits; NoDigits if it is none."""
        if isinstance(expr, IntImm):
            return Numeral({}, expr.value)
        if isinstance(expr, Cast) and expr.dtype.is_integer:
            return self.read(expr.value)
        if isinstance(expr, Var) and expr in self.variables:
            digit = self.variables[expr].digit(1, None)
            return Numeral({} if digit is None else {digit: 1})
        if isinstance(expr, (Add, Sub)):
            return _add(self.read(expr.a), self.read(expr.b), 1 if isinstance(expr, Add) else -1)
        if isinstance(expr, Mul):
            a, b = self.read(expr.a), self.read(expr.b)
            if a.weights and b.weights:
                raise NoDigits(f"{expr} is a product of variables")
            return _scale(a, b.constant) if a.weights else _scale(b, a.constant)
        if isinstance(expr, (FloorDiv, FloorMod)):
            divisor = self.read(expr.b)
            if divisor.weights or divisor.constant <= 0:
                raise NoDigits(f"{expr} does not divide by a positive constant")
            quotient, rest = self._divide(self.read(expr.a), divisor.constant, expr)
            return quotient if isinstance(expr, FloorDiv) else rest
        raise NoDigits(f"{expr} is made of more than sums, products, // and % of its indices")

    def upwards(self, numeral: Numeral) -> Numeral:
        """The same sum with positive weights: -i is what i lacks to its last value."""
        weights: dict[Digit, int] = {}
        constant = numeral.constant
        for digit, weight in numeral.weights.items():
            if weight > 0:
                weights[digit] = weight
                continue
            if digit.last is None:
                raise NoDigits("an index counts down from an end that is not known")
            mirrored = self._owned(digit, True)
            weights[mirrored] = -weight
            constant += weight * digit.last
        return Numeral(weights, constant)

    def _owned(self, digit: Digit, mirrored: bool) -> Digit:
        """A digit, or what it lacks to its last value, as a number of its own."""
        number = self._own.get((digit, mirrored))
        if number is None:
            source = digit if mirrored else Numeral({digit: 1})
            number = self._own[digit, mirrored] = self._number(source, digit.extent)
        whole = number.digit(1, None)
        assert whole is not None
        return whole

    def _divide(self, numeral: Numeral, by: int, expr: Expr) -> tuple[Numeral, Numeral]:
        """The quotient and the rest."""
        up = self.upwards(numeral)
        high = {d: w // by for d, w in up.weights.items() if w % by == 0}
        low = {d: w for d, w in up.weights.items() if w % by}
        shift, constant = divmod(up.constant, by)
        last = _last(low)
        if last is not None and last + constant < by:
            return Numeral(high, shift), Numeral(low, constant)
        cut = None if constant else self._cut(low, by)
        if cut is not None:
            return _add(Numeral(high, shift), Numeral(cut[0])), Numeral(cut[1])
        number = self._join(up.weights, constant, expr)
        above, below = number.digit(by, None), number.digit(1, by)
        return (
            Numeral({} if above is None else {above: 1}, shift),
            Numeral({} if below is None else {below: 1}),
        )

    def _cut(
        self, low: dict[Digit, int], by: int
    ) -> tuple[dict[Digit, int], dict[Digit, int]] | None:
        """Digits above and below a weight, if one of them can be cut there."""
        above: dict[Digit, int] = {}
        below: dict[Digit, int] = {}
        room = 0  # what the digits below reach
        for weight, digit in Numeral(low).rising():
            if room >= weight:
                return None
            if digit.last is not None and weight * digit.last + room < by:
                below[digit] = weight
                room += weight * digit.last
                continue
            if by % weight:
                return None
            lower, upper = self._parts(digit, by // weight)
            if lower is not None:
                below[lower] = weight
            if upper is not None:
                above[upper] = 1
            room += weight * (by // weight - 1)
        return above, below

    def _parts(self, digit: Digit, at: int) -> tuple[Digit | None, Digit | None]:
        """digit % at and digit // at"""
        if digit.size is not None and digit.size % at:
            digit = self._owned(digit, False)
        number, lower = digit.number, digit.lower
        rest = None if digit.size is None else digit.size // at
        return number.digit(lower, at), number.digit(lower * at, rest)

    def _join(self, weights: dict[Digit, int], constant: int, expr: Expr) -> Number:
        """A sum without gaps, and a constant, as one number."""
        key = frozenset(weights.items()), constant
        if key not in self._joined:
            extent: Expr = build.const(1)
            expected: int | None = 1
            for weight, digit in Numeral(weights).rising():
                if weight != expected:
                    raise NoDigits(f"{expr} takes apart a sum with gaps or overlaps")
                expected = None if digit.last is None else weight * (digit.last + 1)
                extent = digit.extent * weight
            self._joined[key] = self._number(Numeral(weights, constant), extent + constant)
        return self._joined[key]

    # ---- from digits to variables ----

    def solve(self, numerals: Sequence[Numeral], values: Sequence[Expr]) -> dict[Var, Expr]:
        """The variables for which sums have these values; NoDigits if the sums do not tell."""
        known: dict[Digit, Expr] = {}
        for numeral, value in zip([self.upwards(n) for n in numerals], values, strict=True):
            _tell(numeral, value, known)
        found: dict[Var, Expr] = {}
        for number in reversed(self.numbers):  # sums are numbers after the ones they are made of
            whole = _compose(number, 1, known)
            if whole is None:
                continue
            if isinstance(number.source, Var):
                found[number.source] = whole
            elif isinstance(number.source, Digit):
                known.setdefault(number.source, number.extent - 1 - whole)
            else:
                _tell(number.source, whole, known)
        for var in self.variables:
            if var not in found:
                raise NoDigits(f"the result does not tell what {var.name} was")
        return found


def _add(a: Numeral, b: Numeral, sign: int = 1) -> Numeral:
    weights = dict(a.weights)
    for digit, weight in b.weights.items():
        weights[digit] = weights.get(digit, 0) + sign * weight
    kept = {digit: weight for digit, weight in weights.items() if weight}
    return Numeral(_merged(kept), a.constant + sign * b.constant)


def _scale(numeral: Numeral, factor: int) -> Numeral:
    weights = {d: w * factor for d, w in numeral.weights.items()} if factor else {}
    return Numeral(weights, numeral.constant * factor)


def _merged(weights: dict[Digit, int]) -> dict[Digit, int]:
    """Neighbouring digits of a number as one: (i//4)*4 + i%4 is i."""
    for low, weight in weights.items():
        if low.size is None:
            continue
        for high, other in weights.items():
            beside = high.number is low.number and high.lower == low.lower * low.size
            if beside and other == weight * low.size:
                size = None if high.size is None else low.size * high.size
                both = low.number.digit(low.lower, size)
                rest = {d: w for d, w in weights.items() if d is not low and d is not high}
                return _merged(rest if both is None else {**rest, both: weight})
    return weights


def _last(weights: dict[Digit, int]) -> int | None:
    """The largest value of a sum, if it is known."""
    total = 0
    for digit, weight in weights.items():
        if digit.last is None:
            return None
        total += weight * digit.last
    return total


def _tell(numeral: Numeral, value: Expr, known: dict[Digit, Expr]) -> None:
    """Read the digits of a sum off its value, if they do not overlap."""
    room: int | None = 0
    for weight, digit in numeral.rising():
        if room is None or room >= weight:
            return
        room = None if digit.last is None else room + weight * digit.last
    rest = build.sub(value, numeral.constant)
    for weight, digit in reversed(numeral.rising()):
        known.setdefault(digit, build.floordiv(rest, weight))
        rest = build.floormod(rest, weight)


def _compose(number: Number, lower: int, known: Mapping[Digit, Expr]) -> Expr | None:
    """A number without what is below a place, from the digits that are known."""
    total = build.int_value(number.extent)
    if total is not None and lower >= total:
        return build.const(0, number.extent.dtype)
    for digit in number.digits.values():
        if digit.lower != lower or digit not in known:
            continue
        value = known[digit] * lower
        if digit.size is None:
            return value
        rest = _compose(number, lower * digit.size, known)
        if rest is not None:
            return build.add(rest, value)
    return None
