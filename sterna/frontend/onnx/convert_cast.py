"""Elements as other types, by ONNX's rules for numbers that the new type does not have."""

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.onnx.convert_elementwise import element_type
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.arrays import float_info
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType

SCALE = "float8_e8m0fnu"


@converter("Cast")
def cast_to(node: Node) -> RelayExpr:
    return _converted(node, element_type(node.attr("to")))


@converter("CastLike")
def cast_like(node: Node) -> RelayExpr:
    return _converted(node, dtype_of(node[1]))


def _converted(node: Node, dtype: str) -> RelayExpr:
    data, wanted, given = node[0], DataType(dtype), DataType(dtype_of(node[0]))
    if given == wanted:
        return data
    if dtype == SCALE:
        return _as_scale(node)
    if wanted.is_float and wanted.bits == 8 and node.attr("saturate", 1):
        largest = float(float_info(wanted).max)
        wide = data if given.is_float and given.bits > 8 else cast(data, "float32")
        return cast(call("clip", wide, -largest, largest), dtype)
    if given.is_float and wanted.is_integer and not wanted.is_bool and wanted.bits < 8:
        return cast(cast(data, "int32"), dtype)  # they keep their low bits
    return cast(data, dtype)


def _as_scale(node: Node) -> RelayExpr:
    """Floats as powers of two: their exponents, one more where round_mode goes up."""
    bits = call("reinterpret", cast(node[0], "float32"), "uint32")
    exponent = call("bitwise_and", call("right_shift", bits, _bits(23)), _bits(0xFF))
    fraction = call("bitwise_and", bits, _bits(0x7FFFFF))
    half = _bits(0x400000)
    mode = node.attr("round_mode", "up")
    if mode == "up":
        more = call("greater", fraction, _bits(0))
    elif mode == "nearest":  # a half goes up but from the numbers that have no leading one
        least = call("where", call("equal", exponent, _bits(0)), call("add", half, _bits(1)), half)
        more = call("greater_equal", fraction, least)
    elif mode == "down":
        more = call("greater", fraction, _bits(0x7FFFFF))
    else:
        raise ValueError(f"round_mode is up, down or nearest, not '{mode}'")
    # The largest number stays where it is, or becomes NaN, which comes next; so do infinities.
    stays = _bits(0xFE if node.attr("saturate", 1) else 0xFF)
    more = call("logical_and", more, call("less", exponent, stays))
    code = call("add", exponent, cast(more, "uint32"))
    return call("reinterpret", cast(code, "uint8"), SCALE)


def _bits(value: int) -> RelayExpr:
    return constant(value, "uint32")


@converter("BitCast")
def bit_cast(node: Node) -> RelayExpr:
    dtype = element_type(node.attr("to"))
    if dtype_of(node[0]) == "bool":
        return call("reinterpret", cast(node[0], "uint8"), dtype)
    if dtype == "bool":
        return cast(call("reinterpret", node[0], "uint8"), dtype)
    return call("reinterpret", node[0], dtype)
