"""What runs programs for other machines on this one: QEMU's user mode, Node, wasmtime."""

import importlib.util
import shutil
from pathlib import Path

from sterna.support.cross import Machine, is_here
from sterna.support.toolchain import MissingToolError

# Debian's names of architectures, in those of its packages that hold C libraries.
_DEBIAN = {"aarch64": "arm64", "arm": "armhf", "riscv64": "riscv64", "x86_64": "amd64"}


def runner_for(triple: str, emulator_options: str = "") -> str:
    """The command that runs a program for another machine here, or the name of what runs a module.

    emulator_options: what the emulator must be told of the processor; a machine knows it.
    MissingToolError says what to install, or that a device is needed.
    """
    machine = Machine.of(triple)
    if is_here(triple):
        return ""
    if machine is not None and machine.system == "wasi":
        return _engine()
    if machine is None or not machine.gnu:
        raise MissingToolError("runs on a device of its own")
    emulator = f"qemu-{machine.processor}"
    if shutil.which(emulator) is None:
        raise MissingToolError(f"install {emulator} (Debian: qemu-user)")
    root = Path("/usr") / machine.gnu
    if not any(root.glob("lib*/ld-*.so*")):  # its assembler alone makes the folder too
        package = f"libc6-{_DEBIAN.get(machine.processor, machine.processor)}-cross"
        raise MissingToolError(f"install its C library in {root} (Debian: {package})")
    return " ".join([emulator, *emulator_options.split(), "-L", str(root)])


def _engine() -> str:
    """What runs WebAssembly."""
    if shutil.which("node"):
        return "node"
    if importlib.util.find_spec("wasmtime") is not None:
        return "wasmtime"
    raise MissingToolError("install Node (Debian: nodejs), or: pip install wasmtime")
