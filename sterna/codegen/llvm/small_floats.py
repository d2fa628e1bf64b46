"""float16, bfloat16 and float8 to float32 and back. What they hold: sterna/support/float_format.py.

All but float16 are held as their bits, so that no target needs to know them.
"""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.types import (
    float_literal,
    mangled,
    splat_literal,
    value_type,
    vector_type,
)
from sterna.support.dtype import DataType
from sterna.support.float_format import FloatFormat, format_of

FLOAT32 = DataType("float32")
FLOAT64 = DataType("float64")

_NAN, _INFINITY = 0x7FC00000, 0x7F800000


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


def _single(number: float, lanes: int) -> str:
    return splat_literal("float", float_literal(number, FLOAT32), lanes)


# ---- to float32 ----


def widen(writer: FunctionWriter, dtype: DataType, value: str) -> str:
    """A small float as float32."""
    target = vector_type("float", dtype.lanes)
    if dtype.kind == "float" and writer.module.abilities.converts_fp16:
        return writer.value(f"fpext {value_type(dtype)} {value} to {target}")
    in_pairs = writer.module.options.instructions.provides("bf16_conversion")
    if dtype.kind == "bfloat" and dtype.lanes % 2 == 0 and in_pairs:
        return _widen_pairs(writer, dtype.lanes, value)
    wide = Bits(writer, 32, dtype.lanes)
    held = vector_type(f"i{dtype.bits}", dtype.lanes)
    bits = value
    if dtype.kind == "float":
        bits = writer.value(f"bitcast {value_type(dtype)} {value} to {held}")
    bits = writer.value(f"zext {held} {bits} to {wide.type}")
    if dtype.kind == "bfloat":
        bits = wide.op("shl", bits, 16)
        return writer.value(f"bitcast {wide.type} {bits} to {target}")
    if dtype.kind == "float":
        return _half_bits_to_float(writer, wide, bits, target)
    format = format_of(dtype.element)
    number = _scale_bits(wide, bits) if format.specials == "scale" else _bits(wide, bits, format)
    return writer.value(f"bitcast {wide.type} {number} to {target}")


def _widen_pairs(writer: FunctionWriter, lanes: int, value: str) -> str:
    """bfloat16 as float32, two by two from the halves of a word."""
    pairs = Bits(writer, 32, lanes // 2)
    words = writer.value(f"bitcast <{lanes} x i16> {value} to {pairs.type}")
    halves = pairs.op("shl", words, 16), pairs.op("and", words, -65536)
    if lanes == 2:
        both = "poison"
        for place, half in enumerate(halves):
            both = writer.value(f"insertelement <2 x i32> {both}, i32 {half}, i64 {place}")
        return writer.value(f"bitcast <2 x i32> {both} to <2 x float>")
    order = ", ".join(f"i32 {lane // 2 + lane % 2 * pairs.lanes}" for lane in range(lanes))
    both = writer.value(
        f"shufflevector {pairs.type} {halves[0]}, {pairs.type} {halves[1]}, "
        f"<{lanes} x i32> <{order}>"
    )
    return writer.value(f"bitcast <{lanes} x i32> {both} to <{lanes} x float>")


def _scale_bits(wide: Bits, bits: str) -> str:
    is_first = wide.op("icmp eq", bits, 0)
    number = wide.select(is_first, wide.const(0x400000), wide.op("shl", bits, 23))
    return wide.select(wide.op("icmp eq", bits, 0xFF), wide.const(_NAN), number)


def _bits(wide: Bits, bits: str, format: FloatFormat) -> str:
    """The bits of a float32, from those of a type of at most 8 bits."""
    writer, single = wide.writer, vector_type("float", wide.lanes)
    magnitude = wide.op("and", bits, format.sign - 1)
    normal = wide.op("shl", magnitude, 23 - format.fraction_bits)
    normal = wide.op("add", normal, (127 - format.bias) << 23)
    # The small ones count steps of one size.
    step = _single(2.0 ** (1 - format.bias - format.fraction_bits), wide.lanes)
    count = writer.value(f"uitofp {wide.type} {magnitude} to {single}")
    small = writer.value(f"fmul {single} {count}, {step}")
    small = writer.value(f"bitcast {single} {small} to {wide.type}")
    is_small = wide.op("icmp ult", magnitude, 1 << format.fraction_bits)
    number = wide.select(is_small, small, normal)
    if format.specials == "ieee":
        is_special = wide.op("icmp ugt", magnitude, format.largest)
        number = wide.select(is_special, wide.op("or", normal, _INFINITY), number)
    elif format.specials == "fn":
        is_nan = wide.op("icmp ugt", magnitude, format.largest)
        number = wide.select(is_nan, wide.const(_NAN), number)
    sign = wide.op("shl", wide.op("and", bits, format.sign), 32 - format.bits)
    number = wide.op("or", number, sign)
    if format.specials == "fnuz":
        is_nan = wide.op("icmp eq", bits, format.sign)
        number = wide.select(is_nan, wide.const(_NAN), number)
    return number


def _half_bits_to_float(writer: FunctionWriter, wide: Bits, bits: str, target: str) -> str:
    """Moves exponent and fraction into place; a multiplication scales subnormals exactly."""
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


# ---- from float32 ----


def narrow(writer: FunctionWriter, dtype: DataType, value: str, saturate: bool = False) -> str:
    """A float32 as a small float, rounded to nearest even."""
    source = vector_type("float", dtype.lanes)
    if dtype.kind == "float" and writer.module.abilities.converts_fp16:
        return writer.value(f"fptrunc {source} {value} to {value_type(dtype)}")
    wide = Bits(writer, 32, dtype.lanes)
    held = vector_type(f"i{dtype.bits}", dtype.lanes)
    bits = writer.value(f"bitcast {source} {value} to {wide.type}")
    if dtype.kind == "bfloat" and writer.module.options.instructions.provides("bf16_conversion"):
        kind = vector_type("bfloat", dtype.lanes)
        rounded = writer.value(f"fptrunc {source} {value} to {kind}")
        return writer.value(f"bitcast {kind} {rounded} to {held}")
    if dtype.kind == "bfloat":
        odd = wide.op("and", wide.op("lshr", bits, 16), 1)
        rounded = wide.op("lshr", wide.op("add", wide.op("add", bits, 0x7FFF), odd), 16)
        quiet = wide.op("or", wide.op("lshr", bits, 16), 0x40)
        is_nan = writer.value(f"fcmp uno {source} {value}, {value}")
        rounded = wide.select(is_nan, quiet, rounded)
        return writer.value(f"trunc {wide.type} {rounded} to {held}")
    if dtype.kind == "float":
        rounded = _float_bits_to_half(writer, wide, bits, source)
        rounded = writer.value(f"trunc {wide.type} {rounded} to {held}")
        return writer.value(f"bitcast {held} {rounded} to {value_type(dtype)}")
    format = format_of(dtype.element)
    code = (_scale_code if format.specials == "scale" else _code)(wide, bits, format, saturate)
    return writer.value(f"trunc {wide.type} {code} to {held}")


def _scale_code(wide: Bits, bits: str, format: FloatFormat, saturate: bool) -> str:
    normal = wide.op("lshr", wide.op("add", bits, 0x400000), 23)
    flags = vector_type("i1", wide.lanes)
    above = wide.op("icmp uge", bits, 0x600000)
    small = wide.writer.value(f"zext {flags} {above} to {wide.type}")
    code = wide.select(wide.op("icmp ult", bits, 0x800000), small, normal)
    top = format.largest if saturate else format.nan
    code = wide.select(wide.op("icmp ugt", code, format.largest), wide.const(top), code)
    wrong = wide.op("icmp slt", bits, 1)  # negative or zero
    wrong = wide.writer.value(f"or {flags} {wrong}, {wide.op('icmp ugt', bits, _INFINITY)}")
    return wide.select(wrong, wide.const(format.nan), code)


def _code(wide: Bits, bits: str, format: FloatFormat, saturate: bool) -> str:
    """The bits of a type of at most 8 bits, from those of a float32."""
    writer, single = wide.writer, vector_type("float", wide.lanes)
    sign = wide.op("lshr", wide.op("and", bits, 1 << 31), 32 - format.bits)
    magnitude = wide.op("and", bits, (1 << 31) - 1)
    # Normal results: round the bits that go, then move the exponent's bias.
    drop = 23 - format.fraction_bits
    odd = wide.op("and", wide.op("lshr", magnitude, drop), 1)
    normal = wide.op("add", wide.op("add", magnitude, (1 << drop - 1) - 1), odd)
    normal = wide.op("lshr", wide.op("sub", normal, (127 - format.bias) << 23), drop)
    # Subnormal results: this addition puts their last bit at the end of the fraction, and rounds.
    shift = 24 - format.bias - format.fraction_bits
    as_float = writer.value(f"bitcast {wide.type} {magnitude} to {single}")
    tiny = writer.value(f"fadd {single} {as_float}, {_single(2.0**shift, wide.lanes)}")
    tiny = writer.value(f"bitcast {single} {tiny} to {wide.type}")
    tiny = wide.op("sub", tiny, (127 + shift) << 23)
    is_tiny = wide.op("icmp ult", magnitude, (128 - format.bias) << 23)
    code = wide.select(is_tiny, tiny, normal)
    top = wide.const(format.largest if saturate else format.overflow)
    code = wide.select(wide.op("icmp ugt", code, format.largest), top, code)
    is_nan = wide.op("icmp ugt", magnitude, _INFINITY)
    code = wide.select(is_nan, wide.const(format.nan), code)
    signed = wide.op("or", code, sign)
    if format.specials == "fnuz":
        return wide.select(wide.op("icmp eq", code, 0), code, signed)
    return wide.select(is_nan, code, signed) if format.specials == "finite" else signed


def _float_bits_to_half(writer: FunctionWriter, wide: Bits, bits: str, source: str) -> str:
    sign = wide.op("and", wide.op("lshr", bits, 16), 0x8000)
    magnitude = wide.op("and", bits, 0x7FFFFFFF)
    # Normal results: round the 13 bits that go, then move the exponent's bias by 112.
    odd = wide.op("and", wide.op("lshr", magnitude, 13), 1)
    normal = wide.op("add", wide.op("add", magnitude, 0xFFF), odd)
    normal = wide.op("lshr", wide.op("sub", normal, 112 << 23), 13)
    # Subnormal results: adding 0.5 puts their last bit at the end of the fraction and rounds it.
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


def narrow_double(
    writer: FunctionWriter, dtype: DataType, value: str, saturate: bool = False
) -> str:
    """A float64 as a small float: through a float32 that keeps a trace of what it lost."""
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
    return narrow(writer, dtype, odd, saturate)
