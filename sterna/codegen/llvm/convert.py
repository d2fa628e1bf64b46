"""Conversions between types: Cast, and saturate, which clamps to the range of the result."""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.narrow import narrow as narrow_to_bytes
from sterna.codegen.llvm.narrow import narrows
from sterna.codegen.llvm.pack import is_packed_by, pack
from sterna.codegen.llvm.small_floats import (
    FLOAT32,
    FLOAT64,
    Bits,
    narrow,
    narrow_double,
    widen,
)
from sterna.codegen.llvm.types import (
    element_type,
    float_literal,
    mangled,
    splat_literal,
    value_type,
)
from sterna.support.dtype import DataType


def is_narrow(dtype: DataType) -> bool:
    """Whether a type is a float of at most 16 bits."""
    return dtype.is_float and dtype.bits <= 16


def computes_in_float(writer: FunctionWriter, dtype: DataType) -> bool:
    """Whether arithmetic on a type is done in float32 and rounded.

    For + - * / and sqrt that gives the same result as rounding once: 24 >= 2 * 11 + 2 bits.
    """
    as_it_is = dtype.kind == "float" and writer.module.options.instructions.provides(
        "fp16_arithmetic"
    )
    return is_narrow(dtype) and not as_it_is


def cast(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """A value as another type of as many lanes; see Cast in ir/expr.py."""
    if source == target:
        return value
    lanes = target.lanes
    if is_narrow(source):
        if target.is_bool or not is_narrow(target):
            single = FLOAT32.with_lanes(lanes)
            return cast(writer, single, target, widen(writer, source, value))
        return narrow(writer, target, widen(writer, source, value))
    if is_narrow(target):
        return _to_narrow(writer, source, target, value, False)
    return _plain_cast(writer, source, target, value)


def _to_narrow(
    writer: FunctionWriter, source: DataType, target: DataType, value: str, saturate: bool
) -> str:
    if source.element == FLOAT32:
        return narrow(writer, target, value, saturate)
    if source.element == FLOAT64:
        return narrow_double(writer, target, value, saturate)
    small = source.is_bool or source.bits <= 24
    middle = (FLOAT32 if small else FLOAT64).with_lanes(target.lanes)
    if source.bits > 53:
        value = _with_trace(writer, source, value)
    number = cast(writer, source, middle, value)
    return _to_narrow(writer, middle, target, number, saturate)


def _with_trace(writer: FunctionWriter, source: DataType, value: str) -> str:
    """A 64-bit integer that a double holds, and that rounds to shorter floats as it did."""
    bits = Bits(writer, 64, source.lanes)
    dropped = bits.op("icmp ne", bits.op("and", value, 0x7FF), 0)
    kept = bits.op("and", value, ~0x7FF)
    odd = bits.select(dropped, bits.op("or", kept, 0x800), kept)
    # Its size, roughly: the sign's bits are no part of it.
    size = bits.op("xor", value, bits.op("ashr", value, 63)) if source.is_int else value
    return bits.select(bits.op("icmp uge", size, 1 << 53), odd, value)


def _plain_cast(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    before, after = value_type(source), value_type(target)
    if target.is_bool:
        if source.is_float:
            return writer.value(f"fcmp une {before} {value}, {zero(source)}")
        return writer.value(f"icmp ne {before} {value}, {zero(source)}")
    if source.kind == "handle" or target.kind == "handle":
        name = "ptrtoint" if source.kind == "handle" else "inttoptr"
        return writer.value(f"{name} {before} {value} to {after}")
    if source.is_float and target.is_float:
        name = "fpext" if target.bits > source.bits else "fptrunc"
    elif source.is_float:
        name = "fptosi" if target.is_int else "fptoui"
    elif target.is_float:
        name = "sitofp" if source.is_int else "uitofp"
    else:
        bits = 1 if source.is_bool else source.bits
        if bits == target.bits:
            return value
        name = "trunc" if bits > target.bits else "sext" if source.is_int else "zext"
    return writer.value(f"{name} {before} {value} to {after}")


def zero(dtype: DataType) -> str:
    """The constant 0 of a type, in every lane."""
    if dtype.lanes > 1:
        return "zeroinitializer"
    if dtype.kind == "handle":
        return "null"
    if dtype.kind == "float":
        return float_literal(0.0, dtype)
    return "false" if dtype.is_bool else "0"


def saturate(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """A value held within the range of another type."""
    if is_narrow(source):
        single = FLOAT32.with_lanes(source.lanes)
        return saturate(writer, single, target, widen(writer, source, value))
    if target.is_float and target.bits <= 8:
        return _to_narrow(writer, source, target, value, True)
    if narrows(writer, source, target):
        return narrow_to_bytes(writer, source, target, value)
    after = value_type(target)
    if source.is_float and target.is_integer and source.lanes > 1 and target.bits <= 16:
        return _saturate_vector(writer, source, target, value)
    if source.is_float and source.lanes > 1 and _is_open(writer, target):
        return _saturate_ends(writer, source, target, value)
    if source.is_float and target.is_integer:
        name = "fptosi" if target.is_int else "fptoui"
        full = f"llvm.{name}.sat.{mangled(target)}.{mangled(source)}"
        return writer.intrinsic(full, after, f"{value_type(source)} {value}")
    if source.is_integer and target.is_integer:
        if is_packed_by(writer, source, target):
            return pack(writer, source.lanes, target, value)
        return cast(writer, source, target, _clamp(writer, source, target, value))
    return cast(writer, source, target, value)


def _saturate_vector(
    writer: FunctionWriter, source: DataType, target: DataType, value: str
) -> str:
    """Floats as short integers whose ends they hold exactly: LLVM would take them one by one."""
    kind = value_type(source)
    is_number = writer.value(f"fcmp ord {kind} {value}, {value}")
    masks = f"<{source.lanes} x i1>"
    value = writer.value(f"select {masks} {is_number}, {kind} {value}, {kind} zeroinitializer")
    for relation, bound in zip(("ogt", "olt"), int_range(target), strict=True):
        number = float_literal(float(bound), source.element)
        literal = splat_literal(element_type(source), number, source.lanes)
        inside = writer.value(f"fcmp {relation} {kind} {value}, {literal}")
        value = writer.value(f"select {masks} {inside}, {kind} {value}, {kind} {literal}")
    wide = DataType("int32").with_lanes(source.lanes)
    whole = writer.value(f"fptosi {kind} {value} to {value_type(wide)}")
    return cast(writer, wide, target, whole)


def rounds_within(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether such vectors become bytes by an instruction that converts and rounds at once."""
    wanted = source.element == FLOAT32 and source.lanes > 1
    wanted = wanted and target.is_integer and target.bits == 8
    return wanted and writer.module.options.instructions.provides("rounding_conversion")


def round_within(
    writer: FunctionWriter, source: DataType, target: DataType, value: str, zero: float
) -> str:
    """The nearest whole numbers plus zero as bytes; 0 for what is no number.

    Ends are whole numbers, so that floats are held between them before they are rounded, and the
    conversion rounds them. The lowest byte without a sign is 0, as what is no number.
    """
    kind, masks = value_type(source), f"<{source.lanes} x i1>"

    def spread(number: float) -> str:
        return splat_literal(element_type(source), float_literal(number, FLOAT32), source.lanes)

    if target.is_int:
        is_number = writer.value(f"fcmp ord {kind} {value}, {value}")
        value = writer.value(f"select {masks} {is_number}, {kind} {value}, {kind} {spread(-zero)}")
    for relation, bound in zip(("ogt", "olt"), int_range(target), strict=True):
        literal = spread(bound - zero)
        inside = writer.value(f"fcmp {relation} {kind} {value}, {literal}")
        value = writer.value(f"select {masks} {inside}, {kind} {value}, {kind} {literal}")
    nearest = writer.intrinsic(f"llvm.rint.{mangled(source)}", kind, f"{kind} {value}")
    wide = DataType("int32").with_lanes(source.lanes)
    whole = writer.value(f"fptosi {kind} {nearest} to {value_type(wide)}")
    if zero:
        moved = splat_literal("i32", str(int(zero)), source.lanes)
        whole = writer.value(f"add {value_type(wide)} {whole}, {moved}")
    return cast(writer, wide, target, whole)


def converts_within(writer: FunctionWriter, source: DataType, target: DataType) -> bool:
    """Whether instructions that know no ends make int32 of such floats, and round on the way."""
    wanted = source.element == FLOAT32 and source.lanes > 1 and target.element == "int32"
    rounds = writer.module.options.instructions.provides("rounding_conversion")
    return wanted and rounds and _is_open(writer, target)


def _is_open(writer: FunctionWriter, target: DataType) -> bool:
    """Whether an instruction makes such vectors of floats, but not of those beyond the ends."""
    return str(target.element) in writer.module.options.instructions.open_conversions


def _saturate_ends(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """Floats as integers whose ends they do not all hold: those out of range are told apart."""
    kind, after, masks = value_type(source), value_type(target), f"<{source.lanes} x i1>"
    low, high = int_range(target)
    ends = [splat_literal(element_type(source), float_literal(float(end), source.element),
                          source.lanes) for end in (low, high + 1)]
    above = writer.value(f"fcmp oge {kind} {value}, {ends[1]}")
    least = writer.value(f"fcmp oge {kind} {value}, {ends[0]}")
    inside = writer.value(f"fcmp olt {kind} {value}, {ends[1]}")
    inside = writer.value(f"and {masks} {inside}, {least}")
    safe = writer.value(f"select {masks} {inside}, {kind} {value}, {kind} zeroinitializer")
    name = "fptosi" if target.is_int else "fptoui"
    whole = writer.value(f"{name} {kind} {safe} to {after}")
    below = writer.value(f"fcmp olt {kind} {value}, {ends[0]}")
    for mask, end in ((above, high), (below, low)):
        literal = splat_literal(element_type(target), str(end), target.lanes)
        whole = writer.value(f"select {masks} {mask}, {after} {literal}, {after} {whole}")
    return whole


def _clamp(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """An integer within the range of another type, still as its own type."""
    low, high = int_range(source)
    target_low, target_high = int_range(target)
    kind, letter = value_type(source), "s" if source.is_int else "u"
    for name, bound, needed in (("max", target_low, target_low > low),
                                ("min", target_high, target_high < high)):
        if needed:
            literal = splat_literal(element_type(source), str(bound), source.lanes)
            full = f"llvm.{letter}{name}.{mangled(source)}"
            value = writer.intrinsic(full, kind, f"{kind} {value}", f"{kind} {literal}")
    return value


def int_range(dtype: DataType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    if dtype.is_int:
        return -1 << dtype.bits - 1, (1 << dtype.bits - 1) - 1
    return 0, (1 if dtype.is_bool else (1 << dtype.bits) - 1)
