"""Expressions and what they become."""

import time

import pytest

from sterna.arith import Analyzer
from sterna.ir import build, const
from sterna.ir.expr import (
    Add,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Ramp,
    Var,
)
from sterna.support.dtype import DataType
from tests.arith.expressions import text

x, y, z, w = Var("x"), Var("y"), Var("z"), Var("w")
i, j, k, t = Var("i"), Var("j"), Var("k"), Var("t")
n, m = Var("n", is_size=True), Var("m", is_size=True)
p, q = Var("p", DataType("bool")), Var("q", DataType("bool"))
f, g = Var("f", DataType("float32")), Var("g", DataType("float32"))
b = Var("b", DataType("uint8"))
wide = Var("wide", DataType("int64"))


@pytest.fixture
def analyzer() -> Analyzer:
    """y in 0..3, z in 0..7, i < n, j < m; x, n and m are free."""
    made = Analyzer()
    made.bind(y, 0, 4)
    made.bind(z, 0, 8)
    made.bind(i, 0, n)
    made.bind(j, 0, m)
    return made


INDEX_CASES: list[tuple[Expr, str]] = [
    # sums
    (x + x, "(x * 2)"),
    (x * 4 + y - x * 4, "y"),
    (1 + x, "(x + 1)"),
    (x + 1 + 2 + y, "((x + y) + 3)"),
    (x - (x - y), "y"),
    (y - x * 2 - 3, "((y - (x * 2)) - 3)"),
    (0 - x, "(x * -1)"),
    ((x + 3) * 4 - 12, "(x * 4)"),
    (x * n + y * n, "((x + y) * n)"),
    ((x * n + y) * m + z, "((((x * n) + y) * m) + z)"),
    ((x + y) * 32, "((x + y) * 32)"),
    # quotients and remainders by numbers
    ((x * 4 + y) // 4, "x"),
    ((x * 4 + y) % 4, "y"),
    ((x * 4 + y) // 8, "(x // 2)"),
    ((x * 4 + y) % 8, "(((x % 2) * 4) + y)"),
    ((x * 8 + y + 4) // 4, "((x * 2) + 1)"),
    ((x * 4 + w) // 4, "(x + (w // 4))"),
    ((x // 4) * 4 + x % 4, "x"),
    ((x * 5 + z) // 4 * 12 + (x + z) % 4 * 3, "((x * 15) + (z * 3))"),
    ((x * 60 + z + w) // 57 * 57 + (x * 3 + z + w) % 57, "(((x * 60) + z) + w)"),
    ((x * 60 + w) // 57 % 5 * 57 + (x * 3 + w) % 57, "(((x * 60) + w) % 285)"),
    (x - (x // 4) * 4, "(x % 4)"),
    ((x // 4) // 5, "(x // 20)"),
    ((x // 4 + 1) // 5, "((x + 4) // 20)"),
    ((x % 32) // 4, "((x // 4) % 8)"),
    ((x % 32) % 4, "(x % 4)"),
    ((x // 4) % 8 * 4 + x % 4, "(x % 32)"),
    (x // 32 * 8 + (x // 4) % 8, "(x // 4)"),
    ((x + 4) % 4, "(x % 4)"),
    ((x * 5 + w) % 4, "((x + w) % 4)"),
    (y // 4, "0"),
    ((y + 4) // 4, "1"),
    ((y - 4) // 4, "-1"),
    (x // -4, "((x * -1) // 4)"),
    (x // 1, "x"),
    (build.truncdiv(y * 4 + 3, 4), "y"),
    (build.truncmod(z, 8), "z"),
    (build.truncdiv(x * 4, 4), "x"),
    # quotients and remainders by symbols
    ((i * m + j) // m, "i"),
    ((i * m + j) % m, "j"),
    ((x * n) // n, "x"),
    (((i * m + j) * 4 + y) // (m * 4), "i"),
    ((x * (n + 1) + i) // (n + 1), "x"),
    (x // n * n + x % n, "x"),
    ((i + n) % n, "i"),
    ((x % n + 1) % n, "((x + 1) % n)"),
    # minima and maxima
    (build.minimum(x + 1, x + 4), "(x + 1)"),
    (build.maximum(x + 1, x + 4), "(x + 4)"),
    (build.minimum(y, 3), "y"),
    (build.minimum(i, n), "i"),
    (build.minimum(build.minimum(x, 5), 3), "(x min 3)"),
    (build.minimum(x + w, x + z), "(x + (w min z))"),
    (build.maximum(build.minimum(x, 5), 7), "7"),
    (build.minimum(build.maximum(x, w), x), "x"),
    (build.minimum(n * 4, m * 4), "((n min m) * 4)"),
    (build.minimum(32, 100 - x * 32), "(32 min (100 - (x * 32)))"),
    # selections
    (build.select(y < 4, x, w), "x"),
    (build.select(x < w, z, z), "z"),
    (build.if_then_else(x < 4, build.minimum(x, 4), 7),
     "Call(int32, if_then_else, [(x < 4), x, 7])"),
    # casts
    (build.cast("int64", x * 4 + y) // const(4, "int64"), "Cast(int64, x)"),
    (build.cast("int32", build.cast("int64", x)), "x"),
    (build.cast("int64", x * 4 + y), "Cast(int64, ((x * 4) + y))"),
    (build.cast("int32", const(3, "int64") * wide), "Cast(int32, (wide * 3))"),
    (Cast(DataType("int64"), const(7)), "7"),
    (build.cast("uint8", build.cast("int32", b)), "b"),
    # lets
    (Let(t, const(3), t + x), "(x + 3)"),
    (Let(t, y * 2, t // 8), "Let(t, (y * 2), 0)"),
]


@pytest.mark.parametrize(("expr", "wanted"), INDEX_CASES, ids=lambda case: text(case)[:60])
def test_index_arithmetic(expr: Expr, wanted: str, analyzer: Analyzer) -> None:
    after = analyzer.simplify(expr)
    assert text(after) == wanted
    assert after.dtype == expr.dtype
    assert analyzer.simplify(after) is after


CONDITION_CASES: list[tuple[Expr, str]] = [
    (x + 3 < x + n, "(n >= 4)"),
    (i * 4 + y < n * 4, "1"),
    (i * m + j < n * m, "1"),
    (i * m + j >= n * m, "0"),
    (x * 4 + y < n * 4, "(x < n)"),
    (x * 4 + y < 15, "((x * 4) + y) < 15"),
    (x * 4 + y < 16, "(x < 4)"),
    (x <= 5, "(x < 6)"),
    (x - 1 >= 0, "(x >= 1)"),
    (x < w + 3, "(x < (w + 3))"),
    (x * 4 == 8, "(x == 2)"),
    (x * 4 == 7, "0"),
    (x * 2 != x + x, "0"),
    (y.equal(4), "0"),
    (x.equal(x), "1"),
    (n > 0, "1"),  # there is an i below it
    (build.logical_and(x < 5, x < 3), "(x < 3)"),
    (build.logical_or(x < 5, x < 3), "(x < 5)"),
    (build.logical_and(x < 5, x > 7), "0"),
    (build.logical_or(x < 5, x > 3), "1"),
    (build.logical_and(y < 4, x < n), "(x < n)"),
    (build.logical_and(p, build.logical_not(p)), "0"),
    (build.logical_or(p, build.logical_not(p)), "1"),
    (build.logical_and(p, build.logical_or(p, q)), "p"),
    (build.logical_and(p, p), "p"),
    (build.logical_not(x < w), "(w <= x)"),
    (build.logical_not(build.logical_and(x < w, y < x)), "((w <= x) or (x <= y))"),
    (build.logical_not(f < g), "Not((f < g))"),
    (build.call_intrinsic("likely", i * 4 + y < n * 4), "1"),
    (build.call_intrinsic("likely", x * 4 < 16), "Call(bool, likely, [(x < 4)])"),
    (f < f, "0"),
    (f.equal(f), "(f == f)"),
    (p.equal(True), "p"),
    (x // 4 < 2, "(x < 8)"),
    (x // 4 >= n, "((n * 4) <= x)"),
    (w < x // 4, "(((w * 4) + 3) < x)"),
    (b + const(1, "uint8") > b, "((b + 1) > b)"),
]


@pytest.mark.parametrize(("expr", "wanted"), CONDITION_CASES, ids=lambda case: text(case)[:60])
def test_conditions(expr: Expr, wanted: str, analyzer: Analyzer) -> None:
    after = analyzer.simplify(expr)
    assert text(after).strip("()") == wanted.strip("()")
    assert analyzer.simplify(after) is after


FLOAT_CASES: list[tuple[Expr, str]] = [
    (f * 1.0, "f"),
    (f + 0.0, "(f + 0.0)"),
    (f + -0.0, "f"),
    (f - 0.0, "f"),
    (f * 0.0, "(f * 0.0)"),
    (f - f, "(f - f)"),
    (f / 4.0, "(f * 0.25)"),
    (f / 3.0, "(f / 3.0)"),
    (f + g * -1.0, "(f - g)"),
    (f * (x - x + 2).astype("float32"), "(f * 2.0)"),
    (build.select(y < 4, f, g), "f"),
    (build.if_then_else(x < 4, f, build.select(x < 4, f, g)),
     "Call(float32, if_then_else, [(x < 4), f, g])"),
    (build.cast("float32", build.cast("float64", f)), "f"),
    (build.cast("float16", build.cast("float32", f.astype("float16"))), "Cast(float16, f)"),
    (build.const(1.5, "float32") + 2.0, "3.5"),
]


@pytest.mark.parametrize(("expr", "wanted"), FLOAT_CASES, ids=lambda case: text(case)[:60])
def test_floats(expr: Expr, wanted: str, analyzer: Analyzer) -> None:
    assert text(analyzer.simplify(expr)) == wanted


def ramp(base: Expr, stride: int = 1) -> Expr:
    """Four lanes."""
    return Ramp(base, const(stride), 4)


VECTOR_CASES: list[tuple[Expr, str]] = [
    (ramp(x) + Broadcast(w, 4), "Ramp((x + w), 1, 4)"),
    (ramp(x) * Broadcast(const(3), 4), "Ramp((x * 3), 3, 4)"),
    (ramp(x) * Broadcast(n, 4) + 1, "Ramp(((x * n) + 1), n, 4)"),
    (ramp(x) - ramp(x), "Broadcast(0, 4)"),
    (Broadcast(x, 4) + Broadcast(w, 4), "Broadcast((x + w), 4)"),
    (ramp(x * 4) // 4, "Broadcast(x, 4)"),
    (ramp(x * 4) % 4, "Ramp(0, 1, 4)"),
    (ramp(x * 8, 8) // 8, "Ramp(x, 1, 4)"),
    (ramp(x, 4) % 4, "Broadcast((x % 4), 4)"),
    (ramp(x) // 4, "(Ramp(x, 1, 4) // Broadcast(4, 4))"),
    (ramp(y * 4) < 16, "Broadcast(1, 4)"),
    (ramp(y * 4) < 15, "(Ramp((y * 4), 1, 4) < Broadcast(15, 4))"),
    (ramp(x * 4) < Broadcast(n * 4, 4), "Broadcast((x < n), 4)"),
    (Ramp(x + 0 * w, const(0), 4), "Broadcast(x, 4)"),
    (build.select(ramp(y) < 7, ramp(x), Broadcast(w, 4)), "Ramp(x, 1, 4)"),
]


@pytest.mark.parametrize(("expr", "wanted"), VECTOR_CASES, ids=lambda case: text(case)[:60])
def test_vectors(expr: Expr, wanted: str, analyzer: Analyzer) -> None:
    after = analyzer.simplify(expr)
    assert text(after) == wanted
    assert analyzer.simplify(after) is after


def test_what_is_simple_stays_the_same_object(analyzer: Analyzer) -> None:
    for expr in (
        x * 4 + y, (x * n + w) * m + z, x // 4 * 8 + w, build.minimum(x, w), x < w,
        build.logical_and(x < w, w < n), f * 2.0 + g, ramp(x * 8), Call(f.dtype, "exp", (f,)),
        build.select(x < w, x, w) + 1, b + const(3, "uint8"), build.cast("int64", x + 1),
    ):
        assert analyzer.simplify(expr) is expr, text(expr)


def test_an_equal_copy_is_kept_too(analyzer: Analyzer) -> None:
    assert analyzer.simplify(x // 4 + 1) is not analyzer.simplify(x // 4 + 1)
    copy = x // 4 + 1
    assert analyzer.simplify(copy) is copy


def test_calls_with_effects_do_not_cancel(analyzer: Analyzer) -> None:
    def call() -> Expr:
        return Call(x.dtype, "next_random", ())

    assert text(analyzer.simplify(call() - call())).count("next_random") == 2
    one = call()
    assert text(analyzer.simplify(Call(x.dtype, "bitwise_xor", (one, call())))).count("next") == 2


def test_split_of_a_divisible_loop_needs_no_guard() -> None:
    analyzer = Analyzer()
    outer, inner = Var("outer"), Var("inner")
    analyzer.bind(outer, 0, (n * 32 + 31) // 32)
    analyzer.bind(inner, 0, 32)
    assert analyzer.can_prove(outer * 32 + inner < n * 32)
    assert not analyzer.can_prove(outer * 32 + inner < n * 32 - 1)


def test_long_sums_take_linear_time() -> None:
    analyzer = Analyzer()
    variables = [Var(f"v{number}") for number in range(2000)]
    total: Expr = const(0)
    for number, var in enumerate(variables):
        total = Add(total, var * (number + 1))
    total = Add(Add(total, const(1)), variables[0])
    start = time.process_time()
    after = analyzer.simplify(total)
    analyzer.bound(total)
    assert time.process_time() - start < 0.5
    assert isinstance(after, Add)


def test_long_chains_do_not_recurse() -> None:
    lanes = Var("lanes", DataType("float32x4"))
    for start in (f, p, lanes):
        chain: Expr = start
        for _ in range(1500):
            chain = build.logical_and(p, chain) if start is p else Add(chain, start)
        chain = chain if start is not p else build.logical_and(chain, q)
        after = Analyzer().simplify(chain)
        assert after is chain or start is p


def test_shared_parts_count_once() -> None:
    analyzer = Analyzer()
    total: Expr = x
    for _ in range(60):
        total = Add(total, total)
    assert analyzer.modular(total) == (2**60, 0)
    product: Expr = x + 1
    for _ in range(40):
        product = product * product
    analyzer.simplify(product)


def test_speed_of_a_typical_index() -> None:
    analyzer = Analyzer()
    for var, extent in ((x, 32), (y, 4), (z, 8)):
        analyzer.bind(var, 0, extent)
    exprs = [(x * 4 + y) * 8 + (z * 4 + y) // 4 * 16 + (x * 8 + z) % 8 for _ in range(200)]
    analyzer.simplify(exprs[0])
    start = time.process_time()
    for expr in exprs:
        analyzer.simplify(expr)
    first = time.process_time() - start
    assert first / len(exprs) < 1e-3  # about 60 µs where nothing else runs
    start = time.process_time()
    for expr in exprs:
        analyzer.simplify(expr)
    assert time.process_time() - start < first / 5


def test_constants_of_small_floats_are_left_alone() -> None:
    small = DataType("float8_e4m3fn")
    expr = Add(FloatImm(small, 1.0), FloatImm(small, 0.001))
    assert Analyzer().simplify(expr) is expr


def test_int_constants_wrap() -> None:
    expr = x + const(2**31 - 1) + 1
    after = Analyzer().simplify(expr)
    assert isinstance(after, Add) and isinstance(after.b, IntImm)
    assert after.b.value == -(2**31)
