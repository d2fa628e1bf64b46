"""Compiled functions for the tensors of other frameworks."""

from collections.abc import Callable
from typing import Any

from sterna.runtime import PackedFunc
from sterna.runtime.ndarray import from_dlpack


def convert_func(
    tvm_func: PackedFunc, tensor_type: type, to_dlpack_func: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A function that takes tensors of a type, which to_dlpack_func gives to others."""

    def converted(*args: Any) -> Any:
        return tvm_func(*(
            from_dlpack(to_dlpack_func(each)) if isinstance(each, tensor_type) else each
            for each in args
        ))

    return converted


def to_pytorch_func(tvm_func: PackedFunc) -> Callable[..., Any]:
    """The function itself: compiled functions take PyTorch's tensors, without copies."""
    return lambda *args: tvm_func(*args)
