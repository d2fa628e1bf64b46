"""What tests that hold references against torch share."""

import importlib
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, TupleType, Type
from sterna.relay.op import find
from sterna.support.dtype import DataType
from tests.support import require_module


def functional() -> Any:
    """torch.nn.functional; the test skips or fails without it."""
    require_module("torch")
    return importlib.import_module("torch.nn.functional")


def tensor(array: np.ndarray) -> Any:
    """An array as torch's."""
    return importlib.import_module("torch").from_numpy(array)


def reference(name: str, *operands: np.ndarray, **attrs: Any) -> Any:
    """An operator's reference, whose result has the type that is inferred."""
    record = find(name)
    assert record.attrs is not None
    assert record.reference is not None
    made = record.reference(record.attrs(**attrs), *operands)
    kinds = [_type(array) for array in operands]
    assert record.infer(record.attrs(**attrs), *kinds) == _type(made)
    return made


def _type(value: Any) -> Type:
    if isinstance(value, tuple):
        return TupleType(tuple(_type(part) for part in value))
    return TensorType(value.shape, DataType(str(value.dtype)))
