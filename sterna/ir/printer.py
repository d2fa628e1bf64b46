"""Expressions as text, in Python's notation.

Each node class has a function in PRINTERS; folders above add theirs with @prints. The function
gives the text and how tightly its outermost operator binds: parentheses appear only where needed.

A constant shows its type (`int64(3)`) unless that is what a reader expects there: the type of the
other operand, or int32, float32 and bool where nothing else says.
"""

import json
import keyword
import math
import re
from collections.abc import Callable
from typing import Any

from sterna.ir.expr import (
    BOOL,
    EQ,
    FLOAT32,
    GE,
    GT,
    INT32,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
)
from sterna.ir.node import Node
from sterna.support.dtype import DataType

# How tightly an operator binds; as in Python.
LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE = 1, 2, 3, 4
LEVEL_BIT_OR, LEVEL_BIT_XOR, LEVEL_BIT_AND, LEVEL_SHIFT = 5, 6, 7, 8
LEVEL_SUM, LEVEL_PRODUCT, LEVEL_UNARY, LEVEL_ATOM = 9, 10, 11, 12

INFIX: dict[type[Expr], tuple[str, int]] = {
    Or: (" or ", LEVEL_OR),
    And: (" and ", LEVEL_AND),
    LT: (" < ", LEVEL_COMPARE),
    LE: (" <= ", LEVEL_COMPARE),
    GT: (" > ", LEVEL_COMPARE),
    GE: (" >= ", LEVEL_COMPARE),
    EQ: (" == ", LEVEL_COMPARE),
    NE: (" != ", LEVEL_COMPARE),
    Add: (" + ", LEVEL_SUM),
    Sub: (" - ", LEVEL_SUM),
    Mul: ("*", LEVEL_PRODUCT),
    Div: (" / ", LEVEL_PRODUCT),
    FloorDiv: (" // ", LEVEL_PRODUCT),
    FloorMod: (" % ", LEVEL_PRODUCT),
}

INFIX_CALLS: dict[str, tuple[str, int]] = {
    "bitwise_or": (" | ", LEVEL_BIT_OR),
    "bitwise_xor": (" ^ ", LEVEL_BIT_XOR),
    "bitwise_and": (" & ", LEVEL_BIT_AND),
    "shift_left": (" << ", LEVEL_SHIFT),
    "shift_right": (" >> ", LEVEL_SHIFT),
}

# Words that mean something in the text and so name no variable.
RESERVED = frozenset(keyword.kwlist) | {
    "allocate", "attr", "broadcast", "handle", "inf", "let", "nan", "prefetch_region",
    "ramp", "range", "select", "shuffle", "where",
}

# Deeper than this an expression is cut short: text that nobody reads must not exhaust the stack.
MAX_DEPTH = 100

Printed = tuple[str, int]
PRINTERS: dict[type[Node], Callable[["Printer", Any], Printed]] = {}


def prints(
    *kinds: type[Node],
) -> Callable[[Callable[["Printer", Any], Printed]], Callable[["Printer", Any], Printed]]:
    """Makes a function the printer of some node classes."""

    def register(
        function: Callable[["Printer", Any], Printed],
    ) -> Callable[["Printer", Any], Printed]:
        for kind in kinds:
            PRINTERS[kind] = function
        return function

    return register


class Printer:
    """Prints nodes; one object gets one name throughout."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._used: set[str] = set()
        self._kept: list[Node] = []  # an id is only good while its object lives
        self._depth = 0

    def name_of(self, named: Any) -> str:
        """The object's name; _1, _2, ... tells apart those that share one."""
        known = self._names.get(id(named))
        if known is None:
            base = clean_name(named.name)
            known, count = base, 0
            while known in self._used:
                count += 1
                known = f"{base}_{count}"
            self.set_name(named, known)
        return known

    def set_name(self, named: Node, text: str) -> None:
        """Print an object as this text."""
        self._names[id(named)] = text
        self._used.add(text)
        self._kept.append(named)

    def has_name(self, named: Node) -> bool:
        """Whether the object was named before."""
        return id(named) in self._names

    def expr(self, node: Node, level: int = 0, like: DataType | None = None) -> str:
        """The node's text, in parentheses if it binds less tightly than level.

        like: the element type that a reader expects of a constant here.
        """
        if isinstance(node, (IntImm, FloatImm)):
            return self._constant(node, level, like)
        if self._depth >= MAX_DEPTH:
            return "..."
        self._depth += 1
        try:
            text, binding = _find_printer(type(node))(self, node)
        finally:
            self._depth -= 1
        return f"({text})" if binding < level else text

    def args(self, nodes: tuple[Node, ...], like: DataType | None = None) -> str:
        """Several nodes with commas between them."""
        return ", ".join(self.expr(node, like=like) for node in nodes)

    def tuple(self, nodes: tuple[Node, ...]) -> str:
        """Several nodes as a tuple."""
        return f"({self.expr(nodes[0])},)" if len(nodes) == 1 else f"({self.args(nodes)})"

    def infix(self, symbol: str, level: int, a: Expr, b: Expr) -> Printed:
        """An operator between two operands; it groups to the left."""
        left_level = level + 1 if level == LEVEL_COMPARE else level
        left = self.expr(a, left_level, _expected(b))
        return f"{left}{symbol}{self.expr(b, level + 1, _expected(a))}", level

    def value(self, value: Any) -> str:
        """A field's value: a node, or plain data."""
        if isinstance(value, Expr):
            return f"expr({self.expr(value)})"
        if isinstance(value, Node):
            return self.expr(value)
        if isinstance(value, tuple):
            inner = ", ".join(self.value(item) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, dict):
            rows = (f"{quote(str(key))}: {self.value(item)}" for key, item in value.items())
            return f"{{{', '.join(rows)}}}"
        return quote(value) if isinstance(value, str) else repr(value)

    def _constant(self, node: IntImm | FloatImm, level: int, like: DataType | None) -> str:
        dtype = node.dtype
        if dtype == BOOL:
            return "True" if node.value else "False"
        if isinstance(node, IntImm):
            text = str(node.value)
            plain = dtype == (like if like is not None and like.is_integer else INT32)
        else:
            text = repr(float(node.value))
            plain = dtype == (like if like is not None and like.is_float else FLOAT32)
            if not math.isfinite(node.value):
                text, plain = quote(text), False
        if not plain:
            return f"{dtype}({text})"
        return f"({text})" if text[0] == "-" and level > LEVEL_UNARY else text


def quote(text: str) -> str:
    """Text in double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


def clean_name(name: str) -> str:
    """A name that can stand in text: letters, digits, _ and inner dots."""
    clean = re.sub(r"[^\w.]", "_", name).strip(".") or "_"
    if clean[0].isdigit():
        clean = f"_{clean}"
    return f"{clean}_" if clean in RESERVED or _is_dtype(clean) else clean


def _is_dtype(name: str) -> bool:
    try:
        DataType(name)
    except ValueError:
        return False
    return True


def _expected(other: Expr) -> DataType | None:
    """The type that a constant beside this operand is expected to have."""
    return None if isinstance(other, (IntImm, FloatImm)) else other.dtype


def _find_printer(kind: type[Node]) -> Callable[[Printer, Any], Printed]:
    for base in kind.__mro__:
        if base in PRINTERS:
            return PRINTERS[base]
    return _print_fields


def _print_fields(printer: Printer, node: Node) -> Printed:
    shown = (f"{name}={printer.value(getattr(node, name))}" for name in node.FIELDS)
    return f"{type(node).__name__}({', '.join(shown)})", LEVEL_ATOM


@prints(Var)
def _print_var(printer: Printer, node: Var) -> Printed:
    return printer.name_of(node), LEVEL_ATOM


@prints(StringImm)
def _print_string(printer: Printer, node: StringImm) -> Printed:
    return quote(node.value), LEVEL_ATOM


@prints(BinaryExpr)
def _print_function(printer: Printer, node: BinaryExpr) -> Printed:
    a = printer.expr(node.a, like=_expected(node.b))
    return f"{node.SYMBOL}({a}, {printer.expr(node.b, like=_expected(node.a))})", LEVEL_ATOM


@prints(*INFIX)
def _print_infix(printer: Printer, node: BinaryExpr) -> Printed:
    symbol, level = INFIX[type(node)]
    return printer.infix(symbol, level, node.a, node.b)


@prints(Not)
def _print_not(printer: Printer, node: Not) -> Printed:
    return f"not {printer.expr(node.a, LEVEL_NOT)}", LEVEL_NOT


@prints(Select)
def _print_select(printer: Printer, node: Select) -> Printed:
    a = printer.expr(node.then, like=_expected(node.otherwise))
    b = printer.expr(node.otherwise, like=_expected(node.then))
    return f"select({printer.expr(node.condition)}, {a}, {b})", LEVEL_ATOM


@prints(Cast)
def _print_cast(printer: Printer, node: Cast) -> Printed:
    value = printer.expr(node.value)
    # A bare literal in a type's parentheses is a constant of that type.
    if isinstance(node.value, (IntImm, FloatImm)):
        return f'cast({value}, dtype="{node.dtype}")', LEVEL_ATOM
    return f"{node.dtype}({value})", LEVEL_ATOM


@prints(Call)
def _print_call(printer: Printer, node: Call) -> Printed:
    place = 1 if node.op == "if_then_else" else 0
    return print_call(printer, node, node.args[place].dtype if place < len(node.args) else None)


def print_call(printer: Printer, node: Call, usual: DataType | None) -> Printed:
    """A call; its type is shown unless it is the usual one."""
    if len(node.args) == 2 and node.op in INFIX_CALLS and node.dtype == usual:
        symbol, level = INFIX_CALLS[node.op]
        return printer.infix(symbol, level, node.args[0], node.args[1])
    if len(node.args) == 1 and node.op == "bitwise_not" and node.dtype == usual:
        return f"~{printer.expr(node.args[0], LEVEL_UNARY)}", LEVEL_UNARY
    shown = [printer.expr(arg) for arg in node.args]
    if node.dtype != usual:
        shown.append(f'dtype="{node.dtype}"')
    return f"{node.op}({', '.join(shown)})", LEVEL_ATOM


@prints(Let)
def _print_let(printer: Printer, node: Let) -> Printed:
    value = printer.expr(node.value)
    return f"let({printer.expr(node.var)}, {value}, {printer.expr(node.body)})", LEVEL_ATOM


@prints(Ramp)
def _print_ramp(printer: Printer, node: Ramp) -> Printed:
    stride = printer.expr(node.stride, like=_expected(node.base))
    base = printer.expr(node.base, like=_expected(node.stride))
    return f"ramp({base}, {stride}, {node.lanes})", LEVEL_ATOM


@prints(Broadcast)
def _print_broadcast(printer: Printer, node: Broadcast) -> Printed:
    return f"broadcast({printer.expr(node.value)}, {node.lanes})", LEVEL_ATOM


@prints(Shuffle)
def _print_shuffle(printer: Printer, node: Shuffle) -> Printed:
    return f"shuffle({printer.tuple(node.vectors)}, {node.indices})", LEVEL_ATOM


def _repr(self: object) -> str:
    assert isinstance(self, Node)
    return Printer().expr(self)


Node.__repr__ = _repr  # type: ignore[method-assign]
