"""sterna targets: what can be compiled for here, and what is missing for the rest."""

import argparse
from typing import TYPE_CHECKING, Any

from sterna.cli.commands import COMMANDS
from sterna.cli.output import add_json, show
from sterna.runtime import device
from sterna.support import cross, toolchain
from sterna.support.table import lay_out
from sterna.target import Target, machine_of
from sterna.target.kind import TargetKind, all_kinds
from sterna.target.names import ARCHITECTURES

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

NATIVE = "llvm -mcpu=native"

# Machines that people ask for, as -mtriple names them.
MACHINES = (
    "x86_64-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf", "riscv64-linux-gnu",
    "aarch64-apple-macos", "x86_64-windows-gnu", "wasm32-wasi", "aarch64-linux-android",
)  # fmt: skip


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "targets", help=COMMANDS["targets"], description="List the kinds of targets.",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List the kinds, this machine and the tools that were found."""
    kinds = [_kind(kind) for kind in all_kinds().values()]
    data = {
        "native": _native(), "tools": _tools(), "kinds": kinds,
        "machines": [_machine(triple) for triple in MACHINES],
        "architectures": list(ARCHITECTURES),
    }  # fmt: skip
    show(options, data, lambda: _text(data))
    return 0


def _native() -> dict[str, Any]:
    machine = machine_of(Target(NATIVE))
    return {
        "target": NATIVE, "triple": machine.triple, "cpu": machine.cpu, "cores": machine.cores,
        "vector_bits": machine.vector_bits,
    }  # fmt: skip


def _tools() -> dict[str, str | None]:
    found = {"C compiler and linker": toolchain.find_c_compiler(),
             "C++ compiler": toolchain.find_cxx_compiler()}  # fmt: skip
    return {name: None if words is None else " ".join(words) for name, words in found.items()}


def _kind(kind: TargetKind) -> dict[str, Any]:
    builds = kind.codegen is not None
    return {
        "kind": kind.name, "builds": builds, "missing": _missing(kind),
        "options": kind.option_names,
    }  # fmt: skip


def _machine(triple: str) -> dict[str, Any]:
    """What links libraries for a machine, or what to install for that."""
    if cross.is_here(triple):
        words = toolchain.find_c_compiler()
        missing = None if words else "install gcc or clang, or: pip install ziglang"
        return {"triple": triple, "linker": " ".join(words or []) or None, "missing": missing}
    try:
        return {"triple": triple, "linker": cross.compiler_for(triple), "missing": None}
    except toolchain.MissingToolError as error:
        return {"triple": triple, "linker": None, "missing": str(error)}


def _missing(kind: TargetKind) -> str | None:
    """What keeps this machine from compiling for a kind and running it, if anything does."""
    if kind.codegen is None:
        return "no code generator in this version"
    if toolchain.find_c_compiler() is None:
        return "a linker, to write files: install gcc or clang, or: pip install ziglang"
    if not device(kind.device_type, 0).exist:
        return "a device, to run here"
    return None


def _text(data: dict[str, Any]) -> str:
    kinds = data["kinds"]
    native = data["native"]
    tools = [f"{name}: {words or 'not found'}" for name, words in data["tools"].items()]
    table = lay_out([
        ("Kind", [kind["kind"] for kind in kinds]),
        ("Builds", ["yes" if kind["builds"] else "no" for kind in kinds]),
        ("Missing", [kind["missing"] or "" for kind in kinds]),
    ])  # fmt: skip
    return "\n".join([
        f"This machine: {native['triple']}, {native['cpu']}, {native['cores']} cores, vectors of "
        f"{native['vector_bits']} bits ({native['target']})",
        *tools, "", table, "",
        lay_out([
            ("Machine (-mtriple)", [machine["triple"] for machine in data["machines"]]),
            ("Linked by", [m["linker"] or m["missing"] for m in data["machines"]]),
        ]),
        "",
        f"Archives (.a) need no linker. LLVM's processors: {', '.join(data['architectures'])}",
    ])  # fmt: skip
