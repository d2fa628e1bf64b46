"""Rows in registers, on GPUs whose lanes hand values on: softmax, norms, sums of rows.

Some lanes of a warp, or some warps, have a row among them. Each loads its vectors of it once, all
of them at the same time, sums what it has, and joins that with the others by shuffles. Warps that
share a row meet once for each sum, in shared memory. Rows that registers have no room for are read
again for every sum; a cache has them by then.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.arith import substitute
from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Max, Var
from sterna.ir.node import post_order
from sterna.ir.visitor import Rewriter
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.row_program import RowProgram, RowSum, row_program
from sterna.schedule.gpu.sums import PART
from sterna.schedule.kernel import ScheduleTarget
from sterna.support.dtype import DataType
from sterna.te import Tensor, extern, thread_axis
from sterna.te.tensor import ProducerLoad, replace_loads
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.register_products import flushed_exp2, larger
from sterna.tir.stmt import Buffer, BufferLoad, Stmt
from sterna.tir.threads import barrier

WARP = 32
FLOAT = DataType("float32")
SHORTEST_ROW = 32
# Lanes that share a row: as many as read whole lines of memory, up to all that a block has.
LANES = tuple(1 << n for n in range(3, 11))
# Threads of a block where rows are short, and blocks that keep a device busy.
BLOCK, BUSY = 128, 264
# Registers of a processor, and those of a thread beside what it holds of a row.
REGISTERS, BESIDE = 65536, 28
# Elements of a row that a thread holds: what is read, and what is made of it.
MOST_HELD = 32
# Vectors that a thread has under way where rows are read again.
AT_ONCE = 8
# Cycles that it takes to hand a value on, and for warps of a block to meet.
HAND_ON, MEET, EACH = 4, 40, 10


@dataclass(frozen=True, slots=True)
class Share:
    """Who has a row."""

    threads: int
    lanes: int
    """Elements of a vector."""
    vectors: int
    """Of a row, which the threads take in turns."""
    held: bool
    """Whether a row stays in registers."""

    @property
    def own(self) -> int:
        """Vectors of one thread."""
        return -(-self.vectors // self.threads)

    @property
    def is_ragged(self) -> bool:
        """Whether some threads have a vector less than others."""
        return self.vectors % self.threads != 0

    @property
    def cost(self) -> float:
        """Cycles of all threads for a row: what each does of its own, and joining it."""
        steps = int(math.log2(min(self.threads, WARP)))
        joined = HAND_ON * steps + (MEET if self.threads > WARP else 0)
        times = 1 if self.held else 3
        return self.threads * (self.own * self.lanes * EACH * times + 2 * joined)

    def __str__(self) -> str:
        how = "" if self.held else ", read again"
        return f"{self.threads} threads, vectors of {self.lanes}{how}"


def rows_in_registers(outputs: Sequence[Tensor], target: ScheduleTarget | None) -> Tensor | None:
    """The statements of a kernel of rows for a GPU with shuffles; None if it is no such kernel."""
    if len(outputs) != 1 or not has_shuffles(target):
        return None
    program = row_program(outputs[0])
    length = 0 if program is None else math.prod(program.row)
    if program is None or length < SHORTEST_ROW:
        return None
    rows = math.prod(program.rows)
    if not program.is_element and rows < BUSY and length >= 2 * PART:
        return None  # many blocks share each sum
    held = held_of(program)
    kinds = [*(t.dtype for t in held), *([outputs[0].dtype] if program.is_element else [])]
    if not held or any(kind.bits < 8 for kind in kinds):
        return None
    share = _share_of(length, kinds)
    counts = [n for n in (16, 8, 4, 2, 1) if n * share.threads <= max(2 * BLOCK, share.threads)]
    together = choose(
        "rows of a block", counts, lambda n: abs(math.log2(BLOCK / (n * share.threads)))
        if rows >= n * BUSY else 100 + n)
    return _Writer(program, outputs[0], held, share, together).tensor()


def has_shuffles(target: ScheduleTarget | None) -> bool:
    """Whether lanes of a warp hand values on."""
    if target is None or "cuda" not in target.keys:
        return False
    arch = target.attrs.get("arch")
    return isinstance(arch, str) and Architecture.of(arch).number >= 70


def held_of(program: RowProgram) -> list[Tensor]:
    """What is read of a row element by element, and in no other way."""
    found: dict[Tensor, bool] = {}

    def note(node: object) -> None:
        if isinstance(node, ProducerLoad):
            along = program.along(node) and not node.tensor.dtype.is_bool
            found[node.tensor] = found.get(node.tensor, True) and along

    for expr in (*(step.source for step in program.sums), program.result):
        post_order(expr, note)
    return [tensor for tensor, along in found.items() if along]


def _share_of(length: int, kinds: Sequence[DataType]) -> Share:
    """Who has a row of so many elements; several arrays of a row take as many registers."""
    lanes = VECTOR_BYTES // max(kind.bytes for kind in kinds)
    while lanes > 1 and length % lanes:
        lanes //= 2
    vectors = length // lanes
    shares = [Share(threads, lanes, vectors, True) for threads in LANES]
    fitting = [
        share for share in shares
        if share.own * lanes <= MOST_HELD
        and (share.own * lanes + BESIDE) * share.threads <= REGISTERS
    ]
    fitting += [Share(threads, lanes, vectors, False) for threads in LANES[5:]]
    return choose("threads of a row", fitting, lambda share: share.cost)


class _Writer:
    """The statements of a block."""

    ib: IRBuilder
    buffers: dict[Tensor, Buffer]
    out: BufferVar
    made: BufferVar
    """Results of one vector."""

    def __init__(
        self, program: RowProgram, out: Tensor, held: list[Tensor], share: Share, together: int
    ) -> None:
        self.program, self.result, self.held = program, out, held
        self.share, self.together = share, together
        self.count = math.prod(program.rows)
        self.warps = max(1, share.threads // WARP)
        self.known: dict[Var, Expr] = {}
        """Which row it is."""
        self.is_narrow = out.dtype.is_float and out.dtype.bits <= 16

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
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", -(-self.count // self.together))
        ib.scope_attr(thread, "thread_extent", share.threads * self.together)
        self.lane = thread.var % share.threads
        self.place_in_block = thread.var // share.threads
        row = ib.let("row", block.var * self.together + self.place_in_block)
        self.is_there = row < self.count if self.count % self.together else None
        if self.is_there is not None:
            # Threads of rows behind the last do the last one's work, and do not store it.
            row = ib.let("near", build.minimum(row, self.count - 1))
        self.known = dict(zip(program.outer, _unravelled(row, program.rows), strict=True))
        window = share.own if share.held else AT_ONCE
        self.window = {
            tensor: ib.allocate(
                str(tensor.dtype), (window, share.lanes), name=tensor.name, scope="local"
            )
            for tensor in self.held
        }
        if share.held:
            self._over_row(self._fetch)
        for number, step in enumerate(program.sums):
            self._sum(number, step)
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

    # ---- over a row ----

    def _over_row(self, each: Callable[[Expr, Expr, Expr | None], None]) -> None:
        """Each vector of a thread: where it is kept, which of the row it is, whether it is one."""
        share, ib = self.share, self.ib
        if share.held:
            whole = share.own - share.is_ragged
            if whole:
                with ib.for_range(0, whole, name="own", kind="unroll") as own:
                    each(own, own * share.threads + self.lane, None)
            if share.is_ragged:
                vector = whole * share.threads + self.lane
                each(build.const(whole), vector, vector < share.vectors)
            return
        every = share.threads * AT_ONCE
        whole, rest = divmod(share.vectors, every)
        with ib.for_range(0, whole, name="part") as part:
            self._part(each, part * every, AT_ONCE, False)
        if rest:
            self._part(each, build.const(whole * every), -(-rest // share.threads), True)

    def _part(
        self, each: Callable[[Expr, Expr, Expr | None], None], first: Expr, count: int,
        is_ragged: bool,
    ) -> None:
        """A part of a row that is read again: what is under way at once."""
        share, ib = self.share, self.ib

        def vectors(do: Callable[[Expr, Expr, Expr | None], None]) -> None:
            with ib.for_range(0, count, name="own", kind="unroll") as own:
                vector = first + own * share.threads + self.lane
                do(own, vector, vector < share.vectors if is_ragged else None)

        vectors(self._fetch)
        vectors(each)

    def _fetch(self, own: Expr, vector: Expr, is_one: Expr | None) -> None:
        if is_one is not None:
            vector = build.minimum(vector, self.share.vectors - 1)
        for tensor, kept in self.window.items():
            with self.ib.for_range(0, self.share.lanes, name="lane", kind="vectorize") as lane:
                place = vector * self.share.lanes + lane
                buffer = self.buffers[tensor]
                kept[own, lane] = BufferLoad(buffer, self._indices(buffer, self._inner(place)))

    def _store(self, own: Expr, vector: Expr, is_one: Expr | None) -> None:
        ib, lanes = self.ib, self.share.lanes

        def store() -> None:
            # One by one, as sums have them: what they share is then computed once.
            with ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
                at = self._inner(vector * lanes + lane)
                self.made[lane] = self._value(self.program.result, (own, lane), at)
            with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                at = self._inner(vector * lanes + lane)
                self.out[self._indices(self.out.buffer, at)] = self.made[lane]

        conditions = [each for each in (is_one, self.is_there) if each is not None]
        if conditions:
            wanted = conditions[0] if len(conditions) == 1 else build.logical_and(*conditions)
            with ib.if_scope(wanted):
                store()
        else:
            store()

    # ---- sums ----

    def _sum(self, number: int, step: RowSum) -> None:
        ib, dtype = self.ib, step.value.dtype
        join, kind = _joining(step)
        total = ib.allocate(str(kind), (1,), name=f"{step.name}.own", scope="local")
        total[0] = build.cast(kind, step.combiner.identity[0])

        def add(own: Expr, vector: Expr, is_one: Expr | None) -> None:
            with ib.for_range(0, self.share.lanes, name="lane", kind="unroll") as lane:
                at = self._inner(vector * self.share.lanes + lane)
                value = build.cast(kind, self._value(step.source, (own, lane), at))
                joined = join(total[0], value)
                total[0] = joined if is_one is None else build.select(is_one, joined, total[0])

        self._over_row(add)
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
        self.known[step.value] = ib.let(step.name, build.cast(dtype, total[0]))

    def _join(self, total: BufferVar, join: Callable[[Expr, Expr], Expr], lanes: int) -> None:
        """What neighbouring lanes have, as one number that each of them has."""
        distance = lanes // 2
        while distance:
            other = self.ib.let("other", _of_lane(total[0], distance))
            total[0] = join(total[0], other)
            distance //= 2

    # ---- values ----

    def _value(
        self, expr: Expr, own: tuple[Expr, Expr] | None = None, at: Sequence[Expr] = ()
    ) -> Expr:
        """What an expression is at a place of the row, which is kept as one's own."""
        places = dict(zip(self.program.inner, at, strict=True)) if own is not None else {}

        def loaded(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
            if tensor in self.window and own is not None:
                return self.window[tensor][own]
            return BufferLoad(self.buffers[tensor], indices)

        made: Expr = substitute(replace_loads(expr, lambda t, i: loaded(t, tuple(
            substitute(index, {**self.known, **places}) for index in i))), {**self.known, **places})
        return _Quick().rewrite(made) if self.is_narrow else made

    def _inner(self, place: Expr) -> tuple[Expr, ...]:
        return _unravelled(place, self.program.row)

    def _indices(self, buffer: Buffer, inner: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices of a place of this row in an array that has all rows."""
        left = iter((*(self.known[var] for var in self.program.outer), *inner))
        return tuple(
            build.const(0) if build.is_const(extent, 1) else next(left) for extent in buffer.shape
        )


def _joining(step: RowSum) -> tuple[Callable[[Expr, Expr], Expr], DataType]:
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
            return flushed_exp2(kept.args[0] * build.const(1 / math.log(2), FLOAT))
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
