"""Squares of a matrix transposed in registers: rows come in, columns go out.

Pairs of rows are interleaved, then pairs of what that gave exchange halves of four numbers, halves
of eight and so on: each step is a single instruction where vectors have 128 bits, and stays within
these on wider ones as long as it can. Numbers of fewer than 32 bits are interleaved again and
again, each row with that half the rows away: every step is one instruction on 128 bits.
"""

from functools import cache
from typing import Any

from sterna.ir.expr import Expr, Shuffle
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.te import compute, decl_tensor_intrin, placeholder, var
from sterna.te.intrin import TensorIntrin
from sterna.tir import decl_buffer, ir_builder

SIDES = (4, 8, 16)
# The side of squares of numbers with fewer than 32 bits: a row of them has 64 or 128 bits.
NARROW_SIDE = 8
VECTOR_BITS = 128


def side_of_squares(processor: Processor, dtype: DataType, *sizes: int) -> int | None:
    """The side of the squares that registers hold and extents are made of; None: of none."""
    lanes = processor.lanes(dtype)
    fits = dtype.bits == 32 and lanes in SIDES and all(size % lanes == 0 for size in sizes)
    return lanes if fits else None


def holds_squares(dtype: DataType, side: int) -> bool:
    """Whether squares of this side and type have steps here."""
    return side == NARROW_SIDE if dtype.bits in (8, 16) else dtype.bits == 32 and side in SIDES


@cache
def transpose_intrinsic(
    dtype: str, side: int, scope: str = "global", part: tuple[int, ...] | None = None
) -> TensorIntrin:
    """transposed[column, row] = data[row, column] of a square that lies in a scope.

    part: of so many columns and rows of it alone, which take the steps of the whole square.
    """
    columns, used = part or (side, side)
    data = placeholder((used, columns), dtype, name="data")
    transposed = compute((columns, used), lambda column, row: data[row, column], name="transposed")
    binds = {
        tensor: decl_buffer(
            tensor.shape, dtype, tensor.op.name, offset_factor=1, scope=place,
            strides=[var(f"{tensor.op.name}_row"), 1],
        )
        for tensor, place in ((data, scope), (transposed, "global"))
    }

    def write(ins: Any, outs: Any) -> Any:
        builder = ir_builder.create()
        rows: list[Expr] = [
            builder.let(f"row{n}", ins[0].vload((n, 0), _vector(dtype, columns)))
            for n in range(used)
        ]
        if columns < side:  # the lanes behind become columns that nobody stores
            whole = tuple(min(lane, columns - 1) for lane in range(side))
            rows = [builder.let("whole", Shuffle((row,), whole)) for row in rows]
        rows += rows[:1] * (side - used)
        if DataType(dtype).bits < 32:
            for row, made in enumerate(_zipped(builder, rows)):
                builder.emit(outs[0].vstore((row, 0), made))
            return builder.get()
        for distance, picks in _steps(side):
            for one in (n for n in range(side) if not n & distance):
                pair = (rows[one], rows[one + distance])
                for row, lanes in zip((one, one + distance), picks, strict=True):
                    rows[row] = builder.let(f"row{row}", Shuffle(pair, lanes))
        for row, made in enumerate(rows):
            if _place(row) < columns:
                kept = made if used == side else Shuffle((made,), tuple(range(used)))
                builder.emit(outs[0].vstore((_place(row), 0), kept))
        return builder.get()

    def smaller(extents: tuple[int, ...]) -> TensorIntrin:
        return transpose_intrinsic(dtype, side, scope, extents)

    wide = DataType(dtype).bits == 32
    return decl_tensor_intrin(
        transposed.op, write, name="transpose", binds=binds, smaller=smaller if wide else None
    )


def _vector(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _zipped(builder: ir_builder.IRBuilder, rows: list[Expr]) -> list[Expr]:
    """The columns of a square: each row is interleaved with that half of the rows away.

    Rows of 64 bits become half as many vectors of 128 bits at first.
    """
    side = len(rows)
    rounds = side.bit_length() - 1
    if short := side * rows[0].dtype.bits < VECTOR_BITS:
        whole = tuple(n for lane in range(side) for n in (lane, lane + side))
        rows = [
            builder.let(f"pair{n}", Shuffle((rows[n], rows[n + side // 2]), whole))
            for n in range(side // 2)
        ]
    for _ in range(rounds - short):
        half, lanes = len(rows) // 2, rows[0].dtype.lanes
        low = tuple(n for lane in range(lanes // 2) for n in (lane, lane + lanes))
        high = tuple(n + lanes // 2 for n in low)
        rows = [
            builder.let(f"zip{n}", Shuffle((rows[n], rows[n + half]), picks))
            for n in range(half) for picks in (low, high)
        ]
    if not short:
        return rows
    return [Shuffle((row,), tuple(range(at, at + side))) for row in rows for at in (0, side)]


Picks = tuple[tuple[int, ...], tuple[int, ...]]


def _steps(side: int) -> list[tuple[int, Picks]]:
    """How far rows are from those that they meet, and which lanes of both each of them becomes."""
    steps, distance = [(1, _interleaved(side))], 2
    while distance < side:
        steps.append((distance, _exchanged(side, distance)))
        distance *= 2
    return steps


def _interleaved(side: int) -> Picks:
    """a0 b0 a1 b1 and a2 b2 a3 b3, of every four."""
    half = [lane for lane in range(side) if lane % 4 < 2]
    first = tuple(n for lane in half for n in (lane, lane + side))
    return first, tuple(n + 2 for n in first)


def _exchanged(side: int, size: int) -> Picks:
    """a0 b0 and a1 b1, of every two blocks."""
    first = (lane if not lane & size else lane - size + side for lane in range(side))
    second = (lane + size if not lane & size else lane + side for lane in range(side))
    return tuple(first), tuple(second)


def _place(row: int) -> int:
    """The column that has become a row: interleaving has left the middle two of four swapped."""
    return row & ~3 | (row & 1) << 1 | (row & 2) >> 1
