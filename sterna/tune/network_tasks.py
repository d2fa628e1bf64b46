"""What is tuned: the layers of a network whose schedules ask something."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna.driver.relay_build import optimize
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.lowering.graph import is_view
from sterna.lowering.lower_kernel import scope_of
from sterna.lowering.unique_kernels import unique_kernels
from sterna.relay.expr import Call, Function
from sterna.relay.traverse import not_primitive, post_order
from sterna.target import Target


@dataclass(frozen=True)
class Network:
    """The network that tasks were taken from; a layer is timed where it runs."""

    mod: IRModule
    params: Mapping[str, Any]
    target: Target
    opt_level: int


@dataclass(frozen=True)
class ExtractedTask:
    """One kernel of a network, and how often it is used."""

    task_name: str
    mod: IRModule
    target: Target
    dispatched: list[IRModule]
    weight: int
    scope: str
    """What its questions are asked for."""
    network: Network


@dataclass(frozen=True)
class TuneContext:
    """A task that is to be tuned."""

    mod: IRModule | None = None
    target: Target | None = None
    task_name: str = "main"
    task: ExtractedTask | None = None


def extract(
    mod: IRModule | Function, target: Any, params: Mapping[str, Any] | None, opt_level: int
) -> list[ExtractedTask]:
    """The kernels of a network after all passes over its graph, outputs first."""
    whole = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    wanted = Target(target)
    network = Network(whole, dict(params or {}), wanted, opt_level)
    with PassContext(opt_level):
        done, _ = optimize(whole, wanted, network.params)
    main = done["main"]
    kernels = unique_kernels(main, "")
    uses = dict.fromkeys(kernels.functions, 0)
    for expr in post_order(main, not_primitive):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            uses[kernels.names[id(expr.op)]] += 1
    found = [
        _task(name.lstrip("_"), function, uses[name], network)
        for name, function in kernels.functions.items()
        if not is_view(function)
    ]
    return found[::-1]


def _task(name: str, function: Function, uses: int, network: Network) -> ExtractedTask:
    own = IRModule.from_expr(function)
    return ExtractedTask(name, own, network.target, [own], uses, scope_of(function), network)
