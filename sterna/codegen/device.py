"""Kernels for devices beside the host's code that launches them.

A device's programs are one module, which the host's module imports: host code finds kernels there
by name. runtime/gpu/kernels.h says how such modules lie in files and how kernels are called.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sterna.codegen.code import Code, KernelsCode, Members
from sterna.runtime import Module, ModulePropertyMask, _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import device
from sterna.runtime.registry import get_global_func
from sterna.support.dtype import DataType
from sterna.tir.effects import calls
from sterna.tir.passes.split_host_device import TENSOR_MAPS
from sterna.tir.stmt import PrimFunc
from sterna.tir.threads import BEGINS_EARLY

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

    kernels: tuple[tuple[str, str, str], ...]
    """Their names, their parameters, a letter for each, and lines of extras: see kernels.h."""
    source: str

    def to_bytes(self) -> bytes:
        """As runtime/gpu/kernels.h describes it."""
        content = [_number(len(self.kernels))]
        for texts in self.kernels:
            content += [_text(text) for text in texts]
        return b"".join([*content, _text(self.source)])

    @classmethod
    def of(cls, kernels: Sequence[PrimFunc], source: str) -> "DeviceProgram":
        """A program whose text is made already."""
        return cls(tuple((k.name, _letters(k), _extras(k)) for k in kernels), source)


def _letters(kernel: PrimFunc) -> str:
    maps = kernel.attrs.get(TENSOR_MAPS, {})
    return "".join(
        "m" if place in maps else _letter(kernel, param.dtype)
        for place, param in enumerate(kernel.params)
    )


def _extras(kernel: PrimFunc) -> str:
    """What a launch needs to know beside the parameters' letters."""
    maps = kernel.attrs.get(TENSOR_MAPS, {})
    early = kernel.attrs.get(BEGINS_EARLY) or calls(kernel.body, "wait_for_grids")
    lines = ["pdl"] if early else []
    return "".join(f"{line}\n" for line in [*lines, *(maps[place] for place in sorted(maps))])


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
        return _number(len(self.programs)) + b"".join(each.to_bytes() for each in self.programs)

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


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel of a graph: the host's object code, and the programs that it launches."""

    host: bytes
    programs: tuple[DeviceProgram, ...]

    def to_bytes(self) -> bytes:
        """Both as one piece, for other processes and the cache."""
        told = json.dumps([[each.kernels, each.source] for each in self.programs]).encode()
        return _number(len(told)) + told + self.host

    @classmethod
    def from_bytes(cls, packed: bytes) -> "LaunchedKernel":
        """What to_bytes packed."""
        size = int.from_bytes(packed[:8], "little")
        programs = [
            DeviceProgram(tuple((name, params, more) for name, params, more in kernels), source)
            for kernels, source in json.loads(packed[8 : 8 + size])
        ]
        return cls(packed[8 + size :], tuple(programs))


class LaunchedKernels(KernelsCode):
    """The kernels of a graph on a device, each compiled by itself."""

    def __init__(
        self, kernels: Mapping[str, bytes], text: Callable[[str], str], host: KernelsCode,
        on_device: "DeviceModule",
    ) -> None:
        super().__init__(kernels, text)
        self.host = host
        self.kind = host.kind
        self.device_modules = [on_device]

    def find(self, name: str) -> int | PackedFunc | None:
        self.host.context = self.context
        return self.host.find(name)

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        own = [(self.host, symbols) for _, symbols in members]
        return self.host.write(folder, stem, own, table)


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
