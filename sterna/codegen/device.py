"""Kernels for devices beside the host's code that launches them.

A device's programs are one module, which the host's module imports: host code finds kernels there
by name. runtime/gpu/kernels.h says how such modules lie in files and how kernels are called.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sterna.codegen.code import Code, Members
from sterna.runtime import Module, ModulePropertyMask, _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import device
from sterna.runtime.registry import get_global_func
from sterna.support.dtype import DataType
from sterna.tir.stmt import PrimFunc

_LETTERS = {
    "handle": "p", "int32": "i", "uint32": "u", "int64": "I", "uint64": "U", "float32": "f",
    "float64": "d", "int8": "b", "uint8": "B", "bool": "B", "int16": "w", "uint16": "W",
}


def _letter(kernel: PrimFunc, dtype: DataType) -> str:
    found = _LETTERS.get(str(dtype))
    if found is None:
        raise ValueError(f"{kernel.name}: a kernel takes no single value of type {dtype}")
    return found


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """Kernels that are compiled together by the device's driver."""

    kernels: tuple[tuple[str, str], ...]
    """Their names and parameters, a letter for each."""
    source: str

    @classmethod
    def of(cls, kernels: Sequence[PrimFunc], source: str) -> "DeviceProgram":
        """A program whose text is made already."""
        return cls(
            tuple((k.name, "".join(_letter(k, p.dtype) for p in k.params)) for k in kernels), source
        )


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _text(value: str) -> bytes:
    content = value.encode()
    return _number(len(content)) + content


class DeviceKernels:
    """What stands behind a module of kernels."""

    def __init__(self, kind: str, programs: Sequence[DeviceProgram]) -> None:
        self.kind = kind
        self.programs = tuple(programs)

    def to_bytes(self) -> bytes:
        """As runtime/gpu/kernels.h describes it."""
        content = [_number(len(self.programs))]
        for program in self.programs:
            content.append(_number(len(program.kernels)))
            for name, params in program.kernels:
                content += [_text(name), _text(params)]
            content.append(_text(program.source))
        return b"".join(content)

    @cached_property
    def loaded(self) -> Module:
        """The kernels as the device's back end has them."""
        if not device(self.kind).exist:
            raise RuntimeError(
                f"this machine has no {self.kind} device to run the kernels on; export_library "
                "writes them for one that has"
            )
        module: Module = get_global_func(f"ffi.Module.load_from_bytes.{self.kind}")(
            bytearray(self.to_bytes())
        )
        return module

    def find(self, name: str) -> PackedFunc | None:
        """A kernel, ready to be launched here."""
        found: PackedFunc | None = self.loaded._get_function(name, False)
        return found


class DeviceModule(Module):
    """Kernels of a device."""

    _implementation: DeviceKernels

    @classmethod
    def make(cls, kind: str, programs: Sequence[DeviceProgram]) -> "DeviceModule":
        """A module of programs."""
        made: DeviceModule = _core.make_module(cls, DeviceKernels(kind, programs))
        return made

    @property
    def kind(self) -> str:
        """The kind of device: opencl, cuda, ..."""
        return self._implementation.kind

    def get_property_mask(self) -> int:
        """What can be done with it; see ModulePropertyMask."""
        return ModulePropertyMask.BINARY_SERIALIZABLE | ModulePropertyMask.RUNNABLE

    def get_source(self, fmt: str = "") -> str:
        """The programs as text."""
        return "\n".join(program.source for program in self._implementation.programs)


class DeviceCode:
    """The host's code, and the kernels that it launches."""

    can_rename = True

    def __init__(self, host: Code, kernels: DeviceModule) -> None:
        self.host = host
        self.device_modules = [kernels]
        self.kind = host.kind
        self.names = host.names
        self.can_rename = host.can_rename

    @property
    def context(self) -> int:
        """The address of the module."""
        return self.host.context

    @context.setter
    def context(self, address: int) -> None:
        self.host.context = address

    def find(self, name: str) -> int | PackedFunc | None:
        return self.host.find(name)

    def source(self, form: str) -> str:
        return self.host.source(form)

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        own = [(self.host, symbols) for _, symbols in members]
        return self.host.write(folder, stem, own, table)
