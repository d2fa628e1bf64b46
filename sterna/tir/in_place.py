"""In-place execution: whether a buffer may take over the memory of one that it is made from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sterna.arith import Analyzer, detect_linear, substitute
from sterna.ir import build
from sterna.ir.expr import LT, Call, Expr, Ramp, Var
from sterna.ir.node import Node
from sterna.ir.structural import structural_equal
from sterna.tir.stmt import (
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Prefetch,
    PrimFunc,
    Stmt,
    Tensorized,
    statements_in,
)

READS_FIRST = "reads_first"
"""The attribute of statements that read each element of a buffer, whose address it has, before they
write what takes its place in an output that begins some elements earlier: as many as its node says,
or none."""
OVERLAPPING = "overlapping"
"""The attribute of a function with the places of parameters that may share memory."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two parameters of a function that may share memory, by their places."""

    source: int
    """The one that is only read."""
    target: int
    lead: int
    """The bytes by which target begins before source."""


def let_take_over(
    func: PrimFunc, pairs: Sequence[tuple[int, int]]
) -> tuple[PrimFunc, list[Overlap]]:
    """A function that may be given the same memory for two parameters, and for which of the pairs.

    The first of a pair is only read. Both are one-dimensional.
    """
    allowed: list[Overlap] = []
    for source, target in pairs:
        old, new = func.buffers[source], func.buffers[target]
        assert old is not None and new is not None, f"{func.name} is given memory"
        if old.dtype != new.dtype:
            continue
        lead = said_lead(old, [func.body])
        if lead is not None:
            allowed.append(Overlap(source, target, lead * old.dtype.bytes))
        elif old.known_bytes == new.known_bytes and can_take_over(old, new, [func.body]):
            allowed.append(Overlap(source, target, 0))
    if not allowed:
        return func, []
    return sharing(func, (n for pair in allowed for n in (pair.source, pair.target))), allowed


def sharing(func: PrimFunc, places: Iterable[int]) -> PrimFunc:
    """A function that may be given the same memory for parameters at these places."""
    every = tuple(sorted({*places, *func.attrs.get(OVERLAPPING, ())}))
    attrs = {**func.attrs, OVERLAPPING: every} if every else func.attrs
    return PrimFunc(func.name, func.params, func.buffers, func.body, attrs)


def overlapping(func: PrimFunc) -> set[int]:
    """The identities of the variables that stand for memory which others may share."""
    places = func.attrs.get(OVERLAPPING, ())
    buffers = [func.buffers[place] for place in places]
    return {id(buffer.data) for buffer in buffers if buffer is not None}


def can_take_over(source: Buffer, target: Buffer, stmts: Sequence[Stmt]) -> bool:
    """Whether target may lie in source's memory while these statements run, the last that use it.

    So it is if source is only read where an element of target is written, at that element's own
    index, and no element of target is written twice; or if they say so. Both are one-dimensional.
    """
    if said_lead(source, stmts) == 0:
        return True
    search = _Search(source, target)
    try:
        for stmt in stmts:
            search.stmt(stmt, _Place())
    except _Refused:
        return False
    return _distinct(search.found)


def said_lead(source: Buffer, stmts: Sequence[Stmt]) -> int | None:
    """By how many elements an output must begin earlier to take over source's memory, if they say.

    The statement that says so stands around all that read source.
    """
    for stmt in stmts:
        for inner in statements_in(stmt):
            if isinstance(inner, AttrStmt) and inner.key == READS_FIRST:
                load = inner.value.args[0] if isinstance(inner.value, Call) else None
                if isinstance(load, BufferLoad) and load.buffer.data is source.data:
                    return _number(inner.node) if isinstance(inner.node, Expr) else 0
    return None


class _Refused(Exception):
    """A use that forbids it, or that is not understood."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: in which loops, and on which ways of which branches."""

    loops: dict[Var, tuple[int, int]] = field(default_factory=dict)
    """The first value of each loop's variable here, and the one after its last."""
    ways: tuple[tuple[IfThenElse, bool, tuple[Var, ...]], ...] = ()
    """Each branch, whether this is its first way, and the loops around it."""

    def inside(self, loop: For) -> "_Place":
        start, extent = _number(loop.min), _number(loop.extent)
        return replace(self, loops={**self.loops, loop.var: (start, start + extent)})

    def on_way(self, branch: IfThenElse, first: bool) -> "_Place":
        loops = dict(self.loops)
        condition = branch.condition
        if isinstance(condition, Call) and condition.op == "likely":
            condition = condition.args[0]
        if isinstance(condition, LT) and isinstance(condition.a, Var) and condition.a in loops:
            low, high = loops[condition.a]
            point = build.int_value(condition.b)
            if point is not None:
                here = (low, min(high, point)) if first else (max(low, point), high)
                loops[condition.a] = here
        return _Place(loops, (*self.ways, (branch, first, tuple(self.loops))))

    @property
    def is_reached(self) -> bool:
        """Whether there is an iteration that comes here."""
        return all(low < high for low, high in self.loops.values())


@dataclass(frozen=True, slots=True)
class _Step:
    """How an index moves with a loop, or with the lanes of a vector."""

    stride: int
    count: int


@dataclass(frozen=True, slots=True)
class _Footprint:
    """The elements that a store writes: a first one, and steps from there."""

    first: int
    steps: tuple[_Step, ...]
    strides: dict[Var, int]
    place: _Place

    def span(self) -> tuple[int, int]:
        """The least and the largest element."""
        reach = [step.stride * (step.count - 1) for step in self.steps]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        return self.first + low, self.first + high

    def without(self, stride: int) -> "_Footprint | None":
        """What is left without the only step of a stride; None if there are others like it."""
        rest = tuple(step for step in self.steps if abs(step.stride) != stride)
        return replace(self, steps=rest) if len(rest) == len(self.steps) - 1 else None


class _Search:
    """Finds what target's stores write, and makes sure that all else leaves source alone."""

    def __init__(self, source: Buffer, target: Buffer) -> None:
        self.source, self.target = source, target
        self.analyzer = Analyzer()
        self.rest: Expr | None = None
        self.found: list[_Footprint] = []
        self.named: dict[Var, Expr] = {}
        """What names stand for, of which indices are made."""

    def stmt(self, stmt: Stmt, place: _Place) -> None:
        if not place.is_reached:
            return
        if isinstance(stmt, BufferStore):
            self.store(stmt, place)
            return
        if isinstance(stmt, LetStmt) and self.is_stored_inside(stmt):
            value = stmt.value
            if isinstance(value, Call) and value.op == "exact":
                (value,) = value.args
            self.named[stmt.var] = substitute(value, self.named)
            self.stmt(stmt.body, place)
            return
        if isinstance(stmt, (Tensorized, Prefetch)) and self.touches(stmt):
            raise _Refused
        for child in stmt.children():
            if not isinstance(child, Stmt):
                self.leave_alone(child)
            elif isinstance(stmt, For):
                self.stmt(child, place.inside(stmt))
            elif isinstance(stmt, IfThenElse):
                self.stmt(child, place.on_way(stmt, child is stmt.then))
            else:
                self.stmt(child, place)

    def store(self, store: BufferStore, place: _Place) -> None:
        if store.buffer is self.source:
            raise _Refused
        is_target = store.buffer is self.target
        for part in (store.value, *store.indices, store.predicate):
            if part is not None:
                self.leave_alone(part, store.indices if is_target else None)
        if is_target:
            self.found.append(self.footprint(store.indices, place))

    def is_stored_inside(self, let: LetStmt) -> bool:
        """Whether all that a value reads of source is written behind it, in target's own place."""
        read: list[tuple[Expr, ...]] = []
        stack: list[Node] = [let.value]
        while stack:
            node = stack.pop()
            if isinstance(node, BufferLoad) and node.buffer is self.source:
                read.append(node.indices)
            elif node is self.source.data or node is self.target.data:
                return False
            else:
                stack.extend(node.children())
        places = [inner.indices for inner in statements_in(let.body) if read
                  and isinstance(inner, BufferStore) and inner.buffer is self.target]
        return all(any(structural_equal(one, at) for at in places) for one in read)

    def leave_alone(self, expr: Node, but_at: tuple[Expr, ...] | None = None) -> None:
        """Refuse uses of source in an expression, except loads at one index."""
        stack = [expr]
        while stack:
            node = stack.pop()
            if node is self.source.data or node is self.target.data:
                raise _Refused  # its address goes somewhere
            if (
                isinstance(node, BufferLoad)
                and node.buffer is self.source
                and (but_at is None or not structural_equal(node.indices, but_at))
            ):
                raise _Refused
            stack.extend(node.children())

    def touches(self, stmt: Stmt) -> bool:
        mine = (self.source, self.target, self.source.data, self.target.data)
        stack: list[Node] = [stmt]
        while stack:
            node = stack.pop()
            if any(node is one for one in mine):
                return True
            stack.extend(node.children())
        return False

    def footprint(self, indices: tuple[Expr, ...], place: _Place) -> _Footprint:
        index: Expr = substitute(indices[0], self.named)
        steps: list[_Step] = []
        if isinstance(index, Ramp):
            steps.append(_Step(_number(index.stride), index.lanes))
            index = index.base
        linear = detect_linear(index, list(place.loops), self.analyzer)
        if linear is None:
            raise _Refused
        first = self.first(linear[-1])
        strides = dict(zip(place.loops, map(_number, linear[:-1]), strict=True))
        for var, (low, high) in place.loops.items():
            first += strides[var] * low
            if high - low > 1:
                steps.append(_Step(strides[var], high - low))
        return _Footprint(first, tuple(steps), strides, place)

    def first(self, rest: Expr) -> int:
        """Where an index begins, counted from where the first one does."""
        if self.rest is None:
            self.rest = rest
        return _number(self.analyzer.simplify(build.sub(rest, self.rest)))


def _number(expr: Expr) -> int:
    value = build.int_value(expr)
    if value is None:
        raise _Refused
    return value


# ---- no element twice ----


def _distinct(found: list[_Footprint]) -> bool:
    """Whether all stores together write no element twice."""
    if len(found) <= 1 and not any(f.steps for f in found):
        return True
    groups = _disjoint_groups(found)
    if len(groups) > 1:
        return all(_distinct(group) for group in groups)
    common = set.intersection(*[{abs(step.stride) for step in f.steps} for f in found])
    if not common:
        return _exclusive(found)
    # An element is q*stride + rest in one way only, if all rests are closer than the stride.
    stride = max(common)
    rests = [rest for f in found if (rest := f.without(stride)) is not None]
    if len(rests) < len(found):
        return False
    low, high = min(f.span()[0] for f in rests), max(f.span()[1] for f in rests)
    return high - low < stride and _distinct(rests)


def _disjoint_groups(found: list[_Footprint]) -> list[list[_Footprint]]:
    """Stores in groups that reach no common element."""
    groups: list[list[_Footprint]] = []
    end: int | None = None
    for footprint in sorted(found, key=lambda f: f.span()):
        low, high = footprint.span()
        if end is None or low > end:
            groups.append([])
            end = high
        groups[-1].append(footprint)
        end = max(end, high)
    return groups


def _exclusive(found: list[_Footprint]) -> bool:
    """Whether stores that reach common elements take different ways, so that one at most runs."""
    for branch, _, loops in found[0].place.ways:
        sides: dict[bool, list[_Footprint]] = {True: [], False: []}
        for footprint in found:
            side = next((way[1] for way in footprint.place.ways if way[0] is branch), None)
            # In one iteration of the loops around it only one way is taken. In different ones the
            # elements differ if the loops move all stores alike: the strides separated them.
            if side is None or not _move_alike(footprint, found[0], loops):
                break
            sides[side].append(footprint)
        else:
            if sides[True] and sides[False]:
                return _distinct(sides[True]) and _distinct(sides[False])
    return False


def _move_alike(a: _Footprint, b: _Footprint, loops: tuple[Var, ...]) -> bool:
    return all(
        a.strides[var] == b.strides[var] and a.place.loops[var] == b.place.loops[var]
        for var in loops
    )
