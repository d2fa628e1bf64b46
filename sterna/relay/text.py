"""Graphs as text.

    #[version = "0.0.5"]
    def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(10, 64), float32]) -> ... {
      %0 = nn.dense(%x, %w, out_dtype="float32");
      nn.softmax(%0)
    }

    type List[A] { Cons(A, List[A]), Nil }
    def @is_empty[A](%l: List[A]) { match (%l) { Nil => { True }, _ => { False }, } }

%0, %1, ... name what is computed once and used where the name stands; `let` binds a variable.
Attributes stand where they differ from their defaults. A scalar constant is written out; others are
numbered, meta[relay.Constant][0], and the section #[metadata] holds them.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.serialize import save_json
from sterna.ir.types import TupleType
from sterna.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
)
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.op import Op
from sterna.relay.steps import RefCreate, RefRead, RefWrite, Step

HEADER = '#[version = "0.0.5"]'
METADATA = "#[metadata]"
# How a scalar's type shows behind its digits.
SUFFIXES = {
    "float32": "f", "float16": "f16", "float64": "f64", "bfloat16": "bf16", "int32": "",
    "int64": "i64", "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64",
}
INDENT = "  "
REFERENCES: dict[type[Step], str] = {
    RefCreate: "ref", RefRead: "ref_read", RefWrite: "ref_write",
}


def show_expr(expr: RelayExpr, metadata: bool = False) -> str:
    """An expression as text, with its constants if they are asked for."""
    printer = _Printer()
    if isinstance(expr, Op | GlobalVar | Var):
        return printer.atom(expr) or ""
    if isinstance(expr, Function):
        body = "\n".join(printer.function(expr, "fn "))
    else:
        body = "\n".join(printer.scope(expr, ""))
    return f"{HEADER}\n{body}{printer.metadata() if metadata else ''}"


def show_module(mod: IRModule, metadata: bool = False) -> str:
    """A module as text, with its constants if they are asked for."""
    if not any(isinstance(function, RelayExpr) for function in mod.functions.values()):
        return "\n\n".join(repr(function) for function in mod.functions.values())
    printer = _Printer()
    parts = []
    for name, function in mod.functions.items():
        if isinstance(function, Function):
            parts.append("\n".join(printer.function(function, f"def @{name}")))
        elif isinstance(function, TypeData):
            parts.append(_data_type(function))
        else:
            parts.append(repr(function))
    text = HEADER + "\n" + "\n\n".join(parts)
    return text + printer.metadata() if metadata else text


class _Printer:
    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.used: set[str] = set()
        self.count = 0
        self.steps: list[int] = []
        self.constants: dict[int, int] = {}
        self.kept: list[Constant] = []

    # ---- functions and scopes ----

    def function(self, func: Function, begin: str, indent: str = "") -> Iterator[str]:
        """The lines of a function."""
        parts = [f"{self._declare(p)}{_annotation(p._type)}" for p in func.params]
        parts += [f"{key}={_value(value)}" for key, value in sorted((func.attrs or {}).items())]
        arrow = ""
        if func.ret_type is not None:
            arrow = f" -> {_type(func.ret_type)}"
        elif func.body._type is not None:
            arrow = f" /* -> {_type(func.body._type)} */"
        yield f"{begin}{_type_list(func.type_params)}({', '.join(parts)}){arrow} {{"
        yield from self._inner(func.body, indent + INDENT)
        yield indent + "}"

    def _inner(self, root: RelayExpr, indent: str) -> list[str]:
        """The lines of a scope whose names end with it."""
        known = len(self.steps)
        lines = list(self.scope(root, indent))
        for each in self.steps[known:]:
            del self.names[each]
        del self.steps[known:]
        return lines

    def scope(self, root: RelayExpr, indent: str) -> Iterator[str]:
        """The lines of a body: what it computes by name, then its value."""
        while True:
            yield from self._steps(root, indent)
            if not isinstance(root, Let):
                break
            value = self._inline(root.value, indent)
            name = f"{self._declare(root.var)}{_annotation(root.var.type_annotation)}"
            yield f"{indent}let {name} = {value};"
            root = root.body
        yield f"{indent}{self._inline(root, indent)}"

    def _steps(self, root: RelayExpr, indent: str) -> Iterator[str]:
        """A line for every expression that is part of another, in order."""
        whole = root.value if isinstance(root, Let) else root
        for expr in _within(whole, self.names):
            if expr is whole or self.atom(expr) is not None:
                continue
            line = self._inline(expr, indent)
            self.names[id(expr)] = f"%{self.count}"
            self.steps.append(id(expr))
            self.count += 1
            yield f"{indent}{self.names[id(expr)]} = {line};"

    # ---- expressions ----

    def atom(self, expr: RelayExpr) -> str | None:
        """What needs no line of its own."""
        if isinstance(expr, Var):
            return self.names.get(id(expr)) or self._declare(expr)
        if isinstance(expr, GlobalVar):
            return f"@{expr.name_hint}"
        if isinstance(expr, Op):
            return expr.name
        if isinstance(expr, Constructor):
            return expr.name_hint
        if isinstance(expr, Constant):
            return _scalar(expr) or self._meta(expr)
        return self.names.get(id(expr))

    def _inline(self, expr: RelayExpr, indent: str) -> str:
        known = self.atom(expr)
        if known is not None:
            return known
        if isinstance(expr, Call):
            return self._call(expr)
        if isinstance(expr, Tuple):
            inner = ", ".join(self._part(part) for part in expr.fields)
            return f"({inner},)" if len(expr.fields) == 1 else f"({inner})"
        if isinstance(expr, TupleGetItem):
            return f"{self._part(expr.tuple_value)}.{expr.index}"
        if isinstance(expr, Function):
            return "\n".join(self.function(expr, "fn ", indent))
        if isinstance(expr, If):
            first = "\n".join(self._inner(expr.true_branch, indent + INDENT))
            second = "\n".join(self._inner(expr.false_branch, indent + INDENT))
            condition = self._part(expr.cond)
            return f"if ({condition}) {{\n{first}\n{indent}}} else {{\n{second}\n{indent}}}"
        if isinstance(expr, Step):
            parts = ", ".join(self._part(part) for part in expr.operands())
            return f"{REFERENCES.get(type(expr)) or type(expr).__name__}({parts})"
        if isinstance(expr, Match):
            return "\n".join(self._match(expr, indent))
        assert isinstance(expr, Let)
        lines = "\n".join(self._inner(expr, indent + INDENT))
        return f"{{\n{lines}\n{indent}}}"

    def _match(self, match: Match, indent: str) -> Iterator[str]:
        yield f"match{'' if match.complete else '?'} ({self._part(match.data)}) {{"
        for clause in match.clauses:
            yield f"{indent}{INDENT}{self._pattern(clause.lhs)} => {{"
            yield from self._inner(clause.rhs, indent + INDENT * 2)
            yield f"{indent}{INDENT}}},"
        yield f"{indent}}}"

    def _pattern(self, pattern: Pattern) -> str:
        if isinstance(pattern, PatternVar):
            return self._declare(pattern.var)
        if isinstance(pattern, PatternTuple):
            return f"({', '.join(map(self._pattern, pattern.patterns))},)"
        if isinstance(pattern, PatternConstructor):
            fields = ", ".join(map(self._pattern, pattern.patterns))
            return f"{pattern.constructor.name_hint}{fields and f'({fields})'}"
        return "_"

    def _part(self, expr: RelayExpr) -> str:
        known = self.atom(expr)
        assert known is not None, "an operand was not given a line"
        return known

    def _call(self, call: Call) -> str:
        if isinstance(call.op, Constructor) and not call.args:
            return call.op.name_hint
        parts = [self._part(arg) for arg in call.args]
        if call.attrs is not None:
            parts += [f"{name}={_value(value)}" for name, value in call.attrs.shown()]
        return f"{self._part(call.op)}({', '.join(parts)})"

    def _declare(self, var: Var) -> str:
        hint = re.sub(r"\W", "_", var.name_hint) or "v"
        base = f"v{hint}" if hint[0].isdigit() else hint
        name, number = base, 0
        while name in self.used:
            number += 1
            name = f"{base}_{number}"
        self.used.add(name)
        self.names[id(var)] = f"%{name}"
        return f"%{name}"

    def _meta(self, expr: Constant) -> str:
        if id(expr) not in self.constants:
            self.constants[id(expr)] = len(self.kept)
            self.kept.append(expr)
        return f"meta[relay.Constant][{self.constants[id(expr)]}]"

    def metadata(self) -> str:
        """The section that holds the numbered constants."""
        return f"\n\n{METADATA}\n{save_json(tuple(self.kept))}" if self.kept else ""


def _within(root: RelayExpr, known: dict[int, str]) -> list[RelayExpr]:
    """What the scope of an expression computes, operands first; not what inner scopes hold."""
    order: list[RelayExpr] = []
    done: set[int] = set()
    stack: list[tuple[RelayExpr, bool]] = [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in done or id(expr) in known:
            continue
        if ready:
            done.add(id(expr))
            order.append(expr)
            continue
        stack.append((expr, True))
        if isinstance(expr, If):
            stack.append((expr.cond, False))
        elif isinstance(expr, Match):
            stack.append((expr.data, False))
        elif isinstance(expr, Call | Tuple | TupleGetItem | Step):
            stack += [(e, False) for e in reversed(expr.operands())]
    return order


def _data_type(data: TypeData) -> str:
    made = []
    for each in data.constructors:
        fields = ", ".join(map(_type, each.inputs))
        made.append(f"{INDENT}{each.name_hint}{fields and f'({fields})'},")
    return "\n".join([f"type {data.header!r}{_type_list(data.type_vars)} {{", *made, "}"])


def _type_list(kinds: Sequence[Any]) -> str:
    return f"[{', '.join(map(_type, kinds))}]" if kinds else ""


def _annotation(kind: Any) -> str:
    return "" if kind is None else f": {_type(kind)}"


def _type(kind: Any) -> str:
    if isinstance(kind, TupleType):
        inner = ", ".join(map(_type, kind.fields))
        return f"({inner},)" if len(kind.fields) == 1 else f"({inner})"
    return repr(kind)


def _scalar(expr: Constant) -> str | None:
    kind = str(expr.data.dtype)
    if expr.data.shape or (kind not in SUFFIXES and kind != "bool"):
        return None
    number = to_numpy(expr.data).item()
    if kind == "bool":
        return str(bool(number))
    if isinstance(number, float) and (number != number or number in (float("inf"), -float("inf"))):
        return None
    return f"{number!r}{SUFFIXES[kind]}"


def _value(value: Any) -> str:
    """An attribute as text."""
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return f"{value!r}f" if math.isfinite(value) else repr(value)
    return repr(value)


RelayExpr.write = staticmethod(show_expr)
IRModule.write = staticmethod(show_module)
