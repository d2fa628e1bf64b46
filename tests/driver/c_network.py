"""Networks in C: compiled strictly, loaded into this process, called with watched memory."""

import ctypes
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import require_module, require_program

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
C_INTERFACE = {"unpacked-api": True, "interface-api": "c"}
GUARD = 64
"""Bytes behind each piece of memory that nothing may touch."""


def gcc() -> list[str]:
    """GNU's compiler."""
    return [require_program("gcc")]


def clang() -> list[str]:
    """LLVM's compiler."""
    return [require_program("clang")]


def zig() -> list[str]:
    """Zig's compiler of C."""
    require_module("ziglang")
    return [sys.executable, "-m", "ziglang", "cc"]


COMPILERS: dict[str, Callable[[], list[str]]] = {"gcc": gcc, "clang": clang, "zig": zig}


def compile_strictly(
    compiler: list[str], source: Path, output: Path, options: Sequence[str] = ("-O1",)
) -> None:
    """Compile a file, as a library if it is to be one; a warning is a failure."""
    kind = ["-shared", "-fPIC"] if output.suffix == ".so" else ["-c"]
    tail = ["-lm"] if output.suffix == ".so" else []
    command = [*compiler, *STRICT, *options, *kind, str(source), "-o", str(output), *tail]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Memory:
    """A piece of memory at an address that a number divides, with bytes behind it as a guard."""

    def __init__(self, size: int, alignment: int, content: bytes = b"") -> None:
        self.raw = np.full(size + alignment + GUARD, 0xA5, np.uint8)
        self.start = -self.raw.ctypes.data % alignment
        self.size = size
        self.bytes[: len(content)] = np.frombuffer(content, np.uint8)

    @property
    def bytes(self) -> Any:
        return self.raw[self.start : self.start + self.size]

    @property
    def address(self) -> int:
        return int(self.raw.ctypes.data + self.start)

    def check(self) -> None:
        """Nothing wrote behind it."""
        assert (self.raw[self.start + self.size :][:GUARD] == 0xA5).all()


class CNetwork:
    """A network in C, compiled into this process."""

    def __init__(self, built: Any, folder: Path, compiler: str = "gcc") -> None:
        self.built, self.interface = built, built.interface
        name = self.interface.prefix
        source, library = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(built.get_lib().get_source())
        compile_strictly(COMPILERS[compiler](), source, library)
        self.library = ctypes.CDLL(str(library))
        own = self.interface.pools if self.interface.has_pools else ()
        self.memory = [Memory(pool.bytes, self.interface.alignment) for pool in own]
        self.memory += [
            Memory(pool.bytes, self.interface.constant_alignment, bytes(pool.data or b""))
            for pool in self.interface.constant_pools
        ]

    def function(self, word: str) -> Any:
        return getattr(self.library, f"{self.interface.prefix}_{word}")

    def pools(self) -> list[Any]:
        """The last argument, if there is one."""
        return [_table([m.address for m in self.memory])] if self.memory else []

    def __call__(self, inputs: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """The outputs, which are like some arrays."""
        held = [np.require(array, requirements=["C", "W"]) for array in inputs]
        if self.interface.holds_operands:
            made = self._through_pools(held, like)
        else:
            made = [np.full_like(array, 77, order="C") for array in like]
            tables = [_table([array.ctypes.data for array in group]) for group in (held, made)]
            assert self.function("run")(*tables, *self.pools()) == 0
        for memory in self.memory:
            memory.check()
        return made

    def _through_pools(self, inputs: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        for array, address in zip(inputs, self._map("inputs", len(inputs)), strict=True):
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
        assert self.function("run")(*self.pools()) == 0
        made = [np.empty_like(array, order="C") for array in like]
        for array, address in zip(made, self._map("outputs", len(like)), strict=True):
            ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return made

    def _map(self, what: str, count: int) -> list[int]:
        function = self.function(f"map_{what}")

        class Addresses(ctypes.Structure):
            _fields_ = [(f"a{place}", ctypes.c_void_p) for place in range(max(1, count))]

        function.restype = Addresses
        found = function(*self.pools())
        return [getattr(found, f"a{place}") for place in range(count)]


def _table(addresses: Sequence[int]) -> Any:
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
