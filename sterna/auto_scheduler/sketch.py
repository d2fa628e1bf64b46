"""What is searched for a workload: tiles of its reductions, lanes, unrolling, shares of threads.

Results that are cheap are computed where they are read. A reduction is computed in a tile of the
loops of what follows it (or of a copy of its result): tiles are shared among threads, on GPUs a
tile is a block; inside, a register tile is summed up and its innermost loop is made of lanes.
"""

import math
from collections.abc import Sequence

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.own_schedule import is_costly
from sterna.autotvm.space import Config, ConfigSpace, InstantiationError
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.te import ComputeOp, Operation
from sterna.te.flops import extent_of

UNROLLS = (64, 0, 16, 512)
LARGEST_TILE = 64
LARGEST_STEP = 64
VECTOR_BYTES = 32
MOST_LANES = 64
GPU_THREADS = 64


class Sketch:
    """The space of a workload for a target, and the loops of each point in it."""

    def __init__(self, dag: ComputeDAG, target: Target) -> None:
        self.dag = dag
        self.is_gpu = "gpu" in target.keys
        most = target.attrs.get("max_num_threads")
        self.most_threads = most if isinstance(most, int) else 256
        self.readers: dict[Operation, list[Operation]] = {op: [] for op in dag.ops}
        for op in dag.ops:
            for source in dict.fromkeys(tensor.op for tensor in op.input_tensors):
                self.readers[source].append(op)
        if any(not isinstance(op, ComputeOp) for op in dag.ops if op.input_tensors):
            raise ValueError("only te.compute is searched; schedule scans and externs by hand")
        self.space = ConfigSpace()
        self.state(self.space)

    def state(self, config: Config) -> State:
        """The loops of a point, or while the space is collected of its first point."""
        state, epilogues = self.dag.init_state, self._epilogues()
        for op in reversed([op for op in self.dag.ops if isinstance(op, ComputeOp)]):
            if self.is_inlined(op):
                state.compute_inline(op)
            elif op.reduce_axis:
                self._reduction(state, op, config)
            elif op not in epilogues:
                self._element_wise(state, op, config)
        return state

    def _epilogues(self) -> set[Operation]:
        """Element-wise outputs whose loops hold the reduction that they read."""
        return {
            consumer for op in self.dag.ops if isinstance(op, ComputeOp) and op.reduce_axis
            for consumer in [self._epilogue_of(op)] if consumer is not None
        }

    def _epilogue_of(self, op: Operation) -> Operation | None:
        """What follows a reduction element by element and is the only one that reads it."""
        readers = self.readers[op]
        if len(readers) != 1 or self.is_inlined(readers[0]) or readers[0].reduce_axis:
            return None
        (reader,) = readers
        sums: list[Operation] = [
            t.op for t in reader.input_tensors if isinstance(t.op, ComputeOp)
        ]
        same = [extent_of(axis) for axis in reader.axis] == [extent_of(axis) for axis in op.axis]
        return reader if same and sums.count(op) == 1 and not any(
            other is not op and other.reduce_axis for other in sums
        ) else None

    def is_inlined(self, op: Operation) -> bool:
        """Whether it is computed where it is read."""
        if op in self.dag.outputs or op.reduce_axis:
            return False
        into_sums = any(reader.reduce_axis for reader in self.readers[op])
        return not (into_sums and isinstance(op, ComputeOp) and is_costly(op))

    # ---- loops ----

    def _reduction(self, state: State, op: Operation, config: Config) -> None:
        outer_op = self._epilogue_of(op)
        if outer_op is None:
            number = state.stage_ops.index(op)
            state.cache_write(number, "local")
            inside, outside = number, number + 1
        else:
            inside, outside = state.stage_ops.index(op), state.stage_ops.index(outer_op)
        count = len(op.axis)
        tiles = [self._tile(config, f"{op.name}.{axis.var.name}", extent_of(axis),
                            place - count, op.output(0).dtype)
                 for place, axis in enumerate(op.axis)]
        steps = [self._step(config, f"{op.name}.{axis.var.name}", extent_of(axis))
                 for axis in op.reduce_axis]
        config.define_knob(f"{op.name}.unroll", UNROLLS)
        target = self._share(state, outside, tiles)
        state.compute_at(inside, outside, target)
        for place in reversed(range(count)):
            state.split(inside, place, [tiles[place][1]])
        for place in reversed(range(len(steps))):
            state.split(inside, 2 * count + place, [steps[place]])
        loops = range(2 * count + 2 * len(steps))
        spatial, summed = loops[: 2 * count], loops[2 * count :]
        order = [*spatial[::2], *summed[::2], *summed[1::2], *spatial[1::2]]
        state.reorder(inside, order)
        unroll = int(config[f"{op.name}.unroll"].val)
        if unroll:
            state.pragma(inside, 0, f"auto_unroll_max_step${unroll}")
        if count and not self.is_gpu and 1 < tiles[-1][1] <= MOST_LANES:
            state.vectorize(inside, len(order) - 1)

    def _share(self, state: State, stage: int, tiles: Sequence[tuple[int, int]]) -> int:
        """Tile the loops of a stage and share tiles; the loop that a reduction is computed in."""
        count = len(tiles)
        if not count:
            raise InstantiationError("a workload of one number has nothing to share")
        if self.is_gpu:
            for place in reversed(range(count)):
                state.split(stage, place, tiles[place])
            state.reorder(stage, [*range(0, 3 * count, 3), *range(1, 3 * count, 3),
                                  *range(2, 3 * count, 3)])
            state.fuse(stage, range(count))
            state.fuse(stage, range(1, count + 1))
            if math.prod(tile[0] for tile in tiles) > self.most_threads:
                raise InstantiationError("a block has more threads than the target allows")
            state.bind(stage, 0, "blockIdx.x")
            state.bind(stage, 1, "threadIdx.x")
            return 1
        for place in reversed(range(count)):
            state.split(stage, place, [math.prod(tiles[place])])
        state.reorder(stage, [*range(0, 2 * count, 2), *range(1, 2 * count, 2)])
        state.fuse(stage, range(count))
        state.parallel(stage, 0)
        if 1 < math.prod(tiles[-1]) <= MOST_LANES:
            state.vectorize(stage, count)
        return 0

    def _element_wise(self, state: State, op: Operation, config: Config) -> None:
        stage = state.stage_ops.index(op)
        count, name = len(op.axis), f"{op.name}.share"
        if not count:
            return
        total = math.prod(extent_of(axis) for axis in op.axis)
        lanes = VECTOR_BYTES // max(1, op.output(0).dtype.bits // 8)
        first = GPU_THREADS if self.is_gpu else lanes
        config.define_knob(name, _nearest(total, first, 4 * LARGEST_TILE))
        size = int(config[name].val)
        state.fuse(stage, range(count))
        state.split(stage, 0, [size])
        if self.is_gpu:
            state.bind(stage, 0, "blockIdx.x")
            state.bind(stage, 1, "threadIdx.x")
            return
        state.parallel(stage, 0)
        if 1 < size <= MOST_LANES:
            state.vectorize(stage, 1)

    # ---- knobs ----

    def _tile(
        self, config: Config, name: str, length: int, place: int, dtype: DataType
    ) -> tuple[int, int]:
        """Register tiles in a tile, and the length of each; place counts from the last loop."""
        lanes = VECTOR_BYTES // max(1, dtype.bits // 8)
        if self.is_gpu:
            wanted = {-1: (16, 4), -2: (16, 4)}.get(place, (1, 1))
        else:
            wanted = {-1: (2, 2 * lanes), -2: (4, 4)}.get(place, (1, 1))
        sizes = [(mid, inner) for mid in _factors(length) for inner in _factors(length // mid)
                 if max(mid, inner) <= LARGEST_TILE]
        sizes.sort(key=lambda size: _distance(size, wanted))
        config.define_split(name, length, policy="candidate",
                            candidate=[(-1, *size) for size in sizes])
        _, mid, inner = config[name].size
        return mid, inner

    def _step(self, config: Config, name: str, length: int) -> int:
        sizes = sorted((f for f in _factors(length) if f <= LARGEST_STEP),
                       key=lambda size: _distance((size,), (8,)))
        config.define_split(name, length, policy="candidate",
                            candidate=[(-1, size) for size in sizes])
        return int(config[name].size[1])


def _factors(length: int) -> list[int]:
    return [factor for factor in range(1, length + 1) if length % factor == 0]


def _nearest(length: int, wanted: int, largest: int) -> list[int]:
    """Lengths of parts of a loop, the wanted one first."""
    found = [factor for factor in _factors(length) if factor <= largest]
    return sorted(found, key=lambda size: _distance((size,), (wanted,)))


def _distance(size: Sequence[int], wanted: Sequence[int]) -> float:
    return sum(abs(math.log2(own / want)) for own, want in zip(size, wanted, strict=True))
