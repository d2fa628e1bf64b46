"""A network as the tuner sees it: built under answers, its questions, and the times of its layers.

A layer is a scope of `choose`: all kernels of one contraction, by its text. What is not in a scope
with questions, such as layout transforms, is the rest.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sterna.driver import GraphExecutorFactoryModule, relay_build
from sterna.ir.module import IRModule
from sterna.ir.structural import structural_hash
from sterna.ir.transform import PassContext
from sterna.lowering.graph import is_view
from sterna.lowering.lower_kernel import ask_kernel, scope_of
from sterna.lowering.unique_kernels import unique_kernels
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Function
from sterna.rpc.client import RPCSession
from sterna.runtime import (
    Device,
    Module,
    cpu,
    load_module,
    load_param_dict,
    ndarray,
    num_threads,
    save_param_dict,
)
from sterna.runtime.debug_executor import GraphModuleDebug, create
from sterna.schedule.caches import MACHINE
from sterna.schedule.choose import Scope, deciding
from sterna.schedule.config import ANSWERS
from sterna.target import Target

Answers = Mapping[str, str]
Offers = dict[str, dict[str, float]]
"""By scope/question, what is offered at which cost."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the schedules and layout passes of a network asked, and what was taken."""

    taken: dict[str, str]
    """By scope/question."""
    kernels: Offers
    """Asked where one kernel is scheduled: nothing else changes with the answer."""
    graph: Offers
    """Asked before there are kernels: others may change with the answer."""


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a network that was built under answers, wherever it runs."""

    questions: Questions
    scopes: tuple[str, ...]
    """Of each node that runs, in order."""
    kernels: tuple[str, ...]
    """What tells each of them from others: what it computes, and what its schedule decided.

    An answer to a question that nobody asked, or that is not offered, makes no other kernel.
    """

    def is_same(self, other: "Described") -> bool:
        """Whether another network runs the same kernels in the same order."""
        return self.kernels == other.kernels

    def own_nodes(self, other: "Described") -> Array:
        """Which of its nodes run kernels that the other network lacks."""
        theirs = set(other.kernels)
        return np.array([kernel not in theirs for kernel in self.kernels])


@dataclass(frozen=True, slots=True)
class BuiltNetwork:
    """A network that was built under answers."""

    factory: GraphExecutorFactoryModule
    target: Target
    described: Described

    @classmethod
    def build(
        cls, mod: IRModule, params: Mapping[str, Any], target: Target, answers: Answers,
        opt_level: int, known: "KnownKernels | None" = None,
    ) -> "BuiltNetwork":
        """Compile a network under answers; known: what its earlier builds' kernels asked."""
        with PassContext(opt_level, config={ANSWERS: dict(answers)}):
            with deciding("network") as asked:
                factory = relay_build.build(mod, target=target, params=params)
            names = [_function_of(node) for node in running_nodes(factory.graph_json)]
            return cls(factory, target, describe(
                factory.ir_mod, factory.libmod_name, names, target, asked, answers, known
            ))

    def here(self) -> "RunningNetwork":
        """The network, ready to run on this machine."""
        device = Device(self.target.kind.device_type, 0)
        return self._running(self.factory.lib, device)

    def packed(self) -> "PackedNetwork":
        """The network as bytes, which a machine without the compiler's state loads."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.tar"
            self.factory.lib.export_library(path)
            library = path.read_bytes()
        params = bytes(save_param_dict(self.factory.params))
        return PackedNetwork(
            self.factory.graph_json, params, library, str(self.target), self.described
        )

    def there(self, session: RPCSession, name: str) -> "RunningNetwork":
        """The network, ready to run on the machine of a session, where its file has a name."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.tar"
            self.factory.lib.export_library(path)
            session.upload(path)
        device = session.device(self.target.kind.device_type, 0)
        return self._running(session.load_module(f"{name}.tar"), device)

    def _running(self, lib: Module, device: Device) -> "RunningNetwork":
        executor = create(self.factory.graph_json, lib, device)
        _set_inputs(executor, self.factory.params)
        return RunningNetwork(self.described, executor)


@dataclass(frozen=True, slots=True)
class PackedNetwork:
    """A network that was built on one machine and runs on another."""

    graph_json: str
    params: bytes
    library: bytes
    target: str
    described: Described

    def here(self) -> "RunningNetwork":
        """The network, ready to run on this machine."""
        return self.loaded()()

    def loaded(self) -> Callable[[], "RunningNetwork"]:
        """What sets the network up on this machine, as often as it is called."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.tar"
            path.write_bytes(self.library)
            lib = load_module(path)
        device = Device(Target(self.target).kind.device_type, 0)
        params = load_param_dict(self.params)

        def set_up() -> RunningNetwork:
            executor = create(self.graph_json, lib, device)
            _set_inputs(executor, params)
            return RunningNetwork(self.described, executor)

        return set_up


class RunningNetwork:
    """A network on a device."""

    def __init__(self, described: Described, executor: GraphModuleDebug) -> None:
        self.described, self.executor = described, executor
        self._times = ndarray.empty(
            (len(executor.nodes),), "int64", executor.module.home or cpu(0)
        )
        self._running = [i for i, node in enumerate(executor.nodes) if node["op"] != "null"]

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What it computes."""
        _set_inputs(self.executor, inputs)
        self.executor.module["run"]()
        count = self.executor.get_num_outputs()
        return [to_numpy(self.executor.get_output(i)) for i in range(count)]

    def run(self) -> Array:
        """The seconds of each node that runs; of one thread those that it had a processor for."""
        if self._has_one_thread:
            return self._run_in_own_time()
        self.executor.module["run_timed"](self._times)
        seconds: Array = self._times.numpy()[self._running] * 1e-9
        return seconds

    @property
    def is_on_gpu(self) -> bool:
        """Whether its kernels run on a device with memory of its own."""
        return bool(self.executor.device.device_type != cpu(0).device_type)

    @property
    def _has_one_thread(self) -> bool:
        """Whether kernels run in this very thread, whose time other work does not lengthen."""
        is_here = self.executor.module.home is None
        return is_here and not self.is_on_gpu and num_threads() == 1

    def _run_in_own_time(self) -> Array:
        run_node, seconds = self.executor.module["run_node"], np.empty(len(self._running))
        for place, node in enumerate(self._running):
            begin = time.thread_time_ns()
            run_node(node)
            seconds[place] = time.thread_time_ns() - begin
        return seconds * 1e-9


@dataclass(slots=True)
class KnownKernels:
    """What kernels asked under answers, of builds for one target that differ in answers alone."""

    _scopes: dict[int, frozenset[str]] = field(default_factory=dict)
    """Whose answers matter to a kernel, by its function's hash."""
    _asked: dict[tuple[int, str], Scope] = field(default_factory=dict)

    def ask(self, function: Function, target: Target, answers: Answers) -> Scope:
        """What the schedule of a function asks, which only its own answers change."""
        digest = structural_hash(function)
        names = self._scopes.get(digest, frozenset())
        found = self._asked.get((digest, answers_text(answers_of(names, answers))))
        if found is None:
            found = ask_kernel(function, target)
            inner = {part.name for part in (found, *_inner(found))}
            names |= {"", MACHINE, scope_of(function), *inner}
            self._scopes[digest] = names
            self._asked[digest, answers_text(answers_of(names, answers))] = found
        return found


def describe(
    network: IRModule, module_name: str, names: Sequence[str], target: Target, asked: Scope,
    answers: Answers, known: KnownKernels | None = None,
) -> Described:
    """What is known of a network whose nodes run the kernels of these names, in order."""
    kernels = known or KnownKernels()
    found = unique_kernels(network["main"], f"tvmgen_{module_name}").functions
    functions = {name: f for name, f in found.items() if not is_view(f)}
    scopes = {name: scope_of(function) for name, function in functions.items()}
    of_kernels = {name: kernels.ask(function, target, answers)
                  for name, function in functions.items()}
    of_machine = answers_text(answers_of((MACHINE,), answers))
    texts = {
        name: f"{structural_hash(function)} {answers_text(_taken(of_kernels[name]))} {of_machine}"
        for name, function in functions.items()
    }
    return Described(
        _questions(asked, list(of_kernels.values())),
        tuple(scopes.get(name, "") for name in names),
        tuple(texts.get(name, "") for name in names),
    )


def running_nodes(graph_json: str) -> list[dict[str, Any]]:
    """The nodes of a graph that run a kernel or pass a view on, in order."""
    return [node for node in json.loads(graph_json)["nodes"] if node["op"] != "null"]


def _set_inputs(executor: GraphModuleDebug, arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        executor.set_input(name, array)


def _function_of(node: Mapping[str, Any]) -> str:
    name: str = node.get("attrs", {}).get("func_name", "")
    return name


def _questions(asked: Scope, of_kernels: Sequence[Scope]) -> Questions:
    graph: Offers = {}
    kernels: Offers = {}
    taken: dict[str, str] = {}
    for scope in _inner(asked):
        _note(scope, graph, taken)
    for scope in of_kernels:
        _note(scope, kernels, taken)
    for question in kernels:  # a question of both: a tile, which decides how weights are packed
        if question in graph:
            kernels[question] = offered_together(
                graph.pop(question), kernels[question], taken[question]
            )
    return Questions(taken, kernels, graph)


def offered_together(
    before: Mapping[str, float], offered: Mapping[str, float], taken: str
) -> dict[str, float]:
    """What was offered for one question before and now, in the costs of now.

    A graph that packs weights by tiles counts steps of a whole layer, its kernel those of a block.
    """
    own, other = offered.get(taken, 0.0), before.get(taken, 0.0)
    scale = own / other if 0 < own < math.inf and 0 < other < math.inf else 1.0
    return {**{answer: cost * scale for answer, cost in before.items()}, **offered}


def _taken(scope: Scope) -> dict[str, str]:
    """What was decided for a kernel and for its parts."""
    return {f"{part.name}/{name}": decision.taken
            for part in (scope, *_inner(scope)) for name, decision in part.decisions.items()}


def _inner(scope: Scope) -> list[Scope]:
    return [each for part in scope.inner for each in (part, *_inner(part))]


def _note(scope: Scope, offers: Offers, taken: dict[str, str]) -> None:
    for name, decision in scope.decisions.items():
        question = f"{scope.name}/{name}"
        taken[question] = decision.taken
        before = offers.get(question, {})
        offers[question] = offered_together(before, dict(decision.offered), decision.taken)


def answers_of(scopes: Collection[str], answers: Answers) -> dict[str, str]:
    """Those to the questions of some scopes."""
    return {q: a for q, a in answers.items() if q.rpartition("/")[0] in scopes}


def answers_text(answers: Answers) -> str:
    """The same text for the same answers."""
    return json.dumps(dict(answers), sort_keys=True)
