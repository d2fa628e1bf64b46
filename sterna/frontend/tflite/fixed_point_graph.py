"""Fractions of 31 bits in a graph, as numbers of int64: products and shifts that round."""

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import FRACTION
from sterna.relay.expr import RelayExpr


def number(value: int) -> RelayExpr:
    """A whole number of 64 bits."""
    return constant(value, "int64")


def high(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The product of fractions, rounded, halves upward."""
    product = call("add", call("multiply", a, b), number(1 << (FRACTION - 1)))
    return call("right_shift", product, number(FRACTION))


def divided(x: RelayExpr, power: RelayExpr) -> RelayExpr:
    """x / 2**power, rounded, halves away from zero."""
    half = call("right_shift", call("left_shift", number(1), power), number(1))
    is_below = call("multiply", cast(call("less", x, number(0)), "int64"),
                    call("minimum", power, number(1)))
    return call("right_shift", call("subtract", call("add", x, half), is_below), power)
