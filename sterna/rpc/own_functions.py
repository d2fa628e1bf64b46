"""The functions that every server has, by the names of docs/rpc_protocol.md and by classic ones."""

import platform
import struct
import sys
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from sterna.rpc.files import SessionFolder
from sterna.runtime import (
    Device,
    Module,
    PackedFunc,
    get_global_func,
    load_module,
    system_lib,
)
from sterna.runtime.module import this_architecture
from sterna.runtime.timing import make_evaluator
from sterna.support import toolchain
from sterna.support.plain_tar import BrokenTarError, extract, files_in, open_plain_tar
from sterna.support.seal import check_file, seal
from sterna.version import __version__

Functions = dict[str, Callable[..., Any]]


def own_functions(folder: SessionFolder) -> Functions:
    """The functions of a session over its folder."""
    functions: Functions = {
        "rpc.module_function": _module_function,
        "rpc.module_kind": lambda module: _checked(module).kind,
        "rpc.module_imports": lambda module: _checked(module).imported_modules,
        "rpc.import_module": lambda module, other: _checked(module).import_module(_checked(other)),
        "rpc.load_module": lambda name: _load(folder, name),
        "rpc.system_lib": system_lib,
        "rpc.link": lambda name: _link(folder, name),
        "rpc.upload": folder.write,
        "rpc.download": folder.read,
        "rpc.remove": folder.remove,
        "rpc.listdir": folder.names_in,
        "rpc.device_exists": lambda device: _device(device).exist,
        "rpc.device_sync": lambda device: _device(device).sync(),
        "rpc.time_evaluator": _time_evaluator,
        "rpc.server_info": _server_info,
    }

    def get_function(name: str) -> PackedFunc | None:
        own = functions.get(name)
        return get_global_func(name, allow_missing=True) if own is None else PackedFunc(own)

    functions["rpc.get_function"] = get_function
    functions |= _classic_functions(folder)
    return functions


def _classic_functions(folder: SessionFolder) -> Functions:
    def whole(name: str) -> bytes:
        return folder.read(name, 0, folder.locate(name).stat().st_size)

    named: Functions = {
        "upload": lambda name, data: folder.write(name, 0, data, True),
        "download": whole,
        "remove": folder.remove,
        "listdir": lambda name: ",".join(folder.names_in(name)),
        "load_module": lambda name: _load(folder, name),
        "download_linked_module": lambda name: whole(_link(folder, name)),
        "workpath": lambda name="": str(folder.path / name),
    }
    return {f"tvm.rpc.server.{name}": function for name, function in named.items()}


def _checked(module: Any) -> Module:
    if not isinstance(module, Module):
        raise TypeError(f"expected a module, got {type(module).__name__}")
    return module


def _device(device: Any) -> Device:
    if not isinstance(device, Device):
        raise TypeError(f"expected a device, got {type(device).__name__}")
    return device


def _module_function(module: Any, name: str, query_imports: bool) -> PackedFunc | None:
    return _checked(module)._get_function(name, query_imports)


def _time_evaluator(
    function: PackedFunc, device: Device, number: int = 10, repeat: int = 1,
    min_repeat_ms: int = 0, limit_zero_time_iterations: int = 100, cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
) -> Callable[..., Any]:
    settings = (
        number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms,
        repeats_to_cooldown,
    )
    if not isinstance(function, PackedFunc) or not all(type(n) is int for n in settings):
        raise TypeError("a function, a device and numbers were expected")
    evaluate = make_evaluator(function, _device(device), *settings)
    return lambda *args: list(evaluate(*args).results)


def _link(folder: SessionFolder, name: str) -> str:
    """The file of the shared library of what load_module takes."""
    path = folder.locate(name)
    if path.suffix not in (".tar", ".o", ".a", ".c"):
        return name
    made = Path(f"{path}.so")
    if path.suffix != ".c":
        check_file(path)
    if path.suffix == ".tar":
        _extract_library(folder, name, path, made)
    else:
        toolchain.link_shared(made, [path], finish=seal)
    return f"{name}.so"


def _extract_library(folder: SessionFolder, name: str, path: Path, made: Path) -> None:
    try:
        with open_plain_tar(path) as archive:
            library = files_in(archive).get("lib.so")
            if library is None:
                raise ValueError(f"'{name}' holds no lib.so")
            folder.require_room(library.size, made.name)
            extract(archive, library, made)
    except BrokenTarError as error:
        raise ValueError(f"cannot link '{name}': {error}") from None


def _load(folder: SessionFolder, name: str) -> Module:
    """An uploaded file, loaded; what it holds is unpacked aside meanwhile, within the limit."""
    path = folder.locate(name)
    if path.suffix == ".tar":
        folder.require_room(path.stat().st_size, f"what '{name}' holds")
    return load_module(path)


def _server_info() -> list[list[Any]]:
    machine = platform.machine().lower()
    return [
        ["version", __version__],
        ["machine", {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)],
        ["system", sys.platform],
        ["pointer_bits", 8 * struct.calcsize("P")],
        ["architecture", list(astuple(this_architecture()))],
    ]
