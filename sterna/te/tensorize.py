"""Tensorization: loops of a stage whose innermost ones are done by an intrinsic.

    for i.outer in range(4): for j in range(64): C[i.outer*16 : +16, j] by loops
    ->  for i.outer in range(4): for j in range(64): with tensorized("gemv"): ... means: those loops

What the intrinsic replaces is a tile: the computation over a rectangle of its axes. Where a split
does not divide, a tile that sticks out is computed by a smaller form of the intrinsic, if it has
one, else by plain loops with their guards.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from sterna.arith import interval, substitute
from sterna.ir import build
from sterna.ir.expr import GE, GT, LE, LT, Call, CompareExpr, Expr, Var, variables_in
from sterna.ir.visitor import Rewriter
from sterna.te.bounds import root_axes
from sterna.te.intrin import TensorIntrin
from sterna.te.intrin_bind import Binding, View
from sterna.te.intrin_match import Dims, Mismatch, Region, Tile, match
from sterna.te.schedule import AxisAttributes
from sterna.te.tensor import (
    COMM_REDUCE,
    TENSORIZED,
    VECTORIZED,
    ComputeOp,
    IterVar,
    Range,
    Tensor,
    axis_range,
)
from sterna.tir.copy import copy_stmt
from sterna.tir.stmt import AttrStmt, For, IfThenElse, Stmt, Tensorized, seq

if TYPE_CHECKING:
    from sterna.te.nest import Nest


Part = Literal["all", "init", "update"]

_ORDERS: dict[type[Expr], Callable[[Expr, Expr], Expr]] = {LT: LT, LE: LE, GT: GT, GE: GE}


def tensorized_leaf(nest: "Nest") -> int | None:
    """Which of a stage's loops is tensorized."""
    marks = [_attributes(nest, leaf).kind for leaf in nest.stage.leaf_iter_vars]
    return marks.index(TENSORIZED) if TENSORIZED in marks else None


def tensorized_loops(nest: "Nest", place: int) -> Stmt:
    """The loops of a stage, of which the one at a place and those inside it are an intrinsic's."""
    return _Tensorization(nest, place).make()


def _attributes(nest: "Nest", leaf: IterVar) -> AxisAttributes:
    return nest.stage.iter_var_attrs.get(leaf, AxisAttributes())


class _Tensorization:
    def __init__(self, nest: "Nest", place: int) -> None:
        assert isinstance(nest.op, ComputeOp)
        self.nest, self.op = nest, nest.op
        leaves = nest.stage.leaf_iter_vars
        self.outer, self.inner = leaves[:place], leaves[place:]
        self.leaf = leaves[place]
        intrin = _attributes(nest, self.leaf).tensor_intrin
        assert intrin is not None
        self.intrin: TensorIntrin = intrin
        self.analyzer = nest.analyzer
        self.check_loops()
        self.extents = {leaf.var: nest.ranges[leaf].extent for leaf in self.inner}
        self.tile = self.make_tile(self.extents)
        self.binding = self.bind(intrin, self.tile)

    def refuse(self, reason: str) -> ValueError:
        return ValueError(
            f"{self.op.name} cannot be tensorized at {self.leaf.name} by "
            f"{self.intrin.name}: {reason}"
        )

    # ---- what is replaced ----

    def check_loops(self) -> None:
        for leaf in self.inner:
            attached = self.nest.lowering.attached_at(self.nest.stage, leaf)
            marks = _attributes(self.nest, leaf)
            if attached:
                raise self.refuse(
                    f"{attached[0].op.name} is computed at {leaf.name}, which the intrinsic "
                    "replaces; compute it further out"
                )
            if marks.prefetches or marks.bind_thread is not None:
                raise self.refuse(
                    f"{leaf.name}, which the intrinsic replaces, is bound to a thread or prefetches"
                )
        for leaf in self.outer:
            if _attributes(self.nest, leaf).kind == VECTORIZED:
                raise self.refuse(f"the loop {leaf.name} around it is vectorized")
        if self.nest.stage.store_predicate is not None:
            raise self.refuse("its stage has a store predicate")
        if self.nest.stage.step_predicate is not None:
            raise self.refuse("its stage has a step predicate")

    def make_tile(self, extents: Mapping[Var, Expr]) -> Tile:
        """The rectangle of axes that inner loops of such extents run over."""
        nest = self.nest
        domains = {
            var: (build.const(0, extent.dtype), build.sub(extent, 1))
            for var, extent in extents.items()
        }
        ranges: dict[IterVar, Range] = {}
        inside: Expr = build.const(1)
        for axis in root_axes(nest.stage):
            low, high = interval(nest.at[axis.var], domains, self.analyzer)
            if low is None or high is None:
                raise self.refuse(f"its loops run over no range of {axis.name}")
            extent = self.analyzer.simplify(high - low + 1)
            ranges[axis] = Range.from_min_extent(self.analyzer.simplify(low), extent)
            inside = build.mul(inside, extent)
        count: Expr = build.const(1)
        for extent in extents.values():
            count = build.mul(count, extent)
        if not self.analyzer.can_prove_equal(inside, count):
            names = ", ".join(leaf.name for leaf in self.inner)
            raise self.refuse(
                f"the loops {names} leave gaps on the axes of {nest.op.name}; reorder them so that "
                "the parts of an axis that are not replaced run outside"
            )
        return Tile(self.op, ranges)

    def bind(self, intrin: TensorIntrin, tile: Tile) -> Binding:
        try:
            found = match(intrin, tile, self.analyzer)
        except Mismatch as mismatch:
            whole = {axis: axis_range(axis) for axis in _axes(intrin.op)}
            loops = _described(self.op, tile.ranges)
            intrinsic = _described(intrin.op, whole)
            raise self.refuse(
                f"{mismatch}\n"
                f"  the loops compute      {loops}\n"
                f"  the intrinsic computes {intrinsic}"
            ) from None
        lowering = self.nest.lowering
        values = {var: lowering.load(value) for var, value in found.values.items()}
        binding = Binding(intrin.name, values, self.analyzer)
        buffers = iter(intrin.buffers)
        for tensor in intrin.inputs:
            region = found.inputs[tensor]
            if intrin.reads_under_conditions:
                self.check_inside(tensor, region, found.values)
            first = [lowering.load(index) for index in region.first]
            binding.bind(next(buffers), self.view(region.tensor, first, region.dims))
        first = [tile.ranges[axis].min for axis in self.op.axis]
        for tensor in self.op.outputs:
            binding.bind(next(buffers), self.view(tensor, first, found.output_dims))
        return binding

    def check_inside(self, own: Tensor, region: Region, values: dict[Var, Expr]) -> None:
        """The intrinsic may read all of an input, even what the loops never do."""
        for dim, place in enumerate(region.dims):
            if place is None:
                continue
            first, extent = region.first[place], substitute(own.shape[dim], values)
            inside = (first >= 0, first + extent <= region.tensor.shape[place])
            if not all(self.analyzer.can_prove(condition) for condition in inside):
                raise self.refuse(
                    f"it reads {own.name} under a condition, and {extent} elements from {first} on "
                    f"may stick out of {region.tensor.name}"
                )

    def view(self, tensor: Tensor, first: Sequence[Expr], dims: Dims) -> View:
        lowering = self.nest.lowering
        place = lowering.places[lowering.schedule[tensor]]
        buffer = place.buffers[tensor.value_index]
        if place.roll is not None and place.roll.axis in dims:
            raise self.refuse(
                f"{tensor.name} is kept in a rolling buffer, in which a tile does not lie in one "
                "piece"
            )
        # Arrays of a device are as aligned as its memory: a launch checks it.
        is_ours = any(buffer is made for made in place.allocates) or lowering.on_device
        return View(buffer, lowering.local_indices(place, first), dims, is_ours)

    # ---- statements ----

    def make(self) -> Stmt:
        nest, intrin = self.nest, self.intrin
        leaves, place = nest.stage.leaf_iter_vars, len(self.outer)
        first = next((i for i, x in enumerate(leaves) if x.iter_type == COMM_REDUCE), len(leaves))
        if intrin.body is not None and place <= first:
            return nest.loops(self.outer, self.done_by(intrin.body, "all"))
        if intrin.reduce_update is None:
            raise self.refuse(
                f"the loop {leaves[first].name} over a part of the reduction runs outside, but the "
                "intrinsic has no reduce_update"
            )
        first = min(first, place)
        around, between = leaves[:first], leaves[first:place]
        if intrin.reduce_init is None:
            init = nest.init(leaves[first:])
        else:
            init = nest.init_loops(between, self.done_by(intrin.reduce_init, "init"))
        update = nest.loops(between, self.done_by(intrin.reduce_update, "update"))
        return nest.loops(around, seq(init, update))

    def done_by(self, stmt: Stmt, part: Part) -> Stmt:
        """One of the intrinsic's statements in the place of a part of the inner loops."""
        meaning = copy_stmt(_Serial().rewrite(self.plain(part, ())), {})
        done: Stmt = Tensorized(self.intrin.name, self.binding.statement(stmt), meaning)
        variables = {leaf.var for leaf in self.inner}
        guards = self.nest.guards(part != "init")
        inside = [g for g in guards if variables.intersection(variables_in(g))]
        if inside:
            condition = self.whole_tile(inside, self.extents)
            if build.is_const(condition.args[0], 0):
                raise self.refuse("no tile is whole: its factors are larger than what is computed")
            other: Stmt = copy_stmt(self.plain(part, inside), {})
            for fits, smaller in self.smaller_tiles(inside):
                meaning = copy_stmt(_Serial().rewrite(self.plain(part, inside)), {})
                other = IfThenElse(fits, Tensorized(self.intrin.name, smaller, meaning), other)
            done = IfThenElse(condition, done, other)
        for guard in reversed(guards):
            if guard not in inside:
                done = IfThenElse(guard, done)
        for leaf in reversed(self.inner):
            done = self.nest.with_pragmas(leaf, done)
        return done

    def plain(self, part: Part, guards: Sequence[Expr]) -> Stmt:
        """A part of what the inner loops do, by loops."""
        nest = self.nest
        first = next(
            (i for i, x in enumerate(self.inner) if x.iter_type == COMM_REDUCE), len(self.inner)
        )
        if not self.op.reduce_axis:
            return nest.loops(self.inner, _guarded(nest.store(), guards))
        if part == "init":
            return nest.init_loops(self.inner, _guarded(nest.start(), guards))
        if part == "update":
            return nest.loops(self.inner, _guarded(nest.update(), guards))
        reduced = {leaf.var for leaf in self.inner[first:] if leaf.iter_type == COMM_REDUCE}
        own = [g for g in guards if not reduced.intersection(variables_in(g))]
        init = nest.init_loops(self.inner[first:], _guarded(nest.start(), own))
        update = nest.loops(self.inner[first:], _guarded(nest.update(), guards))
        return nest.loops(self.inner[:first], seq(init, update))

    def smaller_tiles(self, guards: Sequence[Expr]) -> list[tuple[Expr, Stmt]]:
        """What computes tiles that stick out, and when: they end where a guard's range does."""
        rests: dict[Var, int] = {}
        ends: dict[Var, list[CompareExpr]] = {}
        for guard in guards:
            assert isinstance(guard, Call)
            condition = guard.args[0]
            loops = [var for var in self.extents if var in set(variables_in(guard))]
            if not isinstance(condition, LT) or len(loops) != 1:
                return []
            (var,) = loops
            end, side = build.int_value(condition.b), build.int_value(self.extents[var])
            if end is None or side is None:
                return []
            ends.setdefault(var, []).append(condition)
            if end % side:
                rests[var] = min(end % side, rests.get(var, side))
        if self.intrin.smaller is None or self.intrin.body is None:
            return []
        found: list[tuple[Expr, Stmt]] = []
        for count in range(1, len(rests) + 1):
            for cut in combinations(rests, count):
                left = {var: build.const(rests[var], var.dtype) for var in cut}
                extents = {**self.extents, **left}
                sizes = tuple(build.int_value(extent) or 0 for extent in extents.values())
                smaller = self.intrin.smaller(sizes)
                assert smaller.body is not None
                fits = self.whole_tile(guards, extents).args[0]
                for var in cut:  # where one guard fails all that follows is outside
                    over = [substitute(own.a, left) >= own.b for own in ends[var]]
                    fits = build.logical_and(fits, reduce(build.logical_or, over))
                fits = self.analyzer.simplify(fits)
                if build.is_const(fits, 0):
                    continue
                binding = self.bind(smaller, self.make_tile(extents))
                found.append((Call(fits.dtype, "likely", (fits,)), binding.statement(smaller.body)))
        return found

    def whole_tile(self, guards: Sequence[Expr], extents: Mapping[Var, Expr]) -> Call:
        """The condition under which guards hold in all iterations of loops of such extents."""
        domains = {
            var: (build.const(0, var.dtype), build.cast(var.dtype, extent - 1))
            for var, extent in extents.items()
        }
        whole: Expr = build.const(True)
        for guard in guards:
            assert isinstance(guard, Call)
            condition = guard.args[0]
            worst = None
            if isinstance(condition, CompareExpr) and type(condition) in _ORDERS:
                ends = interval(condition.a - condition.b, domains, self.analyzer)
                worst = ends[1] if isinstance(condition, (LT, LE)) else ends[0]
            if worst is None:
                raise self.refuse(f"whether {condition} holds in a whole tile is not known")
            holds = _ORDERS[type(condition)](worst, build.const(0, worst.dtype))
            whole = build.logical_and(whole, self.analyzer.simplify(holds))
        return Call(whole.dtype, "likely", (whole,))


class _Serial(Rewriter):
    """Plain loops in order, without what is said about how to run them."""

    def visit_For(self, loop: For) -> Stmt:
        return loop.with_body(self.rewrite(loop.body), "serial")

    def visit_AttrStmt(self, attribute: AttrStmt) -> Stmt:
        plain: Stmt = self.rewrite(attribute.body)
        return plain


def _guarded(body: Stmt, guards: Sequence[Expr]) -> Stmt:
    for guard in reversed(guards):
        body = IfThenElse(guard, body)
    return body


def _axes(op: ComputeOp) -> list[IterVar]:
    return [*op.axis, *op.reduce_axis]


def _described(op: ComputeOp, ranges: dict[IterVar, Range]) -> str:
    """A computation over ranges of its axes, as text."""
    at: dict[Var, Expr] = {axis.var: r.min + axis.var for axis, r in ranges.items()}
    indices = ", ".join(str(at[axis.var]) for axis in op.axis)
    body = ", ".join(str(substitute(expr, at)) for expr in op.body)
    bounds = ", ".join(f"{axis.name} < {ranges[axis].extent}" for axis in _axes(op))
    return f"{op.name}[{indices}] = {body} for {bounds}"
