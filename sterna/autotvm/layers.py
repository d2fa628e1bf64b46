"""Tasks of a network: its layers, whose knobs are the questions of their schedules."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sterna.autotvm.space import Config, ConfigEntity, ConfigSpace, OtherOptionEntity
from sterna.autotvm.template import Workload
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.relay.analysis import get_total_mac_number, list_op_freqs
from sterna.relay.expr import Function
from sterna.relay.random_inputs import random_inputs
from sterna.schedule.caches import MACHINE
from sterna.target import Target, is_microcontroller
from sterna.tune.board import questions_of
from sterna.tune.measure import Measured, Times
from sterna.tune.network import Offers, Questions
from sterna.tune.network_tasks import extract
from sterna.tune.statistics import Verdict, compare
from sterna.tune.tuner import network_inputs
from sterna.tune.worker import Worker, write_network

LAYER = "layer"
TIMEOUT = 300.0


class NetworkWorker:
    """The processes that build and time a network, shared by the tasks of its layers."""

    def __init__(self, mod: IRModule, params: Mapping[str, Any], target: Target) -> None:
        self.mod, self.params, self.target = mod, params, target
        self.level = max(3, PassContext.current().opt_level)
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        self._workers: dict[str | None, Worker] = {}
        self.questions: Questions = (
            questions_of(mod, params, target, self.level) if is_microcontroller(target)
            else self.compare({}, 0.0).questions
        )

    def compare(
        self, answers: Mapping[str, str], seconds: float, board: str | None = None
    ) -> Measured:
        """The network with answers beside the one without, here or as firmware for a board."""
        if board is None and is_microcontroller(self.target):
            raise ValueError(
                f"{self.target} does not run here; LocalRunner(module_loader=micro."
                'AutoTvmModuleLoader("baremetal", {"board": "mps2_an386"})) names a board'
            )
        if board not in self._workers:
            self._folders.append(tempfile.TemporaryDirectory(prefix="autotvm-"))
            folder = Path(self._folders[-1].name)
            inputs = random_inputs(network_inputs(self.mod, self.params))
            write_network(folder, self.mod, self.params, self.target, inputs, self.level,
                          board=board)
            self._workers[board] = Worker(folder)
        return self._workers[board].compare({}, answers, seconds, TIMEOUT)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers.values():
            worker.close()
        self._workers = {}


class LayerTask:
    """One layer of a network; a configuration answers the questions of its schedule."""

    name = LAYER

    def __init__(self, scope: str, target: Target, network: NetworkWorker, flop: float) -> None:
        self.scope, self.target, self.network, self.flop = scope, target, network, flop
        self.args = (scope,)
        self._untuned: float | None = None
        self.config_space = ConfigSpace()
        for question, offered in _offers(network.questions).items():
            own, _, name = question.rpartition("/")
            if own == scope and len(offered) > 1:
                taken = network.questions.taken[question]
                others = sorted((o for o in offered if o != taken), key=offered.__getitem__)
                self.config_space.define_knob(name, [taken, *others])

    @property
    def workload(self) -> Workload:
        """What is tuned, as a key."""
        return (LAYER, self.scope)

    def instantiate(self, config: Config) -> Any:
        """A layer has no schedule apart from its network."""
        raise TypeError(f"the layer {self.scope} is built with its network, by relay.build")

    def seconds(self, config: ConfigEntity, board: str | None = None) -> list[float]:
        """What the layer takes with these answers, inside of its network.

        It is what the untuned layer took at first, by the ratio of both as they ran in turns; what
        is not known to be faster counts as long as the untuned one.
        """
        found = self.network.compare(answers_of_config(self.scope, config), 0.2, board)
        if self._untuned is None:
            self._untuned = fmean(found.total.incumbent) * found.fractions.get(self.scope, 1.0)
        own, times = self._untuned, found.layers.get(self.scope)
        if times is None:  # other kernels than the layer's changed with it, or none did
            saved = fmean(found.changed.incumbent) - fmean(found.changed.challenger)
            times = Times([own] * len(found.changed.incumbent), [
                max(own / 100, own - before + after) for before, after in
                zip(found.changed.incumbent, found.changed.challenger, strict=True)
            ]) if saved else Times([own], [own])
        pairs = zip(times.incumbent, times.challenger, strict=True)
        costs = [own * after / before for before, after in pairs]
        if fmean(costs) < own and len(costs) > 1:
            sure = compare(times.incumbent, times.challenger).verdict is Verdict.FASTER
            return costs if sure else [own] * len(costs)
        return costs

    def __repr__(self) -> str:
        return f"Task(func_name={LAYER}, args={self.args}, target={self.target})"


def _offers(questions: Questions) -> Offers:
    """What layers were asked, before and while their kernels were scheduled."""
    of_layers = {q: each for q, each in questions.graph.items() if not q.startswith(f"{MACHINE}/")}
    return {**questions.kernels, **of_layers}


def answers_of_config(scope: str, config: ConfigEntity) -> dict[str, str]:
    """A configuration of a layer as answers to the questions of its schedule."""
    return {
        f"{scope}/{name}": str(entity.val)
        for name, entity in config.entities.items()
        if isinstance(entity, OtherOptionEntity)
    }


def extract_from_program(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: Any,
    target_host: Any = None, ops: Sequence[Any] | None = None,
) -> list[LayerTask]:
    """The layers of a network whose schedules can be chosen otherwise.

    ops: the operators whose layers are wanted, such as relay.op.get("nn.conv2d"); all if none is
    named.
    """
    whole = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    wanted = Target(target)
    network = NetworkWorker(whole, dict(params or {}), wanted)
    kernels = extract(whole, wanted, params, network.level)
    names = {getattr(op, "name", op) for op in ops or ()}
    calling = {kernel.scope for kernel in kernels if names & set(list_op_freqs(kernel.mod))}
    macs = {kernel.scope: get_total_mac_number(kernel.mod["main"]) for kernel in kernels}
    scopes = dict.fromkeys(q.rpartition("/")[0] for q in _offers(network.questions))
    tasks = [LayerTask(scope, wanted, network, 2.0 * macs.get(scope, 0)) for scope in scopes
             if scope and (ops is None or scope in calling)]
    return [task for task in tasks if len(task.config_space) > 1]


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function], params: Sequence[Mapping[str, Any] | None], target: Any,
    target_host: Any = None, ops: Sequence[Any] | None = None,
) -> list[LayerTask]:
    """The layers of several networks; those that are alike once, in the first that has them."""
    found: dict[str, LayerTask] = {}
    for mod, own in zip(mods, params, strict=True):
        for task in extract_from_program(mod, own, target, target_host, ops):
            found.setdefault(task.scope, task)
    return list(found.values())
