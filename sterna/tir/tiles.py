"""Matrix tiles (AMX): registers that hold small matrices, and an instruction that multiplies two.

A thread has eight, named by numbers. Before it uses them it says what shapes they have, and when it
is done it gives them back: threads that hold tiles cost more to switch between.

    tile_configure(rows, bytes, rows, bytes, ...)
                              the shapes of all eight, up to 16 rows of up to 64 bytes, 0 and 0 for
                              those that are not used; all are zero then. Fails where the processor
                              was to have tiles and its operating system does not grant them
    tile_zero(t)              every element of t is zero
    tile_load(t, address, step)
                              the rows of t come from memory, each so many bytes after the one
                              before it
    tile_store(t, address, step)
                              the rows of t go to memory
    tile_dot(c, a, b, kinds)  c += a times b, where kinds are the types of a and b: "bfloat16
                              bfloat16", added in float32, or two of int8 and uint8, added in
                              int32, which wraps. b has the rows of its matrix in groups of 4
                              bytes: one row of the tile holds, for each column, the two or four
                              numbers that follow each other in that column. Floats that are
                              subnormal may count as 0; the order of additions is the processor's
    tile_release()            the tiles are not used any more

Targets without such registers keep tiles in memory: expand_tiles.py.
"""

from collections.abc import Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, ExprLike, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import address_of
from sterna.tir.stmt import BufferLoad

TILES, ROWS, ROW_BYTES, GROUP_BYTES = 8, 16, 64, 4

# The type that products are added in, by the types of both operands.
SUMS = {
    "bfloat16 bfloat16": "float32",
    **{f"{a} {b}": "int32" for a in ("int8", "uint8") for b in ("int8", "uint8")},
}


def feature_of(kinds: str) -> str:
    """What a target that multiplies such tiles names among its own: bfloat16 or int8."""
    return "bfloat16" if SUMS[kinds] == "float32" else "int8"


def tile_configure(shapes: Sequence[tuple[int, int]]) -> Expr:
    """Give tiles their shapes: rows and bytes of a row, from tile 0 on."""
    if len(shapes) > TILES:
        raise ValueError(f"there are {TILES} tiles, not {len(shapes)}")
    for place, (rows, size) in enumerate(shapes):
        fits = 0 < rows <= ROWS and 0 < size <= ROW_BYTES and size % GROUP_BYTES == 0
        if not fits and (rows, size) != (0, 0):
            raise ValueError(
                f"tile {place} has 1 to {ROWS} rows of {GROUP_BYTES}, {2 * GROUP_BYTES}, ... "
                f"{ROW_BYTES} bytes, not {rows} of {size}"
            )
    every = [*shapes, *[(0, 0)] * (TILES - len(shapes))]
    return Call(INT32, "tile_configure", tuple(build.const(n) for pair in every for n in pair))


def tile_zero(tile: int) -> Expr:
    """Make every element of a tile zero."""
    return Call(INT32, "tile_zero", (_number(tile),))


def tile_load(tile: int, first: BufferLoad, step: ExprLike) -> Expr:
    """Fill a tile with rows from an element on, each so many elements after the one before."""
    return _moved("tile_load", tile, first, step)


def tile_store(tile: int, first: BufferLoad, step: ExprLike) -> Expr:
    """Put the rows of a tile from an element on, each so many elements after the one before."""
    return _moved("tile_store", tile, first, step)


def tile_dot(total: int, a: int, b: int, a_dtype: str, b_dtype: str) -> Expr:
    """Add the product of two tiles, of elements of these types, to a third."""
    kinds = f"{DataType(a_dtype)} {DataType(b_dtype)}"
    if kinds not in SUMS:
        known = ", ".join(pair.replace(" ", " with ") for pair in SUMS)
        raise TypeError(f"tile_dot multiplies {known}, not {a_dtype} with {b_dtype}")
    return Call(INT32, "tile_dot", (*map(_number, (total, a, b)), StringImm(kinds)))


def tile_release() -> Expr:
    """Give all tiles back."""
    return Call(INT32, "tile_release", ())


def _number(tile: int) -> Expr:
    if not 0 <= tile < TILES:
        raise ValueError(f"tiles are numbered from 0 to {TILES - 1}, not {tile}")
    return build.const(tile)


def _moved(op: str, tile: int, first: Any, step: ExprLike) -> Expr:
    size = build.cast("int64", build.as_expr(step)) * first.buffer.dtype.bytes
    return Call(INT32, op, (_number(tile), address_of(first), size))
