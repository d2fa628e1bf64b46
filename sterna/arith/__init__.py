"""Integer reasoning: simplification, bounds, proofs."""

from sterna.arith.analyzer import Analyzer
from sterna.arith.bounds import IntBound, Interval
from sterna.arith.interval import detect_linear, interval
from sterna.arith.substitute import substitute

__all__ = ["Analyzer", "IntBound", "Interval", "detect_linear", "interval", "substitute"]
