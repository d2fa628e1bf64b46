"""What tests of implementations share: graphs whose weights are packed for a plan."""

from collections.abc import Sequence
from typing import Any

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay import pipeline
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import call as call_of
from sterna.schedule.implementation import Plan
from sterna.schedule.kernel import Processor
from sterna.target import Target


def plans_in(mod: Any) -> list[str]:
    """The plans of all calls of a module whose weights are packed, in their order."""
    found: list[str] = []

    def look(expr: RelayExpr) -> None:
        plan = getattr(expr.attrs, "implementation", "") if isinstance(expr, Call) else ""
        if plan:
            found.append(plan)

    relay.analysis.post_order_visit(mod["main"], look)
    return found


def names_in(mod: Any) -> list[str]:
    """The implementations of these plans, without direct, which suits everything."""
    found = [Plan.parse(plan).name for plan in plans_in(mod)]
    return [name for name in found if name != "direct"]


def implemented_for(made: Any, target: str) -> list[str]:
    """The implementations that a build at level 3 takes for the calls of a graph."""
    with tvm.transform.PassContext(opt_level=3):
        return names_in(relay.optimize(tvm.IRModule.from_expr(made), target=target)[0])


def implement(
    made: Any, processor: Processor, answer: str | None = None, growth: int = 8,
    target: str = "llvm",
) -> Any:
    """The module with known weights packed as a processor wants them, or as an answer says.

    target: what operators are legalised for, before processors are asked.
    """
    order = pipeline.passes(processor, Target(target))
    names = [each.info.name for each in order]
    order = order[: names.index("ChooseImplementations") + 1]
    config: dict[str, Any] = {"relay.Winograd.max_growth": growth}
    if answer is not None:
        config["schedule.answers"] = {"implementation": answer}
    with tvm.transform.PassContext(opt_level=3, config=config):
        return tvm.transform.Sequential(order)(tvm.IRModule.from_expr(made))


def packed_conv2d(
    data: RelayExpr, plan: Plan, operands: Sequence[Any], channels: int, window: Any, **attrs: Any
) -> Call:
    """nn.conv2d with channels last and packed weights: arrays, or expressions."""
    return call_of(
        "nn.conv2d", data, *_as_expressions(operands), channels=channels, kernel_size=window,
        data_layout="NHWC", kernel_layout="OHWI", implementation=str(plan), **attrs,
    )


def packed_dense(
    data: RelayExpr, plan: Plan, operands: Sequence[Any], units: int, **attrs: Any
) -> Call:
    """nn.dense with packed weights: arrays, or expressions."""
    return call_of(
        "nn.dense", data, *_as_expressions(operands), units=units, implementation=str(plan),
        **attrs,
    )


def _as_expressions(operands: Sequence[Any]) -> list[RelayExpr]:
    return [each if isinstance(each, RelayExpr) else Constant(from_numpy(each))
            for each in operands]


def run_built(lib: Any, **feeds: Array) -> Array:
    """The first output of a graph that was built."""
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(**{name: from_numpy(each) for name, each in feeds.items()})
    return to_numpy(module.get_output(0))
