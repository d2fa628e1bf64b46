"""Parameters as bytes, in the classic format."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from sterna.runtime import ndarray
from sterna.runtime.ndarray import NDArray
from sterna.runtime.registry import get_global_func

FILE_MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
CPU = (1, 0)


def _as_array(name: str, value: Any) -> NDArray:
    if not isinstance(name, str):
        raise TypeError(f"a parameter is named by text, not by {name!r}")
    try:
        return value if isinstance(value, NDArray) else ndarray.array(value)
    except TypeError as error:
        raise TypeError(f"parameter '{name}': {error}") from None


def _array_head(array: NDArray) -> bytes:
    dtype = array.dtype
    # The classic bool is an unsigned integer of one bit that takes a byte.
    code, bits = (1, 1) if dtype.is_bool else (dtype.type_code, dtype.bits)
    shape = array.shape
    return struct.pack(
        f"<QQiiiBBH{len(shape)}qq", ARRAY_MAGIC, 0, *CPU, len(shape), code, bits, dtype.lanes,
        *shape, array.nbytes,
    )


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """The bytes of named arrays: NDArrays, NumPy arrays, or anything that NumPy can read."""
    arrays = {name: _as_array(name, value) for name, value in params.items()}
    names = [name.encode() for name in arrays]
    parts: list[bytes | NDArray] = [struct.pack("<QQQ", FILE_MAGIC, 0, len(arrays))]
    parts += [struct.pack("<Q", len(name)) + name for name in names]
    parts.append(struct.pack("<Q", len(arrays)))
    for array in arrays.values():
        parts += [_array_head(array), array]
    made = bytearray(sum(len(p) if isinstance(p, bytes) else p.nbytes for p in parts))
    at = 0
    for part in parts:
        size = len(part) if isinstance(part, bytes) else part.nbytes
        if isinstance(part, bytes):
            made[at : at + size] = part
        elif size:
            part._copy_to_buffer(np.frombuffer(made, np.uint8, size, at))
        at += size
    return made


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, NDArray]:
    """The arrays that save_param_dict wrote; a ValueError says what is wrong with other bytes."""
    if not isinstance(param_bytes, bytes | bytearray):
        raise TypeError(f"parameters are loaded from bytes, not from {type(param_bytes).__name__}")
    return dict(get_global_func("sterna.load_params")(param_bytes))
