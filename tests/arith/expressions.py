"""Random expressions, and their text."""

import random

from sterna.ir import build
from sterna.ir.expr import (
    BinaryExpr,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node

_ARITHMETIC = ("add", "sub", "mul", "div", "mod", "min", "max", "truncdiv", "truncmod", "select")
_COMPARE = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


def text(node: object) -> str:
    """An expression with all its brackets."""
    if isinstance(node, (IntImm, FloatImm)):
        return str(node.value)
    if isinstance(node, Var):
        return node.name
    if isinstance(node, BinaryExpr):
        return f"({text(node.a)} {node.SYMBOL} {text(node.b)})"
    if isinstance(node, Node):
        parts = [text(getattr(node, name)) for name in node.FIELDS]
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, (tuple, list)):
        return f"[{', '.join(text(item) for item in node)}]"
    return str(node)


class Generator:
    """Makes expressions of some variables of one integer type."""

    def __init__(self, source: random.Random, variables: list[Var], dtype: str = "int32") -> None:
        self.source = source
        self.variables = variables
        self.dtype = dtype
        self.divisors: list[Expr] = [build.const(v, dtype) for v in (1, 2, 3, 4, 5, 8, 16, 32)]

    def leaf(self) -> Expr:
        """A variable or a constant."""
        if self.source.random() < 0.7:
            return self.source.choice(self.variables)
        limits = (0, 9) if self.dtype.startswith("u") else (-6, 9)
        return build.const(self.source.randint(*limits), self.dtype)

    def integer(self, depth: int) -> Expr:
        """An integer expression."""
        if depth == 0 or self.source.random() < 0.1:
            return self.leaf()
        if self.source.random() < 0.35:
            return self.idiom(depth - 1)
        kind = self.source.choice(_ARITHMETIC)
        a = self.integer(depth - 1)
        if kind in ("div", "mod", "truncdiv", "truncmod"):
            node = {"div": FloorDiv, "mod": FloorMod, "truncdiv": TruncDiv, "truncmod": TruncMod}
            return node[kind](a, self.divisor())
        if kind == "mul" and self.source.random() < 0.8:
            return Mul(a, self.source.choice(self.divisors))
        b = self.integer(depth - 1)
        if kind == "select":
            return build.select(self.condition(depth - 1), a, b)
        builders = {"add": build.add, "sub": build.sub, "mul": build.mul,
                    "min": build.minimum, "max": build.maximum}
        return builders[kind](a, b)

    def idiom(self, depth: int) -> Expr:
        """What splitting, fusing and tiling of loops make, and what nearly looks like it."""
        a, b = self.integer(depth), self.leaf()
        c, d, e = [self.source.choice(self.divisors) for _ in range(3)]
        k = build.const(self.source.randint(0, 4), self.dtype)
        same = c if self.source.random() < 0.7 else d
        choices: list[Expr] = [
            FloorDiv(a, c) * same + FloorMod(a, same),
            a - FloorDiv(a, c) * same,
            FloorMod(FloorDiv(a, c), d) * same + FloorMod(a, c),
            FloorDiv(FloorDiv(a, c) + k, d),
            FloorDiv(FloorMod(a, Mul(c, d)), same),
            FloorMod(FloorMod(a, Mul(c, d)) + k, same),
            FloorDiv(Mul(a, c) + b + k, Mul(same, d)),
            FloorMod(Mul(a, c) + b + k, Mul(same, d)),
            FloorDiv(Mul(a, c) + Mul(b, d) + k, e),
            FloorMod(Mul(a, c) - Mul(b, d) + k, e),
            build.minimum(a + k, a + b) - a,
            build.maximum(build.minimum(a, b), b + k),
        ]
        return self.source.choice(choices)

    def divisor(self) -> Expr:
        """Mostly a positive constant."""
        chance = self.source.random()
        if chance < 0.85:
            return self.source.choice(self.divisors)
        if chance < 0.9 and not self.dtype.startswith("u"):
            return build.const(-self.source.randint(1, 8), self.dtype)
        return self.source.choice(self.variables)

    def condition(self, depth: int) -> Expr:
        """A bool expression."""
        chance = self.source.random()
        if depth > 0 and chance < 0.35:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            if chance < 0.15:
                return build.logical_and(a, b)
            return build.logical_or(a, b) if chance < 0.3 else build.logical_not(a)
        compare = getattr(build, self.source.choice(_COMPARE))
        depth = max(depth - 1, 0)
        left, right = self.integer(depth), self.integer(depth)
        if self.source.random() < 0.4:
            c, d = [self.source.choice(self.divisors) for _ in range(2)]
            left, right = self.source.choice((
                (Mul(left, c) + self.leaf(), Mul(right, c)),
                (Mul(left, c), build.const(self.source.randint(0, 20), self.dtype)),
                (FloorDiv(left, c), right),
                (Mul(FloorDiv(left, c), d), Mul(left, c)),
            ))
        made: Expr = compare(left, right)
        return made
