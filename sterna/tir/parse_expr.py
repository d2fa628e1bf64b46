"""Reading expressions: the inverse of the printer's table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node
from sterna.ir.printer import INFIX, INFIX_CALLS, LEVEL_NOT, LEVEL_UNARY
from sterna.support.dtype import DataType
from sterna.tir.lexer import Line
from sterna.tir.printer import usual_type
from sterna.tir.stmt import Buffer, BufferLoad


@dataclass(frozen=True, slots=True)
class Literal:
    """A number whose type depends on what stands beside it."""

    value: int | float


Part = Expr | Literal

_OPERATORS: dict[str, tuple[type[Expr] | str, int]] = {
    **{symbol.strip(): (kind, level) for kind, (symbol, level) in INFIX.items()},
    **{symbol.strip(): (op, level) for op, (symbol, level) in INFIX_CALLS.items()},
}

_FUNCTIONS: dict[str, type[E.BinaryExpr]] = {
    "min": E.Min, "max": E.Max, "truncdiv": E.TruncDiv, "truncmod": E.TruncMod,
}


def as_dtype(name: str) -> DataType | None:
    """The type of that name, or None."""
    try:
        return DataType(name)
    except ValueError:
        return None


def resolve(part: Part, like: DataType | None = None) -> Expr:
    """A literal as a constant of the type that is expected there."""
    if isinstance(part, Expr):
        return part
    if isinstance(part.value, float):
        dtype = like if like is not None and like.is_float else E.FLOAT32
        return E.FloatImm(dtype, build.round_float(part.value, dtype))
    dtype = like if like is not None and like.is_integer else E.INT32
    return E.IntImm(dtype, part.value)


def resolve_both(a: Part, b: Part) -> tuple[Expr, Expr]:
    """Two operands; a literal takes the other's type."""
    left = resolve(a, b.dtype if isinstance(b, Expr) else None)
    return left, resolve(b, a.dtype if isinstance(a, Expr) else None)


class ExprParser:
    """Reads expressions from a line, with the names that are visible there."""

    def __init__(self, line: Line, names: dict[str, Node]) -> None:
        self.line = line
        self.names = names

    def expr(self, like: DataType | None = None) -> Expr:
        """An expression."""
        return resolve(self.part(0), like)

    def part(self, level: int) -> Part:
        """An operand that binds at least as tightly as level."""
        left = self._unary()
        while True:
            operator = _OPERATORS.get(self.line.next.text)
            if operator is None or operator[1] < level or self.line.next.kind == "string":
                return left
            column = self.line.next.column
            self.line.at += 1
            kind, binding = operator
            a, b = resolve_both(left, self.part(binding + 1))
            if a.dtype != b.dtype:
                raise self.line.error(f"{a.dtype} beside {b.dtype}", column)
            left = E.Call(a.dtype, kind, (a, b)) if isinstance(kind, str) else _make(kind, a, b)

    def _unary(self) -> Part:
        line = self.line
        if line.take("not"):
            return E.Not(resolve(self.part(LEVEL_NOT)))
        if line.take("~"):
            flipped = resolve(self.part(LEVEL_UNARY))
            return E.Call(flipped.dtype, "bitwise_not", (flipped,))
        if line.take("-"):
            operand = self.part(LEVEL_UNARY)
            return Literal(-operand.value) if isinstance(operand, Literal) else -operand
        if line.take("("):
            inner = self.part(0)
            line.need(")")
            return inner
        if line.next.kind == "number":
            text = line.kind("number", "a number")
            return Literal(int(text) if text.isdecimal() else float(text))
        if line.next.kind == "string":
            return E.StringImm(line.string())
        return self._named()

    def _named(self) -> Part:
        line, column = self.line, self.line.next.column
        name = line.kind("name", "an expression")
        if name in ("True", "False"):
            return E.IntImm(E.BOOL, int(name == "True"))
        if line.take("("):
            return self._call(name, column)
        found = self.find(name)
        if isinstance(found, Buffer):
            line.need("[")
            indices = self.items("]")
            if len(indices) != len(found.shape):
                raise line.error(f"{name} has {len(found.shape)} dimensions", column)
            return BufferLoad(found, tuple(indices))
        if isinstance(found, Expr):
            return found
        raise line.error(f"there is no '{name}' here", column)

    def find(self, name: str) -> Node | None:
        """What a name stands for."""
        if name in self.names:
            return self.names[name]
        owner = self.names.get(name.removesuffix(".data")) if name.endswith(".data") else None
        return owner.data if isinstance(owner, Buffer) else None

    def items(self, closing: str) -> list[Expr]:
        """Expressions up to a closing bracket."""
        items: list[Expr] = []
        while not self.line.take(closing):
            if items:
                self.line.need(",")
                if self.line.take(closing):
                    break
            items.append(self.expr())
        return items

    def _call(self, name: str, column: int) -> Part:
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self)
        if name in _FUNCTIONS:
            a, b = self._pair()
            self.line.need(")")
            return _FUNCTIONS[name](a, b)
        dtype = as_dtype(name)
        if dtype is not None:
            return self._typed(dtype)
        args: list[Expr] = []
        while not self.line.peek(")") and not self._dtype_follows():
            args.append(self.expr())
            if not self.line.take(","):
                break
        given = self._dtype_option()
        self.line.need(")")
        result = given or usual_type(name, tuple(args))
        if result is None:
            raise self.line.error(f"{name} needs a dtype", column)
        return E.Call(result, name, tuple(args))

    def _dtype_follows(self) -> bool:
        return self.line.peek("dtype") and self.line.peek("=", 1)

    def _dtype_option(self) -> DataType | None:
        if not self._dtype_follows():
            return None
        self.line.at += 2
        return self.dtype_text()

    def dtype_text(self) -> DataType:
        """A type's name in quotes."""
        column = self.line.next.column
        dtype = as_dtype(self.line.string())
        if dtype is None:
            raise self.line.error("expected a data type", column)
        return dtype

    def _typed(self, dtype: DataType) -> Expr:
        """int64(3) is a constant, int64(x) a conversion."""
        inner = self.part(0)
        column = self.line.next.column
        self.line.need(")")
        if isinstance(inner, E.StringImm) and dtype.is_float:
            try:
                return E.FloatImm(dtype, float(inner.value))
            except ValueError:
                raise self.line.error(f"'{inner.value}' is no number", column) from None
        if isinstance(inner, Expr):
            return E.Cast(dtype, inner)
        try:
            return build.const(inner.value, dtype)
        except ValueError as error:
            raise self.line.error(str(error), column) from None

    def _pair(self) -> tuple[Expr, Expr]:
        a = self.part(0)
        self.line.need(",")
        return resolve_both(a, self.part(0))

    def _cast(self) -> Expr:
        value = self.expr()
        self.line.need(",")
        dtype = self._dtype_option()
        self.line.need(")")
        if dtype is None:
            raise self.line.expected("dtype=")
        return E.Cast(dtype, value)

    def _select(self) -> Expr:
        condition = self.expr()
        self.line.need(",")
        a, b = self._pair()
        self.line.need(")")
        return E.Select(condition, a, b)

    def _let(self) -> Expr:
        name = self.line.kind("name", "a variable")
        self.line.need(",")
        value = self.expr()
        self.line.need(",")
        var = Var(name, value.dtype)
        inner = ExprParser(self.line, {**self.names, name: var})
        body = inner.expr()
        self.line.need(")")
        return E.Let(var, value, body)

    def _ramp(self) -> Expr:
        base, stride = self._pair()
        self.line.need(",")
        lanes = self.line.integer("the number of lanes")
        self.line.need(")")
        return E.Ramp(base, stride, lanes)

    def _broadcast(self) -> Expr:
        value = self.expr()
        self.line.need(",")
        lanes = self.line.integer("the number of lanes")
        self.line.need(")")
        return E.Broadcast(value, lanes)

    def _shuffle(self) -> Expr:
        column = self.line.next.column
        self.line.need("(")
        vectors = self.items(")")
        self.line.need(",")
        self.line.need("(")
        indices = []
        while not self.line.take(")"):
            indices.append(self.line.integer("a lane"))
            self.line.take(",")
        self.line.need(")")
        if not vectors or not indices:
            raise self.line.error("shuffle needs vectors and lanes", column)
        return E.Shuffle(tuple(vectors), tuple(indices))

    # ---- plain values ----

    def value(self) -> Any:
        """A value in attrs or annotations."""
        line = self.line
        if line.next.kind == "string":
            return line.string()
        for word, plain in (("True", True), ("False", False), ("None", None)):
            if line.take(word):
                return plain
        if line.take("expr"):
            line.need("(")
            found = self.expr()
            line.need(")")
            return found
        if line.take("("):
            return tuple(self._values(")"))
        if line.take("{"):
            return self._dict()
        sign = -1 if line.take("-") else 1
        if line.peek("inf") or line.peek("nan"):
            return sign * float(line.kind("name", "a value"))
        text = line.kind("number", "a value")
        return sign * (int(text) if text.isdecimal() else float(text))

    def _values(self, closing: str) -> list[Any]:
        items: list[Any] = []
        while not self.line.take(closing):
            items.append(self.value())
            if not self.line.peek(closing):
                self.line.need(",")
        return items

    def _dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.line.take("}"):
            key = self.line.string()
            self.line.need(":")
            found[key] = self.value()
            if not self.line.peek("}"):
                self.line.need(",")
        return found


def _make(kind: type[Expr], a: Expr, b: Expr) -> Expr:
    assert issubclass(kind, E.BinaryExpr)
    return kind(a, b)


_SPECIAL: dict[str, Callable[[ExprParser], Expr]] = {
    "cast": ExprParser._cast,
    "select": ExprParser._select,
    "let": ExprParser._let,
    "ramp": ExprParser._ramp,
    "broadcast": ExprParser._broadcast,
    "shuffle": ExprParser._shuffle,
}
