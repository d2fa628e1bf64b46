"""What the interpreter knows about memory: arrays as flat memory, pointers, packed arguments.

NumPy lacks the small floats: their arrays hold the bits as uint16 or uint8. Elements of less than a
byte are packed into an array of bytes, the first one lowest.
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
from sterna.support.float_format import format_of, is_small_float
from sterna.tir import wanted_array as words
from sterna.tir.wanted_array import WantedArray

Array = npt.NDArray[Any]

_GARBAGE = 0xCDCDCDCDCDCDCDCD


@cache
def storage_type(dtype: DataType) -> np.dtype[Any]:
    """The NumPy type of the array that elements lie in."""
    if dtype.lanes == 1:
        if dtype.is_bool:
            return np.dtype(np.bool_)
        if dtype.is_packed:
            return np.dtype(np.uint8)
        if dtype.kind == "float" or (dtype.is_integer and dtype.bits in (8, 16, 32, 64)):
            return np.dtype(str(dtype))
        if is_small_float(dtype):
            return np.dtype(f"uint{dtype.bits}")
    raise TypeError(f"the interpreter has no arrays of {dtype}")


def from_bits(bits: int, dtype: DataType) -> int | float:
    """The number that an element's bits stand for."""
    if is_small_float(dtype):
        return format_of(dtype).decode(bits)
    if dtype.is_float:
        code, plain = ("<f", "<I") if dtype.bits == 32 else ("<d", "<Q")
        return float(struct.unpack(code, struct.pack(plain, bits))[0])
    return wrap_int(bits, dtype)


def to_bits(value: float, dtype: DataType) -> int:
    """The bits of a number that a type holds."""
    if is_small_float(dtype):
        return format_of(dtype).encode(value)
    if dtype.is_float:
        code, plain = ("<f", "<I") if dtype.bits == 32 else ("<d", "<Q")
        return int(struct.unpack(plain, struct.pack(code, value))[0])
    return int(value) & (1 << dtype.bits) - 1


def as_type(value: Any, dtype: DataType) -> int | float:
    """A Python number as a type holds it; what does not fit an integer becomes its minimum."""
    if dtype.is_float:
        try:
            return round_float(value, dtype)
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
    """In elements."""
    packed: int = 0
    """Bits of an element, if these are less than a byte."""

    @property
    def _bits(self) -> int:
        return self.packed or self.memory.itemsize * 8

    @property
    def count(self) -> int:
        """How many elements the memory has."""
        return len(self.memory) * self.memory.itemsize * 8 // self._bits

    def viewed_as(self, dtype: DataType) -> "Pointer":
        """The same address as that of an element of another type."""
        kind, packed = storage_type(dtype), dtype.bits if dtype.is_packed else 0
        if kind == self.memory.dtype and packed == self.packed:
            return self
        bits, wanted = self.offset * self._bits, packed or kind.itemsize * 8
        if bits % wanted:
            raise ValueError(f"an element of {dtype} would lie across two others")
        return Pointer(self.memory.view(kind), bits // wanted, packed)

    def load(self, dtype: DataType) -> int | float:
        """The element as a Python number."""
        if self.packed:
            return from_bits(self._packed_word() >> self._shift & self._mask, dtype)
        value = self.memory[self.offset]
        if dtype.is_float:
            is_number = dtype.kind == "float"
            return float(value) if is_number else from_bits(int(value), dtype)
        return int(value)

    def store(self, value: float, dtype: DataType) -> None:
        """Put a Python number there."""
        if self.packed:
            word = self._packed_word() & ~(self._mask << self._shift)
            word |= to_bits(value, dtype) << self._shift
            for place in range(self._first_byte, self._last_byte + 1):
                self.memory[place] = word >> 8 * (place - self._first_byte) & 0xFF
        else:
            is_number = dtype.kind == "float" or not dtype.is_float
            self.memory[self.offset] = value if is_number else to_bits(value, dtype)

    @property
    def _first_byte(self) -> int:
        return self.offset * self.packed // 8

    @property
    def _last_byte(self) -> int:
        return (self.offset * self.packed + self.packed - 1) // 8

    @property
    def _shift(self) -> int:
        return self.offset * self.packed % 8

    @property
    def _mask(self) -> int:
        return (1 << self.packed) - 1

    def _packed_word(self) -> int:
        whole = self.memory[self._first_byte : self._last_byte + 1]
        return int.from_bytes(whole.tobytes(), "little")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An argument that is an array, with a type that NumPy may not have."""

    array: Array
    dtype: DataType
    shape: tuple[int, ...] | None = None
    """That of the elements, where several are in one byte of the array."""

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape in elements."""
        return self.array.shape if self.shape is None else self.shape

    def pointer(self) -> Pointer:
        """The address of its first element."""
        packed = self.dtype.bits if self.dtype.is_packed else 0
        return Pointer(flat_memory(self.array), 0, packed)


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
    if 0 not in shape and not 0 <= start.offset <= start.offset + reach < start.count:
        raise IndexError(f"a view of {tuple(shape)} elements is larger than its buffer")
    if dtype.is_packed:
        whole = ndarray.from_dlpack(start.memory)
        if start.offset * dtype.bits % 8:
            raise ValueError(f"a view of {dtype} must start with a byte")
        return whole._view(tuple(shape), str(dtype), start.offset * dtype.bits // 8)
    size = start.memory.itemsize
    array = np.lib.stride_tricks.as_strided(
        start.memory[start.offset :], shape, [s * size for s in strides]
    )
    if dtype.kind == "float" or not dtype.is_float:
        return array
    return ndarray.from_dlpack(array)._view(tuple(shape), str(dtype), 0)


def garbage(count: int, dtype: DataType) -> Pointer:
    """Memory that nobody has written: values that show up when they are used."""
    kind = storage_type(dtype)
    if dtype.is_packed:
        return Pointer(np.full(dtype.bytes_of(count), 0xCD, kind), 0, dtype.bits)
    if dtype.is_float:
        return Pointer(np.full(count, np.nan if dtype.kind == "float" else _nan(dtype), kind))
    return Pointer(np.full(count, as_type(_GARBAGE, dtype), kind))


def _nan(dtype: DataType) -> int:
    return format_of(dtype).nan


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
        return tensor.pointer()
    if op == "tensor_ndim":
        return len(tensor.extents)
    if op == "tensor_device":
        return _CPU
    if op == "tensor_dtype":
        return dtype.type_code | dtype.bits << 8 | dtype.lanes << 16
    if op == "tensor_has_strides":
        return int(not array.flags.c_contiguous)
    if not 0 <= index < len(tensor.extents):
        raise IndexError(f"dimension {index} of a tensor with {len(tensor.extents)} is read")
    if op == "tensor_shape":
        return tensor.extents[index]
    return array.strides[index] // array.itemsize


def fault_of(
    wanted: WantedArray, args: PackedArgs, index: int
) -> tuple[tuple[str, str], str] | None:
    """What is wrong with an argument that should be an array: the error, and how it ends."""
    if args.type_index(index) != _NDARRAY:
        return words.NO_ARRAY, ""
    tensor = args.tensor(index)
    if len(tensor.extents) != len(wanted.extents):
        return words.WRONG_NDIM, wanted.dimensions
    if tensor_property("tensor_dtype", tensor, 0) != wanted.type_code:
        return words.WRONG_DTYPE, str(wanted.dtype)
    for dim, extent in enumerate(wanted.extents):
        if extent not in (-1, tensor.extents[dim]):
            return words.WRONG_SHAPE, wanted.extent_text(dim)
    given = args.get(index)
    if wanted.is_written and isinstance(given, np.ndarray) and not given.flags.writeable:
        return words.IS_READ_ONLY, ""
    return (words.HAS_GAPS, "") if tensor_property("tensor_has_strides", tensor, 0) else None
