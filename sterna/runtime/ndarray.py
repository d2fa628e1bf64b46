"""Arrays."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sterna.runtime import _core
from sterna.runtime.device import Device, cpu, cuda, device, opencl
from sterna.support.dtype import DataType

__all__ = [
    "NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "numpyasarray", "opencl",
]  # fmt: skip

NumPyArray = npt.NDArray[Any]

_CPU = cpu(0)


def _holder(dtype: DataType) -> np.dtype[Any]:
    """The NumPy type that holds the elements' bits; NumPy itself lacks the newer ones."""
    if dtype.lanes != 1:
        raise TypeError(f"NumPy has no type for {dtype}")
    if dtype.bits % 8:
        return np.dtype(np.uint8)
    if dtype.startswith(("float8", "bfloat")):
        return np.dtype(f"uint{dtype.bits}")
    try:
        return np.dtype(str(dtype))
    except TypeError:
        raise TypeError(f"NumPy has no type for {dtype}") from None


def _unpack(packed: NumPyArray, shape: tuple[int, ...], dtype: DataType) -> NumPyArray:
    """Elements of 1, 2 or 4 bits, several to a byte with the first one lowest, as bytes."""
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bits
    mask = (1 << dtype.bits) - 1
    elements = ((packed[:, None] >> shifts) & mask).reshape(-1)[: int(np.prod(shape))]
    if dtype.startswith("int"):
        sign = 1 << (dtype.bits - 1)
        elements = (elements ^ sign).astype(np.int8) - np.int8(sign)
    return elements.reshape(shape)


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
        holder = _holder(dtype)
        if dtype.bits % 8:
            if 8 % dtype.bits:
                raise TypeError(f"NumPy has no type for {dtype}")
            packed = np.empty(self.nbytes, np.uint8)
            self._copy_to_buffer(packed)
            return _unpack(packed, self.shape, dtype)
        result = np.empty(self.shape, holder)
        self._copy_to_buffer(result)
        return result

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
        elements are converted. For types that NumPy lacks, integers are the bits of the elements.
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
        if dtype.bits % 8:
            raise TypeError(f"NumPy has no type for {dtype}, so it cannot be copied from NumPy")
        holder = _holder(dtype)
        if holder.name != dtype:
            if values.dtype.name == dtype:
                values = values.view(holder)
            elif values.dtype.kind not in "iu":
                raise TypeError(
                    f"an array of {dtype} is filled from {dtype} or from its bits as {holder}, "
                    f"not from {values.dtype}"
                )
        self._copy_from_buffer(np.ascontiguousarray(values, holder))
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

    def __repr__(self) -> str:
        where = f"<NDArray shape={self.shape}, {self.dtype}, {self.device}>"
        try:
            return f"{where}\n{self.numpy()!r}"
        except TypeError:
            return where


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


def array(arr: Any, device: Device = _CPU, mem_scope: str | None = None) -> NDArray:
    """A new array with a copy of these numbers."""
    if isinstance(arr, NDArray):
        return empty(arr.shape, arr.dtype, device, mem_scope).copyfrom(arr)
    values = np.asarray(arr)
    if values.dtype.hasobject or (values.dtype.kind in "USVmM" and values.dtype.isbuiltin == 1):
        raise TypeError(f"an array of {values.dtype} cannot be made from {type(arr).__name__}")
    return empty(values.shape, values.dtype.name, device, mem_scope).copyfrom(values)


def from_dlpack(array: Any) -> NDArray:
    """An array that shares its memory with anything that speaks DLPack; nothing is copied."""
    shared: NDArray = _core.from_dlpack(array)
    return shared


def numpyasarray(values: NumPyArray) -> NDArray:
    """An array that shares its memory with a NumPy array."""
    return from_dlpack(values)
