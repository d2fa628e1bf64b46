"""Random expressions: what is simplified has the same value, what is bounded stays in bounds."""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sterna.arith import Analyzer, interval, substitute
from sterna.ir import const
from sterna.ir.expr import Expr, IntImm, Ramp, Var
from sterna.support.dtype import DataType
from tests.arith.evaluate import NoMeaning, alike, evaluate, typed
from tests.arith.expressions import Generator, text

Values = dict[Var, int]


def assignments(source: random.Random, ranges: dict[Var, tuple[int, int]]) -> Iterator[Values]:
    """The corners of the ranges, and values inside them."""
    for pick in (min, max):
        yield {var: pick(ends) for var, ends in ranges.items()}
    for _ in range(14):
        yield {
            var: source.choice((ends[0], ends[1], source.randint(*ends)))
            for var, ends in ranges.items()
        }


def check_equal(before: Expr, after: Expr, values: Values) -> None:
    """Both have one value, where the first has one."""
    try:
        wanted = evaluate(before, values)
    except NoMeaning:
        return
    found = evaluate(after, values)
    where = {var.name: value for var, value in values.items()}
    assert alike(wanted, found), f"{text(before)} → {text(after)} at {where}: {wanted} {found}"


def constant_ranges(source: random.Random, variables: list[Var]) -> dict[Var, tuple[int, int]]:
    """Ranges as loops have them."""
    ranges = {}
    for var in variables:
        low = source.choice((0, 0, 0, 1, -3, source.randint(-9, 9)))
        ranges[var] = low, low + source.choice((0, 1, 2, 3, 3, 4, 7, 15, 31))
    return ranges


@pytest.mark.parametrize("seed", range(40))
def test_simplify_with_constant_ranges(seed: int) -> None:
    source = random.Random(seed)
    variables = [Var(name) for name in "xyzw"]
    for _ in range(25):
        ranges = constant_ranges(source, variables)
        analyzer = Analyzer()
        for var, (low, high) in ranges.items():
            if source.random() < 0.8:
                analyzer.bind(var, low, high - low + 1)
        generator = Generator(source, variables)
        is_bool = source.random() < 0.3
        expr = generator.condition(3) if is_bool else generator.integer(source.randint(2, 4))
        after = analyzer.simplify(expr)
        assert after.dtype == expr.dtype
        bound = analyzer.bound(expr)
        step, base = analyzer.modular(expr)
        for values in assignments(source, ranges):
            check_equal(expr, after, values)
            try:
                value = evaluate(expr, values)
            except NoMeaning:
                continue
            assert bound.low <= value <= bound.high, f"{text(expr)}: {value} not in {bound}"
            if step == 0:
                assert value == base
            else:
                assert is_bool or (value - base) % step == 0, f"{text(expr)}: {step}, {base}"
        again = analyzer.simplify(after)
        assert text(again) == text(after) or len(text(again)) <= len(text(after))


@pytest.mark.parametrize("seed", range(30))
def test_simplify_with_symbolic_ranges(seed: int) -> None:
    source = random.Random(1000 + seed)
    n, m = Var("n", is_size=True), Var("m", is_size=True)
    x, y, z = Var("x"), Var("y"), Var("z")
    for _ in range(20):
        analyzer = Analyzer()
        analyzer.bind(x, 0, n)
        analyzer.bind(y, 0, m * 2)
        analyzer.bind(z, x, 4)
        generator = Generator(source, [x, y, z, n, m])
        generator.divisors += [n, m, n * m]
        condition = generator.condition(2)
        expr = generator.condition(2) if source.random() < 0.4 else generator.integer(3)
        after = analyzer.simplify(expr)
        with analyzer.assuming(condition):
            inside = analyzer.simplify(expr)
        assert analyzer.simplify(expr) is after
        for _ in range(16):
            values = {n: source.randint(1, 7), m: source.randint(1, 5)}
            values[x] = source.randrange(values[n])
            values[y] = source.randrange(values[m] * 2)
            values[z] = values[x] + source.randrange(4)
            check_equal(expr, after, values)
            with suppress(NoMeaning):
                if evaluate(condition, values):
                    check_equal(expr, inside, values)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "uint64"])
@pytest.mark.parametrize("seed", range(6))
def test_simplify_of_types_that_wrap(dtype: str, seed: int) -> None:
    source = random.Random(2000 + seed)
    x, y, z = [Var(name, DataType(dtype)) for name in "xyz"]
    edges = [0, 1, 2, 3, 127, 128, 255, -1, -2, -127, -128, 2**31 - 1, 2**31, 2**32 - 1, 2**63]
    for _ in range(60):
        analyzer = Analyzer()
        generator = Generator(source, [x, y, z], dtype)
        expr = generator.condition(2) if source.random() < 0.3 else generator.integer(3)
        after = analyzer.simplify(expr)
        bound = analyzer.bound(expr)
        for _ in range(24):
            pool = [source.choice(edges), source.randint(-300, 300)]
            values = {var: typed(source.choice(pool), x.dtype) for var in (x, y, z)}
            check_equal(expr, after, values)
            with suppress(NoMeaning):
                assert bound.low <= evaluate(expr, values) <= bound.high


@pytest.mark.parametrize("seed", range(20))
def test_simplify_of_vectors(seed: int) -> None:
    source = random.Random(3000 + seed)
    x, y = Var("x"), Var("y")
    for _ in range(25):
        analyzer = Analyzer()
        ranges = constant_ranges(source, [x, y])
        for var, (low, high) in ranges.items():
            analyzer.bind(var, low, high - low + 1)
        lane = Var("v", DataType("int32x4"))
        generator = Generator(source, [x, y])
        base, stride = generator.integer(1), const(source.choice((0, 1, 1, 2, 4)))
        vectors = Generator(source, [lane], "int32x4")
        expr = vectors.condition(2) if source.random() < 0.4 else vectors.integer(2)
        expr = substitute(expr, {lane: Ramp(base, stride, 4)})
        after = analyzer.simplify(expr)
        assert after.dtype == expr.dtype
        for values in assignments(source, ranges):
            check_equal(expr, after, values)


@pytest.mark.parametrize("seed", range(40))
def test_interval_contains_all_values(seed: int) -> None:
    source = random.Random(4000 + seed)
    x, y, o = Var("x"), Var("y"), Var("o")
    n = Var("n", is_size=True)
    for _ in range(25):
        starts = [const(0), o, o * 4, o * 16, n, o * 3 - 1]
        domains = {}
        for var in (x, y):
            start = source.choice(starts)
            domains[var] = start, start + source.choice((0, 1, 3, 7, 15))
        generator = Generator(source, [x, y, o, n])
        expr = generator.integer(source.randint(1, 3))
        low, high = interval(expr, domains)
        for _ in range(16):
            values = {o: source.randint(0, 5), n: source.randint(0, 9)}
            for var, ends in domains.items():
                first, last = [evaluate(end, values) for end in ends]
                values[var] = source.randint(first, last)
            try:
                value = evaluate(expr, values)
            except NoMeaning:
                continue
            where = {var.name: value for var, value in values.items()}
            shown = f"{text(expr)} in {text((low, high))} at {where}"
            if low is not None:
                assert evaluate(low, values) <= value, shown
            if high is not None:
                assert value <= evaluate(high, values), shown


def test_what_is_proved_holds() -> None:
    source = random.Random(7)
    variables = [Var(name) for name in "xyz"]
    proved = 0
    for _ in range(600):
        ranges = constant_ranges(source, variables)
        analyzer = Analyzer()
        for var, (low, high) in ranges.items():
            analyzer.bind(var, low, high - low + 1)
        condition = Generator(source, variables).condition(2)
        if isinstance(condition, IntImm) or not analyzer.can_prove(condition):
            continue
        proved += 1
        for values in assignments(source, ranges):
            check_equal(condition, const(True), values)
    assert proved > 50
