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
from sterna.relay.expr import Function
from sterna.relay.random_inputs import random_inputs
from sterna.target import Target
from sterna.tune.measure import Measured
from sterna.tune.network import Questions
from sterna.tune.tuner import network_inputs
from sterna.tune.worker import Worker, write_network

LAYER = "layer"
TIMEOUT = 300.0


class NetworkWorker:
    """The process that builds and times a network, shared by the tasks of its layers."""

    def __init__(self, mod: IRModule, params: Mapping[str, Any], target: Target) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autotvm-")
        folder = Path(self._folder.name)
        inputs = random_inputs(network_inputs(mod, params))
        level = max(3, PassContext.current().opt_level)
        write_network(folder, mod, params, target, inputs, level)
        self.worker = Worker(folder)
        self.questions: Questions = self.compare({}, 0.0).questions

    def compare(self, answers: Mapping[str, str], seconds: float) -> Measured:
        """The network with answers beside the one without."""
        return self.worker.compare({}, answers, seconds, TIMEOUT)


class LayerTask:
    """One layer of a network; a configuration answers the questions of its schedule."""

    name = LAYER

    def __init__(self, scope: str, target: Target, network: NetworkWorker, flop: float) -> None:
        self.scope, self.target, self.network, self.flop = scope, target, network, flop
        self.args = (scope,)
        self.config_space = ConfigSpace()
        for question, offered in network.questions.kernels.items():
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

    def seconds(self, config: ConfigEntity) -> list[float]:
        """What the layer takes with these answers, inside of its network."""
        found = self.network.compare(answers_of_config(self.scope, config), 0.2)
        times = found.layers.get(self.scope)
        return [fmean(found.total.challenger)] if times is None else list(times.challenger)

    def __repr__(self) -> str:
        return f"Task(func_name={LAYER}, args={self.args}, target={self.target})"


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
    """The layers of a network whose schedules can be chosen otherwise."""
    whole = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    wanted = Target(target)
    network = NetworkWorker(whole, dict(params or {}), wanted)
    scopes = dict.fromkeys(q.rpartition("/")[0] for q in network.questions.kernels)
    tasks = [LayerTask(scope, wanted, network, 0.0) for scope in scopes if scope]
    return [task for task in tasks if len(task.config_space) > 1]
