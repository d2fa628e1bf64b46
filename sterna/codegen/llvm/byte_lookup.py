"""Tables of 256 bytes in registers: vectors of bytes look up by shuffles (vpshufb, vpermi2b, tbl).

    table[int32(x)], x of uint8    table[int32(x) + 128], x of int8

A register holds a part of the table, and a shuffle looks up in one part or a few: what belongs to
another gives zeros. LLVM keeps the parts in registers while a loop runs.
"""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.pack import joined, shuffled
from sterna.codegen.llvm.types import splat_literal
from sterna.ir import build
from sterna.ir.expr import Add, Broadcast, Cast, Expr
from sterna.isa.capability import ByteLookup
from sterna.tir.stmt import Buffer

TABLE = 256
# Fewer lanes than these are looked up one by one.
LEAST_LANES = 8
# The lanes that one of x86's shuffles looks up by themselves, the bytes of its part of the table,
# and what takes the other half of all bytes to the half with the sign bit off.
_PART, _SIGN = 16, -128


def byte_of(buffer: Buffer, offset: Expr) -> tuple[Expr, bool] | None:
    """The bytes that a table of all of them is read at, and whether their signs are to be turned.

    None where it is no such table, or the places are no bytes.
    """
    size = build.int_value(buffer.shape[0]) if len(buffer.shape) == 1 else None
    if not buffer.dtype.is_integer or buffer.dtype.bits != 8 or size != TABLE or buffer.strides:
        return None
    signed = isinstance(offset, Add) and _is_middle(offset.b)
    place = offset.a if signed and isinstance(offset, Add) else offset
    if not isinstance(place, Cast) or place.dtype.element != "int32":
        return None
    wanted = "int8" if signed else "uint8"
    lanes = place.dtype.lanes
    is_byte = place.value.dtype.element == wanted and lanes >= LEAST_LANES
    return (place.value, signed) if is_byte else None


def _is_middle(expr: Expr) -> bool:
    return isinstance(expr, Broadcast) and build.is_const(expr.value, TABLE // 2)


def looked_up(
    writer: FunctionWriter, row: ByteLookup, table: str, lanes: int, index: str, signed: bool
) -> str:
    """What the table at an address has for each lane; signed: from the least int8 on."""
    if signed:
        kind = f"<{lanes} x i8>"
        index = writer.value(f"xor {kind} {index}, {splat_literal('i8', str(_SIGN), lanes)}")
    width = min((each for each in row.intrinsics if each >= lanes), default=max(row.intrinsics))
    whole = -(-lanes // width) * width
    if whole > lanes:
        picks = [min(lane, lanes - 1) for lane in range(whole)]
        index = shuffled(writer, f"<{lanes} x i8>", index, picks)
    parts = []
    for first in range(0, whole, width):
        part = index
        if whole > width:
            part = shuffled(writer, f"<{whole} x i8>", index, range(first, first + width))
        parts.append((_register(writer, row, table, width, part), width))
    made = joined(writer, parts, "i8")
    return made if whole == lanes else shuffled(writer, f"<{whole} x i8>", made, range(lanes))


def _register(writer: FunctionWriter, row: ByteLookup, table: str, width: int, index: str) -> str:
    ways = {16: _by_differences, 64: _by_stretches, 128: _by_halves}
    return ways[row.entries](writer, row.intrinsics[width], table, width, index)


def _by_differences(
    writer: FunctionWriter, name: str, table: str, width: int, index: str
) -> str:
    """By shuffles of 16 bytes that give 0 where the index has its upper bit (pshufb).

    Lanes of part p add up what parts 0 to p differ by: sixteen less for each, held at -128, an
    index has that bit as soon as its own part has gone by. One chain for either half of all bytes.
    """
    kind = f"<{width} x i8>"
    parts = [_part_of(writer, table, part * _PART, _PART) for part in range(TABLE // _PART)]
    sixteen = splat_literal("i8", str(_PART), width)
    other = writer.value(f"xor {kind} {index}, {splat_literal('i8', str(_SIGN), width)}")
    made, half = "", len(parts) // 2
    for chain, place in enumerate((index, other)):
        for step in range(half):
            part = parts[chain * half + step]
            if step:
                before = parts[chain * half + step - 1]
                part = writer.value(f"xor <{_PART} x i8> {part}, {before}")
                place = writer.intrinsic(
                    f"llvm.ssub.sat.v{width}i8", kind, f"{kind} {place}", f"{kind} {sixteen}")
            entries = _repeated(writer, part, width)
            found = writer.intrinsic(name, kind, f"{kind} {entries}", f"{kind} {place}")
            made = writer.value(f"xor {kind} {made}, {found}") if made else found
    return made


def _by_stretches(writer: FunctionWriter, name: str, table: str, width: int, index: str) -> str:
    """By lookups in four registers that give 0 where the index is beyond them (tbl)."""
    kind, made = f"<{width} x i8>", ""
    for first in range(0, TABLE, 4 * width):
        place = index
        if first:
            past = splat_literal("i8", str(first), width)
            place = writer.value(f"sub {kind} {index}, {past}")
        four = [f"{kind} {_part_of(writer, table, first + at, width)}"
                for at in range(0, 4 * width, width)]
        found = writer.intrinsic(name, kind, *four, f"{kind} {place}")
        made = writer.value(f"or {kind} {made}, {found}") if made else found
    return made


def _by_halves(writer: FunctionWriter, name: str, table: str, width: int, index: str) -> str:
    """By lookups in two registers that leave out the index's upper bit (vpermi2b)."""
    kind, found = f"<{width} x i8>", []
    for first in (0, TABLE // 2):
        low, high = (_part_of(writer, table, first + at, width) for at in (0, width))
        found.append(writer.intrinsic(
            name, kind, f"{kind} {low}", f"{kind} {index}", f"{kind} {high}"))
    upper = writer.value(f"icmp slt {kind} {index}, zeroinitializer")
    return writer.value(f"select <{width} x i1> {upper}, {kind} {found[1]}, {kind} {found[0]}")


def _part_of(writer: FunctionWriter, table: str, first: int, lanes: int) -> str:
    """Bytes of the table as a vector."""
    at = writer.value(f"getelementptr inbounds i8, ptr {table}, i64 {first}")
    return writer.value(f"load <{lanes} x i8>, ptr {at}, align 1")


def _repeated(writer: FunctionWriter, part: str, width: int) -> str:
    """Sixteen bytes again and again."""
    if width == _PART:
        return part
    return shuffled(writer, f"<{_PART} x i8>", part, [lane % _PART for lane in range(width)])
