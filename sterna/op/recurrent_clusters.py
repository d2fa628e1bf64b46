"""The steps of recurrent networks by clusters of blocks, whose registers keep the weights.

A cluster has some sequences, and each of its blocks some of the units for all steps. The weights of
a unit's gates are in the registers of eight lanes, which share its sums: each lane has every eighth
quad of the state. A warp has four units; what it makes of them it sends as a quad to every block of
the cluster (distributed shared memory), where a barrier in memory counts the bytes of a step. There
are two of these, and two states, in turns: nobody sends the state behind the next before all have
read the one at hand, as it waits for the next one of all warps. What the input adds to a step is
loaded a step ahead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.op.gates import Gate
from sterna.op.recurrent_shares import CLUSTER, LANES, WARP, cluster_units
from sterna.op.recurrent_steps import STATES, Options, Step, by_layout
from sterna.op.recurrent_threads import Gates, ThreadSteps
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.threads import ROLLED, barrier
from sterna.tir.warpgroups import (
    blocks_at_once,
    cluster_address,
    cluster_arrive,
    cluster_rank,
    cluster_size,
    cluster_wait,
    keep_pair,
    load_quad,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    send_quad,
    shared_address,
)

QUAD, FLOAT_BYTES, BARRIER_BYTES = 4, 4, 8


class Held:
    """A number of each thread."""

    def __init__(self, held: BufferVar) -> None:
        self.held = held

    def __getitem__(self, place: Any) -> Expr:
        found: Expr = self.held[0]
        return found

    def __setitem__(self, place: Any, value: Expr) -> None:
        self.held[0] = value


class ClusterSteps(ThreadSteps):
    """The kernel of all steps, in some directions."""

    def __init__(
        self, step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
        outs: list[BufferVar], which: range, functions: list[Gate], sequences: int,
    ) -> None:
        super().__init__(step, attrs, ib, operands, outs, which, functions)
        self.sequences = sequences
        self.units = cluster_units(self.size)
        self.width = CLUSTER * self.units
        """Of a state in shared memory."""

    # ---- the kernel ----

    def write(self) -> None:
        """All of it."""
        ib = self.ib
        groups = (self.batch + self.sequences - 1) // self.sequences
        axes = [thread_axis(f"blockIdx.{name}") for name in "xyz"]
        thread = thread_axis("threadIdx.x")
        with ib.new_scope():
            for axis, extent in zip(axes, (CLUSTER, groups, len(self.which)), strict=True):
                ib.scope_attr(axis, "thread_extent", extent)
            ib.scope_attr(thread, "thread_extent", self.units * LANES)
            ib.emit(cluster_size(CLUSTER))
            ib.emit(blocks_at_once(1))
            self.thread: Expr = thread.var
            self.direction = axes[2].var + self.which.start
            self.own_direction: Expr = axes[2].var
            self.first_row = axes[1].var * self.sequences
            rank = ib.let("rank", cluster_rank())
            self.first_unit = ib.let("first_unit", rank * self.units)
            self.lane = ib.let("lane", thread.var % WARP)
            self.share = ib.let("part", thread.var % LANES)
            self.own_unit = ib.let("own_unit", self.first_unit + thread.var // LANES)
            self.own_row = ib.let("own_row", self.first_row + self.share % self.sequences)
            inside = build.logical_and(self.own_unit < self.size, self.own_row < self.batch)
            self.is_own = ib.let("is_own", build.logical_and(self.share < self.sequences, inside))
            # Of others nothing is kept; they do as the last ones do.
            self.unit = ib.let("unit", build.minimum(self.own_unit, self.size - 1))
            self.row = ib.let("row", build.minimum(self.own_row, self.batch - 1))
            self._begin()
            with ib.for_range(0, self.time, name="step", annotations={ROLLED: 1}) as step:
                self.step = step
                self._step()
            self._end()

    def _private(self, size: int, name: str) -> BufferVar:
        return self.ib.allocate(self.kind, (size,), name=name, scope="local")

    def _begin(self) -> None:
        """Weights into registers, the first states into shared memory, and the barriers."""
        ib, state_bytes = self.ib, self.sequences * self.width * FLOAT_BYTES
        room = ib.allocate(
            "uint8", (2 * state_bytes + 2 * BARRIER_BYTES,), name="room", scope="shared.dyn")
        self.room = ib.let("room", shared_address(room[0]))
        self.arrived = ib.let("arrived", self.room + 2 * state_bytes)
        self.state_bytes = state_bytes
        with ib.if_scope(self.thread.equal(0)):
            for number in range(2):
                ib.emit(mbarrier_init(self.arrived + number * BARRIER_BYTES, 1))
            ib.emit(mbarrier_ready())
            for number in range(2):
                ib.emit(mbarrier_expect(self.arrived + number * BARRIER_BYTES, state_bytes))
        self._load_states()
        self._load_weights()
        self.made, self.held = self._private(1, "made"), self._private(self.gates, "gates")
        self.states = [Held(self._private(1, name)) for name in ("h", "c")[: len(self.outs) - 1]]
        for name, state in zip(STATES, self.states, strict=False):
            state.held[0] = self._given(name, self.row, self.unit)
        self.ahead, self.input_now = (
            self._private(self.gates, name) for name in ("ahead", "input_now"))
        length: Expr = self.time
        if "sequence_lens" in self.operands:
            told = build.cast("int64", self.operands["sequence_lens"][self.row])
            zero, most = build.const(0, "int64"), build.cast("int64", self.time)
            length = build.cast("int32", build.maximum(build.minimum(told, most), zero))
        self.length = ib.let("length", length)
        self._load_input(build.const(0))
        ib.emit(barrier())
        ib.emit(cluster_arrive())
        ib.emit(cluster_wait())

    def _given(self, name: str, row: Expr, unit: Expr) -> Expr:
        if name not in self.operands:
            return build.const(0, self.kind)
        place = (*by_layout(self.attrs, (self.direction, row)), unit)
        return build.cast(self.kind, self.operands[name][place])

    def _load_states(self) -> None:
        """Each block has the whole states of its sequences, with zeros behind the last unit."""
        ib, pairs, threads = self.ib, self.sequences * self.width // 2, self.units * LANES
        with ib.for_range(0, -(-pairs // threads), name="turn") as turn:
            pair = ib.let("pair", turn * threads + self.thread)
            with ib.if_scope(pair < pairs):
                row = build.minimum(self.first_row + pair * 2 // self.width, self.batch - 1)
                numbers = []
                for side in range(2):
                    unit = pair * 2 % self.width + side
                    given = self._given(STATES[0], row, build.minimum(unit, self.size - 1))
                    numbers.append(build.select(unit < self.size, given, _zero()))
                ib.emit(keep_pair(self.room + pair * (2 * FLOAT_BYTES), *numbers))

    def _load_weights(self) -> None:
        """A lane's quads of all gates of its unit: (gate, quad, place)."""
        self.quads = self.width // (LANES * QUAD)
        self.weights = self._private(self.gates * self.quads * QUAD, "weights")
        for gate, quad in product(range(self.gates), range(self.quads)):
            first = (self.share + quad * LANES) * QUAD
            to = (gate * self.quads + quad) * QUAD
            is_whole = (quad + 1) * LANES * QUAD <= self.filled
            at = first if is_whole else build.minimum(first, self.filled - QUAD)
            brought = self.columns.vload((self.direction, self.unit, gate, 0, at), QUAD)
            self.weights[to] = build.cast(f"{self.kind}x{QUAD}", brought)
            if not is_whole:
                for number in range(QUAD):
                    value = self.weights[to + number]
                    self.weights[to + number] = build.select(first < self.filled, value, _zero())

    def _load_input(self, step: Expr) -> None:
        """What the input adds to the gates in a step."""
        place = by_layout(self.attrs, (self._time_of(step), self.row))
        for gate in range(self.gates):
            self.ahead[gate] = self.operands["projected"][
                (*place, self.direction, self.unit, gate, 0)]

    def _time_of(self, step: Expr) -> Expr:
        """Which step of its sequence a thread makes; the step itself behind the last."""
        backwards = self.attrs.directions[self.which.start : self.which.stop]
        turned = self.length - 1 - step
        if len(backwards) == 2:
            turned = build.select(self.own_direction.equal(0), step, turned)
        elif not backwards[0]:
            turned = step
        return build.select(step < self.length, turned, step)

    def _step(self) -> None:
        """One of the steps."""
        ib, step = self.ib, self.step
        arrived = ib.let("here", self.arrived + step % 2 * BARRIER_BYTES)
        with ib.if_scope(step > 0):
            ib.emit(mbarrier_wait(arrived, (step - 1) // 2 % 2))
            with ib.if_scope(self.thread.equal(0)):
                ib.emit(mbarrier_expect(arrived, self.state_bytes))
        self.now = ib.let("now", self._time_of(step))
        for gate in range(self.gates):
            self.input_now[gate] = self.ahead[gate]
        self._load_input(build.minimum(step + 1, self.time - 1))
        self.make(self, step)  # type: ignore[arg-type]
        self.states[0].held[0] = self.made[0]
        self._send()

    def _send(self) -> None:
        """A warp's four units, of a sequence for each eight lanes, to a block for each of these."""
        ib, step = self.ib, self.step
        made = ib.let("sent", build.select(self.own_unit < self.size, self.made[0], _zero()))
        quad = self._private(QUAD, "quad")
        sequence = self.lane // LANES
        for number in range(QUAD):
            other = number * LANES + sequence % self.sequences
            quad[number] = _shuffle("tvm_warp_shuffle", made, other)
        to_send = step < self.time - 1
        if self.sequences * LANES < WARP:
            to_send = build.logical_and(to_send, sequence < self.sequences)
        with ib.if_scope(to_send):
            turn = (step + 1) % 2
            unit = self.first_unit + self.thread // WARP * QUAD
            place = (turn * self.sequences + sequence) * self.width + unit
            to = cluster_address(self.room + place * FLOAT_BYTES, self.share)
            there = cluster_address(self.arrived + turn * BARRIER_BYTES, self.share)
            ib.emit(send_quad(to, quad[0], there))

    def _end(self) -> None:
        """The last states are results."""
        with self.ib.if_scope(self.is_own):
            for out, state in zip(self.outs[1:], self.states, strict=True):
                place = (*by_layout(self.attrs, (self.direction, self.row)), self.unit)
                out[place] = build.cast(out.dtype, state.held[0])

    # ---- what the networks' steps are made of ----

    @contextmanager
    def each_block(self) -> Iterator[Expr]:
        """The unit of a thread."""
        self.next = Held(self.made)
        yield self.unit

    @contextmanager
    def each_unit(self) -> Iterator[tuple[Expr, Expr]]:
        """The unit and the sequence of a thread; those that have ended keep their state."""
        ib, out = self.ib, self.outs[0]
        place: tuple[Any, ...] = (self.now, self.direction, self.row, self.unit)
        if self.attrs.layout:
            place = (self.row, self.now, self.direction, self.unit)
        result: Expr = self.made[0]
        if "sequence_lens" not in self.operands:
            yield self.row, build.const(0)
        else:
            is_running = ib.let("is_running", self.step < self.length)
            with ib.if_scope(is_running):
                yield self.row, build.const(0)
            with ib.else_scope():
                self.made[0] = self.states[0].held[0]
            result = build.select(is_running, self.made[0], _zero())
        with ib.if_scope(self.is_own):
            out[place] = build.cast(out.dtype, result)

    def place(self, row: Expr, block: Expr, unit: Expr) -> int:
        """Where a state holds a unit: each thread has one number of it."""
        return 0

    def input(self, now: Expr, block: Expr, row: Expr, gate: int, unit: Expr) -> Expr:
        """What the input adds to a gate."""
        found: Expr = self.input_now[gate]
        return found

    def gates_of(
        self, block: Expr, gates: range, start: Callable[[Expr, int, Expr], Expr], state: Held
    ) -> Gates:
        """What gates of a unit start with and what the state adds."""
        ib, count, rows = self.ib, len(gates), self.sequences
        sums, quads = self._private(count * rows, "sums"), self._private(rows * QUAD, "state")
        for number in range(count * rows):
            sums[number] = _zero()
        turn = self.room + self.step % 2 * self.state_bytes
        first = ib.let("first", turn + self.share * (QUAD * FLOAT_BYTES))
        for quad in range(self.quads):
            for row in range(rows):
                at = (row * self.width + quad * LANES * QUAD) * FLOAT_BYTES
                ib.emit(load_quad(quads[row * QUAD], first + at))
            for number, row, gate in product(range(QUAD), range(rows), gates):
                weight = self.weights[(gate * self.quads + quad) * QUAD + number]
                to = (gate - gates.start) * rows + row
                sums[to] = sums[to] + quads[row * QUAD + number] * weight
        distance = 1
        while distance < LANES:
            for number in range(count * rows):
                other = _shuffle("tvm_warp_shuffle_xor", sums[number], build.const(distance))
                sums[number] = sums[number] + other
            distance *= 2
        for place, gate in enumerate(gates):
            total: Expr = sums[place * rows]
            for row in range(1, rows):
                is_own = (self.share % rows).equal(row)
                total = build.select(is_own, sums[place * rows + row], total)
            self.held[place] = start(self.row, gate, build.const(0)) + total
        return Gates(self.held)


def _zero() -> Expr:
    return build.const(0, "float32")


def _shuffle(name: str, value: Expr, other: Expr) -> Expr:
    everyone = build.const(0xFFFFFFFF, "uint32")
    warp = build.const(WARP)
    return Call(value.dtype, name, (everyone, value, other, warp, warp))
