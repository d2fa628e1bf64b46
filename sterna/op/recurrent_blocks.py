"""The steps of recurrent networks on GPUs: a kernel for each step, whose blocks share the units.

A block makes the states of some units in some sequences, with all gates of these. Its threads share
the sums: each adds up what some of the state's numbers, by vectors of 16 bytes, add to the gates of
one unit in some sequences; shared memory joins what they have, and the threads that a unit of a
sequence belongs to compute its gates. Steps hand the state on in memory of the device, of which
there are two, written in turns. "columns" holds the weights of the recurrence by (direction, unit,
gate, 1, unit that they are multiplied by), with zeros behind the last of these.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.op.gates import Gate
from sterna.op.recurrent_shares import Share, turns_together
from sterna.op.recurrent_steps import STATES, Options, Step, by_layout
from sterna.op.recurrent_threads import Gates, ThreadSteps
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.warpgroups import blocks_at_once


class Own:
    """A state of which a thread of a step needs one number; it is in a register."""

    def __init__(self, whole: BufferVar, held: BufferVar) -> None:
        self.whole, self.held = whole, held

    def __getitem__(self, place: Any) -> Expr:
        found: Expr = self.held[0]
        return found

    def __setitem__(self, place: Any, value: Expr) -> None:
        self.held[0] = value
        self.whole[place] = self.held[0]


class Next:
    """The states that the next step reads, which are a result as well."""

    def __init__(self, steps: "BlockSteps") -> None:
        self.steps = steps

    def __setitem__(self, place: Any, value: Expr) -> None:
        steps = self.steps
        made = steps.ib.let("made", value)
        steps.hand_on(made)
        out = steps.outs[0]
        out[steps.result(steps.now)] = build.cast(out.dtype, made)


class BlockSteps(ThreadSteps):
    """The kernels of all steps, in some directions."""

    share_of_sum: Expr
    now: Expr

    def __init__(
        self, step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
        outs: list[BufferVar], which: range, functions: list[Gate], share: Share,
    ) -> None:
        super().__init__(step, attrs, ib, operands, outs, which, functions)
        self.share = share
        self.groups = (self.batch + share.sequences - 1) // share.sequences
        self.columns_of_blocks = -(-self.size // share.units)

    # ---- the launches ----

    def write(self) -> None:
        """The first states, the steps, and the last states."""
        ib, count = self.ib, len(self.which)
        rows = self.groups * self.share.sequences
        self.handed = ib.allocate(self.kind, (2, count, rows, self.filled), name="h")
        wholes = [self.handed]
        if len(self.outs) > 2:
            wholes.append(ib.allocate(self.kind, (1, count, rows, self.filled), name="c"))
        self.wholes = wholes
        self._begin()
        with ib.for_range(0, self.time, name="step") as step:
            self.step = step
            self.make(self, step)  # type: ignore[arg-type]
        self._end()

    def _begin(self) -> None:
        """Given states or zeros, and zeros behind the last unit."""
        with self._elements(self.groups * self.share.sequences, self.filled) as (d, b, j):
            inside = build.logical_and(b < self.batch, j < self.size)
            for name, whole in zip(STATES, self.wholes, strict=False):
                zero: Expr = build.const(0, self.kind)
                first = zero
                if name in self.operands:
                    given = self.operands[name][(*by_layout(self.attrs, (self._side(d), b)), j)]
                    first = build.if_then_else(inside, build.cast(self.kind, given), zero)
                whole[0, d, b, j] = first
                if name == STATES[0]:
                    whole[1, d, b, j] = zero

    def _end(self) -> None:
        """The last states are results."""
        with self._elements(self.batch, self.size) as (d, b, j):
            for out, whole in zip(self.outs[1:], self.wholes, strict=True):
                turn = self.time % 2 if whole is self.handed else build.const(0)
                to = (*by_layout(self.attrs, (self._side(d), b)), j)
                out[to] = build.cast(out.dtype, whole[turn, d, b, j])

    @contextmanager
    def _elements(self, rows: Expr, size: int) -> Iterator[tuple[Expr, Expr, Expr]]:
        """A kernel that does something for every number of a state."""
        ib, threads = self.ib, self.share.threads
        whole = build.as_expr(rows) * (len(self.which) * size)
        with ib.new_scope():
            block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
            ib.scope_attr(block, "thread_extent", (whole + (threads - 1)) // threads)
            ib.scope_attr(thread, "thread_extent", threads)
            number = ib.let("number", block.var * threads + thread.var)
            with ib.if_scope(number < whole):
                row = ib.let("row", number // size)
                yield row // rows, row % rows, number % size

    def _side(self, place: Expr) -> Expr:
        """The direction, of those that these kernels are for."""
        return place + self.which.start

    # ---- a step ----

    @contextmanager
    def each_block(self) -> Iterator[Expr]:
        """A kernel; what is inside is done by the threads that have a unit of a sequence each."""
        ib, share = self.ib, self.share
        axes = [thread_axis(f"blockIdx.{name}") for name in "xyz"]
        thread = thread_axis("threadIdx.x")
        with ib.new_scope():
            extents = (self.columns_of_blocks, self.groups, len(self.which))
            for axis, extent in zip(axes, extents, strict=True):
                ib.scope_attr(axis, "thread_extent", extent)
            ib.scope_attr(thread, "thread_extent", share.threads)
            if share.at_once:
                ib.emit(blocks_at_once(share.at_once))
            self.thread: Expr = thread.var
            self.own_direction: Expr = axes[2].var
            self.direction = self._side(self.own_direction)
            self.first_unit = axes[0].var * share.units
            self.first_row = axes[1].var * share.sequences
            self.unit = ib.let("unit", self.first_unit + thread.var % share.units)
            self.row = ib.let("row", self.first_row + thread.var // share.units)
            whole = build.logical_and(self.unit < self.size, self.row < self.batch)
            if share.threads > share.units * share.sequences:
                among = thread.var < share.units * share.sequences
                whole = build.logical_and(among, whole)
            self.is_own = ib.let("is_own", whole)
            self._find_time()
            self.states = [
                Own(each, ib.allocate(self.kind, (1,), name="own", scope="local"))
                for each in self.wholes
            ]
            self.next = Next(self)
            yield self.unit

    def _find_time(self) -> None:
        """Which step of its sequence a thread makes, and whether the sequence is that long."""
        ib, backwards = self.ib, self.attrs.directions[self.which.start : self.which.stop]
        length: Expr = self.time
        self.is_running: Expr | None = None
        if "sequence_lens" in self.operands:
            lengths = self.operands["sequence_lens"]
            told = build.if_then_else(
                self.is_own, build.cast("int64", lengths[self.row]), build.const(0, "int64")
            )
            zero, most = build.const(0, "int64"), build.cast("int64", self.time)
            kept = build.cast(self.step.dtype, build.maximum(build.minimum(told, most), zero))
            length = ib.let("length", kept)
            self.is_running = ib.let("is_running", self.step < length)
        turned = length - 1 - self.step
        if len(backwards) == 1:
            now: Expr = turned if backwards[0] else self.step
        else:
            now = build.select(self.own_direction.equal(0), self.step, turned)
        if self.is_running is not None:
            now = build.select(self.is_running, now, self.step)
        self.now = ib.let("now", now)

    @contextmanager
    def each_unit(self) -> Iterator[tuple[Expr, Expr]]:
        """The unit and the sequence of a thread; those that have ended keep their state."""
        ib = self.ib
        with ib.if_scope(self.is_own):
            self._join()
            if self.is_running is None:
                yield self.row, build.const(0)
                return
            with ib.if_scope(self.is_running):
                yield self.row, build.const(0)
            with ib.else_scope():
                self.hand_on(self.states[0][self.row])
                self.outs[0][self.result(self.now)] = build.const(0, self.outs[0].dtype)

    def hand_on(self, state: Expr) -> None:
        """Let the next step have a state."""
        to = ((self.step + 1) % 2, self.own_direction, self.row, self.unit)
        self.handed[to] = state

    def result(self, time: Expr) -> tuple[Any, ...]:
        """Where the state of a step belongs."""
        if self.attrs.layout:
            return (self.row, time, self.direction, self.unit)
        return (time, self.direction, self.row, self.unit)

    # ---- what the networks' steps are made of ----

    def place(self, row: Expr, block: Expr, unit: Expr) -> tuple[Expr, ...]:
        """Where a state that is not handed on holds a unit."""
        return (build.const(0), self.own_direction, self.row, self.unit)

    def scratch(self, name: str) -> BufferVar:
        """Room for a number of each unit, from one kernel of a step to the next."""
        rows = self.groups * self.share.sequences
        made = self.ib.allocate(self.kind, (1, len(self.which), rows, self.filled), name=name)
        if self.filled > self.size:
            with self._elements(self.groups * self.share.sequences, self.filled) as (d, b, j):
                made[0, d, b, j] = build.const(0, self.kind)
        return made

    def input(self, now: Expr, block: Expr, row: Expr, gate: ExprLike, unit: Expr) -> Expr:
        """What the input adds to a gate."""
        place = by_layout(self.attrs, (self.now, self.row))
        found: Expr = self.operands["projected"][(*place, self.direction, self.unit, gate, 0)]
        return found

    def gates_of(
        self, block: Expr, gates: range, start: Callable[[Expr, int, Expr], Expr],
        state: Own | BufferVar,
    ) -> Gates:
        """What gates of a unit start with and what a state adds."""
        ib, share = self.ib, self.share
        count = len(gates)
        self.held = ib.allocate(self.kind, (count,), name="gates", scope="local")
        with ib.if_scope(self.is_own):
            for at, gate in enumerate(gates):
                self.held[at] = start(self.row, gate, build.const(0))
            for own_state in self.states:
                first = (self._turn(own_state.whole), self.own_direction)
                own_state.held[0] = own_state.whole[(*first, self.row, self.unit)]
        self._part_sums(gates, state.whole if isinstance(state, Own) else state)
        wanted, joins = share.units * share.sequences * count, share.joins(self.gates)
        self.joined = ib.allocate(self.kind, (wanted * joins,), name="joined", scope="shared")
        each, whole = share.parts // joins, wanted * joins
        with ib.for_range(0, -(-whole // share.threads), name="turn") as number:
            place = number * share.threads + self.thread
            inside = place < whole if whole % share.threads else build.const(True, "bool")
            with ib.if_scope(inside):
                begin = place % wanted * (share.parts + 1) + place // wanted * each
                total: Expr = self.parted[begin]
                for nth in range(1, each):
                    total = total + self.parted[begin + nth]
                self.joined[place] = total
        self.wanted, self.joins = wanted, joins
        return Gates(self.held)

    def _part_sums(self, gates: range, state: BufferVar) -> None:
        """Let others have what a thread adds up."""
        ib, share, count = self.ib, self.share, len(gates)
        sums = self._sums(gates, state)
        self.parted = ib.allocate(
            self.kind, (share.units * share.sequences * count * (share.parts + 1),),
            name="parted", scope="shared")
        part, own = self.thread % share.parts, self.thread // share.parts
        groups = share.sequences // share.rows
        # As a loop, of which it can be seen that no two threads store at one place.
        with ib.for_range(0, count * share.rows, name="sum") as number:
            sequence = own % groups * share.rows + number % share.rows
            row = number // share.rows * share.sequences + sequence
            place = (row * share.units + own // groups) * (share.parts + 1) + part
            self.parted[place] = sums[number]

    def _join(self) -> None:
        """The sums of a thread's unit, to what its gates start with."""
        share = self.share
        own = (self.row - self.first_row) * share.units + (self.unit - self.first_unit)
        each = share.units * share.sequences
        for place in range(self.wanted // each):
            total: Expr = self.held[place]
            for number in range(self.joins):
                total = total + self.joined[number * self.wanted + place * each + own]
            self.held[place] = total

    def _turn(self, whole: BufferVar) -> Expr:
        """Which of a state's memory a step reads."""
        return self.step % 2 if whole is self.handed else build.const(0)

    def _sums(self, gates: range, state: BufferVar) -> BufferVar:
        """What a thread adds up: (gate, row)."""
        ib, share, count = self.ib, self.share, len(gates)
        weight = self.columns.dtype
        vector = VECTOR_BYTES // weight.bytes
        sums = ib.allocate(self.kind, (count * share.rows,), name="sums", scope="local")
        for number in range(count * share.rows):
            sums[number] = build.const(0, self.kind)
        groups = share.sequences // share.rows
        part, own = self.thread % share.parts, self.thread // share.parts
        unit = build.minimum(self.first_unit + own // groups, self.size - 1)
        first = self.first_row + own % groups * share.rows
        whole = self.filled // vector
        turns = -(-whole // share.parts)
        together = min(turns, turns_together(share, count, vector))
        is_whole = whole % (share.parts * together) == 0

        def load(at: Expr) -> tuple[BufferVar, BufferVar]:
            weights = ib.allocate(self.kind, (count * vector,), name="weights", scope="local")
            states = ib.allocate(
                self.kind, (share.rows * vector,), name="states", scope="local")
            for place, gate in enumerate(gates):
                found = self.columns.vload((self.direction, unit, gate, 0, at), vector)
                weights[place * vector] = build.cast(f"{self.kind}x{vector}", found)
            quad = min(vector, VECTOR_BYTES // state.dtype.bytes)
            for row, begin in product(range(share.rows), range(0, vector, quad)):
                states[row * vector + begin] = state.vload(
                    (self._turn(state), self.own_direction, first + row, at + begin), quad)
            return weights, states

        def multiply(weights: BufferVar, states: BufferVar) -> None:
            for at, place, row in product(range(vector), range(count), range(share.rows)):
                to, beside = place * share.rows + row, states[row * vector + at]
                sums[to] = sums[to] + weights[place * vector + at] * beside

        with ib.for_range(0, -(-turns // together), name="turn") as turn:
            begin = ib.let("begin", turn * (share.parts * together) + part)
            if is_whole:
                loaded = [
                    load((begin + share.parts * nth) * vector) for nth in range(together)
                ]
                for each in loaded:
                    multiply(*each)
            else:
                for nth in range(together):
                    with ib.if_scope(begin + share.parts * nth < whole):
                        multiply(*load((begin + share.parts * nth) * vector))
        return sums
