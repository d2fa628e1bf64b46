"""ONNX models as graphs."""

from sterna.support.classic import classic_names

__getattr__ = classic_names(__name__)
