"""The arrays of a model: what a tensor's shape, type and data say must fit together."""

from typing import Any

import numpy as np
import onnx
from onnx import SparseTensorProto, TensorProto, numpy_helper

from sterna.frontend.files import read_beside
from sterna.frontend.limits import count_of
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")

# Types whose elements lie in a field of a wider type; the rest have a field of their own.
_FIELD_OF: dict[int, str] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data", TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def element_type(number: int, what: str) -> str:
    """The name of an element type that graphs compute with."""
    if number not in TensorProto.DataType.values() or number == TensorProto.UNDEFINED:
        raise ValueError(f"{what} has the element type {number}, which ONNX lacks")
    if number in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        kind = TensorProto.DataType.Name(number).lower()
        raise OpNotImplemented(f"{what} holds elements of type {kind}")
    return str(onnx.helper.tensor_dtype_to_np_dtype(number))


def array_of(tensor: TensorProto, what: str, folder: str | None) -> Array:
    """A tensor's elements; folder is where a model's data in files may lie."""
    element_type(tensor.data_type, what)
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = _bits(tensor.data_type, kind)
    count = count_of(tensor.dims, bits, what)
    if tensor.HasField("segment"):
        raise ValueError(f"{what} is a part of a larger tensor; ONNX has no such files any more")
    held = [name for name in _FIELDS if len(getattr(tensor, name))]
    if tensor.data_location == TensorProto.EXTERNAL:
        if held or tensor.raw_data:
            raise ValueError(f"{what} has data both in the model and in a file")
        raw = _external(tensor, -(-count * bits // 8), what, folder)
        return _from_bytes(tensor, raw, kind, count, bits, what)
    if tensor.HasField("raw_data") and not held:
        return _from_bytes(tensor, tensor.raw_data, kind, count, bits, what)
    wanted = _FIELD_OF.get(tensor.data_type, "int32_data")
    if tensor.raw_data or held not in ([], [wanted]):
        both = ", ".join([*held, *(["raw_data"] if tensor.raw_data else [])])
        raise ValueError(f"{what} is of type {kind} and has its data in {both}")
    numbers = getattr(tensor, wanted)
    expected = -(-count * bits // 8) if bits in (2, 4) else count
    if len(numbers) != expected:
        raise ValueError(
            f"{what} has the shape {list(tensor.dims)}, of {expected} numbers in {wanted}, "
            f"where there are {len(numbers)}"
        )
    if wanted in ("int32_data", "uint64_data"):
        _expect_range(np.asarray(numbers), tensor.data_type, kind, what)
    return numpy_helper.to_array(tensor)


def _bits(number: int, kind: "np.dtype[Any]") -> int:
    """What an element takes; small ones lie in the bits of bytes."""
    return _PACKED.get(number, 8 * kind.itemsize)


_PACKED: dict[int, int] = {
    TensorProto.UINT4: 4, TensorProto.INT4: 4, TensorProto.FLOAT4E2M1: 4,
    TensorProto.UINT2: 2, TensorProto.INT2: 2,
    TensorProto.FLOAT6E2M3: 6, TensorProto.FLOAT6E3M2: 6,
}


def _from_bytes(
    tensor: TensorProto, raw: bytes | memoryview, kind: "np.dtype[Any]", count: int, bits: int,
    what: str,
) -> Array:
    wanted = -(-count * bits // 8)
    if len(raw) != wanted:
        raise ValueError(
            f"{what} has the shape {list(tensor.dims)} and type {kind}, {wanted} bytes; its data "
            f"has {len(raw)}"
        )
    if kind == np.bool_:
        return np.not_equal(np.frombuffer(raw, np.uint8), 0).reshape(tuple(tensor.dims))
    if kind.isbuiltin == 1:
        held = np.frombuffer(raw, kind.newbyteorder("<")).astype(kind, copy=False)
        return held.reshape(tuple(tensor.dims))
    inside = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=bytes(raw))
    return numpy_helper.to_array(inside)


def _expect_range(numbers: Array, number: int, kind: "np.dtype[Any]", what: str) -> None:
    """Numbers in a field of a wider type are of their own type."""
    if not numbers.size:
        return
    if kind.kind == "b":
        low, high = 0, 1
    elif kind.isbuiltin == 1 and kind.kind in "iu":
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    else:  # the bits of an element, or of several in a byte
        low, high = (-128, 255) if _bits(number, kind) <= 8 else (-32768, 65535)
    least, most = int(numbers.min()), int(numbers.max())
    if least < low or most > high:
        raise ValueError(f"{what} is of type {kind} and holds {least if least < low else most}")


# ---- data in files ----


def _external(tensor: TensorProto, size: int, what: str, folder: str | None) -> bytes | memoryview:
    """The bytes of a tensor that lie in a file of the model's folder."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    if not all(isinstance(value, str) for value in given.values()):
        raise ValueError(f"{what} has its data in a file whose name or place is no text")
    if folder is None:
        raise ValueError(
            f"{what} has its data in the file '{given.get('location', '')}'; give from_onnx the "
            "model's path, or load the model with its data"
        )
    offset = _number(given, "offset", 0, what)
    length = _number(given, "length", size, what)
    if length != size:
        raise ValueError(
            f"{what} has the shape {list(tensor.dims)}, {size} bytes; its length in the file is "
            f"{length}"
        )
    return read_beside(given.get("location", ""), folder, offset, length, what)


def _number(given: dict[str, str], key: str, default: int, what: str) -> int:
    text = given.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{what}: the {key} of its data is '{text}'")
    return int(text)


# ---- sparse tensors ----


def dense_of(sparse: SparseTensorProto, what: str, folder: str | None) -> Array:
    """All elements of a sparse tensor."""
    values = array_of(sparse.values, f"{what} (values)", folder)
    places = array_of(sparse.indices, f"{what} (indices)", folder)
    dims = tuple(sparse.dims)
    count = count_of(dims, 8 * values.itemsize, what)
    stored = len(values) if values.ndim == 1 else -1
    if places.dtype != np.int64 or places.shape not in ((stored,), (stored, len(dims))):
        raise ValueError(
            f"{what} has values of shape {values.shape} and indices of shape {places.shape} and "
            f"type {places.dtype}"
        )
    if count * values.itemsize > max(LARGEST_SPARSE, 64 * values.nbytes):
        raise ValueError(f"{what} would be {count} elements of which {stored} are given")
    if places.ndim == 2 and stored:
        inside = (places >= 0) & (places < np.array(dims, "int64"))
        if not inside.all():
            raise ValueError(f"{what} has an index outside its shape {dims}")
        places = np.ravel_multi_index(tuple(places.T), dims)
    if stored and not ((places >= 0) & (places < count)).all():
        raise ValueError(f"{what} has an index outside its shape {dims}")
    made = np.zeros(count, values.dtype)
    made[places.reshape(-1)] = values
    return made.reshape(dims)


# What a sparse tensor may become when few of its elements are given.
LARGEST_SPARSE = 1 << 28
