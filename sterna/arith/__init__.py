"""Integer reasoning: simplification, bounds, proofs."""

from sterna.arith.analyzer import Analyzer
from sterna.arith.bounds import IntBound, Interval
from sterna.arith.bounds import IntBound as ConstIntBound
from sterna.arith.bounds import Modulus as ModularSet
from sterna.arith.digits import Digits, NoDigits
from sterna.arith.interval import detect_linear, interval
from sterna.arith.interval_set import IntervalSet, detect_linear_equation
from sterna.arith.substitute import substitute

__all__ = [
    "Analyzer", "ConstIntBound", "Digits", "IntBound", "Interval", "IntervalSet", "ModularSet",
    "NoDigits", "detect_linear", "detect_linear_equation", "interval", "substitute",
]
