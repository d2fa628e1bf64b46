"""L2 normalisation of bytes: rows times the inverse root of their sum of squares, in fixed point.

The sum is brought between 2**27 and 2**29 by a power of 4; five steps of Newton's find its inverse
root, with 28 bits of fraction.
"""

from sterna.frontend.calls import call, cast
from sterna.frontend.tflite.fixed_point import LARGEST
from sterna.frontend.tflite.fixed_point_graph import divided, high, number
from sterna.frontend.tflite.node import Node, single
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

ONE, HALF_ROOT = 1 << 28, 1518500250
STEPS, OUT_BITS = 5, 7
LEAST_BITS, MOST_BITS = 27, 29


def norm_of_bytes(node: Node) -> RelayExpr:
    """Rows along the last axis, under a scale of 1/128: bytes without a sign are multiplied by 128
    first, others are shifted by seven places less."""
    _, zero = single(node.quantization(0), "its data")
    _, out_zero = single(node.result_quantization(), "the result")
    distance = call("subtract", cast(node[0], "int64"), number(zero))
    total = call("sum", call("multiply", distance, distance), axis=-1, keepdims=True)
    inverse, shift = _inverse_root(total)
    if node.dtype() == "uint8":
        left, right = number(OUT_BITS), shift
    else:
        power = call("subtract", number(OUT_BITS), shift)
        left, right = (
            call("maximum", each, number(0)) for each in (power, call("negative", power)))
    made = divided(high(call("left_shift", distance, left), inverse), right)
    ends = int_range(DataType(node.result_dtype()))
    return cast(call("clip", call("add", made, number(out_zero)), *ends), node.result_dtype())


def _count(*conditions: RelayExpr) -> RelayExpr:
    """How many of them hold."""
    made = cast(conditions[0], "int64")
    for each in conditions[1:]:
        made = call("add", made, cast(each, "int64"))
    return made


def _inverse_root(total: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """1 / sqrt(total) as a fraction of 31 bits, and how many places to the right it belongs."""
    down = _count(*(call("greater_equal", total, number(1 << bits)) for bits in (MOST_BITS, 31)))
    up = _count(*(call("less", total, number(1 << bits))
                  for bits in range(LEAST_BITS, 0, -2)))
    less = call("right_shift", total, call("multiply", down, number(2)))
    near = call("left_shift", less, call("multiply", up, number(2)))
    half = call("right_shift", call("add", call("right_shift", near, number(1)), number(1)),
                number(1))
    x: RelayExpr = number(ONE)
    for _ in range(STEPS):
        cube = call("left_shift", high(high(x, x), x), number(6))
        change = call("subtract", high(number(ONE + ONE // 2), x), high(half, cube))
        x = call("left_shift", change, number(3))
    made = high(x, number(HALF_ROOT))
    shift = call("subtract", call("add", down, number(11)), up)
    more = call("maximum", call("negative", shift), number(0))
    is_least = call("less_equal", total, number(1))
    return (
        call("where", is_least, number(LARGEST), call("left_shift", made, more)),
        call("where", is_least, number(0), call("maximum", shift, number(0))),
    )
