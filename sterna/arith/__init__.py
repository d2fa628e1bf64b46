"""Integer reasoning: simplification, bounds, proofs."""

from sterna.arith.analyzer import Analyzer
from sterna.arith.bounds import IntBound, Interval
from sterna.arith.digits import Digits, NoDigits
from sterna.arith.interval import detect_linear, interval
from sterna.arith.substitute import substitute

__all__ = [
    "Analyzer", "Digits", "IntBound", "Interval", "NoDigits", "detect_linear", "interval",
    "substitute",
]
