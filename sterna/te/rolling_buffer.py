"""Rolling (line) buffers: the halo that an iteration shares with the one before stays there."""

from collections.abc import Iterator
from dataclasses import dataclass

from sterna.arith import detect_linear
from sterna.ir import build
from sterna.ir.expr import Expr, variables_in
from sterna.te.bounds import Bounds, leaves_around, value_of_axes
from sterna.te.schedule import AxisAttributes, Stage
from sterna.te.tensor import THREAD_INDEX, UNROLLED, IterVar


@dataclass
class Roll:
    """How a buffer turns while a loop runs."""

    loop: IterVar
    axis: int
    """The dimension that is circular: index i lies at i % extent."""
    start: Expr
    """Its first index in the loop's first iteration."""
    step: int
    """How far each iteration moves it on."""
    extent: int

    def is_new(self, relative: Expr) -> Expr:
        """Whether an index, counted from the iteration's first one, was not there before."""
        first = self.loop.var.equal(0)
        return build.logical_or(first, relative >= self.extent - self.step)


def find_roll(stage: Stage, bounds: Bounds) -> Roll | None:
    """How a stage's buffer rolls; None where the loops around it run only once."""
    name, parent = stage.op.name, stage.attach_stage
    if parent is None:
        raise ValueError(
            f"the rolling buffer {name} must be computed at a loop, not at the root; use compute_at"
        )
    repeated = False
    for owner, loop in _loops_outwards(stage):
        if build.is_const(bounds.extent(owner, loop), 1):
            continue
        repeated = True
        _require_serial(name, owner, loop)
        moving = [
            number
            for number, axis in enumerate(stage.op.axis)
            if loop.var in variables_in(bounds.ranges[stage][axis].min)
        ]
        if moving:
            _require_all_iterations(name, owner, loop, bounds)
            return _roll(stage, bounds, loop, moving)
    if not repeated:
        return None
    raise ValueError(
        f"the rolling buffer {name} does not roll: all iterations of the loops of "
        f"{parent.op.name} around it need the same part; compute it further out instead"
    )


def _loops_outwards(stage: Stage) -> Iterator[tuple[Stage, IterVar]]:
    """The loops around a stage, innermost first, each with the stage that it is a loop of."""
    while stage.attach_stage is not None:
        owner = stage.attach_stage
        for loop in reversed(leaves_around(owner, stage.attach_ivar)):
            yield owner, loop
        stage = owner


def _require_serial(name: str, owner: Stage, loop: IterVar) -> None:
    """One iteration must find what the one before it left."""
    how = owner.iter_var_attrs.get(loop, AxisAttributes())
    is_thread = how.bind_thread is not None or loop.iter_type == THREAD_INDEX
    if is_thread or how.kind not in (None, UNROLLED):
        raise ValueError(
            f"the rolling buffer {name} is computed inside {loop.name} of {owner.op.name}, whose "
            "iterations run at once, so none finds what another one left; use a serial loop"
        )


def _require_all_iterations(name: str, owner: Stage, loop: IterVar, bounds: Bounds) -> None:
    """A stage that rolls itself skips iterations, which would leave nothing for the next ones."""
    roll = find_roll(owner, bounds) if owner.is_rolling else None
    if roll is None:
        return
    place = value_of_axes(owner, bounds.ranges[owner])[owner.op.axis[roll.axis]]
    if loop.var in variables_in(place):
        raise ValueError(
            f"the rolling buffer {name} cannot roll with {loop.name} of {owner.op.name}, which "
            f"skips iterations since it rolls itself; compute {name} where {owner.op.name} is "
            "computed"
        )


def _roll(stage: Stage, bounds: Bounds, loop: IterVar, moving: list[int]) -> Roll:
    name = f"the rolling buffer {stage.op.name}"
    if len(moving) > 1:
        axes = ", ".join(stage.op.axis[number].name for number in moving)
        raise ValueError(f"{name} can move along one axis, but {loop.name} moves it along {axes}")
    region = bounds.ranges[stage][stage.op.axis[moving[0]]]
    linear = detect_linear(region.min, [loop.var], bounds.analyzer)
    step = None if linear is None else build.int_value(linear[0])
    extent = build.int_value(region.extent)
    if linear is None or step is None or step <= 0 or extent is None:
        raise ValueError(
            f"{name} must move by a fixed step and have a fixed size, but iteration {loop.name} "
            f"needs {region.extent} from {region.min} on"
        )
    if step >= extent:
        raise ValueError(
            f"{name} does not roll: iteration {loop.name} needs {extent} from {region.min} on, of "
            "which the one before has none"
        )
    return Roll(loop, moving[0], linear[1], step, extent)
