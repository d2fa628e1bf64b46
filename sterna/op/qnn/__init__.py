"""Operators on quantised tensors: whole numbers that stand for scale * (number - zero point)."""
