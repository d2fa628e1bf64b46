"""Sums of products: the types they are computed and given in."""

from typing import cast

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute

# The attribute out_dtype when the result has the element type of the data.
AS_DATA = cast(DataType, "")

FLOAT32 = DataType("float32")


def result_dtype(out_dtype: str, first: TensorType, second: TensorType, name: str) -> DataType:
    """The element type of a product; two types make a third only if the user says which."""
    if out_dtype:
        return DataType(out_dtype)
    if first.dtype != second.dtype:
        raise ValueError(
            f"{name} has the element type {second.dtype} and the other operand {first.dtype}; "
            "cast one of them, or give out_dtype"
        )
    return first.dtype


def wide(dtype: str) -> DataType:
    """The type in which numbers of a type are summed: narrow floats would lose most of a sum."""
    kind = DataType(dtype)
    return FLOAT32 if kind.is_float and kind.bits < 32 else kind


def narrowed(total: Tensor, dtype: DataType, name: str) -> Tensor:
    """A sum in its result's type: a stage of its own where that differs."""
    if total.dtype == dtype:
        return total
    made: Tensor = compute(total.shape, lambda *i: total(*i).astype(dtype), name=name)
    return made


def widened(array: Array, dtype: str) -> Array:
    """An array in the type in which results of a type are summed."""
    return array.astype(numpy_dtype(wide(dtype)))
