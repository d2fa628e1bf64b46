"""Operators on tensors of any meaning: arithmetic, shapes, gathering, reductions."""
