"""The stand-in for NVIDIA's driver, from Python: what was called, kernels of the host, failures."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
)
_kept: list[Any] = []

library = ctypes.CDLL("libcuda.so.1")
library.standin_calls.restype = ctypes.c_char_p
library.standin_left.restype = ctypes.c_int64


def calls(*beginnings: str) -> list[str]:
    """What was called since the last question; with beginnings only those calls."""
    lines: list[str] = library.standin_calls().decode().splitlines()
    return [line for line in lines if line.startswith(beginnings or "")]


def fail(function: str, code: int, after: int = 0) -> None:
    """Let a call of a function of the driver fail."""
    library.standin_fail(function.encode(), code, after)


def define(name: str, kernel: Callable[["Arguments"], None]) -> None:
    """Let kernels of a name do this."""
    made = _KERNEL(lambda values, grid, block: kernel(Arguments(values)))
    _kept.append(made)
    library.standin_define(name.encode(), made)


class Arguments:
    """The arguments of a launch."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def number(self, place: int, kind: Any = ctypes.c_int32) -> Any:
        """A number among them."""
        return kind.from_address(self.values[place]).value

    def array(self, place: int, shape: Sequence[int], dtype: str = "float32") -> npt.NDArray[Any]:
        """The memory that an address among them, or the first word of a tensor map, points to."""
        address = ctypes.c_uint64.from_address(self.values[place]).value
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        return np.frombuffer(memory, np.dtype(dtype)).reshape(shape)
