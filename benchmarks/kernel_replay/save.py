"""Compiles every kernel of networks for machines, each once, and keeps what came out."""

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel_replay.kernels import CodeOf, code_text, record_kernel
from kernel_replay.layers import LAYERS
from kernel_replay.records import CallRecord, Folder, NetworkRecord, digest_of

from sterna.driver import relay_build
from sterna.frontend.open_shapes import OpenShapeError
from sterna.ir.serialize import save_json
from sterna.ir.transform import PassContext
from sterna.lowering.work import work_of
from sterna.model.import_model import Graph, import_model
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Call, Constant, Function
from sterna.relay.traverse import not_primitive, post_order
from sterna.support.fingerprint import fingerprint
from sterna.target import Target
from sterna.tir.stmt import PrimFunc

LAYER = "layer-"
"""What the names of single layers begin with."""


@dataclass(frozen=True)
class Task:
    """A network that is to be compiled for a machine."""

    folder: Path
    machine: str
    target: str
    network: str
    file: Path | None
    """The ONNX file; None for a layer."""
    shapes: Mapping[str, Sequence[int]] | None
    with_code: bool
    like: Path | None
    """A folder that has the code of kernels with the same loops."""


@dataclass(frozen=True)
class Done:
    """What came of a task."""

    task: Task
    kernels: int
    """Distinct kernels of the network."""
    compiled: int
    """Those that were not in the folder yet."""
    failed: int
    error: str
    seconds: float


def save(tasks: Sequence[Task], jobs: int) -> Iterator[Done]:
    """Do all tasks, those of one network one after the other."""
    for folder in {task.folder for task in tasks}:
        Folder(folder).claim(fingerprint())
    if jobs == 1:
        yield from map(replay, tasks)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(replay, tasks)


def replay(task: Task) -> Done:
    """Compile a network's kernels that are not in the folder yet."""
    start = time.perf_counter()
    folder = Folder(task.folder)
    known = folder.network(task.machine, task.network)
    if known is not None and not known.error and _is_whole(known, task, folder):
        distinct = len({call.function for call in known.calls})
        return Done(task, distinct, 0, 0, "", time.perf_counter() - start)
    target = Target(task.target)
    with PassContext(opt_level=3):
        try:
            calls = list(kernel_calls(*graph_of(task), target))
        except Exception as error:  # what does not compile is a finding too
            told = f"{type(error).__name__}: {error}"
            folder.put_network(task.machine, task.network, NetworkRecord(error=told))
            return Done(task, 0, 0, 0, told, time.perf_counter() - start)
        functions = {record.function: function for record, function in calls}
        code_of = _code_by(task, target) if task.with_code else None
        compiled = failed = 0
        for digest, function in functions.items():
            if not _is_known(digest, task, folder):
                made = record_kernel(function, target, folder, code_of)
                folder.put_kernel(task.machine, digest, made)
                compiled += 1
                failed += bool(made.error)
    record = NetworkRecord(tuple(record for record, _ in calls))
    folder.put_network(task.machine, task.network, record)
    return Done(task, len(functions), compiled, failed, "", time.perf_counter() - start)


def kernel_calls(
    mod: Any, params: Mapping[str, Any], target: Target
) -> Iterator[tuple[CallRecord, Function]]:
    """The calls of kernels in a network after all passes over graphs."""
    optimized, _ = relay_build.optimize(mod, target, params)
    for expr in post_order(optimized["main"], not_primitive):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            function = expr.op
            yield CallRecord(
                function=digest_of(save_json(function).encode()),
                result=repr(function.body.checked_type),
                flops=work_of(function).flops,
                constants=_constants(expr),
            ), function


def _code_by(task: Task, target: Target) -> CodeOf:
    """What gives the code of loops: the code generator, or a folder that has it."""
    def code_of(loops: PrimFunc, text: str) -> str:
        if task.like is not None:
            known = _codes(task.like, task.machine).get(digest_of(text.encode()))
            if known is not None:
                return Folder(task.like).text(known)
        return code_text(loops, target)

    return code_of


@lru_cache(maxsize=16)
def _codes(path: Path, machine: str) -> dict[str, str]:
    """The digests of the code of loops that a folder has, by those of the loops."""
    folder = Folder(path)
    records = folder.kernels(machine)
    return {record.loops: record.code for record in records if record.code}


def graph_of(task: Task) -> Graph:
    """The network of a task as a graph."""
    if task.file is None:
        return import_model(LAYERS[task.network.removeprefix(LAYER)](), None, None)
    return _imported(task.file, json.dumps(task.shapes))


@lru_cache(maxsize=1)
def _imported(file: Path, shapes: str) -> Graph:
    given = json.loads(shapes)
    try:
        return import_model(file, given, None)
    except OpenShapeError as error:
        return import_model(file, {**error.example, **(given or {})}, None)


def _constants(call: Call) -> str:
    """The digest of the constants that a kernel is called with."""
    arrays = [to_numpy(arg.data) for arg in call.args if isinstance(arg, Constant)]
    return digest_of(*[array.tobytes() for array in arrays]) if arrays else ""


def _is_whole(known: NetworkRecord, task: Task, folder: Folder) -> bool:
    return all(_is_known(call.function, task, folder) for call in known.calls)


def _is_known(function: str, task: Task, folder: Folder) -> bool:
    record = folder.kernel(task.machine, function)
    return record is not None and bool(record.code or record.error or not task.with_code)


def tasks_of(
    folder: Path,
    machines: Mapping[str, str],
    files: Sequence[Path],
    layers: Sequence[str],
    shapes: Mapping[str, Mapping[str, Sequence[int]]],
    with_code: bool,
    like: Path | None,
) -> list[Task]:
    """Every network for every machine, the machines of a network together."""
    networks: dict[str, Path | None] = {LAYER + name: None for name in layers}
    for file in files:
        if networks.setdefault(file.stem, file) != file:
            raise ValueError(f"'{file}' and '{networks[file.stem]}' have one name; rename one")
    return [
        Task(folder, machine, target, name, file, shapes.get(name), with_code, like)
        for name, file in networks.items()
        for machine, target in machines.items()
    ]


def onnx_files(paths: Sequence[Path]) -> list[Path]:
    """ONNX files, and those in folders."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
        if not inside or not inside[0].is_file():
            raise ValueError(f"there is no ONNX file at '{path}'")
        found += inside
    return found
