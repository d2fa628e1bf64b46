"""C functions for float16, bfloat16 and float8. What they hold: sterna/support/float_format.py."""

from sterna.codegen.c.types import float_literal, storage_bits
from sterna.support.dtype import DataType
from sterna.support.float_format import FloatFormat, format_of

FLOAT32, FLOAT64 = DataType("float32"), DataType("float64")


def _hex(number: int) -> str:
    return f"{number:#x}u"


def value_text(t: DataType) -> str:
    """The function from bits to the number."""
    body = {"float16": _FLOAT16_VALUE, "bfloat16": _BFLOAT16_VALUE}.get(t) or _value(format_of(t))
    return f"""\
static float sterna_{t}_value(uint{storage_bits(t)}_t bits) {{
{body}
}}"""


_FLOAT16_VALUE = """\
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
  uint32_t fraction = bits & 0x3ffu, word;
  float value;
  if (exponent == 0) {
    value = (float)fraction * (1.0f / 16777216.0f);
    return sign ? -value : value;
  }
  word = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  memcpy(&value, &word, sizeof value);
  return value;"""

_BFLOAT16_VALUE = """\
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;"""


def _value(format: FloatFormat) -> str:
    if format.specials == "scale":
        return """\
  uint32_t word = bits ? (uint32_t)bits << 23 : 0x400000u;
  float value;
  if (bits == 0xff) return NAN;
  memcpy(&value, &word, sizeof value);
  return value;"""
    sign, top = _hex(format.sign), _hex(format.largest)
    special = {
        "ieee": f"if (magnitude > {top}) return magnitude == {_hex(format.overflow)} ? "
        f"(bits & {sign} ? -INFINITY : INFINITY) : NAN;",
        "fn": f"if (magnitude > {top}) return NAN;",
        "fnuz": f"if (bits == {sign}) return NAN;",
        "finite": "",
    }[format.specials]
    step = float_literal(2.0 ** (1 - format.bias - format.fraction_bits), FLOAT32)
    lines = [
        f"  uint32_t magnitude = bits & {_hex(format.sign - 1)}, word;",
        "  float value;",
        *([f"  {special}"] if special else []),
        f"  word = (magnitude << {23 - format.fraction_bits}) + ({127 - format.bias}u << 23);",
        "  memcpy(&value, &word, sizeof value);",
        f"  if (magnitude < {1 << format.fraction_bits}u) value = (float)magnitude * {step};",
        f"  return bits & {sign} ? -value : value;",
    ]
    return "\n".join(lines)


# From a double, so that a value is rounded once, wherever it comes from.
_BITS = """\
static {c} sterna_{t}_bits(double value) {{
  uint64_t word, fraction, rest, middle;
  uint32_t sign, bits;
  int exponent, drop;
  memcpy(&word, &value, sizeof word);
  sign = (uint32_t)(word >> 63) * {sign};
  exponent = (int)(word >> 52 & 2047) - 1023;
  fraction = word & UINT64_C(0xfffffffffffff);
  bits = 0;
  if (exponent == 1024 && fraction) return {nan};
  if (exponent > {top}) {{
    bits = {largest} + 1;
  }} else if (exponent >= {low} - {digits} - 1) {{
    drop = 52 - {digits};
    fraction |= UINT64_C(1) << 52;
    if (exponent < {low}) drop += {low} - exponent;
    else bits = (uint32_t)(exponent - {low}) << {digits};
    rest = fraction & ((UINT64_C(1) << drop) - 1);
    middle = UINT64_C(1) << (drop - 1);
    bits += (uint32_t)(fraction >> drop);
    if (rest > middle || (rest == middle && (bits & 1))) bits++;
  }}
  if (bits > {largest}) bits = {overflow};
  return ({c})({result});
}}"""

_SCALE_BITS = """\
static uint8_t sterna_{t}_bits(double value) {{
  int exponent;
  double fraction;
  if (!(value > 0.0) || isinf(value)) return 0xff;
  fraction = frexp(value, &exponent);
  exponent += 126 + (fraction >= 0.75);
  return (uint8_t)(exponent < 0 ? 0 : exponent > 254 ? 255 : exponent);
}}"""


def bits_text(t: DataType) -> str:
    """The function from a number to the bits of the nearest one."""
    format = format_of(t)
    if format.specials == "scale":
        return _SCALE_BITS.format(t=t)
    c = f"uint{storage_bits(t)}_t"
    is_signed = format.specials == "ieee"
    return _BITS.format(
        t=t, c=c, sign=_hex(format.sign), largest=_hex(format.largest),
        nan=f"({c})(sign | {_hex(format.nan)})" if is_signed else _hex(format.nan),
        top=(1 << format.exponent_bits) - 1 - format.bias, low=1 - format.bias,
        digits=format.fraction_bits, overflow=_hex(format.overflow),
        result="bits ? sign | bits : 0" if format.specials == "fnuz" else "sign | bits",
    )


def round_text(t: DataType) -> str:
    """The function from a number to the nearest one."""
    return f"""\
static float sterna_{t}_round(double value) {{
  return sterna_{t}_value(sterna_{t}_bits(value));
}}"""


def clamp_text(t: DataType) -> str:
    """The function that holds a number within a type's range."""
    top = float_literal(format_of(t).maximum, FLOAT64)
    return f"""\
static double sterna_{t}_clamp(double value) {{
  return value > {top} ? {top} : value < -{top} ? -{top} : value;
}}"""


# A double that rounds to shorter floats as the integer itself does: bits that a double has no room
# for leave a trace in its last one.
EXACT_INTEGER = """\
static double sterna_exact_{t}({c} x) {{
  uint64_t bits = (uint64_t)x, size = {size};
  if (size >> 53) bits = (bits & ~UINT64_C(0x7ff)) | (bits & 0x7ff ? UINT64_C(0x800) : 0);
  return (double)({c})bits;
}}"""


def exact_text(t: DataType) -> str:
    """The function from a 64-bit integer to a double."""
    size = "x < 0 ? ~bits : bits" if t.is_int else "bits"
    return EXACT_INTEGER.format(t=t, c=f"{t}_t", size=size)
