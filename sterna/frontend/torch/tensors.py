"""Element types and tensors of PyTorch."""

from typing import Any

import ml_dtypes
import numpy as np

from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented

# What graphs have of PyTorch's types of elements.
KNOWN = frozenset({
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
    "uint16", "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz",
})


def dtype_name(dtype: Any) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def known_dtype(name: str, what: str) -> str:
    """A type of elements that graphs have."""
    if name not in KNOWN:
        raise OpNotImplemented(f"{what} of {name}")
    return name


def array_of_tensor(tensor: Any, what: str) -> Array:
    """The elements of a tensor in memory."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized:
        raise OpNotImplemented(f"{what}, which is no plain tensor")
    plain = tensor.detach().cpu().resolve_conj().contiguous()
    if tensor.dtype in (torch.complex64, torch.complex128):
        return np.asarray(plain.numpy())
    name = known_dtype(dtype_name(tensor.dtype), what)
    if getattr(ml_dtypes, name, None) is None:
        return np.asarray(plain.numpy())
    bits = plain.view(torch.uint8 if plain.element_size() == 1 else torch.int16)
    return np.asarray(bits.numpy()).view(getattr(ml_dtypes, name))
