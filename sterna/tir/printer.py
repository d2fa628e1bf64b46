"""Statements and functions as text. sterna.tir.parse reads it back.

    @attrs({"target": "llvm"})
    def add(A: Buffer[(n,), "float32"], n: Size[int32]):
        T = allocate((16,), "float32", "local")
        for i in range(n // 16):  # parallel
            k: int32 = i*16
            if likely(k < n):
                T[0] = A[k] + 1.0

What `=` binds (a variable, an allocation) is visible to the end of its block.
"""

from collections.abc import Callable
from typing import Any

from sterna.ir.build import int_value
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.ir.printer import LEVEL_ATOM, Printed, Printer, print_call, prints, quote
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS
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
    SeqStmt,
    Stmt,
    Tensorized,
    is_nothing,
)

INDENT = "    "


def usual_type(op: str, args: tuple[Expr, ...]) -> DataType | None:
    """The type that a call has unless it says otherwise."""
    row = INTRINSICS.get(op)
    if row is not None and row.result:
        lanes = 1 if row.result == "handle" else max((arg.dtype.lanes for arg in args), default=1)
        return DataType(row.result).with_lanes(lanes)
    if op in ("call_extern", "call_pure_extern", "call_packed", "prefetch"):
        return DataType("int32")
    if op == "address_of":
        return DataType("handle")
    place = 1 if op == "if_then_else" else 0
    return args[place].dtype if place < len(args) else None


@prints(Call)
def _print_call(printer: Printer, node: Call) -> Printed:
    return print_call(printer, node, usual_type(node.op, node.args))


@prints(BufferLoad)
def _print_load(printer: Printer, node: BufferLoad) -> Printed:
    return f"{_name(printer, node.buffer)}[{printer.args(node.indices)}]", LEVEL_ATOM


@prints(Buffer)
def _print_buffer(printer: Printer, node: Buffer) -> Printed:
    return f"{_name(printer, node)}: {_describe(printer, node)}", 0


def _name(printer: Printer, buffer: Buffer) -> str:
    if not printer.has_name(buffer):
        text = printer.name_of(buffer)
        printer.set_name(buffer.data, f"{text}.data")
    return printer.name_of(buffer)


def _describe(printer: Printer, buffer: Buffer) -> str:
    parts = [printer.tuple(buffer.shape), quote(buffer.dtype)]
    if buffer.scope != "global":
        parts.append(quote(buffer.scope))
    return f"Buffer[{', '.join(parts + _extras(printer, buffer))}]"


def _extras(printer: Printer, buffer: Buffer) -> list[str]:
    extras = []
    if buffer.strides:
        extras.append(f"strides={printer.tuple(buffer.strides)}")
    if buffer.alignment:
        extras.append(f"alignment={buffer.alignment}")
    if buffer.axis_separators:
        places = "".join(f"{place}," for place in buffer.axis_separators)
        extras.append(f"axis_separators=({places})")
    return extras


def _indent(lines: list[str]) -> list[str]:
    return [INDENT + line for line in lines]


class _Block:
    """Prints the statements of one function."""

    def __init__(self, printer: Printer, root: Node) -> None:
        self.printer = printer
        # A buffer in a packed function begins where its address is bound.
        self.buffer_of: dict[int, Buffer] = {}
        post_order(root, self._find_buffer)

    def _find_buffer(self, node: Node) -> None:
        if isinstance(node, (BufferLoad, BufferStore)):
            self.buffer_of[id(node.buffer.data)] = node.buffer

    def lines(self, stmt: Stmt, last: bool = True) -> list[str]:
        """A statement's lines; last: whether its block ends with it."""
        binds = isinstance(stmt, (LetStmt, Allocate))
        method = _STMTS.get(type(stmt))
        if method is None:
            return [self.printer.expr(stmt)]
        if binds and not last:
            return ["with scope():", *_indent(method(self, stmt))]
        return method(self, stmt)

    def inner(self, stmt: Stmt) -> list[str]:
        """The lines of a block of its own."""
        return _indent(self.lines(stmt))

    def loop(self, stmt: For) -> list[str]:
        expr = self.printer.expr
        low, extent = int_value(stmt.min), int_value(stmt.extent)
        if low == 0 and stmt.min.dtype == stmt.extent.dtype:
            bounds = expr(stmt.extent)
        elif low is not None and extent is not None and stmt.min.dtype == "int32":
            bounds = f"{low}, {low + extent}"
        else:
            bounds = f"{expr(stmt.min)}, extent={expr(stmt.extent)}"
        notes: list[str] = [] if stmt.kind == "serial" else [stmt.kind]
        if stmt.thread:
            notes.append(stmt.thread)
        if stmt.annotations:
            notes.append(self.printer.value(stmt.annotations))
        comment = f"  # {' '.join(notes)}" if notes else ""
        head = f"for {expr(stmt.var)} in range({bounds}):{comment}"
        return [head, *self.inner(stmt.body)]

    def store(self, stmt: BufferStore) -> list[str]:
        expr = self.printer.expr
        target = f"{_name(self.printer, stmt.buffer)}[{self.printer.args(stmt.indices)}]"
        where = "" if stmt.predicate is None else f" where {expr(stmt.predicate)}"
        return [f"{target} = {expr(stmt.value, like=stmt.buffer.dtype.element)}{where}"]

    def evaluate(self, stmt: Evaluate) -> list[str]:
        return ["pass" if is_nothing(stmt) else self.printer.expr(stmt.value)]

    def sequence(self, stmt: SeqStmt) -> list[str]:
        count = len(stmt.stmts)
        parts = [self.lines(inner, at + 1 == count) for at, inner in enumerate(stmt.stmts)]
        return [line for part in parts for line in part] or ["pass"]

    def branch(self, stmt: IfThenElse) -> list[str]:
        lines = [f"if {self.printer.expr(stmt.condition)}:", *self.inner(stmt.then)]
        if isinstance(stmt.otherwise, IfThenElse):
            rest = self.branch(stmt.otherwise)
            return [*lines, f"el{rest[0]}", *rest[1:]]
        if stmt.otherwise is not None:
            lines += ["else:", *self.inner(stmt.otherwise)]
        return lines

    def let(self, stmt: LetStmt) -> list[str]:
        expr, var = self.printer.expr, stmt.var
        value = expr(stmt.value, like=var.dtype.element)
        bound = self.buffer_of.get(id(var))
        if bound is not None and not self.printer.has_name(bound):
            head = expr(bound)
        else:
            head = f"{expr(var)}: {_type(var)}"
        return [f"{head} = {value}", *self.lines(stmt.body)]

    def check(self, stmt: AssertStmt) -> list[str]:
        condition = self.printer.expr(stmt.condition)
        said = ", ".join([quote(stmt.message), *map(self.printer.expr, stmt.values)])
        return [f"assert {condition}, {stmt.kind}({said})"]

    def allocate(self, stmt: Allocate) -> list[str]:
        buffer, printer = stmt.buffer, self.printer
        parts = [printer.tuple(buffer.shape), quote(buffer.dtype), quote(buffer.scope)]
        parts += _extras(printer, buffer)
        head = f"{_name(printer, buffer)} = allocate({', '.join(parts)})"
        return [head, *self.lines(stmt.body)]

    def attribute(self, stmt: AttrStmt) -> list[str]:
        about = stmt.node
        if about is None:
            shown = "None"
        elif isinstance(about, Buffer):
            shown = _name(self.printer, about)
        else:
            shown = self.printer.expr(about)
        head = f"with attr({quote(stmt.key)}, {shown}, {self.printer.expr(stmt.value)}):"
        return [head, *self.inner(stmt.body)]

    def prefetch(self, stmt: Prefetch) -> list[str]:
        parts = [self.printer.tuple(stmt.mins), self.printer.tuple(stmt.extents)]
        return [f"prefetch_region({', '.join([_name(self.printer, stmt.buffer), *parts])})"]

    def tensorized(self, stmt: Tensorized) -> list[str]:
        head = f"with tensorized({quote(stmt.name)}):"
        return [head, *self.inner(stmt.body), "means:", *self.inner(stmt.meaning)]


_STMTS: dict[type[Stmt], Callable[[_Block, Any], list[str]]] = {
    For: _Block.loop,
    BufferStore: _Block.store,
    Evaluate: _Block.evaluate,
    SeqStmt: _Block.sequence,
    IfThenElse: _Block.branch,
    LetStmt: _Block.let,
    AssertStmt: _Block.check,
    Allocate: _Block.allocate,
    AttrStmt: _Block.attribute,
    Prefetch: _Block.prefetch,
    Tensorized: _Block.tensorized,
}


def _type(var: Var) -> str:
    return f"Size[{var.dtype}]" if var.is_size else str(var.dtype)


@prints(*_STMTS)
def _print_stmt(printer: Printer, node: Stmt) -> Printed:
    return "\n".join(_Block(printer, node).lines(node)), LEVEL_ATOM


@prints(PrimFunc)
def _print_function(printer: Printer, node: PrimFunc) -> Printed:
    # Names first: a shape may speak of a parameter that comes later.
    # A function that breaks the rules must print too, so that the verifier can show it.
    pairs = [*zip(node.params, (*node.buffers, *[None] * len(node.params)), strict=False)]
    for var, buffer in pairs:
        if buffer is None:
            printer.name_of(var)
        else:
            text = _name(printer, buffer)
            printer.set_name(var, f"{text}.data")
    params = [
        f"{printer.expr(var)}: {_type(var)}" if buffer is None else printer.expr(buffer)
        for var, buffer in pairs
    ]
    # Which parameters callers give, and what they were before flattening, is for the wrapper.
    hidden = ("arguments", "declared", "written")
    attrs = {key: value for key, value in node.attrs.items() if key not in hidden}
    lines = [f"@attrs({printer.value(attrs)})"] if attrs else []
    lines.append(f"def {node.name}({', '.join(params)}):")
    return "\n".join([*lines, *_indent(_Block(printer, node.body).lines(node.body))]), LEVEL_ATOM


def script(node: Node) -> str:
    """A node's text; what repr gives."""
    return Printer().expr(node)
