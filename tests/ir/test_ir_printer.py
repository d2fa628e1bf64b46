"""Expressions as text."""

from dataclasses import field

import pytest

from sterna.ir import Expr, StringImm, Var, build, const
from sterna.ir import expr as E
from sterna.ir.node import NODE_CLASSES, node
from sterna.ir.printer import Printer
from sterna.support.dtype import DataType

K, J, N = Var("i"), Var("j"), Var("n")
X = Var("x", DataType("float32"))
L = Var("l", DataType("int64"))
H = Var("h", DataType("float16"))
P, Q, R = (Var(name, E.BOOL) for name in "pqr")

TEXTS: list[tuple[Expr, str]] = [
    (K * 4 + J < N, "i*4 + j < n"),
    ((K + J) * (K - J), "(i + j)*(i - j)"),
    (K - (J - N), "i - (j - n)"),
    (K - J - N, "i - j - n"),
    (K // 4 % 3, "i // 4 % 3"),
    (K // (J * 4), "i // (j*4)"),
    (E.TruncDiv(K, J), "truncdiv(i, j)"),
    (build.minimum(K, J + 1), "min(i, j + 1)"),
    (X / 2.5 + 1.0, "x / 2.5 + 1.0"),
    (L * 3 + 1, "l*3 + 1"),
    (const(3, "int64"), "int64(3)"),
    (E.Add(const(3, "int64"), const(4, "int64")), "int64(3) + int64(4)"),
    (H * 0.5, "h*0.5"),
    (const(0.5, "float16"), "float16(0.5)"),
    (const(float("inf")), 'float32("inf")'),
    (const(True), "True"),
    (K * -1 - -2, "i*-1 - -2"),
    (E.Or(E.And(P, Q), E.Not(R)), "p and q or not r"),
    (E.And(E.Or(P, Q), R), "(p or q) and r"),
    (E.Not(E.And(P, Q)), "not (p and q)"),
    (E.EQ(E.LT(K, J), P), "(i < j) == p"),
    (E.Select(P, K, const(0)), "select(p, i, 0)"),
    (build.if_then_else(P, X, 0.0), "if_then_else(p, x, 0.0)"),
    (K & J | N ^ 3, "i & j | n ^ 3"),
    (K << 2 + J, "i << 2 + j"),
    (~(K + J), "~(i + j)"),
    ((K + J).astype("float32"), "float32(i + j)"),
    (E.Cast(DataType("int32"), const(2.5)), 'cast(2.5, dtype="int32")'),
    (build.call_intrinsic("exp", X), "exp(x)"),
    (build.call_intrinsic("reinterpret", X, dtype="int32"), 'reinterpret(x, dtype="int32")'),
    (E.Call(E.INT32, "call_extern", (StringImm('a"b'), X)), 'call_extern("a\\"b", x'),
    (E.Ramp(K * 8, const(1), 8), "ramp(i*8, 1, 8)"),
    (E.Broadcast(X, 4), "broadcast(x, 4)"),
    (E.Shuffle((E.Broadcast(X, 2),), (1, 0)), "shuffle((broadcast(x, 2),), (1, 0))"),
    (E.Let(J, K + 1, J * J), "let(j, i + 1, j*j)"),
]


@pytest.mark.parametrize(("expr", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text(expr: Expr, text: str) -> None:
    assert repr(expr).startswith(text) if text.startswith("call_") else repr(expr) == text


def test_variables_of_one_name_are_told_apart_in_order() -> None:
    first, second, third = Var("i"), Var("i"), Var("i_1")
    assert repr(first + second + third + first) == "i + i_1 + i_1_1 + i"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("for", "for_"), ("i.outer", "i.outer"), ("a b", "a_b"), ("3d", "_3d"), ("int8", "int8_")],
)
def test_odd_names(name: str, shown: str) -> None:
    assert repr(Var(name)) == shown


def test_one_printer_keeps_names() -> None:
    printer = Printer()
    a, b = Var("i"), Var("i")
    assert [printer.expr(a), printer.expr(b), printer.expr(b), printer.expr(a)] == [
        "i", "i_1", "i_1", "i",
    ]


def test_a_deep_expression_is_cut_short() -> None:
    expr: Expr = K
    for _ in range(20000):
        expr = E.Add(expr, J)
    assert "..." in repr(expr)


def test_an_unknown_node_shows_its_fields() -> None:
    @node
    class Puzzle(Expr):
        a: Expr
        names: tuple[str, ...]
        dtype: DataType = field(default=E.INT32, init=False)

    try:
        assert repr(Puzzle(K + 1, ("x",))) == 'Puzzle(a=expr(i + 1), names=("x",))'
    finally:
        del NODE_CLASSES["Puzzle"]
