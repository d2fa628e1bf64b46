"""Numbers of 32 bits rounded, and saturated to 8 bits, one register at a time (AArch64's sqxtn).

They say what the IR says of numbers out of range and of those that are none, so that nothing has to
be compared first.
"""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.pack import joined, shuffled
from sterna.codegen.llvm.types import float_literal, splat_literal
from sterna.support.dtype import DataType

FLOAT32, INT32 = DataType("float32"), DataType("int32")
# 1.5 * 2**23: floats near to it are whole numbers, which their last bits are.
LIFT = 12582912.0


def rounds_to_whole(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether one instruction gives the nearest whole numbers of such vectors."""
    wanted = source.element == FLOAT32 and target.element == INT32
    return wanted and _register_of(writer, source.lanes) is not None


def round_to_whole(writer: FunctionWriter, lanes: int, value: str) -> str:
    """The nearest int32 of each float32, the even one in the middle."""
    found = _register_of(writer, lanes)
    assert found is not None
    register, name = found
    whole, floats = f"<{register} x i32>", f"<{register} x float>"
    parts = [
        (writer.intrinsic(name, whole, f"{floats} {part}"), register)
        for part in _registers(writer, "float", lanes, register, value)
    ]
    return joined(writer, parts, "i32")


def adds_to_round(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether an addition rounds vectors that become bytes sooner than an instruction for it."""
    wanted = source.element == FLOAT32 and target.bits == 8 and source.lanes > 1
    return wanted and writer.module.options.instructions.provides("slow_conversions")


def round_and_move(writer: FunctionWriter, lanes: int, value: str, zero: float) -> str:
    """The nearest whole number of each float32 below 2**22, the even one in the middle, plus zero.

    Larger ones stay as large about.
    """
    kind, lifted = f"<{lanes} x float>", _lifted(writer, lanes, value)
    base = splat_literal("float", float_literal(LIFT - zero, FLOAT32), lanes)
    return writer.value(f"fsub {kind} {lifted}, {base}")


def rounds_by_adding(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether an addition rounds such vectors sooner than an instruction for it."""
    wanted = source.element == FLOAT32 and target.element == "int16" and source.lanes > 1
    return wanted and writer.module.options.instructions.provides("slow_conversions")


def round_by_adding(writer: FunctionWriter, lanes: int, value: str) -> str:
    """The nearest int16 of each float32, the even one in the middle."""
    lifted = _lifted(writer, lanes, value)
    bits = writer.value(f"bitcast <{lanes} x float> {lifted} to <{lanes} x i32>")
    return writer.value(f"trunc <{lanes} x i32> {bits} to <{lanes} x i16>")


def _lifted(writer: FunctionWriter, lanes: int, value: str) -> str:
    """value + LIFT; not to be joined with a product before it, which is rounded on its own."""
    lift = splat_literal("float", float_literal(LIFT, FLOAT32), lanes)
    return writer.value(f"fadd <{lanes} x float> {value}, {lift}")


def _register_of(writer: FunctionWriter, lanes: int) -> tuple[int, str] | None:
    """The lanes of the instruction that rounds, and its name, if it fills such vectors."""
    row = writer.module.options.instructions.round_to_int32
    names = row.intrinsics if row else {}
    return next((entry for entry in names.items() if lanes % entry[0] == 0), None)


def narrows(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether such vectors of int32 or float32 become bytes without comparisons."""
    row = writer.module.options.instructions.saturating_narrow
    wanted = source.element in (INT32, FLOAT32) and target.is_integer and target.bits == 8
    return row is not None and wanted and source.lanes % row.lanes == 0


def narrow(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """Numbers as bytes, the nearest byte for those out of range, 0 for what is no number."""
    row = writer.module.options.instructions.saturating_narrow
    assert row is not None
    n = row.lanes
    whole, words = f"<{n} x i32>", f"<{n} x i16>"
    element = "float" if source.is_float else "i32"
    parts = _registers(writer, element, source.lanes, n, value)
    if source.is_float:
        name = f"llvm.fptosi.sat.v{n}i32.v{n}f32"
        parts = [writer.intrinsic(name, whole, f"<{n} x float> {part}") for part in parts]
    halves = [(writer.intrinsic(row.to_int16, words, f"{whole} {part}"), n) for part in parts]
    return _bytes_of(writer, target, halves)


def round_to_bytes(writer: FunctionWriter, target: DataType, value: str) -> str:
    """The nearest byte of each float32 that fits 16 bits, the even one in the middle."""
    row = writer.module.options.instructions.saturating_narrow
    assert row is not None
    shorts = round_by_adding(writer, target.lanes, value)
    parts = _registers(writer, "i16", target.lanes, row.lanes, shorts)
    return _bytes_of(writer, target, [(part, row.lanes) for part in parts])


def _bytes_of(writer: FunctionWriter, target: DataType, halves: list[tuple[str, int]]) -> str:
    """Registers of int16, each half full, as bytes."""
    row = writer.module.options.instructions.saturating_narrow
    assert row is not None
    n, done = row.lanes, []
    twice = f"<{2 * n} x i16>"
    for first in range(0, len(halves), 2):
        pair = halves[first : first + 2]
        both = joined(writer, (pair * 2)[:2], "i16")
        to_bytes = row.to_int8 if target.is_int else row.to_uint8
        made = writer.intrinsic(to_bytes, f"<{2 * n} x i8>", f"{twice} {both}")
        count = n * len(pair)
        if count < 2 * n:
            made = shuffled(writer, f"<{2 * n} x i8>", made, range(count))
        done.append((made, count))
    return joined(writer, done, "i8")


def _registers(
    writer: FunctionWriter, element: str, lanes: int, register: int, value: str
) -> list[str]:
    if lanes == register:
        return [value]
    kind = f"<{lanes} x {element}>"
    return [
        shuffled(writer, kind, value, range(first, first + register))
        for first in range(0, lanes, register)
    ]
