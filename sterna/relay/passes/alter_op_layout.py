"""Layout selection: operators in the layouts in which the target runs them best.

    nn.conv2d(%x, const)  ->  nn.conv2d(%1, packed, data_layout="NHWC", kernel_layout="OHWI32o")

From level 2 on a layout passes through the operators around: calls whose layouts pass to each other
are a neighbourhood, and at its borders stand transforms if its layout is not the user's. Small ones
may cost less as they lie. At level 1 a layout ends with the operator's epilogue, at level 0 with
the operator, between transforms: the rest stays as the user wrote it. GPUs have one layout for each
operator, which its record says.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.attributes import Attrs
from sterna.relay.axis_order import is_view_with, viewed_with
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.layout_rules import rule_of
from sterna.relay.op import AnyOp, rules_of
from sterna.relay.passes.rewrite_layouts import Reach, rewrite_layouts
from sterna.relay.traverse import not_primitive, post_order

NAME = "AlterOpLayout"


def AlterOpLayout(processor: Any = None, on_gpu: bool = False) -> Pass:
    """Let operators choose their layouts, each alone below level 2; without a processor none.

    on_gpu: operators have the layouts that suit blocks and threads.
    """

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        required = NAME in context.required_pass
        reach = Reach.GRAPH if required else Reach(max(0, min(context.opt_level, Reach.GRAPH)))
        return device_layouts(func, reach) if on_gpu else alter_op_layout(func, processor, reach)

    made: Pass = function_pass(change, opt_level=0, name=NAME, kind=Function)
    return made


def alter_op_layout(func: Function, processor: Any, reach: Reach = Reach.GRAPH) -> Function:
    """The function with every operator in the layout that it asks for."""
    if processor is None:
        return func
    costs = {
        id(call): found
        for each in (neighbourhoods if reach is Reach.GRAPH else lonely)(func)
        if (found := _costs(each, processor)) is not None
        for call in each.contractions
    }

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = record.contraction.alter_layout
        return None if rule is None else rule(call.attrs, call.args, processor, costs.get(id(call)))

    return rewrite_layouts(func, alter, reach)


def device_layouts(func: Function, reach: Reach = Reach.GRAPH) -> Function:
    """The function with every operator in the layout that GPUs run best."""

    def alter(record: AnyOp, call: Call) -> Attrs | None:
        rule = record.contraction.device_layout
        return None if rule is None else rule(call.attrs, call.args)

    return rewrite_layouts(func, alter, reach)


@dataclass(slots=True)
class Neighbourhood:
    """Calls whose layouts pass to each other."""

    contractions: list[Call] = field(default_factory=list)
    """Those that choose a layout."""
    moved: int = 0
    """The elements of all tensors that come into it and go out of it; less those that move as they
    lie, and need not with their channels last."""


def _costs(around: Neighbourhood, processor: Any) -> Any:
    """What the operator says that all of these cost; None where they are several operators."""
    records = {id(record): record for call in around.contractions if (record := rules_of(call))}
    if len(records) != 1:
        return None
    (record,) = records.values()
    rule = record.contraction.layout_costs
    return None if rule is None else rule(around.contractions, around.moved, processor)


def neighbourhoods(func: Function) -> list[Neighbourhood]:
    """Those of a function that have a contraction which chooses a layout."""
    order = post_order(func, not_primitive)
    inside = {id(expr) for expr in order if _passes_layouts(expr)}
    joined = _Joined()
    made: dict[int, Neighbourhood] = {}
    across: dict[int, tuple[RelayExpr, int]] = {}
    views = _views_of_channels_last(order)
    for expr in order:
        for part in getattr(expr, "operands", tuple)():
            if {id(expr), id(part)} <= inside:
                joined.join(id(expr), id(part))
            elif id(part) in inside:
                across[id(part)] = (part, id(part))
            elif id(expr) in inside and not isinstance(part, Constant):
                across.setdefault(id(part), (part, id(expr)))
    for expr in order:
        record = rules_of(expr)
        if record is not None and record.contraction.alter_layout is not None:
            assert isinstance(expr, Call)
            made.setdefault(joined.find(id(expr)), Neighbourhood()).contractions.append(expr)
    for expr, member in across.values():
        found = made.get(joined.find(member))
        if found is not None:
            found.moved += _elements(expr) * (-1 if id(expr) in views else 1)
    return list(made.values())


def _views_of_channels_last(order: list[RelayExpr]) -> set[int]:
    """Tensors that are made by moving channels, or that are read so, as tokens are."""
    found: set[int] = set()
    for expr in order:
        kind = getattr(expr, "checked_type", None)
        if isinstance(expr, Call) and isinstance(kind, TensorType):
            found |= {id(expr)} if is_view_with(expr, _channels_last(kind.ndim)) else set()
            found |= {id(source) for source in viewed_with(expr, _channels_last(4))}
    return found


def _channels_last(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim), 1) if ndim > 1 else (0,)


def lonely(func: Function) -> list[Neighbourhood]:
    """The same where layouts pass to nobody: each contraction between transforms of its own."""
    return [
        Neighbourhood([expr], _elements(expr) + _elements(expr.args[0]))
        for expr in post_order(func, not_primitive)
        if isinstance(expr, Call)
        and (record := rules_of(expr)) is not None
        and record.contraction.alter_layout is not None
    ]


def _passes_layouts(expr: RelayExpr) -> bool:
    if isinstance(expr, Tuple | TupleGetItem):
        return True
    record = rules_of(expr)
    return record is not None and rule_of(record) is not None


def _elements(expr: RelayExpr) -> int:
    """Those of a tensor whose layout could be another; none where they are not known."""
    kind = getattr(expr, "checked_type", None)
    if not isinstance(kind, TensorType) or not kind.is_static or kind.ndim < 3:
        return 0
    return math.prod(kind.concrete_shape)


class _Joined:
    """Sets of numbers that grow together (union-find)."""

    def __init__(self) -> None:
        self.above: dict[int, int] = {}

    def find(self, one: int) -> int:
        """The number that stands for a set."""
        path: list[int] = []
        while (above := self.above.get(one, one)) != one:
            path.append(one)
            one = above
        self.above.update(dict.fromkeys(path, one))
        return one

    def join(self, *some: int) -> None:
        """Make one set of those that have these numbers."""
        first, *others = {self.find(one) for one in some}
        self.above.update(dict.fromkeys(others, first))
