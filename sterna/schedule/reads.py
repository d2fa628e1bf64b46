"""What a stage reads, through the stages that are computed where they are read."""

from dataclasses import dataclass

from sterna.arith import Analyzer
from sterna.ir.build import is_const
from sterna.ir.expr import Call, Expr, Var, variables_in
from sterna.ir.node import post_order
from sterna.te import ComputeOp, Stage, Tensor
from sterna.te.inline import index_key
from sterna.te.tensor import ProducerLoad
from sterna.tir.stmt_functor import substitute


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor that is read, and where, by the axes of the stage."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    is_guarded: bool
    """Whether some elements are read only where a condition holds."""

    @property
    def variables(self) -> set[Var]:
        """Those of its indices."""
        return {var for index in self.indices for var in variables_in(index)}

    @property
    def index_of_neighbours(self) -> Expr | None:
        """What tells elements side by side apart: the last index of more than one; None: none.

        A bias for each channel of an image has the channel's, whatever follows it.
        """
        extents = zip(reversed(self.indices), reversed(self.tensor.shape), strict=True)
        return next((index for index, extent in extents if not is_const(extent, 1)), None)


def direct_reads_of(stage: Stage) -> list[Read]:
    """What its own expressions read."""
    assert isinstance(stage.op, ComputeOp)
    loads, _ = _loads_and_conditions(stage.op)
    return [Read(load.tensor, load.indices, False) for load in loads]


def reads_of(stage: Stage) -> list[Read]:
    """What it reads in the end: once what several ways lead to, of which there may be very many."""
    assert stage.schedule is not None and isinstance(stage.op, ComputeOp)
    analyzer = Analyzer()
    for axis in stage.op.axis:
        if axis.dom is not None:
            analyzer.bind(axis.var, axis.dom)
    found: list[Read] = []
    left: list[tuple[ComputeOp, dict[Var, Expr], bool]] = [(stage.op, {}, False)]
    seen: set[tuple[object, ...]] = set()
    while left:
        op, places, is_guarded = left.pop()
        loads, conditions = _loads_and_conditions(op)
        is_guarded = is_guarded or bool(conditions)
        for load in loads:
            indices = load.indices
            if places:
                moved = (substitute(index, places) for index in indices)
                indices = tuple(map(analyzer.simplify, moved))
            maker = stage.schedule.stage_map.get(load.tensor.op)
            if maker is None or maker.attach_type != "inline":
                found.append(Read(load.tensor, indices, is_guarded))
                continue
            assert isinstance(maker.op, ComputeOp), "what is computed where it is read"
            way = (maker.op, is_guarded, *map(index_key, indices))
            if way not in seen:
                seen.add(way)
                own = [axis.var for axis in maker.op.axis]
                left.append((maker.op, dict(zip(own, indices, strict=True)), is_guarded))
    return found


def _loads_and_conditions(op: ComputeOp) -> tuple[list[ProducerLoad], list[Call]]:
    loads: list[ProducerLoad] = []
    conditions: list[Call] = []

    def visit(node: object) -> None:
        if isinstance(node, ProducerLoad):
            loads.append(node)
        elif isinstance(node, Call) and node.op == "if_then_else":
            conditions.append(node)

    for part in op.body:
        post_order(part, visit)
    return loads, conditions
