"""Expressions as C.

A vector is written lane by lane: `lane` is the C text of the lane's number, and every part of the
expression is asked for its value in that lane. What C cannot say inside an expression (Let, a call
that may fail) becomes statements before it.

`index`: whether the value indexes a buffer or bounds a loop. There plain arithmetic is right, since
the program promises that it does not overflow; elsewhere signed integers are computed unsigned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sterna.codegen.c.helpers import Helpers
from sterna.codegen.c.ranges import Ranges
from sterna.codegen.c.types import (
    CodegenError,
    Names,
    declare,
    float_literal,
    int_literal,
    int_range,
    is_odd,
    is_small,
    string_literal,
    unsigned_type,
    value_type,
)
from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad

# How tightly an operator binds. Below a sum everything gets parentheses: nobody remembers the rest.
OTHER, SUM, PRODUCT, UNARY, ATOM = range(5)

Text = tuple[str, int]


@dataclass(slots=True)
class Lookup:
    """What a variable is in C."""

    name: str
    c_type: str
    """For a buffer's address the element type and *."""
    lanes: int = 1


class ExprWriter:
    """Writes expressions; the statements around them are written by its subclass."""

    def __init__(self, helpers: Helpers, names: Names) -> None:
        self.helpers = helpers
        self.names = names
        self.ranges = Ranges()
        self.lines: list[str] = []
        self.depth = 1
        self.known: dict[int, Lookup] = {}

    # ---- lines ----

    def line(self, text: str) -> None:
        """One line at the present depth."""
        self.lines.append("  " * self.depth + text)

    def capture(self, write: Callable[[], Any]) -> tuple[Any, list[str]]:
        """What a function gives, and the lines that it writes, aside."""
        outer, self.lines = self.lines, []
        try:
            return write(), self.lines
        finally:
            self.lines = outer

    def lookup(self, var: Var) -> Lookup:
        found = self.known.get(id(var))
        if found is None:
            raise CodegenError(f"the variable {var.name} is used outside what binds it")
        return found

    def fail(self, value: str = "-1") -> None:
        """Leave the function with an error."""
        raise NotImplementedError

    def call_function(self, expr: E.Call, lane: str) -> Text:
        """A call of an intrinsic or another function."""
        raise NotImplementedError

    # ---- expressions ----

    def text(self, expr: Expr, level: int = OTHER, lane: str = "", index: bool = False) -> str:
        """An expression, in parentheses if it binds less tightly than level."""
        text, binding = self.write(expr, lane, index)
        return f"({text})" if binding < level else text

    def write(self, expr: Expr, lane: str = "", index: bool = False) -> Text:
        """An expression and how tightly it binds."""
        constant = self.ranges.constant(expr)
        if constant is not None:
            text = int_literal(constant, expr.dtype.element)
            return text, UNARY if text[0] == "-" else ATOM
        for kind in type(expr).__mro__:
            if kind in _WRITERS:
                return _WRITERS[kind](self, expr, lane, index)
        raise CodegenError(f"C has no {type(expr).__name__}: {expr}")

    def _variable(self, expr: Var, lane: str, index: bool) -> Text:
        found = self.lookup(expr)
        return (f"{found.name}[{lane}]" if found.lanes > 1 else found.name), ATOM

    def _float(self, expr: E.FloatImm, lane: str, index: bool) -> Text:
        text = float_literal(expr.value, expr.dtype)
        return text, ATOM if text[0] not in "-(" else UNARY

    def _string(self, expr: E.StringImm, lane: str, index: bool) -> Text:
        return string_literal(expr.value), ATOM

    def _arithmetic(self, expr: E.BinaryExpr, lane: str, index: bool) -> Text:
        dtype = expr.dtype
        if dtype.is_float:
            text, level = self._plain(expr, lane, False)
            return self.rounded(text, dtype, level)
        wraps = dtype.is_uint and dtype.bits in (32, 64)  # as C's own type does
        if index or wraps or self.ranges.fits(expr):
            text, level = self._plain(expr, lane, index)
            # C computes small integers as int.
            return (text, level) if dtype.bits >= 32 else (f"({value_type(dtype)})({text})", UNARY)
        return self.low_bits(self.wrapping(expr, lane)[0], dtype)

    def low_bits(self, text: str, dtype: DataType) -> Text:
        """A number as an integer type holds it."""
        if is_odd(dtype):
            return f"{self.helpers.typed('wrap', dtype)}({text})", ATOM
        return f"({value_type(dtype)})({text})", UNARY

    def _plain(self, expr: E.BinaryExpr, lane: str, index: bool) -> Text:
        symbol = expr.SYMBOL
        level = SUM if symbol in "+-" else PRODUCT
        a = self.text(expr.a, level, lane, index)
        b = self.text(expr.b, level + 1, lane, index)
        return (f"{a} {symbol} {b}" if level == SUM or symbol == "/" else f"{a}*{b}"), level

    def wrapping(self, expr: Expr, lane: str) -> Text:
        """The low bits of an integer, computed in an unsigned type."""
        whole = unsigned_type(expr.dtype)
        constant = self.ranges.constant(expr)
        if constant is not None:
            bits = int(whole.removeprefix("uint").removesuffix("_t"))
            return int_literal(constant % (1 << bits), DataType(f"uint{bits}")), ATOM
        if isinstance(expr, (E.Add, E.Sub, E.Mul)) and not self.ranges.fits(expr):
            level = PRODUCT if isinstance(expr, E.Mul) else SUM
            a, a_level = self.wrapping(expr.a, lane)
            b, b_level = self.wrapping(expr.b, lane)
            a = f"({a})" if a_level < level else a
            b = f"({b})" if b_level < level + 1 else b
            return (f"{a}*{b}" if level == PRODUCT else f"{a} {expr.SYMBOL} {b}"), level
        return f"({whole}){self.text(expr, UNARY, lane)}", UNARY

    def rounded(self, text: str, dtype: DataType, level: int = OTHER) -> Text:
        """A float as its type holds it."""
        if is_small(dtype):
            return f"{self.helpers.small('round', dtype)}({text})", ATOM
        return text, level

    def _division(self, expr: E.BinaryExpr, lane: str, index: bool) -> Text:
        a, b = self.ranges.of(expr.a), self.ranges.of(expr.b)
        assert a is not None and b is not None, "integers have ranges"
        is_mod = isinstance(expr, (E.FloorMod, E.TruncMod))
        same = isinstance(expr, (E.TruncDiv, E.TruncMod)) and b[0] > 0
        if expr.dtype.is_uint or (a[0] >= 0 and b[0] > 0) or same:
            left, right = self.text(expr.a, PRODUCT, lane, index), self.text(
                expr.b, UNARY, lane, index)
            text = f"{left} {'%' if is_mod else '/'} {right}"
            small = expr.dtype.bits < 32
            return (f"({value_type(expr.dtype)})({text})", UNARY) if small else (text, PRODUCT)
        name = {E.FloorDiv: "floordiv", E.FloorMod: "floormod", E.TruncDiv: "truncdiv",
                E.TruncMod: "truncmod"}[type(expr)]
        return self.helper(name, expr.dtype, [expr.a, expr.b], lane, index)

    def _extreme(self, expr: E.Min | E.Max, lane: str, index: bool) -> Text:
        return self.helper(expr.SYMBOL, expr.dtype, [expr.a, expr.b], lane, index)

    def helper(
        self, name: str, dtype: DataType, args: list[Expr], lane: str, index: bool = False
    ) -> Text:
        """A call of a helper function."""
        shown = ", ".join(self.text(arg, OTHER, lane, index) for arg in args)
        return f"{self.helpers.typed(name, dtype)}({shown})", ATOM

    def _compare(self, expr: E.CompareExpr, lane: str, index: bool) -> Text:
        decided = self._decided(expr)
        if decided is not None:
            return str(int(decided)), ATOM
        a, b = self.text(expr.a, SUM, lane), self.text(expr.b, SUM, lane)
        if a == b and not expr.a.dtype.is_float:
            # Compilers warn about a comparison of a value with itself.
            return str(int(isinstance(expr, (E.EQ, E.LE, E.GE)))), ATOM
        return f"{a} {expr.SYMBOL} {b}", OTHER

    def _decided(self, expr: E.CompareExpr) -> bool | None:
        """The outcome, where the operands' types decide; compilers warn about such tests."""
        a, b = self.ranges.of(expr.a), self.ranges.of(expr.b)
        if a is None or b is None:
            return None
        if isinstance(expr, (E.LT, E.GE)):
            outcome = True if a[1] < b[0] else False if a[0] >= b[1] else None
            return outcome if outcome is None or isinstance(expr, E.LT) else not outcome
        if isinstance(expr, (E.GT, E.LE)):
            outcome = True if a[0] > b[1] else False if a[1] <= b[0] else None
            return outcome if outcome is None or isinstance(expr, E.GT) else not outcome
        if a[1] < b[0] or b[1] < a[0]:
            return isinstance(expr, E.NE)
        return None

    def _logic(self, expr: E.And | E.Or, lane: str, index: bool) -> Text:
        a, b = self.text(expr.a, SUM, lane), self.text(expr.b, SUM, lane)
        return f"{a} {'&&' if isinstance(expr, E.And) else '||'} {b}", OTHER

    def _not(self, expr: E.Not, lane: str, index: bool) -> Text:
        return f"!{self.text(expr.a, UNARY, lane)}", UNARY

    def _select(self, expr: E.Select, lane: str, index: bool) -> Text:
        return self.choose(expr.condition, expr.then, expr.otherwise, lane, index)

    def choose(self, condition: Expr, then: Expr, otherwise: Expr, lane: str, index: bool) -> Text:
        """One of two values; what one of them needs done before is done only if it is taken."""
        test, binding = self.write(condition, lane)
        self.depth += 1
        a, before_a = self.capture(lambda: self.text(then, SUM, lane, index))
        b, before_b = self.capture(lambda: self.text(otherwise, SUM, lane, index))
        self.depth -= 1
        if not before_a and not before_b:
            text = f"{f'({test})' if binding < SUM else test} ? {a} : {b}"
            small = then.dtype.is_integer and then.dtype.bits < 32
            return (f"({value_type(then.dtype)})({text})", UNARY) if small else (text, OTHER)
        name = self.names.make("chosen")
        self.line(f"{declare(value_type(then.dtype), name)};")
        for head, before, value in ((f"if ({test}) {{", before_a, a), ("} else {", before_b, b)):
            self.line(head)
            self.lines += before
            self.line(f"  {name} = {value};")
        self.line("}")
        return name, ATOM

    def _cast(self, expr: E.Cast, lane: str, index: bool) -> Text:
        held = _held_word(expr)
        if held is not None:
            return self.write(E.Call(expr.dtype, "saturate", (held,)), lane)
        return self.convert(expr.value, expr.dtype.element, lane)

    def convert(self, value: Expr, target: DataType, lane: str) -> Text:
        """A value as another type."""
        source = value.dtype.element
        if target.is_bool:
            return f"{self.text(value, SUM, lane)} != 0", OTHER
        if is_small(target):
            return self.rounded(self.number(value, lane), target)
        if is_small(source) and target == "float32":
            return self.write(value, lane)
        if is_odd(target) and not source.is_float:
            found, (low, high) = self.ranges.of(value), int_range(target)
            if found is None or found[0] < low or found[1] > high:
                return self.low_bits(self.text(value, OTHER, lane), target)
        return f"({value_type(target)}){self.text(value, UNARY, lane)}", UNARY

    def number(self, value: Expr, lane: str) -> str:
        """A value as a double that rounds to shorter floats as it does itself."""
        text = self.text(value, OTHER, lane)
        long = value.dtype.is_integer and value.dtype.bits > 53
        return f"{self.helpers.exact(_wide(value.dtype))}({text})" if long else text

    def _let(self, expr: E.Let, lane: str, index: bool) -> Text:
        if lane and expr.var.dtype.lanes > 1 and not _picks_lanes(expr.body):
            # Where one lane is computed, one lane of the variable is enough.
            text, c_type = self.text(expr.value, OTHER, lane), value_type(expr.var.dtype)
            name = self.names.make(expr.var.name)
            self.line(f"{declare(c_type, name)} = {text};")
            self.known[id(expr.var)] = Lookup(name, c_type)
            self.mark_unused(name)
        else:
            self.bind(expr.var, expr.value)
        return self.write(expr.body, lane, index)

    def bind(self, var: Var, value: Expr) -> None:
        """Begin a variable: a C variable, or an array for a vector."""
        lanes, c_type = var.dtype.lanes, value_type(var.dtype)
        if lanes == 1:
            text = self.text(value)
            name = self.names.make(var.name)
            self.line(f"{declare(c_type, name)} = {text};")
        else:
            name = self.materialize(value, var.name)
        self.ranges.set(var, self.ranges.of(value))
        self.known[id(var)] = Lookup(name, c_type, lanes)
        self.mark_unused(name)

    def mark_unused(self, name: str) -> None:
        """Keep compilers quiet if nothing uses a name; settled when the function is complete."""
        self.line(f"(void){name};")

    def materialize(self, value: Expr, name: str = "vector") -> str:
        """A vector's lanes in an array; the array's name."""
        lanes = value.dtype.lanes
        array, lane = self.names.make(name), self.names.make("lane")
        self.line(f"{declare(value_type(value.dtype), array)}[{lanes}];")
        self.line(f"for (int32_t {lane} = 0; {lane} < {lanes}; {lane}++) {{")
        self.depth += 1
        self.line(f"{array}[{lane}] = {self.text(value, OTHER, lane)};")
        self.depth -= 1
        self.line("}")
        return array

    # ---- vectors ----

    def _ramp(self, expr: E.Ramp, lane: str, index: bool) -> Text:
        element = expr.dtype.element
        low, high = int_range(element)
        found = self.ranges.exact(expr)
        step = self.ranges.constant(expr.stride)
        if index or (found is not None and low <= found[0] and found[1] <= high):
            shift = lane if step == 1 else f"{lane}*{self.text(expr.stride, UNARY, lane, index)}"
            level = PRODUCT
            if self.ranges.constant(expr.base) != 0:
                shift, level = f"{self.text(expr.base, SUM, lane, index)} + {shift}", SUM
            if not element.is_int or element.bits < 32:
                return f"({value_type(element)})({shift})", UNARY
            return shift, level
        u = unsigned_type(element)
        start, _ = self.wrapping(expr.base, lane)
        stride, level = self.wrapping(expr.stride, lane)
        stride = f"({stride})" if level < UNARY else stride
        return self.low_bits(f"{start} + ({u}){lane}*{stride}", element)

    def _broadcast(self, expr: E.Broadcast, lane: str, index: bool) -> Text:
        return self.write(expr.value, "", index)

    def _shuffle(self, expr: E.Shuffle, lane: str, index: bool) -> Text:
        starts = [0]
        for vector in expr.vectors:
            starts.append(starts[-1] + vector.dtype.lanes)
        if len(expr.indices) == 1:
            at = max(i for i, start in enumerate(starts[:-1]) if start <= expr.indices[0])
            return self.write(expr.vectors[at], str(expr.indices[0] - starts[at]), index)
        whole, picks = self.names.make("vector"), self.names.make("picks")
        c_type = value_type(expr.dtype)
        self.line(f"{declare(c_type, whole)}[{starts[-1]}];")
        for vector, start in zip(expr.vectors, starts[:-1], strict=True):
            if vector.dtype.lanes == 1:
                self.line(f"{whole}[{start}] = {self.text(vector)};")
                continue
            part = self.materialize(vector)
            self.line(f"memcpy({whole} + {start}, {part}, sizeof {part});")
        numbers = ", ".join(map(str, expr.indices))
        self.line(f"static const int32_t {picks}[{len(expr.indices)}] = {{{numbers}}};")
        return f"{whole}[{picks}[{lane}]]", ATOM

    # ---- memory ----

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], lane: str) -> str:
        """An element of a buffer, to read or to write."""
        name, offset = self.lookup(buffer.data).name, buffer.offset_of(indices)
        if buffer.dtype.is_packed:  # it begins a byte: pack_elements has made sure
            offset = build.cast("int64", offset) * buffer.dtype.bits // 8
        return f"{name}[{self.text(offset, OTHER, lane, index=True)}]"

    def _load(self, expr: BufferLoad, lane: str, index: bool) -> Text:
        text = self.element(expr.buffer, expr.indices, lane)
        if is_small(expr.buffer.dtype):
            return f"{self.helpers.small('value', expr.buffer.dtype)}({text})", ATOM
        return text, ATOM

    def _call(self, expr: E.Call, lane: str, index: bool) -> Text:
        if expr.op == "if_then_else":
            return self.choose(expr.args[0], expr.args[1], expr.args[2], lane, index)
        return self.call_function(expr, lane)


def _wide(dtype: DataType) -> DataType:
    return DataType(f"{dtype.kind}64")


def _held_word(expr: E.Cast) -> Expr | None:
    """The word that is held within the range of the type that it becomes; None if it is not."""
    target, outer = expr.dtype.element, expr.value
    if target not in ("int8", "int16") or outer.dtype.element != "int32":
        return None
    low, high = int_range(target)
    for ends in (((E.Min, high), (E.Max, low)), ((E.Max, low), (E.Min, high))):
        word: Expr | None = outer
        for kind, end in ends:
            word = _beside(word, kind, end)
        if word is not None:
            return word
    return None


def _beside(expr: Expr | None, kind: type[E.BinaryExpr], end: int) -> Expr | None:
    """The operand beside a number."""
    if not isinstance(expr, kind):
        return None
    for number, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(number, E.Broadcast):
            number = number.value
        if build.is_const(number, end):
            return other
    return None


def _picks_lanes(expr: Expr) -> bool:
    """Whether a lane of an expression may need other lanes of its parts."""
    found: list[Node] = []
    post_order(expr, lambda node: found.append(node) if isinstance(node, E.Shuffle) else None)
    return bool(found)


_WRITERS: dict[type, Callable[[ExprWriter, Any, str, bool], Text]] = {
    Var: ExprWriter._variable,
    E.FloatImm: ExprWriter._float,
    E.StringImm: ExprWriter._string,
    E.Add: ExprWriter._arithmetic,
    E.Sub: ExprWriter._arithmetic,
    E.Mul: ExprWriter._arithmetic,
    E.Div: ExprWriter._arithmetic,
    E.FloorDiv: ExprWriter._division,
    E.FloorMod: ExprWriter._division,
    E.TruncDiv: ExprWriter._division,
    E.TruncMod: ExprWriter._division,
    E.Min: ExprWriter._extreme,
    E.Max: ExprWriter._extreme,
    E.And: ExprWriter._logic,
    E.Or: ExprWriter._logic,
    E.CompareExpr: ExprWriter._compare,
    E.Not: ExprWriter._not,
    E.Select: ExprWriter._select,
    E.Cast: ExprWriter._cast,
    E.Call: ExprWriter._call,
    E.Let: ExprWriter._let,
    E.Ramp: ExprWriter._ramp,
    E.Broadcast: ExprWriter._broadcast,
    E.Shuffle: ExprWriter._shuffle,
    BufferLoad: ExprWriter._load,
}
