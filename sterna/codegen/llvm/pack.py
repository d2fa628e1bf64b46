"""Saturating packs of x86 (packssdw, packuswb): 32 bits held within the range of 8, two registers.

A register is narrowed within its parts of 128 bits: after two such steps every part has four bytes
of each of four registers, which one permutation of words of 32 bits puts in order.
"""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.support.dtype import DataType

INT32 = DataType("int32")
# Lanes of 32 bits in the part of a register that is narrowed by itself.
_PART = 4


def is_packed_by(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether the processor narrows such vectors: of several registers, a single one does alone."""
    row = writer.module.options.instructions.saturating_pack
    if row is None or source.element != INT32 or not target.is_integer or target.bits != 8:
        return False
    return source.lanes > row.lanes and source.lanes % row.lanes == 0


def pack(writer: FunctionWriter, lanes: int, target: DataType, value: str) -> str:
    """A vector of int32 as bytes, four registers at a time: of fewer some are taken twice."""
    row = writer.module.options.instructions.saturating_pack
    assert row is not None
    register, to_words = row.lanes, row.to_int16
    to_bytes = row.to_int8 if target.is_int else row.to_uint8
    whole = f"<{lanes} x i32>"
    parts = [
        shuffled(writer, whole, value, range(first, first + register))
        for first in range(0, lanes, register)
    ]
    done = []
    for first in range(0, len(parts), 4):
        four = parts[first : first + 4]
        count = len(four)
        a, b, c, d = (four * 4)[:4] if count < 3 else (*four, four[-1])[:4]
        words = [_packed(writer, to_words, register, 32, *pair) for pair in ((a, b), (c, d))]
        made = _packed(writer, to_bytes, 2 * register, 16, *words)
        kind = f"<{register} x i32>"
        mixed = writer.value(f"bitcast <{4 * register} x i8> {made} to {kind}")
        # the word of register r in part p is at 4 p + r
        order = [4 * p + r for r in range(count) for p in range(register // _PART)]
        ordered = shuffled(writer, kind, mixed, order)
        bytes_kind = f"<{count * register} x i8>"
        done.append((writer.value(f"bitcast <{len(order)} x i32> {ordered} to {bytes_kind}"),
                     count * register))
    return joined(writer, done, "i8")


def _packed(writer: FunctionWriter, name: str, lanes: int, bits: int, a: str, b: str) -> str:
    """Two vectors as one of half as many bits per lane."""
    kind = f"<{lanes} x i{bits}>"
    return writer.intrinsic(name, f"<{2 * lanes} x i{bits // 2}>", f"{kind} {a}", f"{kind} {b}")


def shuffled(writer: FunctionWriter, kind: str, value: str, picks: range | list[int]) -> str:
    """Lanes of a vector by their numbers."""
    text = ", ".join(f"i32 {pick}" for pick in picks)
    return writer.value(
        f"shufflevector {kind} {value}, {kind} poison, <{len(picks)} x i32> <{text}>"
    )


def joined(writer: FunctionWriter, parts: list[tuple[str, int]], element: str) -> str:
    """Vectors end to end, each given with its number of lanes."""
    value, lanes = parts[0]
    for part, more in parts[1:]:
        kind, every = f"<{lanes} x {element}>", range(lanes + more)
        if more < lanes:  # both operands of a shuffle have one type
            picks = [n % more for n in range(lanes)]
            part = shuffled(writer, f"<{more} x {element}>", part, picks)
        text = ", ".join(f"i32 {pick}" for pick in every)
        value = writer.value(
            f"shufflevector {kind} {value}, {kind} {part}, <{len(every)} x i32> <{text}>"
        )
        lanes += more
    return value
