"""Bound inference: how far each loop of a schedule runs.

Stages are visited from consumers to producers. A stage at the root covers its whole tensor; one
that is computed inside a loop covers what that loop's body reads of it. From the ranges of its
operation's axes follow the ranges of all axes that were split and fused from them.
"""

from dataclasses import dataclass, field

from sterna.arith import Analyzer, interval, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.node import post_order
from sterna.te.env_threads import launched
from sterna.te.scan import is_update, readers_of
from sterna.te.schedule import Fuse, Schedule, Singleton, Split, Stage
from sterna.te.tensor import (
    THREAD_INDEX,
    ComputeOp,
    IterVar,
    PlaceholderOp,
    ProducerLoad,
    Range,
    axis_range,
)
from sterna.tir.threads import LAUNCHED, THREADS, rank_of_scope, rank_of_thread


def ceil_div(a: Expr, b: Expr) -> Expr:
    """a / b, rounded up."""
    p, q = build.int_value(a), build.int_value(b)
    if p is not None and q is not None:
        return build.const(-(-p // q), a.dtype)
    return build.floordiv(a + b - 1, b)


@dataclass
class Bounds:
    """What is known about the loops of a schedule."""

    ranges: dict[Stage, dict[IterVar, Range]] = field(default_factory=dict)
    """The range of every axis; derived axes start at 0."""
    domains: dict[Var, tuple[Expr, Expr]] = field(default_factory=dict)
    """The first and last value of every loop variable."""
    analyzer: Analyzer = field(default_factory=Analyzer)

    def extent(self, stage: Stage, axis: IterVar) -> Expr:
        """How many values an axis takes."""
        return self.ranges[stage][axis].extent


def value_of_axes(stage: Stage, ranges: dict[IterVar, Range]) -> dict[IterVar, Expr]:
    """Every axis in terms of the loop variables, counted from 0."""
    values: dict[IterVar, Expr] = {leaf: leaf.var for leaf in stage.leaf_iter_vars}
    for relation in reversed(stage.relations):
        if isinstance(relation, Split):
            step = relation.factor
            if step is None:
                step = ranges[relation.inner].extent
            values[relation.parent] = values[relation.outer] * step + values[relation.inner]
        elif isinstance(relation, Fuse):
            inner = ranges[relation.inner].extent
            fused = values[relation.fused]
            single = build.is_const(inner, 1) or build.is_const(inner, 0)
            quotient = fused if single else build.floordiv(fused, inner)
            rest = build.const(0, fused.dtype) if single else build.floormod(fused, inner)
            values[relation.outer] = build.cast(relation.outer.var.dtype, quotient)
            values[relation.inner] = build.cast(relation.inner.var.dtype, rest)
    return values


def root_axes(stage: Stage) -> list[IterVar]:
    """The axes of the stage's operation."""
    return [*stage.op.axis, *stage.op.reduce_axis]


def root_values(stage: Stage, ranges: dict[IterVar, Range]) -> dict[Var, Expr]:
    """The variables of the operation's axes in terms of the loop variables."""
    values = value_of_axes(stage, ranges)
    return {axis.var: ranges[axis].min + values[axis] for axis in root_axes(stage)}


def pass_down(stage: Stage, ranges: dict[IterVar, Range], analyzer: Analyzer) -> None:
    """The ranges of derived axes from those of the operation's axes."""
    for relation in stage.relations:
        if isinstance(relation, Split):
            whole = ranges[relation.parent].extent
            if relation.factor is not None:
                inner, outer = relation.factor, ceil_div(whole, relation.factor)
                if _is_less(whole, inner) and not build.is_const(whole, 0):
                    inner = whole
            else:
                assert relation.nparts is not None
                outer, inner = relation.nparts, ceil_div(whole, relation.nparts)
            ranges[relation.outer] = _from_zero(analyzer.simplify(outer))
            ranges[relation.inner] = _from_zero(analyzer.simplify(inner))
        elif isinstance(relation, Fuse):
            product = ranges[relation.outer].extent * ranges[relation.inner].extent
            ranges[relation.fused] = _from_zero(analyzer.simplify(product))
        elif isinstance(relation, Singleton):
            ranges[relation.iter] = _from_zero(build.const(1))


def _from_zero(extent: Expr) -> Range:
    return Range.from_min_extent(build.const(0, extent.dtype), extent)


def _is_less(a: Expr, b: Expr) -> bool:
    p, q = build.int_value(a), build.int_value(b)
    return p is not None and q is not None and p < q


def loops_around(stage: Stage) -> list[IterVar]:
    """The loops inside which a stage is computed, outermost first."""
    found: list[IterVar] = []
    while stage.attach_stage is not None:
        found[:0] = leaves_around(stage.attach_stage, stage.attach_ivar)
        stage = stage.attach_stage
    return found


def thread_variables(stage: Stage) -> dict[Var, Expr]:
    """The variables of threads as the loops of a stage, and those around it, count them."""
    found: dict[Var, Expr] = {}
    leaves = stage.leaf_iter_vars
    while True:
        for leaf in leaves:
            attributes = stage.iter_var_attrs.get(leaf)
            if attributes is not None and attributes.bind_thread is not None:
                found.setdefault(attributes.bind_thread.var, leaf.var)
        if stage.attach_stage is None:
            return found
        leaves = leaves_around(stage.attach_stage, stage.attach_ivar)
        stage = stage.attach_stage


def scope_of(stage: Stage) -> str:
    """Where a stage's results are kept: what its user says, else what its threads suggest."""
    if stage.scope not in ("", "global"):
        return stage.scope
    tags = {tag for tag, _ in threads_around(stage) if tag in LAUNCHED}
    if not tags:
        return "global"
    return "local" if any(tag in THREADS for tag in tags) else "shared"


def threads_around(stage: Stage) -> list[tuple[str, Var]]:
    """The names of the threads inside which a stage is computed, and the loops over them."""
    found: list[tuple[str, Var]] = []
    while stage.attach_stage is not None:
        outer = stage.attach_stage
        for leaf in leaves_around(outer, stage.attach_ivar):
            attributes = outer.iter_var_attrs.get(leaf)
            thread = attributes.bind_thread if attributes is not None else None
            if leaf.iter_type == THREAD_INDEX:
                thread = leaf
            if thread is not None:
                found.append((thread.thread_tag, leaf.var))
        stage = outer
    return found


def shared_threads(stage: Stage) -> set[Var]:
    """The loops over threads that have a stage's results in common: made for all of them."""
    rank = rank_of_scope(scope_of(stage))
    return {var for tag, var in threads_around(stage) if 0 < rank <= rank_of_thread(tag)}


def leaves_around(stage: Stage, axis: IterVar | None) -> list[IterVar]:
    """The loops of a stage from the outermost to this one; None: what comes before its loops."""
    if axis is None:
        return launched(stage)
    place = next(i for i, leaf in enumerate(stage.leaf_iter_vars) if leaf is axis)
    return stage.leaf_iter_vars[: place + 1]


def depends_on_time(stage: Stage, place: Expr) -> bool:
    """Whether an index into a part of a scan's step moves with that scan's loop over time."""
    if stage.step_of is None:
        return False
    loops = {leaf.var for leaf in stage.step_of.leaf_iter_vars}
    return not loops.isdisjoint(variables_in(place))


def _loads(schedule: Schedule, reader: Stage, stage: Stage) -> list[ProducerLoad]:
    found: list[ProducerLoad] = []

    def visit(item: object) -> None:
        if isinstance(item, ProducerLoad) and schedule[item.tensor] is stage:
            found.append(item)

    if isinstance(reader.op, ComputeOp):
        for expr in reader.op.body:
            post_order(expr, visit)
    return found


def _reads_whole(load: ProducerLoad, reader: Stage) -> bool:
    """Whether an axis of its own runs over each dimension of what is read."""
    axes = {axis.var: axis_range(axis) for axis in root_axes(reader)}
    used: list[Var] = []
    for index, extent in zip(load.indices, load.tensor.shape, strict=True):
        if build.is_const(extent, 1):
            continue
        if not isinstance(index, Var) or index not in axes or index in used:
            return False
        size, whole = build.int_value(axes[index].extent), build.int_value(extent)
        if not build.is_const(axes[index].min, 0) or size is None or size != whole:
            return False
        used.append(index)
    return True


class _Inference:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.bounds = Bounds()

    def run(self) -> Bounds:
        for stage in reversed(self.schedule.stages):
            if isinstance(stage.op, PlaceholderOp) or stage.attach_type == "inline":
                continue
            ranges = {axis: axis_range(axis) for axis in (*root_axes(stage), *launched(stage))}
            if stage.attach_type == "scope":
                ranges.update(self.needed_region(stage))
            pass_down(stage, ranges, self.bounds.analyzer)
            self.bounds.ranges[stage] = ranges
            for leaf in stage.leaf_iter_vars:
                extent = ranges[leaf].extent
                zero = build.const(0, extent.dtype)
                self.bounds.domains[leaf.var] = (zero, build.sub(extent, 1))
                self.bounds.analyzer.bind(leaf.var, zero, extent)
            for axis in root_axes(stage):
                if axis.var not in self.bounds.domains:  # it has loops in its place
                    first = ranges[axis].min
                    last = build.sub(build.add(first, ranges[axis].extent), 1)
                    self.bounds.domains[axis.var] = (first, last)
        return self.bounds

    def axes_of(self, reader: Stage, allowed: set[Var]) -> dict[Var, Expr]:
        """The axes of a reader in terms of its loops, as far as not all of these run inside.

        Loops in the place of an axis may run past its end, where nothing is read; the axis itself
        does not.
        """
        ranges = self.bounds.ranges[reader]
        at, loops = root_values(reader, ranges), value_of_axes(reader, ranges)
        leaves = {leaf.var for leaf in reader.leaf_iter_vars}
        for axis in root_axes(reader):
            if axis.var not in leaves and not allowed.intersection(variables_in(loops[axis])):
                del at[axis.var]
        return at

    def needed_region(self, stage: Stage) -> dict[IterVar, Range]:
        """What the body of the loop that the stage is computed in reads of it."""
        around = loops_around(stage)
        for reader in readers_of(self.schedule, stage):
            self.check_inside(stage, reader, around)
        if stage.is_output:
            self.check_read_whole(stage)
        if not isinstance(stage.op, ComputeOp):
            return {}  # an extern or a scan is made whole
        scan = stage.attach_stage
        if scan is not None and is_update(self.schedule, scan, stage):
            now = root_values(scan, self.bounds.ranges[scan])[scan.op.axis[0].var]
            return {stage.op.axis[0]: Range.from_min_extent(now, build.const(1, now.dtype))}
        allowed = {axis.var for axis in around} - shared_threads(stage)
        lows: list[list[Expr]] = [[] for _ in stage.op.axis]
        highs: list[list[Expr]] = [[] for _ in lows]
        for reader in readers_of(self.schedule, stage):
            if not isinstance(reader.op, ComputeOp):
                return {}  # it reads the whole
            at = self.axes_of(reader, allowed)
            for load in _loads(self.schedule, reader, stage):
                for dim, index in enumerate(load.indices):
                    place = substitute(index, at)
                    low, high = self.relax(place, allowed)
                    if low is None or high is None:
                        if depends_on_time(stage, place):
                            raise ValueError(
                                f"which times of {stage.op.name} the step of a scan needs cannot "
                                f"be found out: {reader.op.name} reads it at {index}"
                            )
                        axis = stage.op.axis[dim]
                        low, high = build.const(0), build.sub(axis_range(axis).extent, 1)
                    lows[dim].append(low)
                    highs[dim].append(high)
        region = {}
        for axis, low_list, high_list in zip(stage.op.axis, lows, highs, strict=True):
            region[axis] = self.union(stage, axis, low_list, high_list)
        return region

    def check_inside(self, stage: Stage, reader: Stage, around: list[IterVar]) -> None:
        """A reader must run inside the loop that the stage is computed in."""
        assert stage.attach_stage is not None and stage.attach_ivar is not None
        if reader is stage.attach_stage:
            return
        outside = loops_around(reader)
        inside = len(outside) >= len(around) and all(
            a is b for a, b in zip(outside, around, strict=False)
        )
        if not inside:
            raise ValueError(
                f"{stage.op.name} is computed at {stage.attach_ivar.name} of "
                f"{stage.attach_stage.op.name}, but {reader.op.name} reads it outside of that "
                "loop; compute it further out, or compute the reader at the same loop"
            )

    def check_read_whole(self, stage: Stage) -> None:
        """All of an output is made where it is read only if a stage at the root reads all of it."""
        for reader in readers_of(self.schedule, stage):
            loads = _loads(self.schedule, reader, stage) if reader.attach_type == "root" else []
            if any(_reads_whole(load, reader) for load in loads):
                return
        raise ValueError(
            f"the output {stage.op.name} must be computed at the root, or at a loop of a stage at "
            "the root that reads each of its elements by loops of its own"
        )

    def relax(self, index: Expr, allowed: set[Var]) -> tuple[Expr | None, Expr | None]:
        """First and last value of an index while the loops that are not allowed run."""
        low: Expr | None = index
        high: Expr | None = index
        for _ in range(64):
            inner = {
                v
                for e in (low, high)
                if e is not None
                for v in variables_in(e)
                if v in self.bounds.domains and v not in allowed
            }
            if not inner or low is None or high is None:
                return low, high
            domains = {v: self.bounds.domains[v] for v in inner}
            low, high = interval(low, domains)[0], interval(high, domains)[1]
        return None, None

    def union(self, stage: Stage, axis: IterVar, lows: list[Expr], highs: list[Expr]) -> Range:
        """One range that holds several."""
        whole = axis_range(axis)
        analyzer = self.bounds.analyzer
        if not lows:
            return whole
        low, high = lows[0], highs[0]
        for other in lows[1:]:
            low = analyzer.simplify(build.minimum(low, other))
        for other in highs[1:]:
            high = analyzer.simplify(build.maximum(high, other))
        low = analyzer.simplify(low)
        extent = analyzer.simplify(high - low + 1)
        if build.int_value(extent) is None:
            limit = analyzer.bound(extent).high
            if limit != float("inf"):
                extent = build.const(int(limit), extent.dtype)
        size, full = build.int_value(extent), build.int_value(whole.extent)
        if full is not None and (size is None or size >= full):
            if not any(depends_on_time(stage, each) for each in lows):
                return whole
            extent = whole.extent  # before that time the state is another one
        dtype = whole.extent.dtype
        return Range.from_min_extent(build.cast(dtype, low), build.cast(dtype, extent))


def infer_bounds(schedule: Schedule) -> Bounds:
    """The range of every axis of every stage that is computed."""
    return _Inference(schedule).run()
