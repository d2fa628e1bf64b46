"""The statements of a block whose threads have rows in registers or in shared memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Add, Call, Cast, Expr, Max, Sub, Var
from sterna.ir.visitor import Rewriter
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.row_program import RowProgram, RowSum
from sterna.support.dtype import DataType
from sterna.te import Tensor, extern, thread_axis
from sterna.te.tensor import replace_loads
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.register_products import fetch_once, flushed_exp2, larger
from sterna.tir.stmt import Buffer, BufferLoad, Stmt
from sterna.tir.threads import barrier

WARP = 32
FLOAT = DataType("float32")
# Registers of a processor, and those of a thread beside what it holds of a row.
REGISTERS, BESIDE = 65536, 28
# Elements that a thread has under way where rows are read again.
AT_ONCE = 32
# Cycles that it takes to hand a value on, and for warps of a block to meet.
HAND_ON, MEET, EACH = 4, 40, 10
# The same for blocks of a cluster, beside what other blocks of their processors do meanwhile.
CLUSTER_MEET = 20
# How much more work takes where no other block of a processor waits for memory meanwhile.
ALONE = 1.45
REGISTERS_HAVE, SHARED_HAS, READ_AGAIN = "", ", in shared memory", ", read again"


@dataclass(frozen=True, slots=True)
class Share:
    """Who has a row."""

    threads: int
    lanes: int
    """Elements of a vector."""
    length: int
    """Of a row; the threads take its vectors in turns."""
    kept: str
    """Whether a row stays in registers or in shared memory, or is read again."""
    is_ahead: bool = False
    """Whether rows are brought while others are computed."""
    blocks: int = 1
    """Blocks of a cluster that have a row among their threads."""

    @property
    def in_block(self) -> int:
        """Threads of a row in one block."""
        return self.threads // self.blocks

    @property
    def held(self) -> bool:
        """Whether a row stays in registers."""
        return self.kept == REGISTERS_HAVE

    @property
    def is_shifted(self) -> bool:
        """Whether rows may begin inside of vectors."""
        return self.length % self.lanes != 0

    @property
    def most(self) -> int:
        """Whole vectors of a row."""
        return self.length // self.lanes

    @property
    def least(self) -> int:
        """Whole vectors of a row that begins just behind the start of one."""
        return (self.length - self.lanes + 1) // self.lanes if self.is_shifted else self.most

    @property
    def own(self) -> int:
        """Vectors of one thread."""
        return -(-self.most // self.threads)

    @property
    def registers(self) -> int:
        """Of all threads of a block that have a row, or some of it, in registers."""
        return (self.own * self.lanes + BESIDE) * self.in_block

    @property
    def at_once(self) -> int:
        """Vectors of one thread that are under way where registers do not keep a row."""
        return max(1, AT_ONCE // self.lanes)

    @property
    def cost(self) -> float:
        """Cycles of all threads for a row: what each does of its own, and joining it."""
        steps = int(math.log2(min(self.threads, WARP)))
        joined = HAND_ON * steps + (MEET if self.threads > WARP else 0)
        joined += CLUSTER_MEET if self.blocks > 1 else 0
        times = {REGISTERS_HAVE: 1.0, SHARED_HAS: 1.5, READ_AGAIN: 3.0}[self.kept]
        if self.held and 2 * self.registers > REGISTERS:
            times = ALONE
        return self.threads * (self.own * self.lanes * EACH * times + 2 * joined)

    def __str__(self) -> str:
        ahead = ", brought ahead" if self.is_ahead else ""
        blocks = f"{self.blocks} blocks of " if self.blocks > 1 else ""
        return f"{blocks}{self.in_block} threads, vectors of {self.lanes}{self.kept}{ahead}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A vector of a row that a thread has, or a single element before the first or behind the
    last."""

    own: Expr
    """Which of those that the thread has at once."""
    number: Expr | None
    """Which of the row's vectors it is; None for a single element."""
    place: Expr
    """Of its first element in the row."""
    lanes: int
    is_one: Expr | None
    """Whether the row has it, where not all rows do."""


@dataclass(frozen=True, slots=True)
class Part:
    """Vectors of a row that all threads have at once."""

    first: Expr
    count: int
    """Of each thread."""
    is_ragged: bool
    """Whether some rows end before it does."""


class RowWriter:
    """The statements of a block."""

    ib: IRBuilder
    buffers: dict[Tensor, Buffer]
    out: BufferVar
    made: BufferVar
    """Results of one vector."""
    shared: dict[Tensor, BufferVar]
    totals: list[BufferVar]
    """What a thread has of the sums at hand."""

    def __init__(
        self, program: RowProgram, out: Tensor, held: list[Tensor], share: Share, together: int,
        passes_cache: bool = False,
    ) -> None:
        """passes_cache: whether rows are read past the processor's cache."""
        self.program, self.result, self.held = program, out, held
        self.share, self.together = share, together
        self.count = math.prod(program.rows)
        self.warps = max(1, share.threads // WARP)
        self.known: dict[Var, Expr] = {}
        """Which row it is."""
        self.is_read = False
        """Whether the row was read from memory."""
        self.is_narrow = out.dtype.is_float and out.dtype.bits <= 16
        self.passes_cache = passes_cache
        self.sums_powers = not share.held
        """Whether powers are summed before the largest number of their row is known."""

    def tensor(self) -> Tensor:
        """The result."""
        shape = tuple(build.int_value(extent) or 0 for extent in self.result.shape)
        found: Tensor = extern(
            shape, list(self.program.reads), self._body, name=self.result.op.name,
            dtype=str(self.result.dtype),
            attrs={"schedule": f"rows in registers, {self.share}, {self.together} in a block"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        self.buffers = dict(zip(self.program.reads, ins, strict=True))
        self.out = self.ib.buffer_ptr(outs[0])
        self._write()
        return self.ib.get()

    def _write(self) -> None:
        ib, program, share = self.ib, self.program, self.share
        self._name_row(self._bind())
        window = share.own if share.held else share.at_once
        self.window = self._windows("local", (window, share.lanes))
        self.single = self._windows("local", (1, 1)) if share.is_shifted else {}
        self.shared = {}
        if share.kept == SHARED_HAS:
            places = (self.together, share.own, share.in_block, share.lanes)
            self.shared = self._windows("shared.dyn", places)
        if share.held:
            self._over_row(self._fetch)
        elif share.is_shifted:
            self._fetch(self._single())
        self._sum_up()
        if program.is_element:
            self.made = ib.allocate(
                str(self.result.dtype), (share.lanes,), name="made", scope="local"
            )
            self._over_row(self._store)
            return
        wanted = self.lane.equal(0)
        if self.is_there is not None:
            wanted = build.logical_and(wanted, self.is_there)
        with ib.if_scope(wanted):
            self.out[self._indices(self.out.buffer, ())] = self._value(program.result)

    def _bind(self) -> Expr:
        """Which row a thread has some of."""
        ib, share = self.ib, self.share
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", -(-self.count // self.together))
        ib.scope_attr(thread, "thread_extent", share.threads * self.together)
        self.lane = thread.var % share.threads
        self.place_in_block = thread.var // share.threads
        row = ib.let("row", block.var * self.together + self.place_in_block)
        self.is_there = row < self.count if self.count % self.together else None
        if self.is_there is None:
            return row
        # Threads of rows behind the last do the last one's work, and do not store it.
        return ib.let("near", build.minimum(row, self.count - 1))

    def _windows(self, scope: str, shape: tuple[int, ...]) -> dict[Tensor, BufferVar]:
        """Arrays for what is read of rows."""
        return {
            tensor: self.ib.allocate(str(tensor.dtype), shape, name=tensor.name, scope=scope)
            for tensor in self.held
        }

    def _name_row(self, row: Expr) -> None:
        """Which row it is, which of all vectors is its first whole one, and how many it has."""
        share, ib, program = self.share, self.ib, self.program
        self.known = dict(zip(program.outer, _unravelled(row, program.rows), strict=True))
        self.first: Expr = row * share.most
        self.before: Expr = build.const(0)
        self.count_of: Expr = build.const(share.most)
        if share.is_shifted:
            start = ib.let("start", row * share.length)
            self.first = ib.let("first", (start + (share.lanes - 1)) // share.lanes)
            self.before = ib.let("before", self.first * share.lanes - start)
            self.count_of = ib.let("vectors", (share.length - self.before) // share.lanes)

    # ---- over a row ----

    def _over_row(self, each: Callable[[Piece], None]) -> None:
        """Each piece of a row that a thread has."""
        share, ib = self.share, self.ib
        if share.is_shifted:
            each(self._single())
        if share.held:
            whole = share.least // share.threads
            if whole:
                with ib.for_range(0, whole, name="own", kind="unroll") as own:
                    each(self._vector(own, own * share.threads, False))
            for rest in range(whole, share.own):
                each(self._vector(build.const(rest), build.const(rest * share.threads), True))
            return
        self._over_parts(lambda part: self._each_of(part, each))

    def _over_parts(self, do: Callable[[Part], None]) -> None:
        """Each part of a row that registers do not keep, once it is read."""
        share, ib = self.share, self.ib
        every = share.threads * share.at_once
        whole = share.least // every
        with ib.for_range(0, whole, name="part") as part:
            self._read(Part(part * every, share.at_once, False), do)
        for first in range(whole * every, share.most, every):
            count = -(-min(every, share.most - first) // share.threads)
            self._read(Part(build.const(first), count, True), do)

    def _vector(self, own: Expr, first: Expr, is_ragged: bool) -> Piece:
        """The vector of a thread, behind so many of the row."""
        number = first + self.lane
        is_one = number < self.count_of if is_ragged else None
        lanes = self.share.lanes
        return Piece(own, number, self.before + number * lanes, lanes, is_one)

    def _single(self) -> Piece:
        """The element of a thread that no whole vector has."""
        share = self.share
        behind = self.lane + self.count_of * share.lanes
        place = build.select(self.lane < self.before, self.lane, behind)
        return Piece(build.const(0), None, place, 1, behind < share.length)

    def _each_of(self, part: Part, each: Callable[[Piece], None], kind: str = "unroll") -> None:
        """Each vector of a part."""
        with self.ib.for_range(0, part.count, name="own", kind=kind) as own:
            each(self._vector(own, part.first + own * self.share.threads, part.is_ragged))

    def _read(self, part: Part, do: Callable[[Part], None]) -> None:
        """What is under way at once, and what is done with it."""
        self._each_of(part, self._fetch)
        if self.shared and not self.is_read:
            self._each_of(part, self._keep, kind="serial")
        do(part)

    def _fetch(self, piece: Piece) -> None:
        if piece.number is None:
            place = build.minimum(piece.place, self.share.length - 1)
            for tensor, kept in self.single.items():
                buffer = self.buffers[tensor]
                kept[0, 0] = BufferLoad(buffer, self._indices(buffer, self._inner(place)))
            return
        number = piece.number
        again = bool(self.shared) and self.is_read
        if piece.is_one is not None and not again:
            number = build.minimum(number, self.count_of - 1)
        for tensor, kept in self.window.items():
            buffer = self.buffers[tensor]
            if self.passes_cache and not again and piece.lanes * tensor.dtype.bytes == VECTOR_BYTES:
                first = BufferLoad(buffer, self._vector_indices(buffer, number, build.const(0)))
                self.ib.emit(fetch_once(kept[piece.own, 0], first))
                continue
            with self.ib.for_range(0, piece.lanes, name="lane", kind="vectorize") as lane:
                kept[piece.own, lane] = (
                    self.shared[tensor][self._shared_place(number, lane)] if again
                    else BufferLoad(buffer, self._vector_indices(buffer, number, lane))
                )

    def _keep(self, piece: Piece) -> None:
        """Put a vector into shared memory, where its thread finds it again."""
        assert piece.number is not None
        for tensor, kept in self.window.items():
            with self.ib.for_range(0, piece.lanes, name="lane", kind="vectorize") as lane:
                place = self._shared_place(piece.number, lane)
                self.shared[tensor][place] = kept[piece.own, lane]

    def _shared_place(self, number: Expr, lane: Expr) -> tuple[Expr, ...]:
        share = self.share
        return self.place_in_block, number // share.threads, number % share.in_block, lane

    def _vector_indices(self, buffer: Buffer, number: Expr, lane: Expr) -> tuple[Expr, ...]:
        """The indices of an element of a vector of this row."""
        lanes = self.share.lanes
        if self.share.is_shifted:
            return tuple(buffer.indices_of((self.first + number) * lanes + lane))
        return self._indices(buffer, self._inner(number * lanes + lane))

    def _store(self, piece: Piece) -> None:
        ib, lanes = self.ib, piece.lanes

        def store() -> None:
            number = piece.number
            if number is None:
                at = self._inner(piece.place)
                value = self._value(self.program.result, self._kept(piece, build.const(0)), at)
                self.out[self._indices(self.out.buffer, at)] = value
                return
            # One by one, as sums have them: what they share is then computed once.
            with ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
                at = self._inner(piece.place + lane)
                self.made[lane] = self._value(self.program.result, self._kept(piece, lane), at)
            with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                self.out[self._vector_indices(self.out.buffer, number, lane)] = self.made[lane]

        conditions = [each for each in (piece.is_one, self.is_there) if each is not None]
        if conditions:
            wanted = conditions[0] if len(conditions) == 1 else build.logical_and(*conditions)
            with ib.if_scope(wanted):
                store()
        else:
            store()

    def _kept(self, piece: Piece, lane: Expr) -> dict[Tensor, Expr]:
        """What was read of a row at a place of a piece."""
        held = self.single if piece.number is None else self.window
        return {tensor: kept[piece.own, lane] for tensor, kept in held.items()}

    # ---- sums ----

    def _sum_up(self) -> None:
        """All sums of a row; those of powers that follow each other in one go where it is read."""
        steps = list(self.program.sums)
        while steps:
            if self.sums_powers and len(steps) > 1 and is_sum_of_powers(*steps[:2]):
                self._sum_powers(steps.pop(0), steps.pop(0))
            else:
                self._sum(steps.pop(0))
            self.is_read = True

    def _sum(self, step: RowSum) -> None:
        ib, (join, kind) = self.ib, joining(step)
        total = ib.allocate(str(kind), (1,), name=f"{step.name}.own", scope="local")
        total[0] = build.cast(kind, step.combiner.identity[0])
        self.totals = [total] if kind == FLOAT else []

        def add(piece: Piece) -> None:
            there = nullcontext() if piece.is_one is None else ib.if_scope(piece.is_one)
            with there, ib.for_range(0, piece.lanes, name="lane", kind="unroll") as lane:
                at = self._inner(piece.place + lane)
                value = build.cast(kind, self._value(step.source, self._kept(piece, lane), at))
                total[0] = join(total[0], value)

        self._over_row(add)
        self._join_all(step, total)

    def _sum_powers(self, largest: RowSum, powers: RowSum) -> None:
        """Powers of e less the largest are summed while a row is read: less what is the largest so
        far. What was summed before shrinks where that grows (online softmax)."""
        ib = self.ib
        most, total, base = (
            ib.allocate("float32", (1,), name=f"{powers.name}.{name}", scope="local")
            for name in ("most", "own", "base")
        )
        most[0], total[0] = build.const(-math.inf, FLOAT), build.const(0, FLOAT)
        self.totals = [most, total]

        def value(step: RowSum, piece: Piece, lane: Expr) -> Expr:
            at = self._inner(piece.place + lane)
            return build.cast(FLOAT, self._value(step.source, self._kept(piece, lane), at))

        def each(piece: Piece, do: Callable[[Expr], None]) -> None:
            there = nullcontext() if piece.is_one is None else ib.if_scope(piece.is_one)
            with there, ib.for_range(0, piece.lanes, name="lane", kind="unroll") as lane:
                do(lane)

        def grow(piece: Piece) -> None:
            def one(lane: Expr) -> None:
                most[0] = larger(most[0], value(largest, piece, lane))

            each(piece, one)

        def shrink(before: Expr) -> None:
            # Where nothing counts yet, 0 stands for the largest: -inf less -inf is no number.
            is_none = most[0].equal(build.const(-math.inf, FLOAT))
            base[0] = build.select(is_none, build.const(0, FLOAT), most[0])
            total[0] = total[0] * self._power(before - base[0])
            self.known[largest.value] = build.cast(largest.value.dtype, base[0])

        def add(piece: Piece) -> None:
            def one(lane: Expr) -> None:
                total[0] = total[0] + value(powers, piece, lane)

            each(piece, one)

        def step(over: Callable[[Callable[[Piece], None]], None]) -> None:
            with ib.new_scope():
                before = ib.let("before", most[0])
                over(grow)
                shrink(before)
                over(add)

        self._over_parts(lambda part: step(lambda do: self._each_of(part, do)))
        if self.share.is_shifted:
            step(lambda do: do(self._single()))
        own = ib.let("own_most", most[0])
        self._join_all(largest, most)
        total[0] = total[0] * self._power(own - build.cast(FLOAT, self.known[largest.value]))
        self._join_all(powers, total)

    def _power(self, of: Expr) -> Expr:
        """e to a number."""
        made = Call(FLOAT, "exp", (of,))
        return _Quick().rewrite(made) if self.is_narrow else made

    def _join_all(self, step: RowSum, total: BufferVar) -> None:
        """What all threads of a row have, as one number that each of them knows."""
        ib, (join, kind) = self.ib, joining(step)
        self._join(total, join, min(self.share.threads, WARP))
        if self.warps > 1:
            parts = ib.allocate(
                str(kind), (self.together, self.warps), name=f"{step.name}.parts", scope="shared"
            )
            with ib.if_scope((self.lane % WARP).equal(0)):
                parts[self.place_in_block, self.lane // WARP] = total[0]
            ib.emit(barrier())
            total[0] = parts[self.place_in_block, self.lane % self.warps]
            self._join(total, join, self.warps)
        self.known[step.value] = ib.let(step.name, build.cast(step.value.dtype, total[0]))

    def _join(self, total: BufferVar, join: Callable[[Expr, Expr], Expr], lanes: int) -> None:
        """What neighbouring lanes have, as one number that each of them has."""
        distance = lanes // 2
        while distance:
            other = self.ib.let("other", _of_lane(total[0], distance))
            total[0] = join(total[0], other)
            distance //= 2

    # ---- values ----

    def _value(
        self, expr: Expr, kept: Mapping[Tensor, Expr] | None = None, at: Sequence[Expr] = ()
    ) -> Expr:
        """What an expression is at a place of the row, where that was read before."""
        places = dict(zip(self.program.inner, at, strict=True)) if kept is not None else {}
        known = {**self.known, **places}

        def loaded(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
            if kept is not None and tensor in kept:
                return kept[tensor]
            return BufferLoad(
                self.buffers[tensor], tuple(substitute(index, known) for index in indices)
            )

        made: Expr = substitute(replace_loads(expr, loaded), known)
        return _Quick().rewrite(made) if self.is_narrow else made

    def _inner(self, place: Expr) -> tuple[Expr, ...]:
        return _unravelled(place, self.program.row)

    def _indices(self, buffer: Buffer, inner: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices of a place of this row in an array that has all rows."""
        program = self.program
        places = dict(zip(program.inner, inner, strict=True)) if inner else {}
        left = iter(
            substitute(index, {**self.known, **places})
            for index in (program.full if inner else program.outer)
        )
        return tuple(
            build.const(0) if build.is_const(extent, 1) else next(left) for extent in buffer.shape
        )


def is_sum_of_powers(largest: RowSum, powers: RowSum) -> bool:
    """Whether one step is the largest number of rows, and the next sums e to them less that."""

    def bare(expr: Expr) -> Expr:
        return bare(expr.value) if isinstance(expr, Cast) else expr

    def is_float(step: RowSum) -> bool:
        return step.value.dtype.is_float and step.value.dtype.bits <= FLOAT.bits

    power = powers.source
    if not (isinstance(power, Call) and power.op == "exp" and isinstance(power.args[0], Sub)):
        return False
    less = power.args[0]
    return (
        isinstance(largest.combiner.result[0], Max) and is_float(largest)
        and isinstance(powers.combiner.result[0], Add) and powers.value.dtype == FLOAT
        and bare(less.b) is largest.value and str(bare(less.a)) == str(bare(largest.source))
    )


def joining(step: RowSum) -> tuple[Callable[[Expr, Expr], Expr], DataType]:
    """How two sums become one, and in which type: the largest of narrow floats is one of wide."""
    combiner = step.combiner
    kind = step.value.dtype
    is_float = kind.is_float and kind.bits <= FLOAT.bits
    if isinstance(combiner.result[0], Max) and is_float:
        return larger, FLOAT

    def join(a: Expr, b: Expr) -> Expr:
        made: Expr = substitute(combiner.result[0], {combiner.left[0]: a, combiner.right[0]: b})
        return made

    return join, kind


class _Quick(Rewriter):
    """Powers of e where the result has 16 bits: those of two that the GPU has."""

    def visit_Call(self, call: Call) -> Expr:
        kept = self.rewrite_children(call)
        if call.op == "exp" and call.dtype.element == FLOAT and call.dtype.lanes == 1:
            factor, power = build.const(1 / math.log(2), FLOAT), kept.args[0]
            if isinstance(power, Sub):  # the second is the row's: one instruction is left of it
                return flushed_exp2(power.a * factor - power.b * factor)
            return flushed_exp2(power * factor)
        made: Expr = kept
        return made


def _of_lane(value: Expr, distance: int) -> Expr:
    """What the lane has whose number differs by one bit."""
    everyone = build.const(0xFFFFFFFF, "uint32")
    arguments = (everyone, value, *(build.const(n) for n in (distance, WARP, WARP)))
    return Call(value.dtype, "tvm_warp_shuffle_xor", arguments)


def _unravelled(number: Expr, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """The indices of an element by its number."""
    found: list[Expr] = []
    for size in reversed(sizes[1:]):
        found.insert(0, number % size)
        number = number // size
    return (number, *found) if sizes else ()
