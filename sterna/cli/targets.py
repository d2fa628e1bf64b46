"""sterna targets: what can be compiled for here, and what is missing for the rest."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sterna.cli.commands import COMMANDS
from sterna.cli.output import add_json, show
from sterna.isa import instruction_sets, spelled
from sterna.runtime import device
from sterna.support import cross, toolchain
from sterna.support.emulators import runner_for
from sterna.support.table import lay_out
from sterna.target import Target, machine_of
from sterna.target.kind import TargetKind, all_kinds

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

NATIVE = "llvm -mcpu=native"

# Machines that people ask for, as -mtriple names them.
MACHINES = (
    "x86_64-linux-gnu", "aarch64-linux-gnu", "armv7l-linux-gnueabihf", "riscv64-linux-gnu",
    "wasm32-wasi",
    "aarch64-linux-android", "armv7a-linux-androideabi", "x86_64-linux-android",
    "aarch64-apple-macos", "x86_64-apple-macos", "x86_64-windows-gnu", "hexagon-unknown-elf",
    "thumbv7em-none-eabi",
)


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "targets", help=COMMANDS["targets"], description="List the kinds of targets.",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List the kinds, this machine and the tools that were found."""
    kinds = [_kind(kind) for kind in all_kinds().values()]
    data = {
        "native": _native(), "tools": _tools(), "kinds": kinds,
        "devices": _devices(),
        "machines": [_machine(options) for triple in MACHINES for options in _ways(triple)],
        "architectures": list(instruction_sets()),
    }
    show(options, data, lambda: _text(data))
    return 0


def _native() -> dict[str, Any]:
    machine = machine_of(Target(NATIVE))
    return {
        "target": NATIVE, "triple": machine.triple, "cpu": machine.cpu, "cores": machine.cores,
        "vector_bits": machine.vector_bits,
    }


def _devices() -> list[dict[str, Any]]:
    """The GPUs that this machine has, by the kinds of targets that can be built for them."""
    found: list[dict[str, Any]] = []
    kinds = [kind for kind in all_kinds().values() if kind.codegen and "gpu" in kind.default_keys]
    by_device = {kind.device_type: kind for kind in reversed(kinds)}
    for kind in reversed(by_device.values()):
        index = 0
        while True:
            here = device(kind.device_type, index)
            if not here.exist:
                break
            found.append({
                "device": f"{kind.name}({index})", "name": here.device_name,
                "driver": here.driver_version, "memory_bytes": here.total_global_memory,
            })
            index += 1
    return found


def _tools() -> dict[str, str | None]:
    found = {"C compiler and linker": toolchain.find_c_compiler(),
             "C++ compiler": toolchain.find_cxx_compiler()}
    return {name: None if words is None else " ".join(words) for name, words in found.items()}


def _kind(kind: TargetKind) -> dict[str, Any]:
    builds = kind.codegen is not None
    return {
        "kind": kind.name, "builds": builds, "missing": _missing(kind),
        "options": kind.option_names,
    }


def _ways(triple: str) -> list[str]:
    """A machine as it is named, and with the vectors that it does not have by itself."""
    found = spelled(triple.partition("-")[0])
    vectors = "" if found is None else found[0].vectors
    return [triple, *([f"{triple} -mattr=+{vectors}"] if vectors else [])]


def _machine(options: str) -> dict[str, Any]:
    """What can be made for a machine and run here: by which tool, or what to do for that."""
    target = f"llvm -mtriple={options}"
    machine = machine_of(Target(target))
    triple, is_wasm = machine.triple, machine.object_format == "wasm"
    return {
        "target": target,
        "object": _ask(lambda: _joiner(triple)),
        "static_library": _ask(lambda: _archiver(machine.object_format)),
        "wasm_module" if is_wasm else "shared_library": _ask(lambda: _linker(triple, is_wasm)),
        "run": _ask(lambda: runner_for(triple, machine.emulator_options) or "this machine"),
    }


def _ask(find: Callable[[], str]) -> dict[str, str | None]:
    try:
        return {"by": find(), "missing": None}
    except (toolchain.MissingToolError, ValueError) as error:
        return {"by": None, "missing": str(error)}


def _joiner(triple: str) -> str:
    return _own_compiler() if cross.is_here(triple) else cross.joiner_for(triple)


def _archiver(form: str) -> str:
    return " ".join(toolchain.require_archiver(form == "elf"))


def _linker(triple: str, is_wasm: bool) -> str:
    command = cross.compiler_for(triple) if is_wasm else cross.linker_for(triple).command
    return command or _own_compiler()


def _own_compiler() -> str:
    words = toolchain.find_c_compiler()
    if words is None:
        raise toolchain.MissingToolError("install gcc or clang, or: pip install ziglang")
    return " ".join(words)


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
    ])
    return "\n".join([
        f"This machine: {native['triple']}, {native['cpu']}, {native['cores']} cores, vectors of "
        f"{native['vector_bits']} bits ({native['target']})",
        *tools, *_devices_text(data["devices"]), "", table, "",
        *_machines_text(data["machines"]), "",
        f"LLVM's processors: {', '.join(data['architectures'])}",
    ])


def _devices_text(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"{each['device']}: {each['name']}, {(each['memory_bytes'] or 0) >> 20} MiB, driver "
        f"{each['driver']}"
        for each in devices
    ]


def _machines_text(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What can be made, as a table; what cannot, and why, behind it."""
    notes: list[str] = []
    rows = [_row(machine, notes) for machine in machines]
    titles = ("Target", ".o", ".a", ".so or .wasm", "Runs here under")
    table = lay_out([(title, column) for title, column in zip(titles, zip(*rows, strict=True),
                                                              strict=True)])
    return [table, *([""] if notes else []), *(f"[{i + 1}] {note}" for i, note in enumerate(notes))]


def _row(machine: Mapping[str, Any], notes: list[str]) -> tuple[str, ...]:
    library = machine.get("shared_library") or machine["wasm_module"]

    def cell(found: Mapping[str, str | None], word: str | None = "yes") -> str:
        if found["by"] is not None:
            return word or found["by"]
        if found["missing"] not in notes:
            notes.append(str(found["missing"]))
        return f"no [{notes.index(str(found['missing'])) + 1}]"

    return (
        machine["target"], cell(machine["object"]), cell(machine["static_library"]),
        cell(library), cell(machine["run"], None),
    )
