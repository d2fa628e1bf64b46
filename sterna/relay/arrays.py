"""Arrays in a graph: NumPy's in and out, compared and saved with the nodes that hold them.

NumPy lacks the newer element types; ml_dtypes adds them, so that every operator's reference works
on bfloat16, float8 and int4 as it does on float32.
"""

import base64
import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from sterna.ir.leaves import Leaf, register_leaf
from sterna.runtime import NDArray, cpu
from sterna.runtime.ndarray import array, empty, numpyasarray
from sterna.support.dtype import DataType
from sterna.support.mapped_file import give_back, is_mapped, move_to_file
from sterna.support.numpy_dtype import numpy_dtype as numpy_dtype

Array = npt.NDArray[Any]
# Where kernels want arrays to begin.
BOUNDARY = 64
HOST = cpu(0)
# Folded constants of this size are moved to files: packing makes others of them.
MOVED_BYTES = 16 << 20


def float_info(dtype: str) -> Any:
    """What NumPy's finfo tells about a type of floats."""
    return ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]


def to_numpy(value: NDArray) -> Array:
    """The elements as NumPy's numbers, also of types that NumPy lacks."""
    raw = value.numpy()
    wanted = numpy_dtype(value.dtype)
    if raw.dtype == wanted:
        return raw
    kind = DataType(value.dtype)
    return raw.astype(wanted) if kind.bits < 8 and kind.is_integer else raw.view(wanted)


def shared_numpy(value: NDArray) -> Array:
    """The elements as NumPy's numbers, not to be written to: they may be the array's own."""
    return np.from_dlpack(value) if _is_shared(value.dtype) else to_numpy(value)


@cache
def _is_shared(dtype: str) -> bool:
    """Whether NumPy takes arrays of a type as they lie."""
    return getattr(ml_dtypes, str(dtype), None) is None and dtype != "bool"


def raw_bytes(value: NDArray) -> Array:
    """The bytes of the elements, one after the other."""
    return np.ascontiguousarray(shared_numpy(value)).reshape(-1).view(np.uint8)


def same_elements(a: NDArray, b: NDArray) -> bool:
    """Whether two arrays are the same to the last bit."""
    if a is b:
        return True
    alike = a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape)
    return alike and np.array_equal(raw_bytes(a), raw_bytes(b))


def handed_on(value: NDArray) -> Array:
    """The elements of an array that is let go: its own memory, where nobody else holds that."""
    return shared_numpy(value) if value.is_sole and value.device == HOST else to_numpy(value)


def on_host(value: "Array | NDArray") -> Array:
    """The elements of an array that may lie on a device."""
    return to_numpy(value) if isinstance(value, NDArray) else value


def from_numpy(value: Array, dtype: str | None = None) -> NDArray:
    """An array of the runtime with these numbers, converted to a type if one is given."""
    kind = DataType(str(value.dtype) if dtype is None else dtype)
    wanted = numpy_dtype(kind)
    numbers = value if value.dtype == wanted else value.astype(wanted)
    if getattr(ml_dtypes, str(kind), None) is None:
        if not numbers.flags.c_contiguous:  # its numbers in order are a copy already
            return numpyasarray(np.ascontiguousarray(numbers))
        return array(numbers)
    made = empty(numbers.shape, kind)
    bits = numbers.astype(np.int8) if kind.startswith(("int", "uint")) else numbers
    held = bits if kind.bits < 8 else bits.view(f"uint{kind.bits}")
    made.copyfrom(np.asarray(held, order="C"))
    return made


def from_weights(value: Array) -> NDArray:
    """The same, over the same memory where that is mapped from a file and lies as kernels want."""
    address = value.ctypes.data
    if value.flags.c_contiguous and address % BOUNDARY == 0 and is_mapped(address):
        return numpyasarray(value)
    return from_numpy(value)


def from_folded(value: Array, dtype: str) -> NDArray:
    """An array with numbers that passes have computed; large ones lie in a file until read."""
    large = value.nbytes >= MOVED_BYTES and str(value.dtype) == dtype and value.dtype.isbuiltin == 1
    moved = move_to_file(np.ascontiguousarray(value).data.cast("B")) if large else None
    if moved is None:
        return from_numpy(value, dtype)
    return numpyasarray(np.frombuffer(moved, value.dtype).reshape(value.shape))


def let_go(value: NDArray) -> None:
    """Say that an array will hardly be read any more, so that what a file has leaves memory."""
    give_back(value.data_ptr(), value.nbytes)


def _to_bytes(value: NDArray) -> bytes:
    return f"{value.dtype}{list(value.shape)}".encode() + value.numpy().tobytes()


def _to_json(value: NDArray) -> dict[str, Any]:
    data = base64.b64encode(value.numpy().tobytes()).decode()
    return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}


def _from_json(saved: dict[str, Any]) -> NDArray:
    kind = DataType(saved["dtype"])
    shape = tuple(saved["shape"])
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"the shape {shape} is not one of whole numbers")
    raw = base64.b64decode(saved["data"], validate=True)
    held = empty((0,), kind).numpy().dtype
    if len(raw) != math.prod(shape) * held.itemsize:  # before anything of that size is made
        raise ValueError(f"{len(raw)} bytes for an array of shape {shape} and type {kind}")
    made = empty(shape, kind)
    made.copyfrom(np.frombuffer(raw, held).reshape(shape))
    return made


register_leaf(Leaf(NDArray, "array", _to_bytes, _to_json, _from_json))
