"""Expressions to LLVM values. Meaning: sterna/ir/expr.py."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sterna.codegen.llvm import convert, small_floats
from sterna.codegen.llvm.emitter import FunctionWriter, ModuleWriter
from sterna.codegen.llvm.math import sum_as_call
from sterna.codegen.llvm.narrow import (
    adds_to_round,
    narrows,
    round_by_adding,
    round_to_bytes,
    round_to_whole,
    rounds_by_adding,
    rounds_to_whole,
)
from sterna.codegen.llvm.ranges import Ranges
from sterna.codegen.llvm.rounded_bytes import rounded
from sterna.codegen.llvm.types import (
    element_type,
    float_literal,
    int_literal,
    mangled,
    splat_literal,
    value_type,
    vector_type,
)
from sterna.ir import build
from sterna.ir.expr import (
    EQ,
    GE,
    GT,
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
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node
from sterna.ir.structural import structural_equal
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.stmt import BufferLoad

_FLOAT_OPS: dict[type[Node], str] = {
    Add: "fadd contract", Sub: "fsub contract", Mul: "fmul contract", Div: "fdiv",
}
_INT_OPS: dict[type[Node], str] = {Add: "add", Sub: "sub", Mul: "mul"}
_FLOAT_TESTS: dict[type[Node], str] = {
    LT: "olt", LE: "ole", GT: "ogt", GE: "oge", EQ: "oeq", NE: "une",
}
_INT_TESTS: dict[type[Node], str] = {LT: "lt", LE: "le", GT: "gt", GE: "ge"}


class ExprEmitter:
    """Writes the instructions of expressions into a function."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.writer = FunctionWriter(module)
        self.env: dict[int, str] = {}
        self.ranges = Ranges()
        self.mask: tuple[str, int] | None = None
        """Lanes that are really evaluated: a bool vector and its length; None: all."""

    # ---- context ----

    @contextmanager
    def exact(self, on: bool = True) -> Iterator[None]:
        """Inside, integers do not wrap: they index buffers or bound loops."""
        before = self.ranges.exact
        self.ranges.exact = on
        try:
            yield
        finally:
            self.ranges.exact = before

    @contextmanager
    def masked(self, mask: str, lanes: int) -> Iterator[None]:
        """Inside, only some lanes are evaluated."""
        before = self.mask
        if before is not None and before[1] == lanes:
            mask = self.writer.value(f"and <{lanes} x i1> {before[0]}, {mask}")
        self.mask = (mask, lanes)
        try:
            yield
        finally:
            self.mask = before

    def bind(self, var: Var, operand: str) -> None:
        """A variable's value from here on."""
        self.env[id(var)] = operand

    # ---- entry ----

    def expr(self, expr: Expr) -> str:
        """The operand that holds an expression's value."""
        method = _METHODS.get(type(expr))
        if method is None:
            raise InternalError(f"the LLVM code generator does not know {type(expr).__name__}")
        return method(self, expr)

    def typed(self, expr: Expr) -> str:
        """The operand with its type before it."""
        return f"{value_type(expr.dtype)} {self.expr(expr)}"

    # ---- leaves ----

    def _var(self, expr: Var) -> str:
        operand = self.env.get(id(expr))
        if operand is None:
            raise InternalError(f"the variable {expr.name} is used where nothing binds it")
        return operand

    def _int(self, expr: IntImm) -> str:
        return int_literal(expr.value, expr.dtype)

    def _float(self, expr: FloatImm) -> str:
        return float_literal(expr.value, expr.dtype)

    def _string(self, expr: StringImm) -> str:
        return self.module.string(expr.value)

    def _let(self, expr: Let) -> str:
        self.bind(expr.var, self.expr(expr.value))
        self.ranges.bind(expr.var, expr.value)
        return self.expr(expr.body)

    # ---- operators ----

    def _arithmetic(self, expr: BinaryExpr) -> str:
        made = sum_as_call(expr)
        if made is not None:
            return self.expr(made)
        a, b = self.expr(expr.a), self.expr(expr.b)
        return self.arithmetic(type(expr), expr.dtype, a, b)

    def arithmetic(self, kind: type[Node], dtype: DataType, a: str, b: str) -> str:
        """Add, Sub, Mul or Div of operands."""
        if dtype.is_float:
            return self._in_float(dtype, _FLOAT_OPS[kind], a, b)
        flag = ""
        if self.ranges.exact and dtype.bits >= 32:
            flag = " nsw" if dtype.is_int else " nuw" if kind is not Sub else ""
        return self.writer.value(f"{_INT_OPS[kind]}{flag} {value_type(dtype)} {a}, {b}")

    def _in_float(self, dtype: DataType, name: str, a: str, b: str) -> str:
        if not convert.computes_in_float(self.writer, dtype):
            return self.writer.value(f"{name} {value_type(dtype)} {a}, {b}")
        wide = [small_floats.widen(self.writer, dtype, each) for each in (a, b)]
        kind = vector_type("float", dtype.lanes)
        result = self.writer.value(f"{name} {kind} {wide[0]}, {wide[1]}")
        return small_floats.narrow(self.writer, dtype, result)

    def _compare(self, expr: BinaryExpr) -> str:
        with self.exact(False):
            a, b = self.expr(expr.a), self.expr(expr.b)
        return self.compare(type(expr), expr.a.dtype, a, b)

    def compare(self, kind: type[Node], dtype: DataType, a: str, b: str) -> str:
        """A comparison of operands."""
        if dtype.is_float:
            if convert.computes_in_float(self.writer, dtype):
                a, b = (small_floats.widen(self.writer, dtype, each) for each in (a, b))
                dtype = small_floats.FLOAT32.with_lanes(dtype.lanes)
            return self.writer.value(f"fcmp {_FLOAT_TESTS[kind]} {value_type(dtype)} {a}, {b}")
        if kind is EQ or kind is NE:
            test = "eq" if kind is EQ else "ne"
        else:
            test = ("s" if dtype.is_int else "u") + _INT_TESTS[kind]
        return self.writer.value(f"icmp {test} {value_type(dtype)} {a}, {b}")

    def _logic(self, expr: BinaryExpr) -> str:
        name = "and" if isinstance(expr, And) else "or"
        kind = value_type(expr.dtype)
        return self.writer.value(f"{name} {kind} {self.expr(expr.a)}, {self.expr(expr.b)}")

    def _not(self, expr: Not) -> str:
        ones = splat_literal("i1", "true", expr.dtype.lanes)
        return self.writer.value(f"xor {value_type(expr.dtype)} {self.expr(expr.a)}, {ones}")

    def _extreme(self, expr: BinaryExpr) -> str:
        if _is_number(expr.a) and self._has_ieee_maximum(expr.dtype):
            return self._extreme_or_nan(expr)
        a, b = self.expr(expr.a), self.expr(expr.b)
        dtype, smallest = expr.dtype, isinstance(expr, Min)
        if dtype.is_float or dtype.is_bool:
            test = self.compare(LT if smallest else GT, dtype, a, b)
            return self.select(test, dtype.lanes, dtype, a, b)
        name = ("s" if dtype.is_int else "u") + ("min" if smallest else "max")
        kind = value_type(dtype)
        return self.writer.intrinsic(f"llvm.{name}.{mangled(dtype)}", kind, f"{kind} {a}",
                                     f"{kind} {b}")

    def _has_ieee_maximum(self, dtype: DataType) -> bool:
        return self._has_maximum("ieee_maximum", dtype)

    def _has_maximum(self, capability: str, dtype: DataType) -> bool:
        wanted = dtype.is_float and dtype.bits in (32, 64)
        return wanted and self.module.options.instructions.provides(capability)

    def _extreme_or_nan(self, expr: BinaryExpr, flags: str = "") -> str:
        """The smaller or larger of two numbers; a NaN in either comes out."""
        name, kind = "minimum" if isinstance(expr, Min) else "maximum", value_type(expr.dtype)
        operands = self.typed(expr.a), self.typed(expr.b)
        return self.writer.intrinsic(
            f"llvm.{name}.{mangled(expr.dtype)}", kind, *operands, flags=flags
        )

    def select(self, test: str, test_lanes: int, dtype: DataType, a: str, b: str) -> str:
        """One of two operands."""
        kind = value_type(dtype)
        return self.writer.value(
            f"select {vector_type('i1', test_lanes)} {test}, {kind} {a}, {kind} {b}"
        )

    def _select(self, expr: Select) -> str:
        if _keeps_nan(expr):
            assert isinstance(expr.otherwise, Min | Max)
            if self._has_ieee_maximum(expr.dtype):
                return self._extreme_or_nan(expr.otherwise)
            if self._has_maximum("ordered_maximum", expr.dtype):  # either of two zeros will do
                return self._extreme_or_nan(expr.otherwise, "nsz")
        with self.exact(False):
            test = self.expr(expr.condition)
        a, b = self.expr(expr.then), self.expr(expr.otherwise)
        return self.select(test, expr.condition.dtype.lanes, expr.dtype, a, b)

    def _rounded_bytes(self, expr: Call | Cast) -> str | None:
        """Floats as the nearest bytes, where the target adds to round them."""
        single = small_floats.FLOAT32.with_lanes(expr.dtype.lanes)
        if not adds_to_round(self.writer, single, expr.dtype) or not narrows(
            self.writer, single, expr.dtype
        ):
            return None
        found = rounded(expr)
        return None if found is None else (
            round_to_bytes(self.writer, expr.dtype, self.expr(found)))

    def _cast(self, expr: Cast) -> str:
        if (quickly := self._rounded_bytes(expr)) is not None:
            return quickly
        inner = expr.value
        if isinstance(inner, Call) and inner.op == "nearbyint":
            for rounds, round_them in ((rounds_to_whole, round_to_whole),
                                       (rounds_by_adding, round_by_adding)):
                if rounds(self.writer, inner.dtype, expr.dtype):
                    return round_them(self.writer, expr.dtype.lanes, self.expr(inner.args[0]))
        keeps = expr.dtype.is_integer and expr.dtype.bits >= expr.value.dtype.bits
        with self.exact(self.ranges.exact and keeps):
            value = self.expr(expr.value)
        return convert.cast(self.writer, expr.value.dtype, expr.dtype, value)

    # ---- division ----

    def _divide(self, expr: BinaryExpr) -> str:
        dtype, kind = expr.dtype, type(expr)
        wants_quotient = kind in (FloorDiv, TruncDiv)
        floors = kind in (FloorDiv, FloorMod)
        a = self.expr(expr.a)
        divisor = expr.b.value if isinstance(expr.b, Broadcast) else expr.b
        number = divisor.value if isinstance(divisor, IntImm) else None
        unsigned = self.ranges.non_negative(expr.a) and self.ranges.non_negative(expr.b)
        power = number is not None and number > 0 and number & (number - 1) == 0
        if power and number is not None and (unsigned or floors):
            return self._by_power_of_two(dtype, a, number, wants_quotient, unsigned)
        b = self._safe_divisor(expr, self.expr(expr.b))
        if unsigned and wants_quotient:
            return self._quotient(dtype, "u", a, b)
        if unsigned:
            return self._remainder(dtype, "u", a, b)
        if self._may_overflow(expr):
            return self._divide_any(dtype, a, b, wants_quotient, floors)
        return self._divide_signed(dtype, a, b, wants_quotient, floors)

    def _by_power_of_two(
        self, dtype: DataType, a: str, number: int, wants_quotient: bool, unsigned: bool
    ) -> str:
        kind, element = value_type(dtype), element_type(dtype)
        if not wants_quotient:
            mask = splat_literal(element, str(number - 1), dtype.lanes)
            return self.writer.value(f"and {kind} {a}, {mask}")
        distance = splat_literal(element, str(number.bit_length() - 1), dtype.lanes)
        return self.writer.value(f"{'lshr' if unsigned else 'ashr'} {kind} {a}, {distance}")

    def _safe_divisor(self, expr: BinaryExpr, b: str) -> str:
        """The divisor, with 1 in lanes that are not evaluated."""
        lanes = expr.dtype.lanes
        if self.mask is None or isinstance(expr.b, IntImm) or lanes != self.mask[1]:
            return b
        one = splat_literal(element_type(expr.dtype), "1", lanes)
        return self.select(self.mask[0], lanes, expr.dtype, b, one)

    def _may_overflow(self, expr: BinaryExpr) -> bool:
        """Whether it may be the smallest number by -1, which traps on some processors."""
        if self.ranges.exact:
            return False
        low, high = self.ranges.of(expr.b)
        smallest = -1 << expr.dtype.bits - 1
        return low <= -1 <= high and self.ranges.of(expr.a)[0] <= smallest

    def _divide_any(self, dtype: DataType, a: str, b: str, quotient: bool, floors: bool) -> str:
        minus = splat_literal(element_type(dtype), "-1", dtype.lanes)
        one = splat_literal(element_type(dtype), "1", dtype.lanes)
        kind = value_type(dtype)
        is_minus = self.writer.value(f"icmp eq {kind} {b}, {minus}")
        safe = self.select(is_minus, dtype.lanes, dtype, one, b)
        result = self._divide_signed(dtype, a, safe, quotient, floors)
        if not quotient:
            return result  # x % 1 == x % -1
        negated = self.writer.value(f"sub {kind} {convert.zero(dtype)}, {a}")
        return self.select(is_minus, dtype.lanes, dtype, negated, result)

    def _divide_signed(self, dtype: DataType, a: str, b: str, quotient: bool, floors: bool) -> str:
        kind, value = value_type(dtype), self.writer.value
        if not floors:
            return self._quotient(dtype, "s", a, b) if quotient else self._remainder(
                dtype, "s", a, b
            )
        flags = vector_type("i1", dtype.lanes)
        remainder = self._remainder(dtype, "s", a, b)
        signs = value(f"xor {kind} {remainder}, {b}")
        differ = value(f"icmp slt {kind} {signs}, {convert.zero(dtype)}")
        rest = value(f"icmp ne {kind} {remainder}, {convert.zero(dtype)}")
        below = value(f"and {flags} {differ}, {rest}")
        if not quotient:
            moved = value(f"add {kind} {remainder}, {b}")
            return self.select(below, dtype.lanes, dtype, moved, remainder)
        towards_zero = self._quotient(dtype, "s", a, b)
        step = value(f"sext {flags} {below} to {kind}")
        return value(f"add {kind} {towards_zero}, {step}")

    def _quotient(self, dtype: DataType, sign: str, a: str, b: str) -> str:
        """Rounded towards zero. sign: s or u, of integers with one or without.

        Few processors divide vectors of integers. They are divided as floats of so many more
        digits that what is cut off of the quotient is never a whole.
        """
        kind, value = value_type(dtype), self.writer.value
        if not self._divides_as_floats(dtype, b):
            return value(f"{sign}div {kind} {a}, {b}")
        floats = vector_type("double" if dtype.bits == 32 else "float", dtype.lanes)
        over, under = (value(f"{sign}itofp {kind} {each} to {floats}") for each in (a, b))
        ratio = value(f"fdiv {floats} {over}, {under}")
        return value(f"fpto{sign}i {floats} {ratio} to {kind}")

    def _remainder(self, dtype: DataType, sign: str, a: str, b: str) -> str:
        kind, value = value_type(dtype), self.writer.value
        if not self._divides_as_floats(dtype, b):
            return value(f"{sign}rem {kind} {a}, {b}")
        whole = value(f"mul {kind} {self._quotient(dtype, sign, a, b)}, {b}")
        return value(f"sub {kind} {a}, {whole}")

    def _divides_as_floats(self, dtype: DataType, divisor: str) -> bool:
        """Whether it is faster than lane by lane; division by constants is multiplication."""
        fits = dtype.lanes > 1 and dtype.bits in (8, 16, 32) and divisor.startswith("%")
        return fits and self.module.options.instructions.vector_registers.divides_float64

    # ---- vectors ----

    def splat(self, dtype: DataType, operand: str, lanes: int) -> str:
        """A scalar operand in every lane."""
        element = element_type(dtype)
        if lanes == 1:
            return operand
        if not operand.startswith(("%", "@")):
            return splat_literal(element, operand, lanes)
        kind = vector_type(element, lanes)
        first = self.writer.value(f"insertelement {kind} poison, {element} {operand}, i64 0")
        return self.writer.value(
            f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

    def shuffle(self, dtype: DataType, a: str, b: str | None, lanes: list[int]) -> str:
        """Lanes of one or two vectors of a type, picked by number."""
        kind = value_type(dtype)
        picks = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.writer.value(
            f"shufflevector {kind} {a}, {kind} {b or 'poison'}, <{len(lanes)} x i32> <{picks}>"
        )

    def _broadcast(self, expr: Broadcast) -> str:
        inner = expr.value.dtype
        operand = self.expr(expr.value)
        if inner.lanes == 1:
            return self.splat(expr.dtype, operand, expr.lanes)
        repeats = list(range(inner.lanes)) * (expr.dtype.lanes // inner.lanes)
        return self.shuffle(inner, operand, None, repeats)

    def _ramp(self, expr: Ramp) -> str:
        if expr.base.dtype.lanes != 1:
            raise ValueError("a Ramp of vectors cannot be generated; flatten it first")
        dtype = expr.dtype
        base = self.splat(dtype, self.expr(expr.base), dtype.lanes)
        element = element_type(dtype)
        if dtype.is_float:
            counts = ", ".join(f"{element} {float_literal(i, dtype.element)}"
                               for i in range(dtype.lanes))
        else:
            counts = ", ".join(f"{element} {build.wrap_int(i, dtype.element)}"
                               for i in range(dtype.lanes))
        steps = f"<{counts}>"
        if not build.is_const(expr.stride, 1):
            stride = self.splat(dtype, self.expr(expr.stride), dtype.lanes)
            steps = self.arithmetic(Mul, dtype, stride, steps)
        return self.arithmetic(Add, dtype, base, steps)

    def _shuffle(self, expr: Shuffle) -> str:
        pieces = [(vector.dtype, self.expr(vector)) for vector in expr.vectors]
        if all(dtype.lanes == 1 for dtype, _ in pieces):
            return self.gathered(expr.dtype, [pieces[i][1] for i in expr.indices])
        while len(pieces) > 1:
            pieces = [self.joined(pieces[i : i + 2]) for i in range(0, len(pieces), 2)]
        dtype, whole = pieces[0]
        if len(expr.indices) == 1:
            return self.lane(dtype, whole, expr.indices[0])
        return self.shuffle(dtype, whole, None, list(expr.indices))

    def joined(self, pair: list[tuple[DataType, str]]) -> tuple[DataType, str]:
        """Two vectors end to end."""
        if len(pair) == 1:
            return pair[0]
        (left, a), (right, b) = pair
        size = max(left.lanes, right.lanes, 2)
        a, b = self._resized(left, a, size), self._resized(right, b, size)
        lanes = [*range(left.lanes), *range(size, size + right.lanes)]
        whole = self.shuffle(left.with_lanes(size), a, b, lanes)
        return left.with_lanes(len(lanes)), whole

    def _resized(self, dtype: DataType, operand: str, lanes: int) -> str:
        if dtype.lanes == lanes:
            return operand
        if dtype.lanes == 1:
            kind = vector_type(element_type(dtype), lanes)
            element = element_type(dtype)
            return self.writer.value(f"insertelement {kind} poison, {element} {operand}, i64 0")
        picks = [i if i < dtype.lanes else 0 for i in range(lanes)]
        return self.shuffle(dtype, operand, None, picks)

    def lane(self, dtype: DataType, operand: str, lane: int) -> str:
        """One lane of a vector."""
        if dtype.lanes == 1:
            return operand
        return self.writer.value(f"extractelement {value_type(dtype)} {operand}, i64 {lane}")

    def gathered(self, dtype: DataType, operands: list[str]) -> str:
        """A vector made of scalars."""
        if dtype.lanes == 1:
            return operands[0]
        whole, element = "poison", element_type(dtype)
        for lane, operand in enumerate(operands):
            whole = self.writer.value(
                f"insertelement {value_type(dtype)} {whole}, {element} {operand}, i64 {lane}"
            )
        return whole

    # ---- defined in the files beside this one ----

    def _load(self, expr: BufferLoad) -> str:
        raise NotImplementedError

    def _call(self, expr: Call) -> str:
        raise NotImplementedError


def _is_number(expr: Expr) -> bool:
    value = expr.value if isinstance(expr, Broadcast) else expr
    return isinstance(value, FloatImm) and not math.isnan(value.value)


def _keeps_nan(expr: Select) -> bool:
    """Whether it is the smaller or larger of a and b, or a where that is NaN."""
    test, a, extreme = expr.condition, expr.then, expr.otherwise
    if not isinstance(extreme, Min | Max) or not isinstance(test, Call) or test.op != "isnan":
        return False
    return structural_equal(test.args[0], a) and structural_equal(extreme.a, a)


_METHODS: dict[type[Node], Callable[[ExprEmitter, Any], str]] = {
    Var: ExprEmitter._var, IntImm: ExprEmitter._int, FloatImm: ExprEmitter._float,
    StringImm: ExprEmitter._string, Let: ExprEmitter._let,
    **dict.fromkeys((Add, Sub, Mul, Div), ExprEmitter._arithmetic),
    **dict.fromkeys((LT, LE, GT, GE, EQ, NE), ExprEmitter._compare),
    **dict.fromkeys((And, Or), ExprEmitter._logic),
    **dict.fromkeys((Min, Max), ExprEmitter._extreme),
    **dict.fromkeys((FloorDiv, FloorMod, TruncDiv, TruncMod), ExprEmitter._divide),
    Not: ExprEmitter._not, Select: ExprEmitter._select, Cast: ExprEmitter._cast,
    Broadcast: ExprEmitter._broadcast, Ramp: ExprEmitter._ramp, Shuffle: ExprEmitter._shuffle,
    BufferLoad: lambda emitter, expr: emitter._load(expr),
    Call: lambda emitter, expr: emitter._call(expr),
}
