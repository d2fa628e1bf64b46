"""Saturating narrowing on AArch64 (sqxtn): 32 bits rounded, and held within the range of 8.

They say what the IR says of numbers out of range and of those that are none, so that nothing has to
be compared first.
"""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.pack import joined, shuffled
from sterna.support.dtype import DataType

FLOAT32, INT32 = DataType("float32"), DataType("int32")
_REGISTER = 4


def _fills_registers(writer: FunctionWriter, dtype: DataType) -> bool:
    return writer.module.abilities.extremes and dtype.lanes % _REGISTER == 0


def rounds_to_whole(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether one instruction gives the nearest whole numbers of such vectors."""
    wanted = source.element == FLOAT32 and target.element == INT32
    return wanted and _fills_registers(writer, source)


def round_to_whole(writer: FunctionWriter, lanes: int, value: str) -> str:
    """The nearest int32 of each float32, the even one in the middle."""
    name = "llvm.aarch64.neon.fcvtns.v4i32.v4f32"
    parts = [
        (writer.intrinsic(name, "<4 x i32>", f"<4 x float> {part}"), _REGISTER)
        for part in _registers(writer, "float", lanes, value)
    ]
    return joined(writer, parts, "i32")


def narrows(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether such vectors of int32 or float32 become bytes without comparisons."""
    wanted = source.element in (INT32, FLOAT32) and target.is_integer and target.bits == 8
    return wanted and _fills_registers(writer, source)


def narrow(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """Numbers as bytes, the nearest byte for those out of range, 0 for what is no number."""
    sort = "sqxtn" if target.is_int else "sqxtun"
    parts = _registers(writer, "float" if source.is_float else "i32", source.lanes, value)
    if source.is_float:
        whole = "llvm.fptosi.sat.v4i32.v4f32"
        parts = [writer.intrinsic(whole, "<4 x i32>", f"<4 x float> {part}") for part in parts]
    words = [
        (writer.intrinsic("llvm.aarch64.neon.sqxtn.v4i16", "<4 x i16>", f"<4 x i32> {part}"), 4)
        for part in parts
    ]
    done = []
    for first in range(0, len(words), 2):
        pair = words[first : first + 2]
        both = joined(writer, (pair * 2)[:2], "i16")
        name = f"llvm.aarch64.neon.{sort}.v8i8"
        made = writer.intrinsic(name, "<8 x i8>", f"<8 x i16> {both}")
        count = _REGISTER * len(pair)
        if count < 8:
            made = shuffled(writer, "<8 x i8>", made, range(count))
        done.append((made, count))
    return joined(writer, done, "i8")


def _registers(writer: FunctionWriter, element: str, lanes: int, value: str) -> list[str]:
    if lanes == _REGISTER:
        return [value]
    kind = f"<{lanes} x {element}>"
    return [
        shuffled(writer, kind, value, range(first, first + _REGISTER))
        for first in range(0, lanes, _REGISTER)
    ]
