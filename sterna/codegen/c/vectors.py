"""Vectors of integers as C with MVE's intrinsics (arm_mve.h), four words in a register.

Numbers of 8 and 16 bits are words in registers: loads widen them, stores cut them off. Every part
of an expression is written for four lanes from one on; what has no intrinsic is refused, and then
lanes are computed one by one.
"""

from collections.abc import Callable
from typing import Any

from sterna.codegen.c.expr import OTHER, ExprWriter
from sterna.codegen.c.types import int_range
from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore

WORDS = 4
# gcc takes what its intrinsics for narrow elements read or write for one element where it knows
# what lies there, and then moves other accesses past them; of these addresses it knows nothing.
# Functions that only lanes one by one would call are there, and are not called.
INCLUDE = """\
#if defined(__ARM_FEATURE_MVE) && !defined(STERNA_PLACE)
#include <arm_mve.h>
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define STERNA_PLACE(type, at) \\
  ({ type *place = (at); __asm__("" : "+r"(place)); place; })
#else
#define STERNA_PLACE(type, at) (at)
#endif
#endif"""
HAVE = "#if defined(__ARM_FEATURE_MVE)"

# How elements lie in memory: the letter of loads and stores.
_SIZES = {"int8": "b", "int16": "h", "int32": "w"}
_INT32 = DataType("int32")


class NoVectorError(Exception):
    """An expression has a part without an intrinsic."""


class VectorWriter:
    """Writes expressions as vectors of four words."""

    def __init__(self, writer: ExprWriter, at: str, predicate: str) -> None:
        """at: the first lane; predicate: the variable that says which lanes count, if not all."""
        self.writer, self.at, self.predicate = writer, at, predicate
        self.bound: dict[int, str] = {}

    def store(self, stmt: BufferStore) -> None:
        """A statement that stores four lanes."""
        if stmt.predicate is not None:
            raise NoVectorError
        size = _size_of(stmt.buffer.dtype)
        place = self._place(stmt.buffer, stmt.indices)
        stored = stmt.value
        if isinstance(stored, E.Cast) and stored.value.dtype.element == _INT32:
            stored = stored.value  # a store takes the lowest bits
        value = self.value(stored)
        if size != "w":
            place = f"STERNA_PLACE({stmt.buffer.dtype.element}_t, {place})"
        masked, more = ("_p", f", {self.predicate}") if self.predicate else ("", "")
        self.writer.line(f"vstr{size}q{masked}_s32({place}, {value}{more});")

    def _place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Where lanes begin that lie side by side."""
        offset = buffer.offset_of(indices)
        if not isinstance(offset, E.Ramp) or not build.is_const(offset.stride, 1):
            raise NoVectorError
        return f"&{self.writer.element(buffer, indices, self.at)}"

    # ---- values ----

    def value(self, expr: Expr) -> str:
        """A vector."""
        same = self._same(expr)
        if same is not None:
            return f"vdupq_n_s32({same})"
        write = _VALUES.get(type(expr))
        if write is None:
            raise NoVectorError
        return write(self, expr)

    def _same(self, expr: Expr) -> str | None:
        """The number of all lanes, if it is one."""
        if not isinstance(expr, E.Broadcast):
            return None
        if not expr.dtype.is_int or expr.dtype.bits > 32:
            raise NoVectorError
        return self.writer.text(expr.value, OTHER)

    def _load(self, expr: BufferLoad) -> str:
        size, place = _size_of(expr.buffer.dtype), self._place(expr.buffer, expr.indices)
        if size != "w":
            place = f"STERNA_PLACE(const {expr.buffer.dtype.element}_t, {place})"
        return f"vldr{size}q_z_s32({place}, {self.predicate})" if self.predicate else (
            f"vldr{size}q_s32({place})")

    def _cast(self, expr: E.Cast) -> str:
        source, target = expr.value.dtype.element, expr.dtype.element
        if not source.is_int or not target.is_int or max(source.bits, target.bits) > 32:
            raise NoVectorError
        if source.bits > target.bits:
            (low, high), found = int_range(target), self.writer.ranges.of(expr.value)
            if found is None or found[0] < low or found[1] > high:
                raise NoVectorError
        return self.value(expr.value)

    def _let(self, expr: E.Let) -> str:
        value = self.value(expr.value)
        name = self.writer.names.make(expr.var.name)
        self.writer.line(f"int32x4_t {name} = {value};")
        self.writer.mark_unused(name)  # where it only stands in what all lanes share
        self.bound[id(expr.var)] = name
        return self.value(expr.body)

    def _variable(self, expr: E.Var) -> str:
        if id(expr) not in self.bound:
            raise NoVectorError
        return self.bound[id(expr)]

    def _binary(self, name: str, expr: Any) -> str:
        """Of words, which wrap around."""
        if expr.dtype.element != _INT32:
            raise NoVectorError
        return self._with(name, expr.a, expr.b)

    def _with(self, name: str, a: Expr, b: Expr) -> str:
        """An operation whose second operand may be one number for all lanes."""
        same = self._same(b)
        if same is None:
            return f"v{name}q_s32({self.value(a)}, {self.value(b)})"
        return f"v{name}q_n_s32({self.value(a)}, {same})"

    def _extreme(self, name: str, expr: Any) -> str:
        if not expr.dtype.is_int or expr.dtype.bits > 32:
            raise NoVectorError
        return f"v{name}q_s32({self.value(expr.a)}, {self.value(expr.b)})"

    def _select(self, expr: E.Select) -> str:
        condition = expr.condition
        name = _COMPARED.get(type(condition))
        if name is None or not expr.dtype.is_int or expr.dtype.bits > 32:
            raise NoVectorError
        assert isinstance(condition, E.CompareExpr)
        if not condition.a.dtype.is_int or condition.a.dtype.bits > 32:
            raise NoVectorError
        test = self._with(f"cmp{name}", condition.a, condition.b)
        return f"vpselq_s32({self.value(expr.then)}, {self.value(expr.otherwise)}, {test})"

    # ---- calls ----

    def _call(self, expr: E.Call) -> str:
        write = _CALLS.get(expr.op)
        if write is None:
            raise NoVectorError
        return write(self, expr)

    def _high_product(self, expr: E.Call) -> str:
        return self._with("qrdmulh", *expr.args)

    def _saturate(self, expr: E.Call) -> str:
        (value,) = expr.args
        target = expr.dtype.element
        if value.dtype.element != _INT32 or not target.is_int or target.bits > 16:
            raise NoVectorError
        low, high = (f"vdupq_n_s32({end})" for end in int_range(target))
        return f"vmaxq_s32(vminq_s32({self.value(value)}, {high}), {low})"

    def _reinterpret(self, expr: E.Call) -> str:
        (value,) = expr.args
        if value.dtype != expr.dtype:
            raise NoVectorError
        return self.value(value)

    def _shift_right(self, expr: E.Call) -> str:
        value, count = expr.args
        if expr.dtype.element != _INT32:
            raise NoVectorError
        known = self._constant(count)
        if known is not None:
            return f"vshrq_n_s32({self.value(value)}, {known})" if known else self.value(value)
        if isinstance(count, E.Call) and count.op == "bitwise_not":
            (power,) = count.args  # by ~power to the right is by power + 1 to the left
            same = self._same(power)
            if same is not None:
                return f"vshlq_r_s32({self.value(value)}, {same} + 1)"
            return f"vshlq_s32({self.value(value)}, vaddq_n_s32({self.value(power)}, 1))"
        return f"vshlq_s32({self.value(value)}, vnegq_s32({self.value(count)}))"

    def _shift_left(self, expr: E.Call) -> str:
        value, count = expr.args
        known = self._constant(count)
        if expr.dtype.element != _INT32 or known is None:
            raise NoVectorError
        return f"vshlq_n_s32({self.value(value)}, {known})"

    def _constant(self, count: Expr) -> int | None:
        """By how many places all lanes are shifted, if the program says so."""
        value = count.value if isinstance(count, E.Broadcast) else count
        known = self.writer.ranges.constant(value)
        return known if known is not None and 0 <= known < 32 else None

    def _bitwise_not(self, expr: E.Call) -> str:
        if expr.dtype.element != _INT32:
            raise NoVectorError
        return f"vmvnq_s32({self.value(expr.args[0])})"


def _size_of(dtype: DataType) -> str:
    size = _SIZES.get(str(dtype.element))
    if size is None:
        raise NoVectorError
    return size


_COMPARED: dict[type, str] = {
    E.LT: "lt", E.LE: "le", E.GT: "gt", E.GE: "ge", E.EQ: "eq", E.NE: "ne",
}
_CALLS: dict[str, Callable[[VectorWriter, E.Call], str]] = {
    "high_product": VectorWriter._high_product,
    "saturate": VectorWriter._saturate,
    "reinterpret": VectorWriter._reinterpret,
    "shift_right": VectorWriter._shift_right,
    "shift_left": VectorWriter._shift_left,
    "bitwise_not": VectorWriter._bitwise_not,
}
_VALUES: dict[type, Callable[[VectorWriter, Any], str]] = {
    BufferLoad: VectorWriter._load,
    E.Cast: VectorWriter._cast,
    E.Let: VectorWriter._let,
    E.Var: VectorWriter._variable,
    E.Add: lambda self, expr: self._binary("add", expr),
    E.Sub: lambda self, expr: self._binary("sub", expr),
    E.Mul: lambda self, expr: self._binary("mul", expr),
    E.Min: lambda self, expr: self._extreme("min", expr),
    E.Max: lambda self, expr: self._extreme("max", expr),
    E.Select: VectorWriter._select,
    E.Call: VectorWriter._call,
}
