"""Function merging: kernels that differ in numbers alone become one that is given the numbers.

Layers of a network repeat their loops with other extents. Where flash is small one copy serves all:

    f(x, y): for i in 24: y[i*8] = x[i]          f(x, y, a, b): for i in a: y[i*b] = x[i]
    g(x, y): for i in 12: y[i*9] = x[i]    →     f(x, y, 24, 8), f(x, y, 12, 9)
    f(p, q), g(q, r)

Numbers that make code cheaper by being known stay in it, and keep kernels apart that differ in
them: divisors, extents of loops that are written out, widths of vectors, sizes of local memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import (
    INT32,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Ramp,
    StringImm,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node, map_children
from sterna.lowering.entry import Sources, kernels_called
from sterna.tir.copy import copy_stmt
from sterna.tir.in_place import READS_FIRST
from sterna.tir.stmt import (
    SHARED,
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
)

# Calls whose arguments are plain values; others may want constants.
_PLAIN_CALLS = ("call_extern", "address_of", "if_then_else", "likely", "exact")


def share_kernels(
    kernels: Sequence[PrimFunc], entry: PrimFunc
) -> tuple[list[PrimFunc], PrimFunc]:
    """Fewer kernels that compute the same, and the function that calls them."""
    alike: dict[tuple[Any, ...], list[PrimFunc]] = {}
    numbers: dict[str, list[int]] = {}
    for kernel in kernels:
        outline = _Outline(kernel)
        alike.setdefault(outline.key, []).append(kernel)
        numbers[kernel.name] = outline.numbers
    made: list[PrimFunc] = []
    calls: dict[str, tuple[str, list[int]]] = {}
    for group in alike.values():
        if len(group) == 1:
            made += group
            continue
        columns = [*zip(*(numbers[kernel.name] for kernel in group), strict=True)]
        differing = list(dict.fromkeys(column for column in columns if len({*column}) > 1))
        made.append(_joined(group, columns, differing))
        for place, kernel in enumerate(group):
            calls[kernel.name] = (group[0].name, [column[place] for column in differing])
    return made, _calling(entry, calls)


def _joined(
    group: Sequence[PrimFunc], columns: Sequence[tuple[int, ...]],
    differing: Sequence[tuple[int, ...]],
) -> PrimFunc:
    """A kernel that is given the numbers in which others differ from it."""
    kernel = group[0]
    given = {column: Var(f"size{place}") for place, column in enumerate(differing)}
    place = iter(columns)

    def number(known: IntImm) -> Expr:
        return given.get(next(place), known)

    outline = _Outline(kernel, number)
    operands = {
        each[0]: _largest(each) for each in zip(*(one.buffers for one in group), strict=True)
        if each[0] is not None
    }
    addresses = {old.data: new.data for old, new in operands.items()}
    ranges = {len(kernel.params) + n: (min(c), max(c)) for n, c in enumerate(differing)}
    return PrimFunc(
        kernel.name, (*(addresses.get(var, var) for var in kernel.params), *given.values()),
        (*(old and operands[old] for old in kernel.buffers), *[None] * len(differing)),
        copy_stmt(outline.body, addresses, operands), {**outline.attrs, SHARED: ranges},
    )


def _largest(buffers: Sequence[Buffer | None]) -> Buffer:
    """An operand that has room for those of all kernels."""
    known = [buffer for buffer in buffers if buffer is not None]
    size = max(known, key=lambda buffer: buffer.known_bytes or 0)
    own = known[0]
    return Buffer(own.name, own.dtype, size.shape, own.scope, own.strides, own.alignment)


def _calling(entry: PrimFunc, calls: dict[str, tuple[str, list[int]]]) -> PrimFunc:
    """A function that calls other kernels, with these numbers behind their operands."""
    def changed(node: Node) -> Node:
        if isinstance(node, Evaluate) and isinstance(node.value, Call):
            name = node.value.args[0] if node.value.op == "try_call" else None
            if isinstance(name, StringImm) and name.value in calls:
                kernel, numbers = calls[name.value]
                args = (StringImm(kernel), *node.value.args[1:], *map(build.const, numbers))
                return Evaluate(Call(INT32, "try_call", args))
        return map_children(node, changed) if isinstance(node, Stmt) else node

    sources: Sources = {}
    for name, layers in kernels_called(entry):
        kernel = calls.get(name, (name, []))[0]
        sources[kernel] = (*sources.get(kernel, ()), layers)
    body = changed(entry.body)
    assert isinstance(body, Stmt)
    return PrimFunc(
        entry.name, entry.params, entry.buffers, body, {**entry.attrs, "sources": sources})


class _Outline:
    """What a kernel is apart from its numbers, and these in the order in which it has them."""

    def __init__(
        self, kernel: PrimFunc, number: Callable[[IntImm], Expr] | None = None
    ) -> None:
        """number: what stands in the place of a number."""
        self.number = number
        self.numbers: list[int] = []
        self.places: dict[int, int] = {}
        self.attrs = {key: value for key, value in kernel.attrs.items() if key != "declared"}
        self.tokens: list[Any] = [len(kernel.params), repr(sorted(self.attrs.items()))]
        self.is_fixed = False
        for var, buffer in zip(kernel.params, kernel.buffers, strict=True):
            self._name(var if buffer is None else buffer)
        found = self._visit(kernel.body)
        assert isinstance(found, Stmt)
        self.body = found

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same for kernels that differ in numbers."""
        return tuple(self.tokens)

    def _name(self, found: Var | Buffer) -> Node:
        """Where a variable or buffer comes from, whatever its name."""
        known = found.data if isinstance(found, Buffer) else found
        first = id(known) not in self.places
        self.tokens.append(self.places.setdefault(id(known), len(self.places)))
        if first:
            self.tokens.append(str(found.dtype))
        if isinstance(found, Buffer):
            self.tokens += [found.scope, found.alignment, len(found.shape)]
            if len(found.shape) > 1 or found.strides:  # its places are no plain numbers
                self.tokens += [*map(str, found.shape), *map(str, found.strides)]
        return found

    def _visit(self, node: Node) -> Node:
        if isinstance(node, IntImm):
            return self._number(node)
        if isinstance(node, Var | Buffer):
            return self._name(node)
        if isinstance(node, AttrStmt) and node.key == READS_FIRST:  # the plan of memory knows
            return self._visit(node.body)
        self.tokens.append(type(node).__name__)
        self.tokens += [
            str(getattr(node, name)) for name in node.FIELDS if name not in node.CHILD_FIELDS]
        self.tokens += [
            len(value) for value in node.child_values(node) if isinstance(value, tuple | dict)]
        if isinstance(node, Allocate):
            self.tokens.append(str(node.buffer.shape))
        if isinstance(node, For) and node.annotations:
            self.tokens.append(repr(node.annotations))
        return map_children(node, self._part_of(node))

    def _part_of(self, node: Node) -> Callable[[Node], Node]:
        """How the parts of a node are visited."""
        fixed: Sequence[Node] = ()
        if isinstance(node, FloorDiv | FloorMod | TruncDiv | TruncMod):
            fixed = (node.b,)
        elif isinstance(node, Ramp):
            fixed = (node.stride,)
        elif isinstance(node, For) and node.kind != "serial":
            fixed = (node.min, node.extent)
        elif isinstance(node, Call) and node.op not in _PLAIN_CALLS:
            fixed = node.args

        def visit(part: Node) -> Node:
            before = self.is_fixed
            asked = before and not isinstance(node, BufferLoad)
            self.is_fixed = asked or any(part is each for each in fixed)
            found = self._visit(part)
            self.is_fixed = before
            return found

        return visit

    def _number(self, node: IntImm) -> Node:
        if self.is_fixed or node.dtype != INT32:
            self.tokens += [str(node.dtype), node.value]
            return node
        self.tokens.append("number")
        self.numbers.append(node.value)
        return node if self.number is None else self.number(node)
