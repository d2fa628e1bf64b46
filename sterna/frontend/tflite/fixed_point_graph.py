"""Fractions of 31 bits in a graph, as numbers of int64: products and shifts that round."""

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import FRACTION, LARGEST
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


def reciprocal(x: RelayExpr) -> RelayExpr:
    """1 / (1 + x) of fractions from 0 to 1 by three steps of Newton's, as fractions."""
    half = call("right_shift", call("add", x, number(LARGEST + 1)), number(1))
    made = call("add", number(1515870810), high(half, number(-1010580540)))
    for _ in range(3):
        left = call("subtract", number(1 << 29), high(half, made))
        step = call("left_shift", high(made, left), number(2))
        made = call("add", made, step)
    return call("minimum", call("left_shift", made, number(1)), number(LARGEST))
