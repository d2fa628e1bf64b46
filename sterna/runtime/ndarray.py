"""Arrays: dense tensors on a device, exchanged by DLPack without a copy."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sterna.runtime import _core
from sterna.runtime.device import Device, cpu, cuda, device, opencl
from sterna.support import element_arrays
from sterna.support.dtype import DataType
from sterna.support.float_format import is_small_float

__all__ = [
    "NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "numpyasarray", "opencl",
]

NumPyArray = npt.NDArray[Any]

_CPU = cpu(0)


@cache
def _holder(dtype: DataType) -> np.dtype[Any]:
    """The NumPy type that holds an element, or its bits where NumPy lacks the type."""
    if dtype.lanes != 1:
        raise TypeError(f"NumPy has no type for {dtype}")
    if dtype.is_packed:
        return np.dtype(np.int8 if dtype.is_int else np.uint8)
    if dtype.startswith(("float8", "bfloat")):
        return np.dtype(f"uint{dtype.bits}")
    try:
        return np.dtype(str(dtype))
    except TypeError:
        raise TypeError(f"NumPy has no type for {dtype}") from None


def _as_held(values: NumPyArray, dtype: DataType) -> NumPyArray:
    """Elements, or their bits, as NumPy holds them."""
    holder = _holder(dtype)
    if holder.name == dtype:
        if not np.can_cast(values.dtype, holder):
            expect_fits(values, dtype)
        return values
    if values.dtype.name == dtype:  # of ml_dtypes, which gives each element its own bytes
        return values.astype(holder) if dtype.is_integer else values.view(holder)
    if dtype.is_integer:
        expect_fits(values, dtype)
        return values.astype(holder)
    if values.dtype.kind == "f":
        return element_arrays.encode(values, dtype)
    if values.dtype.kind not in "iu":
        raise TypeError(
            f"an array of {dtype} is filled from numbers with a fraction, from {dtype} or from its "
            f"bits as {holder}, not from {values.dtype}"
        )
    if values.dtype.itemsize * 8 == dtype.bits:
        return values.view(holder)
    expect_fits(values, DataType(f"uint{dtype.bits}"))
    return values.astype(holder)


def expect_fits(values: NumPyArray, dtype: DataType) -> None:
    """Refuse numbers that would wrap around in a type of integers."""
    if not dtype.is_integer or values.dtype.kind not in "iuf":
        return
    low = -1 << dtype.bits - 1 if dtype.is_int else 0
    high = low + (1 << dtype.bits)
    whole = np.trunc(values.astype(np.float64)) if values.dtype.kind == "f" else values
    inside = (whole >= low) & (whole < high)
    if not inside.all():
        raise ValueError(
            f"{values[~inside].flat[0]} does not fit in {dtype}, which holds {low} to {high - 1}")


class NDArray(_core.NDArray):
    """An array of numbers on a device."""

    __slots__ = ()

    dtype: DataType
    device: Device

    def numpy(self) -> NumPyArray:
        """A copy as a NumPy array.

        Types that NumPy lacks come as the integers of their bits (bfloat16 as uint16, float8 as
        uint8); elements of less than a byte come one to a byte.
        """
        dtype = self.dtype
        result = np.empty(self.nbytes if dtype.is_packed else self.shape, _holder(dtype))
        self._copy_to_buffer(result)
        if not dtype.is_packed:
            return result
        codes = element_arrays.unpack(result.view(np.uint8), self.size, dtype)
        if dtype.is_int:
            codes = element_arrays.signed(codes, dtype.bits)
        return codes.reshape(self.shape)

    def asnumpy(self) -> NumPyArray:
        """The classic name of numpy()."""
        return self.numpy()

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> NumPyArray:
        if copy is False:
            raise ValueError("numpy() copies; use numpy.from_dlpack(array) to share the memory")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def copyfrom(self, source: Any) -> Self:
        """Fill this array from another one, a NumPy array or anything NumPy can read.

        An NDArray must have as many bytes; anything else must have the same shape, and its
        elements are converted. For floating-point types that NumPy lacks, integers are the bits of
        the elements. Elements of less than a byte come one to a byte and are packed.
        """
        if isinstance(source, NDArray):
            self._copy_all_bytes(source)
            return self
        values = np.asarray(source)
        if values.shape != self.shape:
            raise ValueError(
                f"array shape do not match the shape of NDArray {values.shape} vs {self.shape}"
            )
        dtype = self.dtype
        held = np.ascontiguousarray(_as_held(values, dtype), _holder(dtype))
        self._copy_from_buffer(element_arrays.pack(held, dtype) if dtype.is_packed else held)
        return self

    def _copy_all_bytes(self, source: "NDArray") -> None:
        if source.nbytes != self.nbytes:
            raise ValueError(
                f"an array of shape {source.shape} and type {source.dtype} has not as many bytes "
                f"as one of shape {self.shape} and type {self.dtype}"
            )
        self._copy_from_array(source)

    def copyto(self, target: "NDArray | Device", mem_scope: str | None = None) -> "NDArray":
        """Copy into another array, or into a new one on a device."""
        if isinstance(target, Device):
            target = empty(self.shape, self.dtype, target, mem_scope)
        elif not isinstance(target, NDArray):
            raise TypeError(f"expected an NDArray or a Device, got {type(target).__name__}")
        return target.copyfrom(self)

    def __setitem__(self, index: object, value: Any) -> None:
        if index is not Ellipsis and index != slice(None):
            raise ValueError("only whole arrays can be assigned: array[:] = values")
        if isinstance(value, NDArray):
            if not self.same_as(value):
                self._copy_all_bytes(value)
        else:
            self.copyfrom(np.broadcast_to(np.asarray(value), self.shape))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def reshape(self, shape: Sequence[int]) -> "NDArray":
        """The same memory under another shape of the same size."""
        extents = tuple(shape)
        if any(extent < 0 for extent in extents) or math.prod(extents) != self.size:
            raise ValueError(f"an array of shape {self.shape} cannot have the shape {extents}")
        view: NDArray = self._view(extents, self.dtype, 0)
        return view

    def _create_view(
        self, shape: Sequence[int], dtype: str | None = None, relative_byte_offset: int = 0
    ) -> "NDArray":
        view: NDArray = self._view(shape, dtype or self.dtype, relative_byte_offset)
        return view

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the memory."""
        return self.__dlpack__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Its numbers, for pickle and copy.deepcopy, which make an array on the processor."""
        return _restored, (self.numpy(), str(self.dtype))

    def __repr__(self) -> str:
        where = f"<NDArray shape={self.shape}, {self.dtype}, {self.device}>"
        try:
            return f"{where}\n{self.numpy()!r}"
        except TypeError:
            return where


def _restored(values: NumPyArray, dtype: str) -> NDArray:
    """An array as it was pickled."""
    return empty(values.shape, dtype).copyfrom(values)


def empty(
    shape: Sequence[int] | int,
    dtype: str = "float32",
    device: Device = _CPU,
    mem_scope: str | None = None,
) -> NDArray:
    """A new array whose numbers are not set."""
    if mem_scope not in (None, "global"):
        raise ValueError(f"memory scope '{mem_scope}' is not known for {device}; use 'global'")
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    extents = (shape,) if isinstance(shape, int) else shape
    made: NDArray = _core.empty(extents, name, device)
    return made


def array(
    arr: Any, device: Device = _CPU, mem_scope: str | None = None, dtype: str | None = None
) -> NDArray:
    """A new array with a copy of these numbers, of their own type or of another."""
    if isinstance(arr, NDArray) and dtype in (None, arr.dtype):
        return empty(arr.shape, arr.dtype, device, mem_scope).copyfrom(arr)
    values = _numbers(arr) if isinstance(arr, NDArray) else np.asarray(arr)
    if values.dtype.hasobject or (values.dtype.kind in "USVmM" and values.dtype.isbuiltin == 1):
        raise TypeError(f"an array of {values.dtype} cannot be made from {type(arr).__name__}")
    return empty(values.shape, dtype or values.dtype.name, device, mem_scope).copyfrom(values)


def _numbers(array: NDArray) -> NumPyArray:
    """What an array holds, as numbers even where NumPy lacks its type."""
    held = array.numpy()
    is_bits = is_small_float(array.dtype) and array.dtype != held.dtype.name
    return element_arrays.decode(held, array.dtype) if is_bits else held


def from_dlpack(array: Any) -> NDArray:
    """An array that shares its memory with anything that speaks DLPack; nothing is copied."""
    shared: NDArray = _core.from_dlpack(array)
    return shared


def numpyasarray(values: NumPyArray) -> NDArray:
    """An array that shares its memory with a NumPy array, also of elements of ml_dtypes."""
    if values.dtype.isbuiltin == 1:
        return from_dlpack(values)
    dtype = DataType(values.dtype.name)
    if dtype.is_packed:
        raise TypeError(f"NumPy gives each {dtype} a byte, so its memory cannot be shared; copy it")
    bits: NDArray = from_dlpack(values.view(_holder(dtype)))
    return bits._create_view(values.shape, dtype)
