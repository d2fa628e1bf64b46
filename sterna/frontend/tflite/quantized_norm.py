"""L2 normalisation of bytes: rows times the inverse root of their sum of squares, in fixed point.

The sum is brought between 2**27 and 2**29 by a power of 4; five steps of Newton's find its inverse
root, with 28 bits of fraction.
"""

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import FRACTION, LARGEST
from sterna.frontend.tflite.node import Node, single
from sterna.frontend.tflite.requantize import all_bytes
from sterna.relay.expr import RelayExpr

ONE, HALF_ROOT = 1 << 28, 1518500250
STEPS, OUT_BITS = 5, 7
LEAST_BITS, MOST_BITS = 27, 29


def norm_of_bytes(node: Node) -> RelayExpr:
    """Rows along the last axis, under a scale of 1/128: bytes without a sign are multiplied by 128
    first, others are shifted by seven places less."""
    _, zero = single(node.quantization(0), "its data")
    _, out_zero = single(node.result_quantization(), "the result")
    distance = call("subtract", cast(node[0], "int64"), _number(zero))
    total = call("sum", call("multiply", distance, distance), axis=-1, keepdims=True)
    inverse, shift = _inverse_root(total)
    if node.dtype() == "uint8":
        left, right = _number(OUT_BITS), shift
    else:
        power = call("subtract", _number(OUT_BITS), shift)
        left, right = (
            call("maximum", each, _number(0)) for each in (power, call("negative", power)))
    made = _divided(_high(call("left_shift", distance, left), inverse), right)
    low, *_, high = sorted(all_bytes(node.result_dtype()).tolist())
    return cast(call("clip", call("add", made, _number(out_zero)), low, high), node.result_dtype())


def _number(value: int) -> RelayExpr:
    return constant(value, "int64")


def _count(*conditions: RelayExpr) -> RelayExpr:
    """How many of them hold."""
    made = cast(conditions[0], "int64")
    for each in conditions[1:]:
        made = call("add", made, cast(each, "int64"))
    return made


def _inverse_root(total: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """1 / sqrt(total) as a fraction of 31 bits, and how many places to the right it belongs."""
    down = _count(*(call("greater_equal", total, _number(1 << bits)) for bits in (MOST_BITS, 31)))
    up = _count(*(call("less", total, _number(1 << bits))
                  for bits in range(LEAST_BITS, 0, -2)))
    less = call("right_shift", total, call("multiply", down, _number(2)))
    near = call("left_shift", less, call("multiply", up, _number(2)))
    half = call("right_shift", call("add", call("right_shift", near, _number(1)), _number(1)),
                _number(1))
    x: RelayExpr = _number(ONE)
    for _ in range(STEPS):
        cube = call("left_shift", _high(_high(x, x), x), _number(6))
        change = call("subtract", _high(_number(ONE + ONE // 2), x), _high(half, cube))
        x = call("left_shift", change, _number(3))
    made = _high(x, _number(HALF_ROOT))
    shift = call("subtract", call("add", down, _number(11)), up)
    more = call("maximum", call("negative", shift), _number(0))
    is_least = call("less_equal", total, _number(1))
    return (
        call("where", is_least, _number(LARGEST), call("left_shift", made, more)),
        call("where", is_least, _number(0), call("maximum", shift, _number(0))),
    )


def _high(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The product of fractions, rounded, halves upward."""
    product = call("add", call("multiply", a, b), _number(1 << (FRACTION - 1)))
    return call("right_shift", product, _number(FRACTION))


def _divided(x: RelayExpr, power: RelayExpr) -> RelayExpr:
    """x / 2**power, rounded, halves away from zero."""
    half = call("right_shift", call("left_shift", _number(1), power), _number(1))
    is_below = call("multiply", cast(call("less", x, _number(0)), "int64"),
                    call("minimum", power, _number(1)))
    return call("right_shift", call("subtract", call("add", x, half), is_below), power)
