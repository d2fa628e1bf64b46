"""Schedules: how tensors are computed, without changing what they are.

A schedule has a stage per operation. A stage starts with its operation's axes as its loops; each
primitive replaces some of them or says how one runs. The relations between old and new axes are
kept, and lowering derives bounds, indices and guards from them.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.support.classic import classic_names
from sterna.te.intrin import TensorIntrin
from sterna.te.tensor import (
    COMM_REDUCE,
    DATA_PAR,
    OPAQUE,
    ORDERED,
    PARALLELIZED,
    TENSORIZED,
    THREAD_INDEX,
    UNROLLED,
    VECTORIZED,
    ComputeOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Range,
    Tensor,
)
from sterna.tir.threads import LAUNCHED

if TYPE_CHECKING:
    from sterna.te.group import Group


@dataclass(eq=False, slots=True)
class Split:
    """parent = outer * factor + inner"""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Expr | None
    nparts: Expr | None
    divides: bool = False
    """The user's word that there is no rest: checked once, not guarded in each iteration."""


@dataclass(eq=False, slots=True)
class Fuse:
    """fused = outer * extent(inner) + inner"""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(eq=False, slots=True)
class Singleton:
    """An axis of one iteration, for a stage that has none."""

    iter: IterVar


Relation = Split | Fuse | Singleton


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a loop fetches ahead."""

    tensor: Tensor
    offset: Expr
    """How many iterations of the loop that reads it."""
    reader: IterVar | None
    """The loop that reads it, outside of the one that fetches; None if that is the same."""


@dataclass(eq=False, slots=True)
class AxisAttributes:
    """How one loop runs."""

    kind: int | None = None
    """PARALLELIZED, VECTORIZED, UNROLLED or TENSORIZED."""
    bind_thread: IterVar | None = None
    tensor_intrin: TensorIntrin | None = None
    pragmas: list[tuple[str, Any]] = field(default_factory=list)
    prefetches: list["Ahead"] = field(default_factory=list)

    @property
    def is_launched(self) -> bool:
        """Whether threads of a device run it; virtual ones are loops."""
        return self.bind_thread is not None and self.bind_thread.thread_tag in LAUNCHED


class Stage:
    """How one operation is computed."""

    def __init__(self, op: Operation, is_output: bool = False) -> None:
        self.op = op
        self.origin_op = op
        """What it was the stage of at first: cache_write and others give it another operation."""
        self.is_output = is_output
        self.schedule: Schedule | None = None
        self.group: Group | None = None
        self.step_of: Stage | None = None
        """The scan on whose state it depends; known when the schedule is normalized."""
        self.scope = ""
        self.all_iter_vars: list[IterVar] = []
        self.leaf_iter_vars: list[IterVar] = []
        self.relations: list[Relation] = []
        self.iter_var_attrs: dict[IterVar, AxisAttributes] = {}
        self.attach_type = "root"
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None
        self.store_predicate: Expr | None = None
        self.step_predicate: Expr | None = None
        self.is_double_buffered = False
        self.is_rolling = False
        self.axis_separators: tuple[int, ...] = ()
        self.layout_conditions: list[Expr] = []
        """What holds for the axes where the stage's layout has an element."""
        self.axis_alignment: dict[IterVar, tuple[int, int]] = {}
        self.set_op(op)

    def set_op(self, op: Operation) -> None:
        """Make this the stage of another operation, with its axes as loops."""
        self.op = op
        roots = [*op.axis, *op.reduce_axis]
        self.all_iter_vars = list(roots)
        self.leaf_iter_vars = list(roots)
        self.relations = []
        if isinstance(op, ComputeOp) and not roots:
            one = IterVar(Range.from_min_extent(build.const(0), build.const(1)), "singleton")
            self.relations.append(Singleton(one))
            self.all_iter_vars.append(one)
            self.leaf_iter_vars.append(one)

    # ---- finding axes ----

    def _find_leaf(self, axis: Any) -> int:
        if not isinstance(axis, IterVar):
            raise TypeError(f"stage {self.op.name}: expected an axis, got {axis!r}")
        for position, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return position
        known = any(axis is item for item in self.all_iter_vars)
        problem = "that has already been split" if known else "that is not part of the schedule"
        raise ValueError(
            f"Operate on iter var {axis.name} of stage {self.op.name} {problem}; its loops are "
            + ", ".join(leaf.name for leaf in self.leaf_iter_vars)
        )

    def _attributes(self, axis: IterVar) -> AxisAttributes:
        return self.iter_var_attrs.setdefault(axis, AxisAttributes())

    # ---- loops ----

    def split(
        self,
        parent: IterVar,
        factor: ExprLike | None = None,
        nparts: ExprLike | None = None,
        disable_predication: bool = False,
    ) -> tuple[IterVar, IterVar]:
        """for i in n  ->  for i.outer in ceil(n / factor): for i.inner in factor

        disable_predication: the factor divides the extent, so no iteration needs a guard. Lowering
        refuses a constant extent of which that is not true; a symbolic one is asserted before the
        loops run.
        """
        if nparts is not None and factor is not None:
            raise ValueError("Do not need to provide both outer and nparts")
        if nparts is None and factor is None:
            raise ValueError("Either nparts or factor need to be provided")
        if parent.iter_type not in (DATA_PAR, COMM_REDUCE, ORDERED):
            raise ValueError(f"Cannot split on {_kind_name(parent.iter_type)} axis {parent.name}")
        position = self._find_leaf(parent)
        dtype = parent.var.dtype
        chosen = build.cast(dtype, build.as_expr(factor if factor is not None else nparts))
        number = build.int_value(chosen)
        if number is not None and number <= 0:
            raise ValueError(f"the axis {parent.name} cannot be split by {number}")
        outer = IterVar(None, f"{parent.name}.outer", parent.iter_type, dtype=dtype)
        inner = IterVar(None, f"{parent.name}.inner", parent.iter_type, dtype=dtype)
        by_factor = factor is not None
        self.relations.append(
            Split(
                parent,
                outer,
                inner,
                chosen if by_factor else None,
                None if by_factor else chosen,
                disable_predication,
            )
        )
        self.all_iter_vars += [outer, inner]
        self.leaf_iter_vars[position : position + 1] = [outer, inner]
        return outer, inner

    def fuse(self, *axes: IterVar) -> IterVar:
        """for i in n: for j in m  ->  for i.j.fused in n * m"""
        if not axes:
            raise ValueError("Fuse requires at least 1 axis")
        fused = axes[0]
        for inner in axes[1:]:
            fused = self._fuse_two(fused, inner)
        if len(axes) == 1:
            self._find_leaf(fused)
        return fused

    def _fuse_two(self, outer: IterVar, inner: IterVar) -> IterVar:
        for axis in (outer, inner):
            if axis.iter_type not in (DATA_PAR, COMM_REDUCE, ORDERED):
                raise ValueError(f"Cannot fuse {_kind_name(axis.iter_type)} axis {axis.name}")
        if (outer.iter_type == COMM_REDUCE) != (inner.iter_type == COMM_REDUCE):
            raise ValueError(
                f"Cannot fuse {outer.name} and {inner.name}: one is a reduction axis, one is not"
            )
        at_outer, at_inner = self._find_leaf(outer), self._find_leaf(inner)
        if at_inner == at_outer - 1:
            outer, inner, at_outer, at_inner = inner, outer, at_inner, at_outer
        if at_inner != at_outer + 1:
            raise ValueError(
                "Can only fuse iterations that are consecutive between each other: "
                f"{outer.name} and {inner.name} of stage {self.op.name} are not"
            )
        dtype = build.common_type(outer.var.dtype, inner.var.dtype)
        name = f"{outer.name}.{inner.name}.fused"
        fused = IterVar(None, name, outer.iter_type, dtype=dtype)
        self.relations.append(Fuse(outer, inner, fused))
        self.all_iter_vars.append(fused)
        self.leaf_iter_vars[at_outer : at_inner + 1] = [fused]
        return fused

    def reorder(self, *axes: IterVar) -> None:
        """for i: for j: for k, reorder(k, i)  ->  for k: for j: for i

        The loops keep, among themselves, the places that they occupy.
        """
        if len({id(axis) for axis in axes}) != len(axes):
            raise ValueError("Same axis can not appear more than once")
        for axis in axes:
            if axis.iter_type not in (DATA_PAR, COMM_REDUCE, THREAD_INDEX):
                raise ValueError(f"Cannot reorder {_kind_name(axis.iter_type)} axis {axis.name}")
        places = sorted(self._find_leaf(axis) for axis in axes)
        for place, axis in zip(places, axes, strict=True):
            self.leaf_iter_vars[place] = axis

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: ExprLike, y_factor: ExprLike
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """for x: for y  ->  for x.outer: for y.outer: for x.inner: for y.inner"""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    # ---- how a loop runs ----

    def _mark(self, axis: IterVar, kind: int) -> None:
        self._find_leaf(axis)
        if axis.iter_type == THREAD_INDEX:
            raise ValueError(f"{axis.name} of stage {self.op.name} runs as threads already")
        self._attributes(axis).kind = kind

    def vectorize(self, var: IterVar) -> None:
        """for i in 8: b[i] = a[i] + 1  ->  b[0:8] = a[0:8] + 1, as one vector"""
        if var.iter_type not in (DATA_PAR, OPAQUE):
            raise ValueError(f"Cannot vectorize on {_kind_name(var.iter_type)} axis {var.name}")
        self._mark(var, VECTORIZED)

    def parallel(self, var: IterVar) -> None:
        """for i in n  ->  for i in n:  # parallel; the threads of the CPU share the iterations"""
        if var.iter_type == COMM_REDUCE:
            raise ValueError(
                f"Cannot run the reduction axis {var.name} in parallel; use rfactor first"
            )
        if var.iter_type == ORDERED:
            raise ValueError(f"Cannot run the axis {var.name} in parallel: it has an order")
        self._mark(var, PARALLELIZED)

    def unroll(self, var: IterVar) -> None:
        """for i in 2: b[i] = a[i]  ->  b[0] = a[0]; b[1] = a[1]"""
        self._mark(var, UNROLLED)

    def tensorize(self, var: IterVar, tensor_intrin: TensorIntrin) -> None:
        """Let an intrinsic do what the loop, and all loops inside it, would compute."""
        if not isinstance(self.op, ComputeOp):
            raise ValueError(f"{self.op.name} cannot be tensorized: only a compute can be")
        if not isinstance(tensor_intrin, TensorIntrin):
            raise TypeError(
                f"stage {self.op.name}: {var.name} is tensorized by what te.decl_tensor_intrin "
                f"declares, not by {tensor_intrin!r}"
            )
        self._mark(var, TENSORIZED)
        self._attributes(var).tensor_intrin = tensor_intrin

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """for i in n  ->  for i in n:  # thread threadIdx.x"""
        if not isinstance(thread_ivar, IterVar) or thread_ivar.iter_type != THREAD_INDEX:
            name = getattr(thread_ivar, "name", thread_ivar)
            raise ValueError(
                f"Cannot rebase by {name}, only thread axis is allowed so far; make one with "
                "te.thread_axis"
            )
        self._find_leaf(ivar)
        if ivar.iter_type not in (DATA_PAR, COMM_REDUCE):
            raise ValueError(f"Cannot bind {_kind_name(ivar.iter_type)} axis {ivar.name} to thread")
        tag = thread_ivar.thread_tag
        for axis, attributes in self.iter_var_attrs.items():
            other = attributes.bind_thread
            if other is None or not any(axis is leaf for leaf in self.leaf_iter_vars):
                continue
            if axis is ivar:
                raise ValueError(f"the axis {ivar.name} is already bound to {other.thread_tag}")
            if other is thread_ivar or (other.thread_tag == tag and tag != "vthread"):
                raise ValueError(
                    f"the axis {axis.name} of stage {self.op.name} is bound to {tag} already; "
                    "fuse both axes, or bind one to another thread"
                )
        self._attributes(ivar).bind_thread = thread_ivar

    if TYPE_CHECKING:  # env_threads.py and layout.py define them

        def env_threads(self, threads: IterVar | Sequence[IterVar]) -> None: ...

        def transform_layout(
            self, mapping_function: Callable[..., Any]
        ) -> list[IterVar] | None: ...

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """for i: s  ->  for i: with attr("pragma_type", value): s, for the passes behind"""
        self._find_leaf(var)
        self._attributes(var).pragmas.append((pragma_type, pragma_value))

    def prefetch(
        self, tensor: Tensor, var: IterVar, offset: ExprLike, reader: IterVar | None = None
    ) -> None:
        """Hint in each iteration at what the loop reads of a tensor offset iterations later.

        reader: a loop around this one, of this stage or of one that it is computed in. What that
        loop reads offset iterations later is fetched, a share in each iteration of this one.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"stage {self.op.name}: a tensor is prefetched, not {tensor!r}")
        ahead = build.as_expr(offset)
        if not ahead.dtype.is_integer:
            raise TypeError(f"prefetch of {tensor.name}: its offset counts iterations")
        self._find_leaf(var)
        self._attributes(var).prefetches.append(Ahead(tensor, ahead, reader))

    # ---- where it is computed ----

    def compute_at(self, parent: "Stage", scope: IterVar) -> None:
        """for i in n: b[i] = a[i]; for i in n: c[i] = b[i]  ->  for i in n: b = a[i]; c[i] = b"""
        if parent is self:
            raise ValueError(f"stage {self.op.name} cannot be computed at itself")
        find_scope(parent, scope)
        if self.group is not None:
            self.group.check_holds(parent)
        if isinstance(self.op, PlaceholderOp):
            raise ValueError(f"the input {self.op.name} is not computed")
        self.attach_type, self.attach_stage, self.attach_ivar = "scope", parent, scope

    def compute_inline(self) -> None:
        """for i in n: b[i] = a[i] + 1; for i in n: c[i] = b[i]  ->  for i in n: c[i] = a[i] + 1"""
        if self.is_output:
            raise ValueError(f"the output {self.op.name} cannot be inlined")
        self.attach_type, self.attach_stage, self.attach_ivar = "inline", None, None

    def compute_root(self) -> None:
        """for i in n: b = a[i]; c[i] = b  ->  for i in n: b[i] = a[i]; for i in n: c[i] = b[i]"""
        self.attach_type, self.attach_stage, self.attach_ivar = "root", None, None

    def set_scope(self, scope: str) -> None:
        """allocate(b, "global")  ->  allocate(b, scope)"""
        self.scope = scope

    def double_buffer(self) -> None:
        """for i in n: make b of i; use b

        ->  make b[0] of 0; for i in n: make b[(i + 1) % 2] of i + 1; use b[i % 2]
        """
        if self.is_output:
            raise ValueError(f"Cannot apply double buffer on output {self.op.name}")
        self._check_buffering("double")
        self.is_double_buffered = True

    def rolling_buffer(self) -> None:
        """for i in n: make b[i : i + 3]; use b[i], b[i + 1], b[i + 2]

        ->  for i in n: make b[i + 2] (at first b[0 : 3]) in b[(i + 2) % 3]; use b[i % 3], ...
        """
        if self.is_output:
            raise ValueError(f"Cannot apply rolling buffer on output {self.op.name}")
        self._check_buffering("rolling")
        self.is_rolling = True

    def _check_buffering(self, kind: str) -> None:
        if isinstance(self.op, PlaceholderOp):
            raise ValueError(f"the input {self.op.name} is not computed, so nothing is buffered")
        if self.is_rolling if kind == "double" else self.is_double_buffered:
            raise ValueError(
                f"{self.op.name} cannot have a double and a rolling buffer: either an iteration "
                "finds what the last one left, or the next one's is made ahead"
            )

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the buffer so that the axis's stride is offset more than a multiple of factor.

        allocate((4, 8)), storage_align(axis 0, 8, 1)  ->  allocate((4, 8), strides=(9, 1))
        """
        if not isinstance(axis, IterVar) or not any(axis is own for own in self.op.axis):
            name = getattr(axis, "name", axis)
            raise ValueError(
                f"{name} is no axis of the tensor {self.op.name}; it has the axes "
                + ", ".join(own.name for own in self.op.axis)
            )
        if factor < 1:
            raise ValueError(f"storage_align of {self.op.name} by {factor}: it must be 1 or more")
        self.axis_alignment[axis] = (factor, offset)

    def set_store_predicate(self, predicate: ExprLike) -> None:
        """b[i] = x  ->  if predicate: b[i] = x

        For threads that would store the same value: the predicate picks one of them. It may use
        the stage's axes and the threads that they are bound to.
        """
        self.store_predicate = build.as_expr(predicate)

    def set_step_predicate(self, predicate: ExprLike) -> None:
        """for r: b[i] += x[r]  ->  for r: if predicate: b[i] += x[r]

        For steps of a sum that add nothing where the predicate does not hold. Each of its parts is
        asked as soon as the loops tell it, and skips all that is inside. It may use the stage's
        axes and the loops into which they were split.
        """
        self.step_predicate = build.as_expr(predicate)

    def __repr__(self) -> str:
        loops = ", ".join(leaf.name for leaf in self.leaf_iter_vars)
        return f"stage({self.op.name}: {loops})"


def find_scope(parent: Stage, scope: IterVar) -> None:
    """What is computed at a loop needs a loop that the stage has."""
    if not any(scope is leaf for leaf in parent.leaf_iter_vars):
        raise ValueError(
            f"Cannot find the axis {scope.name} in parent's leaf_iter_vars "
            f"(stage {parent.op.name} has "
            + ", ".join(leaf.name for leaf in parent.leaf_iter_vars)
            + ")"
        )


_KIND_NAMES = ("DataPar", "ThreadIndex", "CommReduce", "Ordered", "Opaque", "Unrolled",
               "Vectorized", "Parallelized", "Tensorized")


def _kind_name(kind: int) -> str:
    return _KIND_NAMES[kind]


class Schedule:
    """A stage for each operation, producers before consumers."""

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.outputs = list(outputs)
        self.stages: list[Stage] = []
        self.groups: list[Group] = []
        self.stage_map: dict[Operation, Stage] = {}
        for op in _topological_order(outputs):
            stage = Stage(op, is_output=any(op is output for output in outputs))
            self.insert(len(self.stages), stage)

    def insert(self, place: int, stage: Stage) -> None:
        """Add a stage before the one at a place."""
        stage.schedule = self
        self.stages.insert(place, stage)
        self.stage_map[stage.op] = stage

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(op) if isinstance(op, Operation) else None
        if stage is None:
            raise ValueError(f"Cannot find the operation {op} in schedule")
        return stage

    if TYPE_CHECKING:  # cache.py, rfactor.py, group.py and normalize.py define them

        def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor: ...

        def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any: ...

        def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any: ...

        def create_group(
            self, outputs: Any, inputs: Any, include_inputs: bool = False
        ) -> Group: ...

        def normalize(self) -> "Schedule": ...

    def copy(self) -> "Schedule":
        """Another schedule with the same stages, to be changed on its own."""
        twin = Schedule([])
        twin.outputs = list(self.outputs)
        stages = {stage: copy.copy(stage) for stage in self.stages}
        groups = {group: copy.copy(group) for group in self.groups}
        twin.groups = list(groups.values())
        for stage in stages.values():
            stage.leaf_iter_vars = list(stage.leaf_iter_vars)
        members: list[Stage | Group] = [*stages.values(), *twin.groups]
        for member in members:
            member.schedule = twin
            if member.group is not None:
                member.group = groups[member.group]
            if member.attach_stage is not None:
                member.attach_stage = stages[member.attach_stage]
        twin.stages = list(stages.values())
        twin.stage_map = {op: stages[s] for op, s in self.stage_map.items() if s in stages}
        return twin

    # ---- changing the graph ----

    def rewrite_stage(self, stage: Stage, change: Callable[[Expr], Expr]) -> None:
        """Change the expressions that a stage computes; its axes and its tensors' names stay."""
        self.replace_op(stage, stage.op.rewritten(change))

    def replace_op(self, stage: Stage, op: Operation) -> None:
        """Let a stage, with the loops that it has, make another operation's tensors."""
        if stage.is_output:
            self.outputs = [op if o is stage.op else o for o in self.outputs]
        stage.op = op
        self.stage_map[op] = stage


def _topological_order(outputs: Sequence[Operation]) -> list[Operation]:
    """Every operation that the outputs need, producers first."""
    order: list[Operation] = []
    seen: set[Operation] = set()
    for output in outputs:
        if output in seen:
            continue
        seen.add(output)
        stack = [(output, iter(output.input_tensors))]
        while stack:
            op, rest = stack[-1]
            tensor = next((t for t in rest if t.op not in seen), None)
            if tensor is None:
                stack.pop()
                order.append(op)
            else:
                seen.add(tensor.op)
                stack.append((tensor.op, iter(tensor.op.input_tensors)))
    return order


def create_schedule(ops: Operation | Sequence[Operation]) -> Schedule:
    """The plain schedule of one or more operations."""
    given: list[Any] = list(ops) if isinstance(ops, list | tuple) else [ops]
    if not given:
        raise ValueError("create_schedule takes at least one operation")
    for op in given:
        if not isinstance(op, Operation):
            raise ValueError(
                f"create_schedule takes operations, not {op!r}; for a tensor pass tensor.op"
            )
    return Schedule(given)


__getattr__ = classic_names(__name__)
