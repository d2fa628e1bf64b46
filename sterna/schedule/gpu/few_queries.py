"""Attention of few queries: keys and values are read once, by many blocks (mma, from sm_80 on).

Up to 16 queries that have the same keys, of one head or of several heads that share them, are the
rows of a product of a warp. A warp reads 16 keys and their values straight into the registers from
which they are multiplied: a lane's 16 bytes of a key are two steps of a sum, in an order that the
queries have too, and its 16 bytes of a value are columns of eight products. Loads of the next
keys are under way while powers are made. The warps of a block join what they have summed; where
heads are few, keys are shared out among blocks, and a second kernel joins these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.schedule.attention import AttentionStages
from sterna.schedule.choose import choose
from sterna.schedule.gpu.attention_tile import Shape
from sterna.schedule.gpu.strided import Heads, rounded_together
from sterna.schedule.gpu.transposed_result import MovedResult
from sterna.support.dtype import DataType
from sterna.te import Tensor, extern, thread_axis
from sterna.te import all as all_of
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.register_products import fetch_once, flushed_exp2, larger, load_pair
from sterna.tir.stmt import Buffer, BufferLoad, Stmt
from sterna.tir.threads import ROLLED, barrier
from sterna.tir.warpgroups import keep_pair, mma, pack_pair, shared_address

WARP = 32
ROWS, KEYS = 16, 16
"""Queries of a product, and keys of a step."""
CHUNK = 8
"""Numbers of 16 bits in 16 bytes."""
KEY_STEP, VALUE_STEP = 32, 64
"""Numbers of a key that four lanes load at once, and of a value that eight do."""
MOST_WIDTH = 128
"""Of keys and values: more would not stay in registers."""
WARPS = (8, 4)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PROCESSORS, WARPS_AT_ONCE = 132, 8
# In steps of 16 keys: what a block takes beside them, and joining parts by another kernel.
BEGINS, JOINS = 1.5, 2.0
NEVER = -math.inf
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Share:
    """How the keys of a head are shared out."""

    warps: int
    """Of a block."""
    parts: int
    """Blocks."""

    def __str__(self) -> str:
        return f"{self.warps} warps, {self.parts} parts"


def is_of_few_queries(shape: Shape, parts: Sequence[Heads]) -> bool:
    """Whether the queries that read one head of keys are rows of one product."""
    shared = parts[1].shared
    return (
        shape.suits and parts[2].shared == shared and shape.queries * shared <= ROWS
        and max(shape.width, shape.value_width) <= MOST_WIDTH
    )


def attention_of_few_queries(
    made: AttentionStages, moved: MovedResult, shape: Shape, parts: Sequence[Heads]
) -> Tensor:
    """The statements of attention of such a shape."""
    heads = shape.batch * (shape.heads // parts[1].shared)
    steps = -(-shape.keys // KEYS)
    offered = [
        Share(warps, count) for warps in WARPS for count in PARTS
        if count == 1 or count * warps <= steps
    ]

    def cost(share: Share) -> float:
        turns = -(-heads * share.parts // (PROCESSORS * (WARPS_AT_ONCE // share.warps)))
        own = -(-steps // (share.parts * share.warps))
        return turns * (own + BEGINS) + JOINS * (share.parts > 1)

    share = choose("parts of keys", offered, cost)
    return _Writer(made, moved, shape, share, rounded_together(parts)).tensor()


class _Writer:
    """The statements of both kernels."""

    ib: IRBuilder
    given: list[BufferVar]
    masks: list[Buffer]
    out: BufferVar

    def __init__(
        self, made: AttentionStages, moved: MovedResult, shape: Shape, share: Share,
        parts: Sequence[Heads],
    ) -> None:
        self.made, self.moved, self.shape, self.share = made, moved, shape, share
        self.parts, self.arrays = parts, list(dict.fromkeys(part.array for part in parts))
        self.shared = parts[1].shared
        self.groups = shape.heads // self.shared
        self.rows = self.shared * shape.queries
        self.halves = 1 if self.rows <= ROWS // 2 else 2
        """Rows that a lane has results of."""
        self.chunks = -(-shape.width // KEY_STEP)
        self.boxes = -(-shape.value_width // VALUE_STEP)
        self.factor = made.scale * LOG2_E
        self.blocks = shape.batch * self.groups * share.parts
        self.totals = self.blocks * self.rows * shape.value_width
        """Where the largest scores and the sums of powers lie, behind what they belong to."""

    def tensor(self) -> Tensor:
        """The result."""
        result, single = self.moved.result, self.share.parts == 1
        extents = [build.int_value(extent) or 0 for extent in result.shape]
        attrs = {"schedule": f"online softmax by mma, {self.rows} rows, {self.share}"}
        first: Tensor = extern(
            extents if single else (self.totals + 2 * self.blocks * self.rows,),
            [*self.arrays, *self.made.operands[3:]], self._body, attrs=attrs,
            name="T_attention" if single else "T_attention_parts",
            dtype=str(result.dtype) if single else "float32",
        )
        if single:
            return first
        joined: Tensor = extern(
            extents, [first], self._join_body, name="T_attention", dtype=str(result.dtype),
            attrs=attrs,
        )
        return joined

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        held = dict(zip(self.arrays, ins, strict=False))
        self.given = [self.ib.buffer_ptr(held[part.array]) for part in self.parts]
        self.masks, self.out = ins[len(self.arrays) :], self.ib.buffer_ptr(outs[0])
        self._write()
        return self.ib.get()

    def _write(self) -> None:
        ib, share = self.ib, self.share
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", self.blocks)
        ib.scope_attr(thread, "thread_extent", share.warps * WARP)
        self.block = block.var
        self.part = block.var % share.parts
        head = block.var // share.parts
        self.image, self.group = head // self.groups, head % self.groups
        self.warp = ib.let("warp", thread.var // WARP)
        lane = ib.let("lane", thread.var % WARP)
        self.lane, self.across, self.down = lane, lane % 4, lane // 4
        self.queries = self._private("uint32", self.chunks * 8, "queries")
        self.keys = self._private("uint32", 2 * self.chunks * 4, "keys")
        self.values = self._private("uint32", self.boxes * 4 * 4, "values")
        self.scores = self._private("float32", 8, "scores")
        self.powers = self._private("uint32", 4, "powers")
        self.pair = self._private("uint32", 2, "pair")
        self.sums = self._private("float32", self.boxes * 8 * 4, "sums")
        self.largest = self._private("float32", 2, "largest")
        self.total = self._private("float32", 2, "total")
        every = share.parts * share.warps
        own = ib.let("own", self.part * share.warps + self.warp)
        turns = -(-self.shape.keys // (KEYS * every))
        self._load_keys(own * KEYS)
        self._load_queries()
        self._load_values(own * KEYS)
        for number in range(self.boxes * 32):
            self.sums[number] = _number(0)
        for row in range(2):
            self.largest[row], self.total[row] = _number(NEVER), _number(0)
        with ib.for_range(0, turns, name="turn", annotations={ROLLED: 1}) as turn:
            first = ib.let("first", (turn * every + own) * KEYS)
            following = ib.let("following", first + every * KEYS)
            self._score()
            self._load_keys(following)
            self._make_powers(first)
            self._add()
            self._load_values(following)
        self._join_warps()
        with ib.if_scope(self.warp.equal(0)):
            self._store()

    def _private(self, kind: str, size: int, name: str) -> BufferVar:
        return self.ib.allocate(kind, (size,), name=name, scope="local")

    # ---- loads ----

    def _element(self, which: int, row: Expr, head: Expr, column: Expr) -> BufferLoad:
        part = self.parts[which]
        sample, row_step, head_step = part.steps
        place = self.image * sample + row * row_step + (head + part.before) * head_step + column
        found: BufferLoad = self.given[which][place]
        return found

    def _load(
        self, to: BufferVar, at: int, which: int, row: Expr, head: Expr, chunk: Expr, width: int,
        step: int,
    ) -> None:
        """A lane's 16 bytes of a row; zeros behind the last of a row."""
        if width % step == 0:
            self.ib.emit(fetch_once(to[at], self._element(which, row, head, chunk * CHUNK)))
            return
        inside = chunk * CHUNK < width
        column = build.select(inside, chunk * CHUNK, build.const(0))
        self.ib.emit(fetch_once(to[at], self._element(which, row, head, column)))
        for word in range(4):
            to[at + word] = build.select(inside, to[at + word], build.const(0, "uint32"))

    def _load_queries(self) -> None:
        """In the order in which products take them: both rows of a lane word by word."""
        ib = self.ib
        for chunk in range(self.chunks):
            with ib.new_scope():
                brought = self._private("uint32", 8, "brought")
                for row in range(2):
                    query, head = self._query(self.down + 8 * row)
                    self._load(brought, 4 * row, 0, query, head, self.across + 4 * chunk,
                               self.shape.width, KEY_STEP)
                for step in range(2):
                    for word in range(4):
                        self.queries[(2 * chunk + step) * 4 + word] = brought[
                            word % 2 * 4 + 2 * step + word // 2
                        ]

    def _query(self, row: Expr) -> tuple[Expr, Expr]:
        """The query and the head of a row; those behind the last are the last again."""
        row = build.minimum(row, self.rows - 1)
        return row // self.shared, self.group * self.shared + row % self.shared

    def _load_keys(self, first: Expr) -> None:
        for tile in range(2):
            row = build.minimum(first + 8 * tile + self.down, self.shape.keys - 1)
            for chunk in range(self.chunks):
                self._load(self.keys, (tile * self.chunks + chunk) * 4, 1, row, self.group,
                           self.across + 4 * chunk, self.shape.width, KEY_STEP)

    def _load_values(self, first: Expr) -> None:
        for number in range(4):
            key = first + 2 * self.across + (number % 2 + number // 2 * 8)
            row = build.minimum(key, self.shape.keys - 1)
            for box in range(self.boxes):
                self._load(self.values, (box * 4 + number) * 4, 2, row, self.group,
                           self.down + 8 * box, self.shape.value_width, VALUE_STEP)

    # ---- products ----

    def _score(self) -> None:
        """Scores 2 x of a lane's first row and 2 of its second, of keys 2 * across and the next."""
        for tile in range(2):
            for number in range(4):
                self.scores[tile * 4 + number] = _number(0)
            for step in range(2 * self.chunks):
                self.ib.emit(mma(
                    self.shape.kind, self.scores[tile * 4], self.queries[4 * step],
                    self.keys[tile * self.chunks * 4 + 2 * step],
                ))

    def _make_powers(self, first: Expr) -> None:
        ib = self.ib
        for number in range(8):
            row, key = number // 2 % 2, first + (number // 4 * 8 + number % 2) + 2 * self.across
            score = self._masked(self.scores[number], self.down + 8 * row, key)
            self.scores[number] = build.select(key < self.shape.keys, score, _number(NEVER))
        for row in range(2):
            own = [2 * row, 2 * row + 1, 2 * row + 4, 2 * row + 5]
            most: Expr = larger(
                larger(self.scores[own[0]], self.scores[own[1]]),
                larger(self.scores[own[2]], self.scores[own[3]]),
            )
            for distance in (1, 2):
                most = ib.let("most", most)
                most = larger(most, _of_lane(most, distance))
            most_yet = ib.let("most_yet", larger(self.largest[row], most))
            base = ib.let("base", _base(most_yet))
            shrink = ib.let("shrink", flushed_exp2(self.largest[row] - base))
            self.largest[row] = most_yet
            for number in own:
                self.scores[number] = flushed_exp2(self.scores[number] - base)
            a, b, c, d = (self.scores[number] for number in own)
            self.total[row] = self.total[row] * shrink + ((a + b) + (c + d))
            for column in range(self.boxes * 8):
                for number in (4 * column + 2 * row, 4 * column + 2 * row + 1):
                    self.sums[number] = self.sums[number] * shrink
        for word in range(4):
            self.powers[word] = pack_pair(
                self.shape.kind, self.scores[2 * word], self.scores[2 * word + 1]
            )

    def _masked(self, score: Expr, row: Expr, key: Expr) -> Expr:
        """A score as a power of two, or never."""
        query, head = self._query(row)
        if self.made.causal:
            score = build.select(key <= query, score, _number(NEVER))
        if not self.masks:
            return score * self.factor
        score = score * self.made.scale
        place = build.minimum(key, self.shape.keys - 1)
        for mask in self.masks:
            own = (self.image, head, query, place)[4 - len(mask.shape) :]
            said = mask[tuple(
                build.const(0) if build.is_const(extent, 1) else index
                for index, extent in zip(own, mask.shape, strict=True)
            )]
            if mask.dtype == "bool":
                score = build.select(said, score, _number(self.made.fill))
            else:
                score = score + build.cast("float32", said)
        return score * LOG2_E

    def _add(self) -> None:
        """Column c of a lane's eight is one of product c: keys come together two by two."""
        low, high = build.const(0xFFFF, "uint32"), build.const(0xFFFF0000, "uint32")
        for box in range(self.boxes):
            for column in range(8):
                for half in range(2):
                    at = (box * 4 + 2 * half) * 4 + column // 2
                    one, other = self.values[at], self.values[at + 4]
                    if column % 2:
                        self.pair[half] = (one >> build.const(16, "uint32")) | (other & high)
                    else:
                        self.pair[half] = (one & low) | (other << build.const(16, "uint32"))
                self.ib.emit(mma(
                    self.shape.kind, self.sums[(box * 8 + column) * 4], self.powers[0],
                    self.pair[0],
                ))

    # ---- joining ----

    def _own_sums(self) -> list[int]:
        """Those of rows that there are."""
        return [n for n in range(self.boxes * 32) if n // 2 % 2 < self.halves]

    def _join_warps(self) -> None:
        """Warp 0 comes to have the sums of all."""
        ib, warps, own = self.ib, self.share.warps, self._own_sums()
        for row in range(2):
            for distance in (1, 2):
                self.total[row] = self.total[row] + _of_lane(self.total[row], distance)
        pairs = own[::2]
        size = 8 * (warps * ROWS + warps // 2 * len(pairs) * WARP)
        shared = ib.allocate("uint8", (size,), name="joined", scope="shared")
        start = ib.let("start", shared_address(shared[0]))
        kept = ib.let("kept", start + (8 * warps * ROWS + self.lane * 8))
        with ib.if_scope(self.across.equal(0)):
            for row in range(2):
                to = start + (self.warp * ROWS + self.down + 8 * row) * 8
                ib.emit(keep_pair(to, self.largest[row], self.total[row]))
        ib.emit(barrier())
        of_warps = self._private("float32", 2 * warps, "of_warps")
        for row in range(2):
            for warp in range(warps):
                ib.emit(load_pair(of_warps[2 * warp], start + (warp * ROWS + 8 * row) * 8
                                  + self.down * 8))
            whole: Expr = of_warps[0]
            for warp in range(1, warps):
                whole = larger(whole, of_warps[2 * warp])
            whole = ib.let("whole", whole)
            base = ib.let("base", _base(whole))
            added: Expr = _number(0)
            for warp in range(warps):
                power = flushed_exp2(of_warps[2 * warp] - base)
                added = added + of_warps[2 * warp + 1] * power
            shrink = ib.let("shrink", flushed_exp2(self.largest[row] - base))
            self.total[row], self.largest[row] = added, whole
            for number in own:
                if number // 2 % 2 == row:
                    self.sums[number] = self.sums[number] * shrink
        brought = self._private("float32", 2, "brought")
        half = warps // 2
        while half:
            with ib.if_scope(all_of(self.warp >= half, self.warp < 2 * half)):
                to = kept + (self.warp - half) * (len(pairs) * WARP * 8)
                for place, number in enumerate(pairs):
                    pair = self.sums[number], self.sums[number + 1]
                    ib.emit(keep_pair(to + place * WARP * 8, *pair))
            ib.emit(barrier())
            with ib.if_scope(self.warp < half):
                source = kept + self.warp * (len(pairs) * WARP * 8)
                for place, number in enumerate(pairs):
                    ib.emit(load_pair(brought[0], source + place * WARP * 8))
                    for side in range(2):
                        self.sums[number + side] = self.sums[number + side] + brought[side]
            half //= 2
            if half:
                ib.emit(barrier())

    def _store(self) -> None:
        """Eight columns side by side are of one lane."""
        ib, single, width = self.ib, self.share.parts == 1, self.shape.value_width
        for row in range(self.halves):
            at = self.down + 8 * row
            with ib.if_scope(at < self.rows):
                query, head = self._query(at)
                place = self.block * self.rows + at
                if not single:
                    with ib.if_scope(self.across.equal(0)):
                        self.out[self.totals + 2 * place] = self.largest[row]
                        self.out[self.totals + 2 * place + 1] = self.total[row]
                for box in range(self.boxes):
                    for side in range(2):
                        column = (2 * self.across + side + 8 * box) * CHUNK
                        with ib.if_scope(column < width):
                            for number in range(CHUNK):
                                made = self.sums[(box * 8 + number) * 4 + 2 * row + side]
                                if single:
                                    self._give(made / self.total[row], query, head, column + number)
                                else:
                                    self.out[place * width + column + number] = made

    def _give(self, made: Expr, query: Expr, head: Expr, column: Expr) -> None:
        index = (self.image, query, head, column)
        to = tuple(index[axis] for axis in self.moved.axes)
        self.out[to] = build.cast(self.moved.result.dtype, made)

    # ---- the second kernel ----

    def _join_body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        """A block has a row, a thread one of its columns."""
        self.ib = ib = ir_builder.create()
        given, self.out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", self.blocks // self.share.parts * self.rows)
        ib.scope_attr(thread, "thread_extent", self.shape.value_width)
        head, row = block.var // self.rows, block.var % self.rows
        self.image, self.group = head // self.groups, head % self.groups
        first = ib.let("first", head * self.share.parts * self.rows + row)
        places = [first + part * self.rows for part in range(self.share.parts)]
        most = [ib.let("most", given[self.totals + 2 * place]) for place in places]
        whole: Expr = most[0]
        for each in most[1:]:
            whole = larger(whole, each)
        base = ib.let("base", _base(ib.let("whole", whole)))
        total: Expr = _number(0)
        made: Expr = _number(0)
        for own, place in zip(most, places, strict=True):
            shrink = ib.let("shrink", flushed_exp2(own - base))
            total = ib.let("total", total + given[self.totals + 2 * place + 1] * shrink)
            sums = given[place * self.shape.value_width + thread.var]
            made = ib.let("made", made + sums * shrink)
        query, own_head = self._query(row)
        self._give(made / total, query, own_head, thread.var)
        return ib.get()


def _base(most: Expr) -> Expr:
    """Where all is masked, 0 stands for the largest: -inf less -inf is no number."""
    return build.select(most.equal(_number(NEVER)), _number(0), most)


def _of_lane(value: Expr, distance: int) -> Expr:
    """What the lane has whose number differs by one bit."""
    everyone = build.const(0xFFFFFFFF, "uint32")
    arguments = (everyone, value, *(build.const(n) for n in (distance, WARP, WARP)))
    return Call(DataType("float32"), "tvm_warp_shuffle_xor", arguments)


def _number(value: float) -> Expr:
    return build.const(value, "float32")
