"""Term rewriting: rules written as text, compiled to patterns and matched against expressions.

In a pattern x, y, z stand for anything (the same letter for the same thing) and c, d for constants.
Operators mean the nodes they build (`&`, `|`, `^`, `~`, `<<`, `>>` the bitwise calls); the
functions are min, max, select, truncdiv, truncmod.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.arith.emit import number
from sterna.ir.build import bitwise, const, fold_binary, is_const
from sterna.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
)
from sterna.ir.node import Node
from sterna.support.dtype import DataType

Bindings = dict[str, Expr]
Condition = Callable[[Bindings], bool]

_NODES: dict[type[ast.AST], Any] = {
    ast.Add: Add, ast.Sub: Sub, ast.Mult: Mul, ast.Div: Div, ast.FloorDiv: FloorDiv,
    ast.Mod: FloorMod, ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "shift_left", ast.RShift: "shift_right",
    ast.Lt: LT, ast.LtE: LE, ast.Gt: GT, ast.GtE: GE, ast.Eq: EQ, ast.NotEq: NE,
    ast.And: And, ast.Or: Or, ast.Not: Not, ast.Invert: "bitwise_not",
}
_FUNCTIONS: dict[str, Any] = {
    "min": Min, "max": Max, "select": Select, "truncdiv": TruncDiv, "truncmod": TruncMod,
}
_CONSTANTS = "cd"


@dataclass(slots=True)
class Pattern:
    """An operator over patterns, a name, or a number."""

    kind: Any
    """The node's class or the call's name; None for a name or a number."""
    parts: tuple["Pattern", ...] = ()
    name: str = ""
    value: int | float | bool = 0


def parse(text: str) -> Pattern:
    """A pattern from its text."""
    return _parse(ast.parse(text, mode="eval").body)


def _parse(tree: ast.expr) -> Pattern:
    if isinstance(tree, ast.Name):
        return Pattern(None, name=tree.id)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
        return Pattern(None, value=tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return Pattern(None, value=-_parse(tree.operand).value)
    if isinstance(tree, ast.UnaryOp):
        return Pattern(_NODES[type(tree.op)], (_parse(tree.operand),))
    if isinstance(tree, ast.BinOp):
        return Pattern(_NODES[type(tree.op)], (_parse(tree.left), _parse(tree.right)))
    if isinstance(tree, ast.Compare):
        parts = _parse(tree.left), _parse(tree.comparators[0])
        return Pattern(_NODES[type(tree.ops[0])], parts)
    if isinstance(tree, ast.BoolOp):
        return Pattern(_NODES[type(tree.op)], tuple(_parse(value) for value in tree.values))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return Pattern(_FUNCTIONS[tree.func.id], tuple(_parse(value) for value in tree.args))
    raise ValueError(f"no pattern: {ast.unparse(tree)}")


@dataclass(slots=True)
class Rule:
    """pattern → replacement, for the kinds of types it holds for."""

    kinds: str
    """The types of the operands: int (all that wrap too), uint, float, bool, any."""
    pattern: str
    replacement: str
    words: str
    when: Condition | None = None
    left: Pattern = field(init=False)
    right: Pattern = field(init=False)
    named_kinds: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.right = parse(self.pattern), parse(self.replacement)
        self.named_kinds = frozenset(self.kinds.split())

    def accepts(self, dtype: DataType) -> bool:
        """Whether the rule holds for operands of a type."""
        kinds = self.named_kinds
        if "any" in kinds:
            return True
        if dtype.is_float:
            return "float" in kinds
        return dtype.kind in kinds or ("int" in kinds and dtype.is_uint)

    def apply(self, expr: Expr, equal: Callable[[Expr, Expr], bool]) -> Expr | None:
        """What the rule makes of an expression, or None where it does not apply."""
        if root_of(expr) != self.left.kind:
            return None
        return self.apply_to_parts(expr, parts_of(expr), equal)

    def apply_to_parts(
        self, expr: Expr, parts: Sequence[Node], equal: Callable[[Expr, Expr], bool]
    ) -> Expr | None:
        """The same for an expression of the rule's root, which has these parts."""
        found: Bindings = {}
        if not _match_parts(self.left, parts, found, equal):
            return None
        operand = found["x"].dtype if "x" in found else expr.dtype
        if not self.accepts(operand) or (self.when is not None and not self.when(found)):
            return None
        made = build(self.right, found, expr.dtype)
        return made if made.dtype is expr.dtype else None


def root_of(expr: Expr) -> Any:
    """What rules are found by: the class, or the name of a call."""
    return expr.op if isinstance(expr, Call) else type(expr)


def _match(
    pattern: Pattern, expr: Expr, found: Bindings, equal: Callable[[Expr, Expr], bool]
) -> bool:
    if pattern.kind is None:
        return _match_leaf(pattern, expr, found, equal)
    return root_of(expr) == pattern.kind and _match_parts(pattern, parts_of(expr), found, equal)


def parts_of(expr: Expr) -> Sequence[Node]:
    """The operands of an operator, or the arguments of a call."""
    return expr.args if isinstance(expr, Call) else expr.children()


def _match_parts(
    pattern: Pattern, parts: Sequence[Node], found: Bindings, equal: Callable[[Expr, Expr], bool]
) -> bool:
    if len(parts) != len(pattern.parts):
        return False
    for inner, part in zip(pattern.parts, parts, strict=True):
        if not isinstance(part, Expr) or not _match(inner, part, found, equal):
            return False
    return True


def _match_leaf(
    pattern: Pattern, expr: Expr, found: Bindings, equal: Callable[[Expr, Expr], bool]
) -> bool:
    if not pattern.name:
        if not is_const(expr, pattern.value):
            return False
        zero = expr.value if isinstance(expr, Broadcast) else expr
        # 0.0 equals -0.0, yet only one of them is neutral.
        return not isinstance(zero, FloatImm) or str(zero.value) == str(float(pattern.value))
    if pattern.name in _CONSTANTS and not isinstance(expr, (IntImm, FloatImm)):
        return False
    known = found.setdefault(pattern.name, expr)
    return known is expr or equal(known, expr)


def build(pattern: Pattern, found: Bindings, dtype: DataType) -> Expr:
    """The expression that a pattern stands for; constants are folded."""
    if pattern.kind is None:
        if pattern.name:
            return found[pattern.name]
        if dtype.is_float or dtype.lanes > 1:
            return const(pattern.value, dtype)
        return number(int(pattern.value), dtype)
    if pattern.kind is Select:
        test, then, otherwise = pattern.parts
        condition = build(test, found, DataType("bool"))
        return Select(condition, build(then, found, dtype), build(otherwise, found, dtype))
    parts = [build(part, found, dtype) for part in pattern.parts]
    if pattern.kind is Not:
        return Not(parts[0])
    if isinstance(pattern.kind, str):
        is_pair = len(parts) == 2
        return bitwise(pattern.kind, *parts) if is_pair else Call(dtype, pattern.kind, (parts[0],))
    folded = fold_binary(pattern.kind, *parts)
    made: Expr = pattern.kind(*parts) if folded is None else folded
    return made
