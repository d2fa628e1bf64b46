"""What the interpreter knows about memory: arrays as flat memory, pointers, packed arguments.

bfloat16 has no type in NumPy: its arrays are uint16 arrays that hold the bits.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir.build import round_float, wrap_int
from sterna.runtime import ndarray
from sterna.support.dtype import DataType

Array = npt.NDArray[Any]

_GARBAGE = 0xCDCDCDCDCDCDCDCD


@cache
def storage_type(dtype: DataType) -> np.dtype[Any]:
    """The NumPy type that an array of these elements has."""
    if dtype == "bfloat16":
        return np.dtype(np.uint16)
    if dtype.is_bool:
        return np.dtype(np.bool_)
    whole = dtype.is_integer and dtype.bits in (8, 16, 32, 64)
    if dtype.lanes == 1 and (whole or dtype.kind == "float"):
        return np.dtype(str(dtype))
    raise TypeError(f"the interpreter has no arrays of {dtype}")


def from_storage(value: Any, dtype: DataType) -> int | float:
    """An element as a Python number."""
    if dtype == "bfloat16":
        return float(struct.unpack("<f", struct.pack("<I", int(value) << 16))[0])
    return float(value) if dtype.is_float else int(value)


def to_storage(value: float, dtype: DataType) -> int | float:
    """A Python number as an element."""
    if dtype == "bfloat16":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return value


def as_type(value: Any, dtype: DataType) -> int | float:
    """A Python number as a type holds it; what does not fit an integer becomes its minimum."""
    if dtype.is_float:
        try:
            return round_float(float(value), dtype)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if dtype.is_bool:
        return int(value != 0)
    if isinstance(value, float):
        if value != value or abs(value) == float("inf"):
            return -1 << dtype.bits - 1 if dtype.is_int else 0
        value = int(value)
    return wrap_int(value, dtype)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of an element."""

    memory: Array
    """One dimension."""
    offset: int = 0

    def viewed_as(self, dtype: DataType) -> "Pointer":
        """The same address as that of an element of another type."""
        kind, size = storage_type(dtype), self.memory.itemsize
        if kind == self.memory.dtype:
            return self
        if self.offset * size % kind.itemsize:
            raise ValueError(f"an element of {dtype} would lie across two others")
        return Pointer(self.memory.view(kind), self.offset * size // kind.itemsize)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A packed argument that is an array, with a type that NumPy may not have."""

    array: Array
    dtype: DataType


def flat_memory(array: Array) -> Array:
    """The memory that an array's elements lie in, as one dimension that shares it."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    size = array.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        raise ValueError("the interpreter takes no arrays with negative or uneven strides")
    reach = sum((n - 1) * s // size for n, s in zip(array.shape, array.strides, strict=True))
    length = reach + 1 if array.size else 0
    return np.lib.stride_tricks.as_strided(array, (length,), (size,))


def array_view(
    start: Pointer, dtype: DataType, shape: Sequence[int], strides: Sequence[int]
) -> Any:
    """The array at an address, as packed functions get it; it shares the memory."""
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 not in shape and not 0 <= start.offset <= start.offset + reach < len(start.memory):
        raise IndexError(f"a view of {tuple(shape)} elements is larger than its buffer")
    size = start.memory.itemsize
    array = np.lib.stride_tricks.as_strided(
        start.memory[start.offset :], shape, [s * size for s in strides]
    )
    if dtype != "bfloat16":
        return array
    return ndarray.from_dlpack(array)._view(tuple(shape), str(dtype), 0)


def garbage(count: int, dtype: DataType) -> Array:
    """Memory that nobody has written: values that show up when they are used."""
    kind = storage_type(dtype)
    if dtype == "bfloat16":
        return np.full(count, 0x7FC0, kind)
    if dtype.is_float:
        return np.full(count, np.nan, kind)
    return np.full(count, as_type(_GARBAGE, dtype), kind)


# ---- packed arguments ----

_NONE, _INT, _BOOL, _FLOAT, _POINTER, _STRING, _NDARRAY = 0, 1, 2, 3, 4, 65, 70
_CPU = 1


@dataclass(frozen=True, slots=True)
class PackedArgs:
    """Stands for the array of tagged values that a packed function gets."""

    values: Sequence[Any]

    def get(self, index: int) -> Any:
        if not 0 <= index < len(self.values):
            raise IndexError(f"argument {index} of {len(self.values)} is read")
        return self.values[index]

    def type_index(self, index: int) -> int:
        """The tag, as sterna.h numbers them."""
        value = self.get(index)
        if value is None:
            return _NONE
        for kinds, number in _TAGS:
            if isinstance(value, kinds):
                return number
        raise TypeError(f"{value!r} is no packed argument")

    def payload(self, index: int, dtype: DataType) -> Any:
        """The eight bytes beside the tag, read as a type."""
        value = self.get(index)
        if isinstance(value, (bool, int, float, np.number, np.bool_)):
            number = value.item() if isinstance(value, np.generic) else value
            code = "<d" if isinstance(number, float) else "<q"
            wanted = "<d" if dtype.is_float else "<q"
            return struct.unpack(wanted, struct.pack(code, number))[0]
        return 0 if value is None else value

    def tensor(self, index: int) -> Tensor:
        """An argument that is an array."""
        value = self.get(index)
        if isinstance(value, np.ndarray):
            return Tensor(value, DataType(value.dtype.name))
        if isinstance(value, Tensor):
            return value
        raise TypeError(f"argument {index} is taken for an array but is {value!r}")


_TAGS: tuple[tuple[Any, int], ...] = (
    ((bool, np.bool_), _BOOL),
    ((int, np.integer), _INT),
    ((float, np.floating), _FLOAT),
    (str, _STRING),
    ((np.ndarray, Tensor), _NDARRAY),
    (Pointer, _POINTER),
)


def tensor_property(op: str, tensor: Tensor, index: int) -> Any:
    """What tensor_data, tensor_ndim, ... say about a tensor."""
    array, dtype = tensor.array, tensor.dtype
    if op == "tensor_data":
        return Pointer(flat_memory(array))
    if op == "tensor_ndim":
        return array.ndim
    if op == "tensor_device":
        return _CPU
    if op == "tensor_dtype":
        return dtype.type_code | dtype.bits << 8 | dtype.lanes << 16
    if op == "tensor_has_strides":
        return int(not array.flags.c_contiguous)
    if not 0 <= index < array.ndim:
        raise IndexError(f"dimension {index} of a tensor with {array.ndim} is read")
    return array.shape[index] if op == "tensor_shape" else array.strides[index] // array.itemsize
