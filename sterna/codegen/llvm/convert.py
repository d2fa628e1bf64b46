"""Conversions between types: Cast, saturate, reinterpret, and the narrow floats."""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.types import (
    element_type,
    float_literal,
    mangled,
    splat_literal,
    value_type,
    vector_type,
)
from sterna.support.dtype import DataType

FLOAT32 = DataType("float32")
FLOAT64 = DataType("float64")


def is_narrow(dtype: DataType) -> bool:
    """Whether a type is a 16-bit float."""
    return dtype.is_float and dtype.bits == 16


def computes_in_float(dtype: DataType) -> bool:
    """Whether arithmetic on a type is done in float32 and rounded.

    For + - * / and sqrt that gives the same result as rounding once: 24 >= 2 * 11 + 2 bits.
    """
    return is_narrow(dtype)


class Bits:
    """Integer operations on vectors of one width, for bit tricks."""

    def __init__(self, writer: FunctionWriter, bits: int, lanes: int) -> None:
        self.writer = writer
        self.element = f"i{bits}"
        self.type = vector_type(self.element, lanes)
        self.lanes = lanes

    def const(self, number: int) -> str:
        """A constant in every lane."""
        return splat_literal(self.element, str(number), self.lanes)

    def op(self, name: str, a: str, b: str | int) -> str:
        """One instruction with two operands."""
        right = self.const(b) if isinstance(b, int) else b
        return self.writer.value(f"{name} {self.type} {a}, {right}")

    def select(self, condition: str, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        kind = vector_type("i1", self.lanes)
        return self.writer.value(
            f"select {kind} {condition}, {self.type} {a}, {self.type} {b}"
        )


def widen(writer: FunctionWriter, dtype: DataType, value: str) -> str:
    """A 16-bit float as float32."""
    target = vector_type("float", dtype.lanes)
    if dtype.kind == "float" and writer.module.abilities.half:
        return writer.value(f"fpext {value_type(dtype)} {value} to {target}")
    wide = Bits(writer, 32, dtype.lanes)
    bits = value
    if dtype.kind == "float":
        half_bits = vector_type("i16", dtype.lanes)
        bits = writer.value(f"bitcast {value_type(dtype)} {value} to {half_bits}")
    bits = writer.value(f"zext {vector_type('i16', dtype.lanes)} {bits} to {wide.type}")
    if dtype.kind == "bfloat":
        bits = wide.op("shl", bits, 16)
        return writer.value(f"bitcast {wide.type} {bits} to {target}")
    return _half_bits_to_float(writer, wide, bits, target)


def _half_bits_to_float(writer: FunctionWriter, wide: Bits, bits: str, target: str) -> str:
    """Moves exponent and fraction into place; a multiplication scales denormals exactly."""
    sign = wide.op("shl", wide.op("and", bits, 0x8000), 16)
    rest = wide.op("shl", wide.op("and", bits, 0x7FFF), 13)
    # 2**112 turns a half's exponent bias into a float's.
    scale = splat_literal("float", float_literal(2.0**112, FLOAT32), wide.lanes)
    small = writer.value(f"bitcast {wide.type} {rest} to {target}")
    small = writer.value(f"fmul {target} {small}, {scale}")
    number = writer.value(f"bitcast {target} {small} to {wide.type}")
    special = wide.op("or", rest, 0x7F800000)
    is_special = wide.op("icmp uge", rest, 0x0F800000)
    number = wide.select(is_special, special, number)
    return writer.value(f"bitcast {wide.type} {wide.op('or', number, sign)} to {target}")


def narrow(writer: FunctionWriter, dtype: DataType, value: str) -> str:
    """A float32 as a 16-bit float, rounded to nearest even."""
    source = vector_type("float", dtype.lanes)
    if dtype.kind == "float" and writer.module.abilities.half:
        return writer.value(f"fptrunc {source} {value} to {value_type(dtype)}")
    wide = Bits(writer, 32, dtype.lanes)
    bits = writer.value(f"bitcast {source} {value} to {wide.type}")
    if dtype.kind == "bfloat":
        odd = wide.op("and", wide.op("lshr", bits, 16), 1)
        rounded = wide.op("lshr", wide.op("add", wide.op("add", bits, 0x7FFF), odd), 16)
        quiet = wide.op("or", wide.op("lshr", bits, 16), 0x40)
        is_nan = writer.value(f"fcmp uno {source} {value}, {value}")
        rounded = wide.select(is_nan, quiet, rounded)
        return writer.value(f"trunc {wide.type} {rounded} to {value_type(dtype)}")
    rounded = _float_bits_to_half(writer, wide, bits, source)
    half_bits = vector_type("i16", dtype.lanes)
    rounded = writer.value(f"trunc {wide.type} {rounded} to {half_bits}")
    return writer.value(f"bitcast {half_bits} {rounded} to {value_type(dtype)}")


def _float_bits_to_half(writer: FunctionWriter, wide: Bits, bits: str, source: str) -> str:
    sign = wide.op("and", wide.op("lshr", bits, 16), 0x8000)
    magnitude = wide.op("and", bits, 0x7FFFFFFF)
    # Normal results: round the 13 bits that go, then move the exponent's bias by 112.
    odd = wide.op("and", wide.op("lshr", magnitude, 13), 1)
    normal = wide.op("add", wide.op("add", magnitude, 0xFFF), odd)
    normal = wide.op("lshr", wide.op("sub", normal, 112 << 23), 13)
    # Denormal results: adding 0.5 puts their last bit at the end of the fraction and rounds it.
    half = splat_literal("float", float_literal(0.5, FLOAT32), wide.lanes)
    as_float = writer.value(f"bitcast {wide.type} {magnitude} to {source}")
    tiny = writer.value(f"fadd {source} {as_float}, {half}")
    tiny = writer.value(f"bitcast {source} {tiny} to {wide.type}")
    tiny = wide.op("sub", tiny, 0x3F000000)
    result = wide.select(wide.op("icmp ult", magnitude, 113 << 23), tiny, normal)
    infinite = wide.op("icmp uge", magnitude, 0x477FF000)
    result = wide.select(infinite, wide.const(0x7C00), result)
    is_nan = wide.op("icmp ugt", magnitude, 0x7F800000)
    return wide.op("or", wide.select(is_nan, wide.const(0x7E00), result), sign)


def _narrow_double(writer: FunctionWriter, dtype: DataType, value: str) -> str:
    """A float64 as a 16-bit float: through a float32 that keeps a trace of what it lost."""
    double, single = vector_type("double", dtype.lanes), vector_type("float", dtype.lanes)
    wide = Bits(writer, 32, dtype.lanes)
    near = writer.value(f"fptrunc {double} {value} to {single}")
    back = writer.value(f"fpext {single} {near} to {double}")
    suffix = mangled(FLOAT64.with_lanes(dtype.lanes))
    magnitudes = [
        writer.intrinsic(f"llvm.fabs.{suffix}", double, f"{double} {each}")
        for each in (back, value)
    ]
    over = writer.value(f"fcmp ogt {double} {magnitudes[0]}, {magnitudes[1]}")
    inexact = writer.value(f"fcmp one {double} {back}, {value}")
    bits = writer.value(f"bitcast {single} {near} to {wide.type}")
    flags = vector_type("i1", dtype.lanes)
    step = writer.value(f"zext {flags} {over} to {wide.type}")
    sticky = writer.value(f"zext {flags} {inexact} to {wide.type}")
    bits = wide.op("or", wide.op("sub", bits, step), sticky)
    odd = writer.value(f"bitcast {wide.type} {bits} to {single}")
    return narrow(writer, dtype, odd)


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
        if source.element == FLOAT32:
            return narrow(writer, target, value)
        if source.element == FLOAT64:
            return _narrow_double(writer, target, value)
        small = source.is_bool or source.bits <= 24
        middle = (FLOAT32 if small else FLOAT64).with_lanes(lanes)
        return cast(writer, middle, target, cast(writer, source, middle, value))
    return _plain_cast(writer, source, target, value)


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
    if dtype.is_float and dtype.kind != "bfloat":
        return float_literal(0.0, dtype)
    return "false" if dtype.is_bool else "0"


def saturate(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """A value held within the range of another type."""
    if is_narrow(source):
        single = FLOAT32.with_lanes(source.lanes)
        return saturate(writer, single, target, widen(writer, source, value))
    after = value_type(target)
    if source.is_float and target.is_integer:
        name = "fptosi" if target.is_int else "fptoui"
        full = f"llvm.{name}.sat.{mangled(target)}.{mangled(source)}"
        return writer.intrinsic(full, after, f"{value_type(source)} {value}")
    if source.is_integer and target.is_integer:
        return cast(writer, source, target, _clamp(writer, source, target, value))
    return cast(writer, source, target, value)


def _clamp(writer: FunctionWriter, source: DataType, target: DataType, value: str) -> str:
    """An integer within the range of another type, still as its own type."""
    low, high = int_range(source)
    target_low, target_high = int_range(target)
    kind, letter = value_type(source), "s" if source.is_int else "u"
    for name, bound, needed in (("max", target_low, target_low > low),
                                ("min", target_high, target_high < high)):  # fmt: skip
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
