"""The Model Library Format: networks, their code and their data as one archive for firmware.

    metadata.json                            what is in the archive, and what memory it takes
    codegen/host/src/<name>_lib0.c           the code of a network built for the target c
    codegen/host/lib/<name>_lib0.o           the same of one built for llvm
    codegen/host/include/tvmgen_<name>.h     how a program calls it, where it has a C interface
    executor-config/graph/<name>.graph       the graph of a network that is one
    parameters/<name>.params                 its constants
    src/<name>.relay                         what it was built from
    runtime/                                 what it needs in order to run: the runtime's sources
"""

import datetime
import json
import math
import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.driver.aot_factory import AOTExecutorFactoryModule, AOTProgram
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.driver.files import plain_member, write_object
from sterna.driver.operator_module import OperatorModule
from sterna.runtime.params import save_param_dict
from sterna.support import native
from sterna.support.dtype import DataType
from sterna.support.options import options
from sterna.support.write_aside import write_aside

VERSION = 7
DEVICE = 1
"""The processor, among devices."""

Network = GraphExecutorFactoryModule | AOTProgram


class UnsupportedInModelLibraryFormatError(Exception):
    """A module has code that no archive of this kind can hold."""


def export_model_library_format(
    mods: Network | OperatorModule | Sequence[Network], file_name: str | os.PathLike[str]
) -> Path:
    """Write a network, several of them, or a module of functions to an archive."""
    path = Path(file_name)
    networks = list(mods) if isinstance(mods, list | tuple) else [mods]
    if not networks:
        raise ValueError("there is nothing to export: the list of networks is empty")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(networks[0], OperatorModule):
            metadata = _write_operator(networks, folder)
        else:
            metadata = {"modules": _write_networks(networks, folder), "version": VERSION}
        (folder / "metadata.json").write_text(json.dumps(metadata, indent=2, sort_keys=True))
        write_aside(path, lambda aside: _pack(aside, folder))
    return path


# ---- networks ----


def _write_networks(networks: Sequence[Any], folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for network in networks:
        if not isinstance(network, Network):
            raise TypeError(
                f"an archive holds what relay.build gives, or one module that build gives; "
                f"{type(network).__name__} is neither"
            )
        name = network.libmod_name
        if name in described:
            raise ValueError(f"two networks are named {name}: build one with another mod_name=")
        _write_code(network.lib, folder, f"{name}_lib0")
        _write(folder / "src" / f"{name}.relay", str(network.ir_mod))
        if network.params:
            _write(folder / "parameters" / f"{name}.params", save_param_dict(network.params))
        if isinstance(network, AOTProgram):
            described[name] = _describe_program(network, folder)
        else:
            described[name] = _describe_graph(network, folder)
    return described


def _describe_program(program: AOTProgram, folder: Path) -> dict[str, Any]:
    interface = program.interface
    if program.has_header:
        header = folder / "codegen" / "host" / "include" / f"tvmgen_{interface.name}.h"
        _write(header, program.get_c_header())
    report = program.memory_report()
    main = {
        "device": DEVICE,
        "workspace_size_bytes": report.workspace_bytes,
        "constants_size_bytes": report.constant_bytes,
        "io_size_bytes": report.input_bytes + report.output_bytes,
        "inputs": _operands(program.inputs),
        "outputs": _operands(program.outputs),
    }
    memory = {"functions": _functions(main, program.operator_workspaces)}
    described = _described(program, "aot", memory)
    if program.has_header:
        described["interface"] = {
            "inputs": _members(program.inputs, interface.members(interface.inputs, "inputs")),
            "outputs": _members(program.outputs, interface.members(interface.outputs, "outputs")),
            "pools": interface.given_pool_sizes(),
            "operands_in_pools": interface.holds_operands,
        }
    return described


def _members(tensors: Sequence[Any], members: Sequence[str]) -> list[dict[str, Any]]:
    """What a structure of the C interface holds, in its order."""
    return [
        {"name": t.name, "member": member, "dtype": str(t.type.dtype),
         "shape": [int(extent) for extent in t.type.shape], "size": t.bytes}
        for t, member in zip(tensors, members, strict=True)
    ]


def _describe_graph(network: GraphExecutorFactoryModule, folder: Path) -> dict[str, Any]:
    name, graph = network.libmod_name, json.loads(network.graph_json)
    _write(folder / "executor-config" / "graph" / f"{name}.graph", network.graph_json)
    for source in (native.runtime_source(), *sorted(native.include_folder().glob("*.h"))):
        _write(folder / "runtime" / source.name, source.read_bytes())
    attrs = graph["attrs"]
    first, shapes, kinds = graph["node_row_ptr"], attrs["shape"][1], attrs["dltype"][1]

    def operand(entry: int, name: str) -> tuple[str, dict[str, Any]]:
        size = DataType(kinds[entry]).bytes_of(math.prod(shapes[entry]))
        return name, {"dtype": kinds[entry], "size": size}

    nodes = graph["nodes"]
    given = [i for i in graph["arg_nodes"] if nodes[i]["name"] not in network.params]
    inputs = dict(operand(first[i], nodes[i]["name"]) for i in given)
    heads = [first[node] + index for node, index, _ in graph["heads"]]
    names = ["output"] if len(heads) == 1 else [f"output{i}" for i in range(len(heads))]
    outputs = dict(operand(entry, word) for entry, word in zip(heads, names, strict=True))
    main = {
        "device": DEVICE,
        "workspace_size_bytes": attrs["arena_bytes"][1],
        "constants_size_bytes": sum(array.nbytes for array in network.params.values()),
        "io_size_bytes": sum(row["size"] for row in (*inputs.values(), *outputs.values())),
        "inputs": inputs,
        "outputs": outputs,
    }
    notes = {kernel: note.workspace_bytes for kernel, note in network.kernel_notes.items()}
    memory = {"functions": _functions(main, notes), "sids": _storages(graph)}
    executor = "aot" if isinstance(network, AOTExecutorFactoryModule) else "graph"
    return _described(network, executor, memory)


def _storages(graph: dict[str, Any]) -> list[dict[str, int]]:
    """What the entries of a graph share: each storage with its size."""
    attrs = graph["attrs"]
    sizes: dict[int, int] = {}
    for sid, kind, shape in zip(
        attrs["storage_id"][1], attrs["dltype"][1], attrs["shape"][1], strict=True
    ):
        sizes[sid] = max(sizes.get(sid, 0), DataType(kind).bytes_of(math.prod(shape)))
    return [{"storage_id": sid, "size_bytes": size} for sid, size in sorted(sizes.items())]


def _operands(tensors: Sequence[Any]) -> dict[str, Any]:
    return {t.name: {"dtype": str(t.type.dtype), "size": t.bytes} for t in tensors}


def _functions(main: dict[str, Any], workspaces: dict[str, int]) -> dict[str, Any]:
    operators = [
        {
            "function_name": name,
            "workspace": [{"device": DEVICE, "workspace_size_bytes": size}],
        }
        for name, size in workspaces.items()
    ]
    return {"main": [main], "operator_functions": operators}


def _described(network: Network, executor: str, memory: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_name": network.libmod_name,
        "export_datetime": _now(),
        "memory": memory,
        "target": [str(network.target)],
        "executors": [executor],
        "style": "full-model",
        "external_dependencies": [],
    }


# ---- modules of functions ----


def _write_operator(modules: Sequence[Any], folder: Path) -> dict[str, Any]:
    if len(modules) > 1:
        raise ValueError("an archive holds one module of functions, or several networks")
    (module,) = modules
    _write_code(module, folder, "lib0")
    texts = [str(mod) for mod in module.ir_module_by_target.values()]
    for place, text in enumerate(texts):
        _write(folder / "src" / f"tir-{place + 1}.txt", text)
    return {
        "version": VERSION,
        "model_name": module.name,
        "export_datetime": _now(),
        "memory": {},
        "target": [str(target) for target in module.ir_module_by_target],
        "executors": [],
        "style": "operator",
    }


# ---- files ----


def _write_code(module: OperatorModule, folder: Path, stem: str) -> None:
    if module.imported_modules:
        raise UnsupportedInModelLibraryFormatError(
            f"{module.name} imports other modules, which no archive of this kind can hold; export "
            "it with export_library"
        )
    host = folder / "codegen" / "host"
    with tempfile.TemporaryDirectory() as name:
        files = module.code.write(Path(name), "code", [(module.code, {})], b"")
        suffixes = [path.suffix for path in files]
        if suffixes == [".c"]:
            _write(host / "src" / f"{stem}.c", files[0].read_bytes())
            return
        if others := sorted({*suffixes} - {".c", ".o"}):
            raise UnsupportedInModelLibraryFormatError(
                f"{module.name} is code of the kind {module.kind}, in files that end in "
                f"{', '.join(others)}; an archive of this kind holds C and object files"
            )
        output = host / "lib" / f"{stem}.o"
        output.parent.mkdir(parents=True, exist_ok=True)
        write_object(output, files, Path(name), None)


def _write(path: Path, content: str | bytes | bytearray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _now() -> str:
    """The time, or the one that a repeatable build is to show."""
    moment = datetime.datetime.fromtimestamp(options.build_time, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def _pack(output: Path, folder: Path) -> None:
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for path in (folder, *sorted(folder.rglob("*"))):
            archive.add(path, f"./{path.relative_to(folder)}", recursive=False, filter=plain_member)
