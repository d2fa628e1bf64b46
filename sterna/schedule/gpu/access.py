"""How the elements of a stage read memory: side by side, all the same, or far apart."""

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.te import ComputeOp, IterVar, Stage
from sterna.te.tensor import ProducerLoad, Reduce

# Bytes that a thread loads or stores at once.
VECTOR_BYTES = 16
# A stage that reads more than this through others is not looked into.
MOST_READS = 64


def reads_of(stage: Stage) -> list[ProducerLoad] | None:
    """What a stage reads of memory, in terms of its own axes: through stages that are inlined.

    None where that is too much to follow.
    """
    schedule = stage.schedule
    assert schedule is not None and isinstance(stage.op, ComputeOp)
    found: list[ProducerLoad] = []
    waiting: list[Node] = [*stage.op.body]
    while waiting:
        loads: list[ProducerLoad] = []
        _collect(waiting.pop(), loads)
        for load in loads:
            maker = schedule.stage_map.get(load.tensor.op)
            if maker is None or maker.attach_type != "inline":
                found.append(load)
                continue
            op = maker.op
            assert isinstance(op, ComputeOp)
            values = {a.var: i for a, i in zip(op.axis, load.indices, strict=True)}
            waiting += [substitute(part, values) for part in op.body]
        if len(found) + len(waiting) > MOST_READS:
            return None
    return found


def _collect(node: Node, loads: list[ProducerLoad]) -> None:
    parts = node.source if isinstance(node, Reduce) else (node,)
    for part in parts:
        post_order(part, lambda n: loads.append(n) if isinstance(n, ProducerLoad) else None)


def lanes_along(stage: Stage, axis: IterVar) -> int:
    """How many neighbours along an axis a thread has as one vector: a power of two, at least 1.

    What the stage makes counts where it goes into memory.
    """
    reads = reads_of(stage)
    size = None if axis.dom is None else build.int_value(axis.dom.extent)
    if reads is None or size is None:
        return 1
    neighbours = _Neighbours(stage, axis)
    kinds = [r.tensor.dtype for r in reads if neighbours.reach(r) and not _is_register(stage, r)]
    if stage.scope != "local":
        kinds += [stage.op.output(place).dtype for place in range(stage.op.num_outputs)]
    if not kinds or any(kind.bits < 8 for kind in kinds):
        return 1
    lanes = VECTOR_BYTES // max(kind.bytes for kind in kinds)
    while lanes > 1 and (size % lanes or not all(neighbours.fit(r, lanes) for r in reads)):
        lanes //= 2
    return max(1, lanes)


def _is_register(stage: Stage, load: ProducerLoad) -> bool:
    """Whether a thread has what it reads in registers."""
    assert stage.schedule is not None
    maker = stage.schedule.stage_map.get(load.tensor.op)
    return maker is not None and maker.scope == "local"


def lies_along(stage: Stage, axis: IterVar) -> bool:
    """Whether something that is read lies side by side along an axis."""
    neighbours = _Neighbours(stage, axis)
    return any(
        neighbours.reach(read) and neighbours.fit(read, 2) for read in reads_of(stage) or ()
    )


class _Neighbours:
    """Elements of a stage that follow each other along an axis."""

    def __init__(self, stage: Stage, axis: IterVar) -> None:
        self.axis = axis
        dtype = axis.var.dtype
        self.piece, self.lane = Var("piece", dtype), Var("lane", dtype)
        self.analyzer = Analyzer()
        for other in (*stage.op.axis, *stage.op.reduce_axis):
            if other is not axis and other.dom is not None:
                self.analyzer.bind(other.var, other.dom.min, other.dom.extent)

    def reach(self, load: ProducerLoad) -> bool:
        """Whether what is read depends on the axis."""
        places = zip(load.indices, load.tensor.shape, strict=True)
        return any(
            self.axis.var in variables_in(i) for i, size in places if not build.is_const(size, 1)
        )

    def fit(self, load: ProducerLoad, lanes: int) -> bool:
        """Whether so many of them, from a multiple on, read one element or such as lie together."""
        if not self.reach(load):
            return True
        assert self.axis.dom is not None
        self.analyzer.bind(self.lane, 0, lanes)
        self.analyzer.bind(self.piece, 0, build.floordiv(self.axis.dom.extent, lanes))
        places = zip(load.indices, load.tensor.shape, strict=True)
        *before, last = [self._step(i, lanes) for i, size in places if not build.is_const(size, 1)]
        return all(step == 0 for step in before) and last in (0, 1)

    def _step(self, index: Expr, lanes: int) -> int | None:
        """How far an index moves from lane to lane; None if that differs."""
        place = self.axis.dom.min + self.piece * lanes + self.lane  # type: ignore[union-attr]
        here = substitute(index, {self.axis.var: place})
        first = substitute(here, {self.lane: build.const(0, self.lane.dtype)})
        for step in (0, 1):
            if build.is_const(self.analyzer.simplify(here - first - self.lane * step), 0):
                return step
        return None
