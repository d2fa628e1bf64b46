"""Binding, assuming, bounds, proofs, remainders, intervals, linear parts, substitution."""

from math import inf

import pytest

from sterna.arith import Analyzer, IntBound, Interval, detect_linear, interval, substitute
from sterna.ir import build, const
from sterna.ir.expr import Call, Expr, Let, Ramp, Var
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, For
from tests.arith.expressions import text

x, y, z, o, f = Var("x"), Var("y"), Var("z"), Var("o"), Var("f")
n, m = Var("n", is_size=True), Var("m", is_size=True)
byte = Var("byte", DataType("uint8"))


def test_bounds() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, 2, 5)
    analyzer.bind(y, -3, 7)
    cases: list[tuple[Expr, tuple[float, float]]] = [
        (x, (2, 6)),
        (x * 3 - y, (3, 21)),
        (x * y, (-18, 18)),
        (y // 2, (-2, 1)),
        (y % 4, (0, 3)),
        (x % 8, (2, 6)),
        (x // x, (0, 3)),
        (build.truncdiv(y, 2), (-1, 1)),
        (build.truncmod(y, 2), (-1, 1)),
        (build.minimum(x, y), (-3, 3)),
        (build.maximum(x, y), (2, 6)),
        (build.select(z < 3, x, y), (-3, 6)),
        (y * y, (0, 9)),
        (z, (-inf, inf)),
        (n, (0, inf)),
        (z & 7, (0, 7)),
        (x << 2, (8, 24)),
        (y >> 1, (-2, 1)),
        (x | 1, (2, 7)),
        (byte, (0, 255)),
        (byte + const(1, "uint8"), (0, 255)),
        (byte.astype("int32") + 1, (1, 256)),
        (x.astype("int64") * const(2, "int64"), (4, 12)),
        (z.astype("int8").astype("int32"), (-128, 127)),
        (Ramp(x, const(2), 4), (2, 12)),
        ((x < 3).astype("int32"), (0, 1)),
    ]
    for expr, wanted in cases:
        bound = analyzer.bound(expr)
        if expr.dtype.lanes == 1 and text(expr) == "(x // x)":
            assert bound == IntBound(1, 1)  # a thing divided by itself
        else:
            assert bound == IntBound(*wanted), text(expr)
        assert all(isinstance(end, int) or end in (inf, -inf) for end in bound)


def test_binding_and_unbinding() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, 0, 4)
    assert analyzer.can_prove(x < 4)
    analyzer.bind(x, 0, 8)
    assert not analyzer.can_prove(x < 4)
    analyzer.bind(x, 0, n)
    assert analyzer.can_prove(x < n)
    analyzer.unbind(x)
    assert not analyzer.can_prove(x < n)
    assert analyzer.bound(x) == IntBound(-inf, inf)
    analyzer.bind_value(x, y * 4 + 1)
    assert text(analyzer.simplify(x % 4)) == "1"
    assert text(analyzer.simplify(x // 4)) == "y"
    analyzer.unbind(x)
    assert text(analyzer.simplify(x // 4)) == "(x // 4)"


def test_assuming() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, 0, 16)
    analyzer.bind(y, 0, 4)
    with analyzer.assuming(x * 4 + y < n):
        assert analyzer.can_prove(x * 4 + y < n)
        assert analyzer.can_prove(x * 4 + y + 1 <= n)
        assert analyzer.can_prove(x * 4 < n)
        assert not analyzer.can_prove(x * 4 + y + 1 < n)
        with analyzer.assuming(build.logical_and(z >= 3, z < 5)):
            assert analyzer.bound(z) == IntBound(3, 4)
        assert analyzer.bound(z) == IntBound(-inf, inf)
    assert not analyzer.can_prove(x * 4 + y < n)


def test_assuming_the_opposite_of_an_or() -> None:
    analyzer = Analyzer()
    with analyzer.assuming(build.logical_not(build.logical_or(x < 0, x >= n))):
        assert analyzer.can_prove(build.logical_and(x >= 0, x < n))


def test_assuming_equalities() -> None:
    analyzer = Analyzer()
    with analyzer.assuming((n % 4).equal(0)):
        assert text(analyzer.simplify(n % 4)) == "0"
        assert text(analyzer.simplify((n + 6) % 4)) == "2"
        assert analyzer.modular(n + 1) == (4, 1)
    with analyzer.assuming(x.equal(3)):
        assert text(analyzer.simplify(x + 1)) == "4"
    with analyzer.assuming(x.equal(y + 1)):
        assert analyzer.can_prove(x > y)
        assert analyzer.can_prove_equal(x - 1, y)
    with analyzer.assuming(n != 0):
        assert analyzer.can_prove(n >= 1)


def test_assuming_a_bool_and_a_float_comparison() -> None:
    analyzer = Analyzer()
    flag, real = Var("flag", DataType("bool")), Var("real", DataType("float32"))
    with analyzer.assuming(build.logical_and(flag, real < 1.0)):
        assert analyzer.can_prove(flag)
        assert analyzer.can_prove(real < 1.0)
        assert text(analyzer.simplify(build.select(flag, x, y))) == "x"
    assert not analyzer.can_prove(flag)


def test_what_is_in_memory_may_change() -> None:
    analyzer = Analyzer()
    load = BufferLoad(Buffer("a", DataType("int32"), (const(8),)), (const(0),))
    with analyzer.assuming(load < 4):
        assert not analyzer.can_prove(load < 4)
    assert text(analyzer.simplify(load - load)) == "0"


def test_indices_of_a_load_are_simplified_and_its_buffer_is_kept() -> None:
    analyzer = Analyzer()
    buffer = Buffer("a", DataType("float32"), (n + 0 * x,))
    load = BufferLoad(buffer, (x + 1 - 1,))
    after = analyzer.simplify(load)
    assert isinstance(after, BufferLoad)
    assert after.buffer is buffer and after.indices == (x,)


def test_remainders() -> None:
    analyzer = Analyzer()
    assert analyzer.modular(x * 4 + 3) == (4, 3)
    assert analyzer.modular(const(7)) == (0, 7)
    assert analyzer.modular(x * 8 + y * 12 - 1) == (4, 3)
    assert analyzer.modular((x * 8 + 4) // 4) == (2, 1)
    assert analyzer.modular(build.minimum(x * 4, y * 6 + 2)) == (2, 0)
    assert analyzer.modular((x * 2 + 1) * (y * 2)) == (2, 0)
    assert analyzer.can_prove((x * 4 + 3) % 2 != 0)
    assert analyzer.can_prove(x * 4 != y * 4 + 2)


def test_proofs() -> None:
    analyzer = Analyzer()
    analyzer.bind(x, 0, n)
    analyzer.bind(y, 0, 4)
    assert analyzer.can_prove_less(y * 2, 7)
    assert not analyzer.can_prove_less(y * 2, 6)
    assert analyzer.can_prove_equal((x + y) * 2, y * 2 + x * 2)
    assert not analyzer.can_prove_equal(x, y)
    assert analyzer.can_prove(build.minimum(x, m) <= m)
    assert analyzer.can_prove(build.minimum(x, m) <= n)
    assert analyzer.can_prove(build.maximum(x, y + n) > x)
    assert analyzer.can_prove(x // 4 * 4 <= x)
    assert analyzer.can_prove(x % (n + 1) <= n)
    assert analyzer.can_prove((x + 1) // 2 <= n)
    assert analyzer.can_prove(x // 4 < (n + 3) // 4)
    assert analyzer.can_prove(build.select(z < 3, x, y) >= 0)


def shown(pair: Interval) -> str:
    """Both ends."""
    return f"{text(pair.min)} .. {text(pair.max)}"


INTERVALS: list[tuple[Expr, dict[Var, tuple[Expr, Expr]], str]] = [
    (o * 32 + x + 1, {x: (const(0), const(31))}, "((o * 32) + 1) .. ((o * 32) + 32)"),
    (f // 16, {f: (o * 16, o * 16 + 15)}, "o .. o"),
    (f % 16, {f: (o * 16, o * 16 + 15)}, "0 .. 15"),
    (f % 16, {f: (o * 16 + 3, o * 16 + 7)}, "3 .. 7"),
    (f % 16, {f: (o * 8, o * 8 + 15)}, "0 .. 15"),
    (f // 4 % 8, {f: (o * 32, o * 32 + 31)}, "0 .. 7"),
    (f // 3, {f: (const(0), const(10))}, "0 .. 3"),
    (f // n, {f: (o * n, o * n + n - 1)}, "o .. o"),
    (x * 2 + y, {x: (o * 4, o * 4 + 3), y: (const(0), const(2))}, "(o * 8) .. ((o * 8) + 8)"),
    (x * -2, {x: (o, o + 3)}, "((o * -2) - 6) .. (o * -2)"),
    (x * n + y, {x: (const(0), m - 1), y: (const(0), n - 1)}, "0 .. ((m * n) - 1)"),
    (x * y, {x: (const(2), const(3)), y: (const(0), n)}, "0 .. (n * 3)"),
    (x * y, {x: (const(-2), const(3)), y: (const(-1), const(5))}, "-10 .. 15"),
    (build.minimum(x, n - 1), {x: (o, o + 3)}, "(o min (n - 1)) .. ((o + 3) min (n - 1))"),
    (build.maximum(x - 1, 0), {x: (const(0), n)}, "0 .. ((n - 1) max 0)"),
    (build.select(z < 3, x, x + 1), {x: (o, o + 3)}, "o .. (o + 4)"),
    (x, {}, "x .. x"),
    (x + y, {x: (const(0), y), y: (const(0), const(3))}, "0 .. 6"),
    (Call(DataType("int32"), "hash", (x,)), {x: (const(0), const(3))}, "None .. None"),
    (x & 7, {x: (const(0), const(99))}, "0 .. 7"),
]


@pytest.mark.parametrize(("expr", "domains", "wanted"), INTERVALS, ids=lambda c: text(c)[:50])
def test_intervals(expr: Expr, domains: dict[Var, tuple[Expr, Expr]], wanted: str) -> None:
    assert shown(interval(expr, domains)) == wanted


def test_the_extent_of_an_interval_is_constant_where_it_can_be() -> None:
    analyzer = Analyzer()
    low, high = interval(x * 2 + y - 1, {x: (o * 4, o * 4 + 3), y: (const(0), const(2))}, analyzer)
    assert low is not None and high is not None
    assert text(analyzer.simplify(high - low + 1)) == "9"


def test_an_interval_uses_and_keeps_what_the_analyzer_knows() -> None:
    analyzer = Analyzer()
    analyzer.bind(o, 0, 4)
    analyzer.bind(x, 0, 2)
    assert shown(interval(build.maximum(o + x, 0), {x: (const(0), const(9))}, analyzer)) == (
        "o .. (o + 9)"
    )
    assert analyzer.bound(x) == IntBound(0, 1)


def test_linear_parts() -> None:
    assert text(detect_linear(x * n + y * 4 + m, [x, y])) == "[n, 4, m]"
    assert text(detect_linear((x + y) * 3 - x, [x, y])) == "[2, 3, 0]"
    assert text(detect_linear(z // 4, [x])) == "[0, (z // 4)]"
    assert detect_linear(x * x, [x]) is None
    assert detect_linear(x * y, [x, y]) is None
    assert detect_linear(x // 4, [x]) is None


def test_substitution() -> None:
    expr = x * 4 + y
    assert substitute(expr, {z: const(1)}) is expr
    assert substitute(expr, {}) is expr
    assert text(substitute(expr, {y: z // 2})) == "((x * 4) + (z // 2))"
    assert text(substitute(expr, {x: y, y: x})) == "((y * 4) + x)"


def test_substitution_in_statements() -> None:
    buffer = Buffer("a", DataType("float32"), (n,))
    store = BufferStore(buffer, BufferLoad(buffer, (x,)), (x + 1,))
    loop = For(x, const(0), n, "serial", store)
    same = substitute(loop, {z: const(1)})
    assert same is loop
    renamed = substitute(loop, {x: y})
    assert renamed.var is y
    kept = substitute(loop, {x: z + 1})
    assert kept.var is x
    resized = substitute(loop, {n: const(8)})
    assert isinstance(resized.body, BufferStore) and isinstance(resized.body.value, BufferLoad)
    assert resized.body.buffer is not buffer
    assert resized.body.buffer is resized.body.value.buffer


def test_substitution_follows_the_address_of_a_buffer() -> None:
    buffer = Buffer("a", DataType("float32"), (n,))
    pair = Let(z, BufferLoad(buffer, (x,)), Call(DataType("int32"), "use", (buffer.data,)))
    after = substitute(pair, {n: const(8)})
    assert isinstance(after.value, BufferLoad) and isinstance(after.body, Call)
    assert after.body.args[0] is after.value.buffer.data
