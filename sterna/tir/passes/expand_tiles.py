"""AMX tiles as plain memory and loops, for targets without such registers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Call, Expr, StringImm, Var
from sterna.ir.node import Node
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.buffer import decl_buffer
from sterna.tir.ir_builder import BufferVar, IRBuilder, create
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
    statements_in,
)
from sterna.tir.tiles import GROUP_BYTES, ROW_BYTES, ROWS, SUMS, TILES, feature_of


def expand_tiles(func: PrimFunc, known: Sequence[str] = ()) -> PrimFunc:
    """tile_dot(0, 1, 2, "int8 int8")

    ->  for i, j, k: tile0[i*16 + j] += tile1[i*64 + k] * tile2[k//4*64 + j*4 + k%4]

    Unless all types that it multiplies are known to the target. A tile has one type throughout the
    function; its shape is looked up where it is used.
    """
    calls = [stmt.value for stmt in statements_in(func.body) if isinstance(stmt, Evaluate)]
    dots = [call for call in calls if isinstance(call, Call) and _is_dot(call)]
    if all(feature_of(_kinds(dot)) in known for dot in dots):
        return func
    types: dict[int, DataType] = {}
    for dot in dots:
        names = (SUMS[_kinds(dot)], *_kinds(dot).split())
        for tile, kind in zip(dot.args, map(DataType, names), strict=False):
            if types.setdefault(_number(tile), kind) != kind:
                raise InternalError(f"{func.name}: tile {tile} holds elements of two types")
    return func.with_body(_Expander(types).whole(func.body))


def _is_dot(node: Node) -> bool:
    return isinstance(node, Call) and node.op == "tile_dot"


def _kinds(dot: Call) -> str:
    assert isinstance(dot.args[3], StringImm)
    return dot.args[3].value


def _number(expr: Expr) -> int:
    number = build.int_value(expr)
    assert number is not None
    return number


@dataclass(slots=True)
class _Tiles:
    """What one thread's tiles are kept in."""

    kinds: dict[int, DataType]
    shapes: Buffer = field(default_factory=lambda: decl_buffer((2 * TILES,), "int32", "shapes"))
    held: dict[int, Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, kind in sorted(self.kinds.items()):
            size = ROWS * ROW_BYTES // kind.bytes
            self.held[number] = decl_buffer((size,), kind, f"tile{number}")

    def around(self, body: Stmt) -> Stmt:
        for buffer in (*self.held.values(), self.shapes):
            body = Allocate(buffer, body)
        return body


class _Expander(Rewriter):
    """Tiles belong to a thread: to an iteration of a parallel loop, or to what is outside of it."""

    def __init__(self, kinds: dict[int, DataType]) -> None:
        self.kinds = kinds
        self.tiles = _Tiles(kinds)

    def whole(self, body: Stmt) -> Stmt:
        return self.tiles.around(self.rewrite(body))

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_For(self, loop: For) -> Stmt:
        if loop.kind != "parallel":
            return loop.with_body(self.rewrite(loop.body))
        outer, self.tiles = self.tiles, _Tiles(self.kinds)
        body = self.whole(loop.body)
        self.tiles = outer
        return loop.with_body(body)

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        call = evaluate.value
        if not isinstance(call, Call) or call.op not in _WRITERS:
            return evaluate
        ib = create()
        _WRITERS[call.op](_Writer(ib, self.tiles), *call.args)
        return ib.get()


class _Writer:
    def __init__(self, ib: IRBuilder, tiles: _Tiles) -> None:
        self.ib, self.tiles = ib, tiles
        self.shapes = ib.buffer_ptr(tiles.shapes)

    def tile(self, number: Expr) -> tuple[BufferVar, int]:
        """The memory of a tile and the elements of a row."""
        held = self.tiles.held.get(_number(number))
        if held is None:
            raise InternalError(f"tile {number} is used but never multiplied")
        return self.ib.buffer_ptr(held), ROW_BYTES // held.dtype.bytes

    def rows(self, number: Expr) -> Expr:
        return self.shapes[2 * _number(number)]

    def row_bytes(self, number: Expr) -> Expr:
        return self.shapes[2 * _number(number) + 1]

    def each(self, number: Expr, body: Callable[[Var, Var], None]) -> None:
        """For every row and element of a tile."""
        size = ROW_BYTES // self.tile(number)[1]
        columns = build.floordiv(self.row_bytes(number), size)
        with (
            self.ib.for_range(0, self.rows(number), name="row") as row,
            self.ib.for_range(0, columns, name="column") as column,
        ):
            body(row, column)

    def configure(self, *numbers: Expr) -> None:
        for place, number in enumerate(numbers):
            self.shapes[place] = number
        for tile in self.tiles.held:
            if _number(numbers[2 * tile]):
                self.zero(build.const(tile))

    def zero(self, number: Expr) -> None:
        held, width = self.tile(number)
        self.each(number, lambda row, column: held.__setitem__(
            row * width + column, build.const(0, held.dtype)))

    def move(self, number: Expr, address: Expr, step: Expr, to_memory: bool) -> None:
        held, width = self.tile(number)
        assert isinstance(address, Call)
        first = address.args[0]
        assert isinstance(first, BufferLoad)
        buffer, size = first.buffer, held.dtype.bytes
        if buffer.dtype != held.dtype or len(first.indices) != 1:
            raise InternalError(f"tile {number} of {held.dtype} takes rows of {buffer.dtype}")

        def one(row: Var, column: Var) -> None:
            stride = build.floordiv(build.cast(first.indices[0].dtype, step), size)
            memory, at = self.ib.buffer_ptr(buffer), first.indices[0] + row * stride + column
            if to_memory:
                memory[at] = held[row * width + column]
            else:
                held[row * width + column] = memory[at]

        self.each(number, one)

    def dot(self, total: Expr, a: Expr, b: Expr, kinds: Expr) -> None:
        (c, columns), (x, depth), (y, width) = (self.tile(number) for number in (total, a, b))
        group = GROUP_BYTES // x.dtype.bytes
        steps = self.rows(b) * group

        def one(row: Var, column: Var) -> None:
            with self.ib.for_range(0, steps, name="k") as k:
                factor = y[k // group * width + column * group + k % group].astype(c.dtype)
                at = row * columns + column
                c[at] = c[at] + x[row * depth + k].astype(c.dtype) * factor

        self.each(total, one)


_WRITERS: dict[str, Callable[..., None]] = {
    "tile_configure": _Writer.configure,
    "tile_zero": _Writer.zero,
    "tile_load": lambda writer, *args: writer.move(*args, to_memory=False),
    "tile_store": lambda writer, *args: writer.move(*args, to_memory=True),
    "tile_dot": _Writer.dot,
    "tile_release": lambda writer: None,
}

