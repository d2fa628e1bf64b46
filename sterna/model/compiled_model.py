"""A model that runs: called like a function, written to files, timed, explained."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna import model as models
from sterna.ir.module import OUTPUT_NAMES
from sterna.model.arguments import TensorSpec, arrange_arguments, bind_arguments
from sterna.model.model_calls import make_runner
from sterna.model.report import Report, make_report
from sterna.relay.arrays import Array
from sterna.relay.random_inputs import random_inputs
from sterna.runtime import Device, Module, cpu, load_module, num_threads
from sterna.runtime._core import ModelFunction
from sterna.runtime.debug_executor import GraphModuleDebug
from sterna.runtime.device import REMOTE_DEVICES
from sterna.runtime.node_times import Bounds, NodeTimes
from sterna.support.keys import File
from sterna.support.once import computed_once

if TYPE_CHECKING:
    from sterna.model.build_record import BuildRecord


class CompiledModel(ModelFunction):
    """A compiled model. `m(x)` runs it; any number of threads may call it at once.

    inputs and outputs say what it takes and gives. A call takes inputs by place or by name, and
    gives one array, or a tuple of several. An input is an array of exactly its shape and type:
    NumPy's, or any with DLPack. Lists and numbers, which have no type of their own, get the
    input's. What lies in order in memory is read where it is. The results are NumPy's, and the
    caller's own; memory of those that the caller has let go is used again. On a GPU, arrays that
    are there are read there, in the stream that PyTorch works in if they are its own, and the
    results are arrays there, which torch.from_dlpack takes; the call may return before the GPU
    has done its work.
    """

    def __init__(
        self,
        module: Module,
        device: Device,
        build: "BuildRecord | Callable[[], BuildRecord] | None" = None,
        path: Path | None = None,
    ) -> None:
        self.module = module
        self.device = device
        self._build = build
        self.path = path
        """The file that it was loaded from."""
        self.graph: dict[str, Any] = json.loads(module["get_graph_json"]())
        self._idle = []

    @property
    def build(self) -> "BuildRecord | None":
        """How it was compiled; nothing is known of that for a model from a file."""
        if callable(self._build):
            self._build = self._build()
        return self._build

    # ---- what it takes and gives ----

    @computed_once
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What it takes, in order."""
        nodes = self.graph["arg_nodes"]
        specs = [self._spec(self.graph["nodes"][node]["name"], node, 0) for node in nodes]
        return tuple(spec for spec in specs if spec.name not in self.weights)

    @computed_once
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What it gives, in order, by the model's names or as output0, output1, ..."""
        heads = self.graph["heads"]
        own = self.graph["attrs"].get(OUTPUT_NAMES, ["list_str", []])[1]
        names = own or [f"output{place}" for place in range(len(heads))]
        return tuple(
            self._spec(name, node, index)
            for name, (node, index, *_) in zip(names, heads, strict=True)
        )

    def _spec(self, name: str, node: int, index: int) -> TensorSpec:
        entry = self.graph["node_row_ptr"][node] + index
        attrs = self.graph["attrs"]
        return TensorSpec(name, tuple(attrs["shape"][1][entry]), attrs["dltype"][1][entry])

    @computed_once
    def weights(self) -> dict[str, Any]:
        """Its parameters by the names that the executor's graph gives them."""
        return dict(self.module["get_graph_params"]())

    # ---- running ----

    def _call(self, *args: Any, **named: Any) -> Any:
        """A call of any form; by place, over an idle runner, the base class does it by itself."""
        if named or len(args) != len(self.inputs):
            args = arrange_arguments(self.inputs, args, named)
        results = self._run(args)
        self._input_count = len(self.inputs)
        return results[0] if len(results) == 1 else results

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run it on inputs by name; gives the outputs by name."""
        results = self._run(arrange_arguments(self.inputs, (), inputs))
        return {spec.name: array for spec, array in zip(self.outputs, results, strict=True)}

    def _run(self, values: tuple[Any, ...]) -> tuple[Array, ...]:
        try:
            runner = self._idle.pop()
        except IndexError:  # all are at work
            runner = make_runner(
                self._executor(), self.inputs, self.outputs, self.device, self._ends_here()
            )
        try:
            return runner(values)
        finally:
            self._idle.append(runner)

    def _executor(self) -> Module:
        made: Module = self.module["debug_create"]("default", *self.devices)
        return made

    @computed_once
    def devices(self) -> tuple[Device, ...]:
        """Its device, and the others that parts of it run on: the first of each kind."""
        _, kinds = self.graph["attrs"].get("device_index", ("list_int", []))
        machine, own = divmod(self.device.device_type, REMOTE_DEVICES)
        others = [kind for kind in dict.fromkeys(kinds) if kind not in (0, own)]
        return self.device, *(Device(machine * REMOTE_DEVICES + kind, 0) for kind in others)

    def _ends_here(self) -> bool:
        """Whether all inputs and outputs lie on its device."""
        if len(self.devices) == 1:
            return True
        kinds = self.graph["attrs"]["device_index"][1]
        rows, nodes = self.graph["node_row_ptr"], self.graph["nodes"]
        ends = [rows[n] for n in self.graph["arg_nodes"] if nodes[n]["name"] not in self.weights]
        ends += [rows[node] + index for node, index, *_ in self.graph["heads"]]
        return all(kinds[entry] == self.device.device_type % REMOTE_DEVICES for entry in ends)

    # ---- telling ----

    def profile(
        self,
        *args: Any,
        repeat: int = 10,
        bounds: Bounds | bool = True,
        inputs: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> NodeTimes:
        """What each operator takes: the median of some runs, on random inputs if none are given.

        print() shows it as a table, write_trace(path) writes it for Chrome and Perfetto. It says
        which share of what this machine can do each reaches, as measured unless bounds says
        it; False leaves that out. inputs gives inputs by name, as run takes them.
        """
        by_name = {**(inputs or {}), **named}
        if not args and not by_name:
            by_name = random_inputs(self.inputs)
        given = bind_arguments(self.inputs, args, by_name)
        debug = GraphModuleDebug(self._executor(), self.devices, json.dumps(self.graph))
        for spec, array in zip(self.inputs, given, strict=True):
            debug.set_input(spec.name, array)
        if isinstance(bounds, Bounds) or not bounds:
            return debug.profile(repeat, bounds or None)
        if self.device.device_type == cpu(0).device_type:
            return debug.profile(repeat, models.measure_bounds(num_threads()))
        return debug.profile(repeat, models.bounds_of_gpu(self.device))

    def report(self) -> Report:
        """What was fused and how it was scheduled, what memory it needs, how long compiling took.

        A model that was loaded from a file tells what the file does.
        """
        return make_report(self, num_threads())

    # ---- in files ----

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write it to a file: .so, .tar, .o, .a, .c or .wasm; see export_library.

        sign= is the file of a secret key to sign it with, which load's trust asks for.
        """
        build = self.build
        if build is None:
            raise ValueError(
                f"the model was loaded from '{self.path}' and cannot be written anew; copy that "
                "file, or compile the model again"
            )
        build.factory.export_library(path, **options)

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"CompiledModel({takes}) -> ({gives})"


def load(
    path: str | os.PathLike[str], device: Device | None = None, *,
    trust: File | Sequence[File] | None = None,
) -> CompiledModel:
    """A model from a file that export or export_library wrote.

    trust: files of public keys; then only what was signed with one of them is loaded.
    """
    module = load_module(path, trust=trust)
    if module.implements_function("invoke"):
        return models.read_open(module, os.fspath(path))
    if not module.implements_function("get_graph_json"):
        raise ValueError(
            f"'{os.fspath(path)}' holds functions, but no model; runtime.load_module loads it"
        )
    return CompiledModel(module, device or _home(module), path=Path(path))


def _home(module: Module) -> Device:
    """The device that a model is compiled for: the first of its kind, a GPU before processors."""
    attrs = json.loads(module["get_graph_json"]())["attrs"]
    _, kinds = attrs.get("device_index", ("list_int", []))
    return Device(max(kinds, key=lambda kind: kind != cpu(0).device_type), 0) if kinds else cpu(0)
