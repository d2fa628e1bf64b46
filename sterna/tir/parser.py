"""Reading functions back from their text (see printer.py for what it looks like)."""

from dataclasses import replace
from typing import Any

from sterna.ir import expr as E
from sterna.ir.build import const
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node
from sterna.support.dtype import DataType
from sterna.tir.lexer import Line, ParseError
from sterna.tir.parse_expr import ExprParser, as_dtype
from sterna.tir.printer import INDENT
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Prefetch,
    PrimFunc,
    Stmt,
    Tensorized,
    nothing,
    seq,
)
from sterna.tir.verify import LOOP_KINDS

Names = dict[str, Node]


def parse(text: str) -> PrimFunc:
    """The function that a text describes; ParseError says where it does not."""
    lines = [Line(number, row.rstrip()) for number, row in enumerate(text.splitlines(), 1)]
    lines = [line for line in lines if line.next.kind != "end"]
    if not lines:
        raise ParseError("line 1, column 1: expected a function, found nothing")
    parser = _Parser(lines)
    try:
        func = parser.function()
    except RecursionError:
        number = lines[min(parser.at, len(lines)) - 1].number
        raise ParseError(f"line {number}, column 1: the text is nested too deeply") from None
    if parser.at < len(lines):
        raise lines[parser.at].expected("the end of the text")
    return func


class _Parser:
    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.at = 0

    def advance(self) -> Line:
        """The next line."""
        if self.at >= len(self.lines):
            last = self.lines[-1]
            raise last.error("expected more lines, found the end", len(last.text))
        self.at += 1
        return self.lines[self.at - 1]

    # ---- functions ----

    def function(self) -> PrimFunc:
        line = self.advance()
        attrs: dict[str, Any] = {}
        if line.take("@"):
            line.need("attrs")
            line.need("(")
            attrs = ExprParser(line, {}).value()
            line.need(")")
            line.end()
            line = self.advance()
        line.need("def")
        name = line.kind("name", "a function's name")
        line.need("(")
        names, params = self._params(line)
        line.need(":")
        line.end()
        body = self.block(len(INDENT), names)
        variables = tuple(p.data if isinstance(p, Buffer) else p for p in params)
        buffers = tuple(p if isinstance(p, Buffer) else None for p in params)
        return PrimFunc(name, variables, buffers, body, attrs)

    def _params(self, line: Line) -> tuple[Names, list[Var | Buffer]]:
        """Parameters; a buffer's shape may speak of a number that comes after it."""
        start, names = line.at, _ShapeNames()
        for final in (False, True):
            line.at = start
            params: list[Var | Buffer] = []
            while not line.take(")"):
                name = line.kind("name", "a parameter")
                line.need(":")
                if line.peek("Buffer"):
                    if final:
                        params.append(_buffer_type(line, name, names))
                        names[name] = params[-1]
                    else:
                        _skip_brackets(line)
                elif final:
                    _var_type(line, name)
                    found = names[name]
                    assert isinstance(found, Var)
                    params.append(found)
                else:
                    names[name] = _var_type(line, name)
                if not line.peek(")"):
                    line.need(",")
        return dict(names), params

    # ---- statements ----

    def block(self, indent: int, names: Names) -> Stmt:
        """The lines of one block."""
        first = self.lines[self.at] if self.at < len(self.lines) else None
        if first is None or first.indent < indent:
            where = self.lines[min(self.at, len(self.lines)) - 1]
            raise where.error("expected an indented block after this line", len(where.text))
        return self.rest(indent, dict(names))

    def rest(self, indent: int, names: Names) -> Stmt:
        """What is left of a block; names that it binds are added to names."""
        found: list[Stmt] = []
        while self.at < len(self.lines) and self.lines[self.at].indent >= indent:
            line = self.advance()
            if line.indent != indent:
                raise line.error(f"expected {indent} spaces before this", line.indent)
            binds = line.next.kind == "name" and (line.peek(":", 1) or line.peek("=", 1))
            if binds and not line.peek("else"):
                found.append(self._binding(line, indent, names))
            else:
                found.append(self.stmt(line, indent, names))
        return seq(*found) if found else nothing()

    def _binding(self, line: Line, indent: int, names: Names) -> Stmt:
        name = line.kind("name", "a name")
        if name in names:
            raise line.error(f"'{name}' is bound already", line.indent)
        if line.take("="):
            line.need("allocate")
            buffer = _allocation(line, name, names)
            line.end()
            names[name] = buffer
            return Allocate(buffer, self.rest(indent, names))
        line.need(":")
        if line.peek("Buffer"):
            bound: Var | Buffer = _buffer_type(line, name, names)
        else:
            bound = _var_type(line, name)
        var = bound.data if isinstance(bound, Buffer) else bound
        line.need("=")
        value = ExprParser(line, names).expr(var.dtype.element)
        line.end()
        if value.dtype != var.dtype:
            raise line.error(f"'{name}' is {var.dtype}, its value {value.dtype}", line.indent)
        names[name] = bound
        return LetStmt(var, value, self.rest(indent, names))

    def stmt(self, line: Line, indent: int, names: Names) -> Stmt:
        """A statement that binds nothing after it."""
        inner = indent + len(INDENT)
        exprs = ExprParser(line, names)
        if line.take("pass"):
            line.end()
            return nothing()
        if line.take("for"):
            return self._loop(line, inner, names)
        if line.take("if"):
            return self._branch(line, indent, names)
        if line.take("with"):
            return self._with(line, inner, names)
        if line.take("assert"):
            condition = exprs.expr()
            line.need(",")
            kind = line.kind("name", "an error's name")
            line.need("(")
            message = line.string()
            values = []
            while line.take(","):
                values.append(exprs.expr())
            line.need(")")
            line.end()
            return AssertStmt(condition, kind, message, tuple(values))
        if line.take("prefetch_region"):
            return _prefetch(line, exprs)
        column = line.next.column
        found = exprs.expr()
        if not line.take("="):
            line.end()
            return Evaluate(found)
        if not isinstance(found, BufferLoad):
            raise line.error("expected an element of a buffer before '='", column)
        value = exprs.expr(found.buffer.dtype)
        predicate = exprs.expr() if line.take("where") else None
        line.end()
        if value.dtype != found.dtype:
            raise line.error(f"{value.dtype} is stored where {found.dtype} belongs", column)
        return BufferStore(found.buffer, value, found.indices, predicate)

    def _loop(self, line: Line, inner: int, names: Names) -> Stmt:
        name = line.kind("name", "a loop variable")
        if name in names:
            raise line.error(f"'{name}' is bound already", line.indent)
        for word in ("in", "range", "("):
            line.need(word)
        exprs = ExprParser(line, names)
        low: Expr = exprs.expr()
        if line.take(","):
            if line.take("extent"):
                line.need("=")
                extent = exprs.expr(low.dtype)
            else:
                column = line.next.column
                high = exprs.expr(low.dtype)
                if not isinstance(low, E.IntImm) or not isinstance(high, E.IntImm):
                    raise line.error("expected two numbers, or extent=", column)
                extent = const(high.value - low.value, low.dtype)
        else:
            low, extent = const(0, low.dtype), low
        line.need(")")
        line.need(":")
        line.end()
        kind, thread, annotations = _loop_note(line, names)
        var = Var(name, extent.dtype)
        body = self.block(inner, {**names, name: var})
        return For(var, low, extent, kind, body, thread, annotations)

    def _branch(self, line: Line, indent: int, names: Names) -> Stmt:
        condition = ExprParser(line, names).expr()
        line.need(":")
        line.end()
        then = self.block(indent + len(INDENT), names)
        follow = self.lines[self.at] if self.at < len(self.lines) else None
        if follow is None or follow.indent != indent:
            return IfThenElse(condition, then)
        if follow.take("elif"):
            self.at += 1
            return IfThenElse(condition, then, self._branch(follow, indent, names))
        if follow.take("else"):
            self.at += 1
            follow.need(":")
            follow.end()
            return IfThenElse(condition, then, self.block(indent + len(INDENT), names))
        return IfThenElse(condition, then)

    def _with(self, line: Line, inner: int, names: Names) -> Stmt:
        if line.take("scope"):
            for symbol in ("(", ")", ":"):
                line.need(symbol)
            line.end()
            return self.block(inner, names)
        if line.take("tensorized"):
            return self._tensorized(line, inner, names)
        line.need("attr")
        line.need("(")
        key = line.string()
        line.need(",")
        exprs = ExprParser(line, names)
        about: Node | None = None
        if not line.take("None"):
            named = exprs.find(line.next.text) if line.next.kind == "name" else None
            alone = line.peek(",", 1)
            if isinstance(named, Buffer) and alone:
                line.at += 1
                about = named
            else:
                about = exprs.expr()
        line.need(",")
        value = exprs.expr()
        for symbol in (")", ":"):
            line.need(symbol)
        line.end()
        return AttrStmt(key, about, value, self.block(inner, names))

    def _tensorized(self, line: Line, inner: int, names: Names) -> Stmt:
        line.need("(")
        name = line.string()
        for symbol in (")", ":"):
            line.need(symbol)
        line.end()
        body = self.block(inner, names)
        follow = self.advance()
        follow.need("means")
        follow.need(":")
        follow.end()
        return Tensorized(name, body, self.block(inner, names))


class _ShapeNames(dict[str, Node]):
    """Names in the shapes of parameters: those that nothing declares are sizes."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Node:
        self[name] = Var(name, E.INT32, True)
        return self[name]


def _skip_brackets(line: Line) -> None:
    line.need("Buffer")
    line.need("[")
    depth = 1
    while depth:
        if line.next.kind == "end":
            raise line.expected("']'")
        depth += line.peek("[") - line.peek("]")
        line.at += 1


def _var_type(line: Line, name: str) -> Var:
    is_size = line.take("Size")
    if is_size:
        line.need("[")
    dtype = as_dtype(line.next.text) if line.next.kind == "name" else None
    if dtype is None:
        raise line.expected("a type")
    line.at += 1
    if is_size:
        line.need("]")
    return Var(name, dtype, is_size)


def _buffer_type(line: Line, name: str, names: Names) -> Buffer:
    line.need("Buffer")
    line.need("[")
    return _buffer(line, name, names, "]")


def _allocation(line: Line, name: str, names: Names) -> Buffer:
    line.need("(")
    return _buffer(line, name, names, ")")


def _buffer(line: Line, name: str, names: Names, closing: str) -> Buffer:
    exprs = ExprParser(line, names)
    line.need("(")
    shape = tuple(exprs.items(")"))
    line.need(",")
    dtype: DataType = exprs.dtype_text()
    buffer = Buffer(name, dtype, shape)
    while line.take(","):
        if line.next.kind == "string":
            buffer = replace(buffer, scope=line.string())
        elif line.take("strides"):
            line.need("=")
            line.need("(")
            buffer = replace(buffer, strides=tuple(exprs.items(")")))
        elif line.take("alignment"):
            line.need("=")
            buffer = replace(buffer, alignment=line.integer())
        elif line.take("axis_separators"):
            line.need("=")
            line.need("(")
            places: list[int] = []
            while not line.take(")"):
                places.append(line.integer())
                line.need(",")
            buffer = replace(buffer, axis_separators=tuple(places))
        else:
            raise line.expected("a scope, strides=, alignment= or axis_separators=")
    line.need(closing)
    return buffer


def _prefetch(line: Line, exprs: ExprParser) -> Stmt:
    line.need("(")
    buffer = exprs.find(line.next.text)
    if not isinstance(buffer, Buffer):
        raise line.expected("a buffer")
    line.at += 1
    rectangle = []
    for _ in range(2):
        line.need(",")
        line.need("(")
        rectangle.append(tuple(exprs.items(")")))
    line.need(")")
    line.end()
    return Prefetch(buffer, *rectangle)


def _loop_note(line: Line, names: Names) -> tuple[Any, str, dict[str, Any]]:
    """The kind, the thread and the annotations in the comment after a loop."""
    note = Line(line.number, " " * (line.note_column + 1) + line.note)
    kind, thread = "serial", ""
    annotations: dict[str, Any] = {}
    if note.next.kind == "name":
        column = note.next.column
        kind = note.kind("name", "a kind of loop")
        if kind not in LOOP_KINDS:
            raise line.error(f"there is no loop of kind '{kind}'", column)
        if kind == "thread":
            thread = note.kind("name", "the thread's name")
    if note.peek("{"):
        annotations = ExprParser(note, names).value()
    note.end()
    return kind, thread, annotations
