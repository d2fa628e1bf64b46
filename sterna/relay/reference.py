"""The value of a call by its operator's reference in NumPy."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, Type, flatten_type, has_no_elements
from sterna.relay.arrays import numpy_dtype
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call
from sterna.relay.op import AnyOp


def reference_value(record: AnyOp, call: Call, args: Iterable[Any]) -> Any:
    """What a call gives for these arrays; a tuple of tensors comes as a list or tuple."""
    return value_of_type(record, call.attrs, call.checked_type, args)


def value_of_type(
    record: AnyOp, attrs: Attrs | None, kind: Type, args: Iterable[Any]
) -> Any:
    """The same where the type of the result is known otherwise.

    References need not think of results without elements: their type says all about them.
    """
    assert record.reference is not None
    leaves = flatten_type(kind)
    if not all(leaf.is_static and has_no_elements(leaf) for leaf in leaves):
        return record.reference(attrs, *args)
    made = [np.empty(leaf.concrete_shape, numpy_dtype(leaf.dtype)) for leaf in leaves]
    return made[0] if isinstance(kind, TensorType) else made
