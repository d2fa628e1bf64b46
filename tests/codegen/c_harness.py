"""Runs generated C beside the interpreter."""

import ctypes
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.codegen.c import generate
from sterna.ir import Expr, Var, const
from sterna.support import toolchain
from sterna.support.dtype import DataType
from sterna.tir import Buffer, BufferLoad, BufferStore, For, PrimFunc
from sterna.tir.memory import storage_type

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

Array = npt.NDArray[Any]

_SCALARS = {
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32,
    "int64": ctypes.c_int64, "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64, "bool": ctypes.c_uint8,
    "float16": ctypes.c_float, "bfloat16": ctypes.c_float, "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


class Host(ctypes.Structure):
    """struct sterna_host, filled with Python functions."""

    SET_ERROR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
    PARALLEL = ctypes.CFUNCTYPE(ctypes.c_int, BODY, ctypes.c_void_p, ctypes.c_int32)
    NUM_THREADS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32))
    ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("set_error", SET_ERROR),
        ("parallel", PARALLEL),
        ("num_threads", NUM_THREADS),
        ("allocate", ALLOCATE),
        ("release", RELEASE),
    )


class RecordingHost:
    """A host that runs tasks backwards and remembers what it was asked for."""

    def __init__(self, threads: int = 3) -> None:
        self.errors: list[tuple[str, str]] = []
        self.tasks: list[int] = []
        self.blocks: dict[int, Any] = {}
        self.allocated: list[int] = []
        self.threads = threads
        self.struct = Host(
            ctypes.sizeof(Host), Host.SET_ERROR(self._set_error), Host.PARALLEL(self._parallel),
            Host.NUM_THREADS(self._num_threads), Host.ALLOCATE(self._allocate),
            Host.RELEASE(self._release),
        )

    def _set_error(self, kind: bytes, message: bytes) -> int:
        self.errors.append((kind.decode(), message.decode()))
        return 0

    def _parallel(self, body: Callable[..., int], data: int, tasks: int) -> int:
        self.tasks.append(tasks)
        return min(body(task, tasks, data) for task in reversed(range(tasks)))

    def _num_threads(self, out: Any) -> int:
        out[0] = self.threads
        return 0

    def _allocate(self, size: int, alignment: int) -> int:
        block = ctypes.create_string_buffer(size + alignment)
        address = -(-ctypes.addressof(block) // alignment) * alignment
        self.blocks[address] = block
        self.allocated.append(size)
        return address

    def _release(self, address: int) -> None:
        del self.blocks[address]


class Library:
    """Functions compiled as C, called with NumPy arrays and numbers."""

    def __init__(
        self,
        functions: Sequence[PrimFunc],
        compiler: Sequence[str] | None = None,
        flags: Sequence[str] = ("-O1",),
        host: RecordingHost | None = None,
    ) -> None:
        self.source = generate(functions, "test")
        self.functions = {func.name: func for func in functions}
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder, "test.c"), Path(folder, "test.so")
            source.write_text(self.source)
            command = list(compiler or toolchain.find_c_compiler() or ())
            toolchain.run_compiler(
                [*command, *STRICT, *flags, "-shared", "-fPIC", str(source), "-o", str(output),
                 "-lm"]
            )
            self.handle = ctypes.CDLL(str(output))
        self.host = host
        if host is not None:
            slot = ctypes.c_void_p.in_dll(self.handle, "__sterna__host")
            slot.value = ctypes.addressof(host.struct)

    def __call__(self, name: str, *args: Any) -> int:
        func = self.functions[name]
        given = []
        for var, buffer, arg in zip(func.params, func.buffers, args, strict=True):
            if buffer is None:
                given.append(_SCALARS[var.dtype](arg))
            else:
                given.append(ctypes.c_void_p(arg.ctypes.data))
        status: int = getattr(self.handle, name)(*given)
        return status


def zig() -> list[str]:
    """The command of PyPI's clang."""
    return [sys.executable, "-m", "ziglang", "cc"]


def elementwise(
    name: str, compute: Callable[..., Expr], inputs: Sequence[str], output: str, count: int
) -> PrimFunc:
    """A function that computes out[i] = compute(in0[i], in1[i], ...)."""
    index = Var("i")
    shape = (const(count),)
    ins = [Buffer(f"in{at}", DataType(dtype), shape) for at, dtype in enumerate(inputs)]
    out = Buffer("out", DataType(output), shape)
    value = compute(*(BufferLoad(buffer, (index,)) for buffer in ins))
    body = For(index, const(0), const(count), "serial", BufferStore(out, value, (index,)))
    buffers = (*ins, out)
    return PrimFunc(name, tuple(buffer.data for buffer in buffers), buffers, body)


def to_bfloat16(values: Array) -> Array:
    """Floats as the bits of bfloat16, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def as_stored(values: Array, dtype: str) -> Array:
    """Values in the array type that a buffer of this type has."""
    if dtype == "bfloat16":
        return to_bfloat16(values)
    return np.asarray(values).astype(storage_type(DataType(dtype)))


def as_floats(stored: Array, dtype: str) -> Array:
    """Elements as numbers that NumPy can compare."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored
