"""Attention on Tensor Cores: scores and their powers stay in registers (online softmax, wgmma).

A block has 64 queries of a head for each group of four warps. One warp brings keys and values in
tiles (TMA). A group multiplies its queries with the keys of a tile, makes powers of the scores and
multiplies these, out of its registers, with the values. The products of the next scores and of the
values are under way while powers are made.
"""

import math
from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.schedule.attention import AttentionStages
from sterna.schedule.choose import choose
from sterna.schedule.gpu.attention_tile import BOX, WIDE_BOXES, AttentionTile, Shape
from sterna.schedule.gpu.operand import MAP_TYPES, ROW_BYTES, SWIZZLE_128
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS, WARP
from sterna.schedule.gpu.strided import Heads, heads_shared, part_of, rounded_together
from sterna.schedule.gpu.transposed_result import MovedResult
from sterna.schedule.gpu.warpgroup_kernel import FEW_REGISTERS, MANY_REGISTERS, Turn
from sterna.support.dtype import DataType
from sterna.te import Tensor, extern, thread_axis
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.register_products import (
    fetch_quad,
    flushed_exp2,
    keep_words,
    larger,
    settle,
    wgmma_registers,
)
from sterna.tir.stmt import Buffer, Stmt
from sterna.tir.threads import ROLLED
from sterna.tir.threads import barrier as block_barrier
from sterna.tir.warpgroups import (
    async_fence,
    first_lane,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    named_arrive,
    named_barrier,
    pack_pair,
    registers,
    shared_address,
    store_pair,
    store_word,
    tensor_map,
    tma_load,
    wgmma,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

CHUNKS = ROW_BYTES // 16
"""Pieces of 16 bytes in such a row."""
STEP = 16
"""Numbers of a sum that one product takes."""
NEVER = -math.inf
LOG2_E = math.log2(math.e)
# A descriptor of rows whose neighbours belong to one sum; and one of values, whose rows are steps
# of the sum, with the distance between boxes of 64 columns to be put in.
_ALONG_SUM, _ALONG_ROWS = 0x4000004000010000, 0x4000004000000000
PROCESSORS = 132
TURNS = 3
"""The number of the first barrier by which groups take turns, behind those of each alone."""


def attention_on_tensor_cores(
    made: AttentionStages, moved: MovedResult, shape: Shape, most_shared: int,
    parts: Sequence[Heads],
) -> Tensor | None:
    """The statements of attention of such a shape; None if copies do not reach its operands."""
    if moved.axes[-1] != len(moved.axes) - 1:
        return None
    # Queries are read once, and rounded on the way; keys and values again and again.
    whole = shape.width % BOX == 0
    parts = [*parts[:whole], *rounded_together(parts[whole:])]
    offered = [
        tile
        for groups in (2, 1) for keys in ((128, 64) if shape.boxes[1] <= WIDE_BOXES else (64,))
        for stages in (3, 2)
        for in_turns in (False, True)[:groups]
        if (tile := AttentionTile(groups, keys, stages, *shape.boxes, in_turns)).shared_bytes
        <= most_shared
    ]

    def cost(tile: AttentionTile) -> float:
        blocks = shape.batch * shape.heads * -(-shape.queries // tile.queries)
        turns = -(-blocks // PROCESSORS) * -(-shape.keys // tile.keys)
        return turns * (tile.queries * tile.keys + 4096) + tile.stages - 2 * tile.in_turns

    tile = choose("tile of attention", offered, cost)
    return _Writer(made, moved, shape, tile, parts).tensor()


def parts_of(made: AttentionStages) -> list[Heads] | None:
    """Where queries, keys and values lie; None if copies of 16 bytes do not reach them."""
    query, key, value = made.operands[:3]
    found = [part_of(query), *(part_of(each, heads_shared(each)) for each in (key, value))]
    parts = [part for part in found if part is not None]
    return parts if len(parts) == len(found) else None


class _Writer:
    """The statements of a block."""

    ib: IRBuilder
    out: BufferVar
    masks: list[Buffer]

    def __init__(
        self, made: AttentionStages, moved: MovedResult, shape: Shape, tile: AttentionTile,
        parts: Sequence[Heads],
    ) -> None:
        self.made, self.moved, self.shape, self.ring = made, moved, shape, tile
        self.parts, self.arrays = parts, list(dict.fromkeys(part.array for part in parts))
        self.kind = shape.kind

    def tensor(self) -> Tensor:
        """The result."""
        result = self.moved.result
        extents = [build.int_value(extent) or 0 for extent in result.shape]
        found: Tensor = extern(
            extents, [*self.arrays, *self.made.operands[3:]], self._body, name="T_attention",
            dtype=str(result.dtype),
            attrs={"schedule": f"online softmax by wgmma, {self.ring}"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        held = dict(zip(self.arrays, ins, strict=False))
        self.masks, self.out = ins[len(self.arrays) :], self.ib.buffer_ptr(outs[0])
        self._write([held[part.array] for part in self.parts])
        return self.ib.get()

    def _map(self, array: Buffer, part: Heads, width: int, length: int, rows: int) -> Expr:
        """A tensor map of rows of one head."""
        heads = part.before + self.shape.heads // part.shared
        numbers = [
            MAP_TYPES[self.kind], SWIZZLE_128, 4, width, heads, length, self.shape.batch,
            *reversed(part.byte_steps), BOX, 1, rows, 1,
        ]
        first = array[(build.const(0),) * len(array.shape)]
        return tensor_map(first, " ".join(["tiled", *map(str, numbers)]))

    def _write(self, given: Sequence[Buffer]) -> None:
        ib, tile, shape = self.ib, self.ring, self.shape
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        parts = -(-shape.queries // tile.queries)
        ib.scope_attr(block, "thread_extent", shape.batch * shape.heads * parts)
        ib.scope_attr(thread, "thread_extent", tile.threads)
        shared = ib.allocate("uint8", (tile.shared_bytes,), name="stages", scope="shared.dyn")
        self.base = ib.let("base", shared_address(shared[0]))
        self.key_at = ib.let("key_at", self.base + tile.query_bytes)
        self.value_at = ib.let("value_at", self.key_at + tile.stages * tile.key_bytes)
        barriers = ib.let("barriers", self.value_at + tile.stages * tile.value_bytes)
        each = 8 * tile.stages
        self.key_full, self.key_free = barriers, ib.let("key_free", barriers + each)
        self.value_full = ib.let("value_full", barriers + 2 * each)
        self.value_free = ib.let("value_free", barriers + 3 * each)
        self.query_full = ib.let("query_full", barriers + 4 * each)
        self.thread = thread.var
        self.query = ib.buffer_ptr(given[0])
        sizes = ((shape.width, shape.queries, tile.queries), (shape.width, shape.keys, tile.keys),
                 (shape.value_width, shape.keys, tile.keys))
        self.maps = {
            place: self._map(given[place], part, *sizes[place])
            for place, part in enumerate(self.parts) if not part.is_rounded
        }
        head = ib.let("number", block.var // parts)
        self.image, self.head = head // shape.heads, head % shape.heads
        # Blocks with the most keys begin first where later queries have more.
        part = block.var % parts
        part = parts - 1 - part if self.made.causal else part
        self.first = ib.let("first", part * tile.queries)
        self.blocks: Expr = build.const(-(-shape.keys // tile.keys))
        if self.made.causal:
            seen = build.minimum(shape.keys, self.first + tile.queries)
            self.blocks = ib.let("blocks", (seen + (tile.keys - 1)) // tile.keys)
        self._begin()
        warp = ib.let("warp", first_lane(thread.var // WARP))
        with ib.if_scope(warp >= tile.groups * 4):
            ib.emit(registers(FEW_REGISTERS, False))
            with ib.if_scope(thread.var.equal(tile.groups * GROUP)):
                self._produce()
        with ib.else_scope():
            ib.emit(registers(MANY_REGISTERS, True))
            _Consumer(self, warp).write()

    def _begin(self) -> None:
        ib, tile = self.ib, self.ring
        with ib.if_scope(self.thread.equal(0)):
            for stage in range(tile.stages):
                for full, free in (
                    (self.key_full, self.key_free), (self.value_full, self.value_free)
                ):
                    ib.emit(mbarrier_init(full + 8 * stage, 1))
                    ib.emit(mbarrier_init(free + 8 * stage, tile.groups))
            ib.emit(mbarrier_init(self.query_full, 1))
            ib.emit(mbarrier_ready())
        ib.emit(block_barrier())

    # ---- the producer ----

    def _produce(self) -> None:
        ib, tile = self.ib, self.ring
        if not self.parts[0].is_rounded:
            ib.emit(mbarrier_expect(self.query_full, tile.query_bytes))
            self._load(0, self.base, self.query_full, self.first, tile.queries)
        with ib.new_scope():
            place = Turn(self, "filled", phase=1)  # type: ignore[arg-type]
            with ib.for_range(0, self.blocks, name="block", annotations={ROLLED: 1}) as block:
                for number, full, free, at, size in (
                    (1, self.key_full, self.key_free, self.key_at, tile.key_bytes),
                    (2, self.value_full, self.value_free, self.value_at, tile.value_bytes),
                ):
                    ib.emit(mbarrier_wait(free + place.stage * 8, place.phase))
                    ib.emit(mbarrier_expect(full + place.stage * 8, size))
                    self._load(number, at + place.stage * size,
                               full + place.stage * 8, block * tile.keys, tile.keys)
                place.advance()

    def _load(self, number: int, to: Expr, barrier: Expr, row: Expr, rows: int) -> None:
        for box in range(self.ring.value_boxes if number == 2 else self.ring.boxes):
            part = self.parts[number]
            head = self.head // part.shared + part.before
            at = (box * BOX, head, row, self.image)
            self.ib.emit(
                tma_load(to + box * rows * ROW_BYTES, barrier, self.maps[number], at)
            )


class _Consumer:
    """The statements of a group of four warps.

    Score i of a thread is of query lane / 4 + 8 * (i / 2 % 2) of the warp's 16, and of key
    8 * (i / 4) + 2 * (lane % 4) + i % 2 of the tile; sums of values lie alike.
    """

    def __init__(self, kernel: _Writer, warp: Expr) -> None:
        self.kernel, self.ib, self.tile = kernel, kernel.ib, kernel.ring
        ib = self.ib
        self.group = ib.let("group", warp // 4)
        self.lane = ib.let("lane", kernel.thread % WARP)
        self.row = ib.let("row", kernel.first + warp * 16 + self.lane // 4)
        self.scores = ib.allocate("float32", (self.tile.keys // 2,), name="scores", scope="local")
        own = kernel.shape.value_width // 2
        self.sums = ib.allocate("float32", (own,), name="sums", scope="local")
        self.words = ib.allocate("uint32", (self.tile.keys // 4,), name="words", scope="local")
        self.largest = ib.allocate("float32", (2,), name="largest", scope="local")
        self.total = ib.allocate("float32", (2,), name="total", scope="local")
        self.factor = kernel.made.scale * LOG2_E
        self.left = ib.let("left", (kernel.base + self.group * (GROUP_ROWS * ROW_BYTES)) // 16)

    def write(self) -> None:
        """All tiles, then the results."""
        ib, kernel = self.ib, self.kernel
        for number in range(kernel.shape.value_width // 2):
            self.sums[number] = _number(0)
        # Else the zeros would come among products that are under way, and part them.
        ib.emit(settle(self.sums[0], kernel.shape.value_width // 2))
        for row in range(2):
            self.largest[row] = _number(NEVER)
            self.total[row] = _number(0)
        with ib.new_scope():
            keys = Turn(kernel, "keys")  # type: ignore[arg-type]
            values = Turn(kernel, "values")  # type: ignore[arg-type]
            if kernel.parts[0].is_rounded:
                self._round_queries()
            else:
                ib.emit(mbarrier_wait(kernel.query_full, build.const(0)))
            self._multiply_keys(keys)
            ib.emit(wgmma_wait(0))
            self._free_keys(keys)
            self._pack(self._powers(build.const(0)))
            self._give_turn(to_first=True)
            with ib.for_range(
                0, kernel.blocks - 1, name="block", annotations={ROLLED: 1}
            ) as block:
                self._take_turn()
                self._multiply_keys(keys)
                self._multiply_values(values)
                self._give_turn()
                ib.emit(wgmma_wait(1))
                self._free_keys(keys)
                shrinks = self._powers(block + 1)
                ib.emit(wgmma_wait(0))
                self._free_values(values)
                self._pack(shrinks)
            self._multiply_values(values)
            ib.emit(wgmma_wait(0))
            ib.emit(settle(self.sums[0], kernel.shape.value_width // 2))
        self._store()

    def _take_turn(self) -> None:
        """Wait until the other group has begun its products."""
        if self.tile.in_turns:
            self.ib.emit(named_barrier(self.group + TURNS, 2 * GROUP))

    def _give_turn(self, to_first: bool = False) -> None:
        """Let the other group begin its products; to_first: let the first one begin."""
        if not self.tile.in_turns:
            return
        if to_first:
            with self.ib.if_scope(self.group.equal(1)):
                self.ib.emit(named_arrive(build.const(TURNS), 2 * GROUP))
        else:
            self.ib.emit(named_arrive(TURNS + 1 - self.group, 2 * GROUP))

    def _round_queries(self) -> None:
        """Put the queries of a group into shared memory, eight numbers of a thread at a time."""
        ib, kernel, tile, part = self.ib, self.kernel, self.tile, self.kernel.parts[0]
        own = ib.let("own", kernel.thread % GROUP)
        down, chunk = ib.let("down", own // CHUNKS), ib.let("chunk", own % CHUNKS)
        high = GROUP // CHUNKS
        sample, row_step, head_step = part.steps
        head = kernel.image * sample + (kernel.head + part.before) * head_step + chunk * 8
        head = ib.let("head", head)
        for turn in range(GROUP_ROWS // high):
            row = ib.let("own_row", self.group * GROUP_ROWS + turn * high + down)
            query = build.minimum(kernel.first + row, kernel.shape.queries - 1)
            first = ib.let("first_of", head + query * row_step)
            for box in range(tile.boxes):
                with ib.new_scope():
                    floats = ib.allocate("float32", (8,), name="floats", scope="local")
                    for half in range(2):
                        place = first + box * BOX + half * 4
                        ib.emit(fetch_quad(floats[half * 4], kernel.query[place]))
                    words = [
                        pack_pair(kernel.kind, floats[2 * n], floats[2 * n + 1]) for n in range(4)
                    ]
                    at = kernel.base + (box * tile.queries + row) * ROW_BYTES
                    ib.emit(keep_words(at + (chunk ^ (row % CHUNKS)) * 16, words))
        ib.emit(async_fence())
        ib.emit(named_barrier(self.group + 1, GROUP))

    def _is_first(self) -> Expr:
        return (self.kernel.thread % GROUP).equal(0)

    def _multiply_keys(self, place: Turn) -> None:
        """Begin the scores of the next tile."""
        ib, kernel, tile = self.ib, self.kernel, self.tile
        ib.emit(mbarrier_wait(kernel.key_full + place.stage * 8, place.phase))
        right = (kernel.key_at + place.stage * tile.key_bytes) // 16
        ib.emit(wgmma_fence())
        for step in range(-(-kernel.shape.width // STEP)):
            box, within = step // 4, step % 4 * 2
            left = self.left + (box * tile.queries * ROW_BYTES // 16 + within)
            beside = right + (box * tile.keys * ROW_BYTES // 16 + within)
            ib.emit(wgmma(
                kernel.kind, tile.keys, self.scores[0], _descriptor(left, _ALONG_SUM),
                _descriptor(beside, _ALONG_SUM), int(step > 0),
            ))
        ib.emit(wgmma_commit())

    def _multiply_values(self, place: Turn) -> None:
        """Begin to add the values of a tile, by the powers in registers."""
        ib, kernel, tile = self.ib, self.kernel, self.tile
        ib.emit(mbarrier_wait(kernel.value_full + place.stage * 8, place.phase))
        right = (kernel.value_at + place.stage * tile.value_bytes) // 16
        constant = _ALONG_ROWS | (tile.keys * ROW_BYTES // 16) << 16
        ib.emit(wgmma_fence())
        for step in range(tile.keys // STEP):
            beside = right + step * STEP * ROW_BYTES // 16
            ib.emit(wgmma_registers(
                kernel.kind, kernel.shape.value_width, self.sums[0], self.words[4 * step],
                _descriptor(beside, constant), 1, True,
            ))
        ib.emit(wgmma_commit())

    def _free_keys(self, place: Turn) -> None:
        """The scores of a tile are there: its keys may be overwritten."""
        ib, kernel = self.ib, self.kernel
        ib.emit(settle(self.scores[0], self.tile.keys // 2))
        with ib.if_scope(self._is_first()):
            ib.emit(mbarrier_arrive(kernel.key_free + place.stage * 8))
        place.advance()

    def _free_values(self, place: Turn) -> None:
        """The values of a tile are added: they may be overwritten."""
        ib, kernel = self.ib, self.kernel
        ib.emit(settle(self.sums[0], kernel.shape.value_width // 2))
        with ib.if_scope(self._is_first()):
            ib.emit(mbarrier_arrive(kernel.value_free + place.stage * 8))
        place.advance()

    def _powers(self, block: Expr) -> list[Expr]:
        """Powers of the scores of a tile; the factors by which what was summed shrinks."""
        self._mask(block)
        found = [self._largest(row) for row in range(2)]
        for number in range(self.tile.keys // 2):
            base = found[number // 2 % 2][1]
            self.scores[number] = flushed_exp2(self.scores[number] * self._scale() - base)
        for row, (shrink, _) in enumerate(found):
            added = _joined(self._of_row(row), lambda x, y: x + y)
            self.total[row] = self.total[row] * shrink + added
        return [shrink for shrink, _ in found]

    def _pack(self, shrinks: Sequence[Expr]) -> None:
        """Shrink the sums, and make words of the powers."""
        ib, kernel = self.ib, self.kernel
        for number in range(kernel.shape.value_width // 2):
            self.sums[number] = self.sums[number] * shrinks[number // 2 % 2]
        for number in range(0, self.tile.keys // 2, 2):
            low, high = self.scores[number], self.scores[number + 1]
            self.words[number // 2] = pack_pair(kernel.kind, low, high)
        ib.emit(settle(self.sums[0], kernel.shape.value_width // 2))

    def _of_row(self, row: int) -> list[Expr]:
        """The scores of one of the two queries of a thread."""
        return [self.scores[n] for n in range(self.tile.keys // 2) if n // 2 % 2 == row]

    def _scale(self) -> Expr:
        """Masked scores are scaled already."""
        return _number(1.0 if self.kernel.masks else self.factor)

    def _mask(self, block: Expr) -> None:
        """Scale scores that a mask is added to; those behind the last key never count."""
        kernel, tile, ib = self.kernel, self.tile, self.ib
        first = block * tile.keys
        if kernel.masks:
            self._change(first, lambda score, row, key: self._masked(score, row, key))
        if kernel.shape.keys % tile.keys:
            last = kernel.shape.keys
            with ib.if_scope(first + tile.keys > last):
                self._change(first, lambda score, _, key: build.select(
                    key < last, score, _number(NEVER)))
        if kernel.made.causal:
            with ib.if_scope(first + tile.keys > kernel.first + self.group * GROUP_ROWS):
                self._change(first, lambda score, row, key: build.select(
                    key <= row, score, _number(NEVER)))

    def _change(self, first: Expr, change: Callable[[Expr, Expr, Expr], Expr]) -> None:
        """Each score by what a function makes of it, its query and its key."""
        for number in range(self.tile.keys // 2):
            key = first + self.lane % 4 * 2 + (8 * (number // 4) + number % 2)
            row = self.row + 8 * (number // 2 % 2)
            self.scores[number] = change(self.scores[number], row, key)

    def _masked(self, score: Expr, row: Expr, key: Expr) -> Expr:
        kernel = self.kernel
        query = build.minimum(row, kernel.shape.queries - 1)
        place = build.minimum(key, kernel.shape.keys - 1)
        score = score * kernel.made.scale
        for mask in kernel.masks:
            own = (kernel.image, kernel.head, query, place)[4 - len(mask.shape) :]
            said = mask[tuple(
                build.const(0) if build.is_const(extent, 1) else index
                for index, extent in zip(own, mask.shape, strict=True)
            )]
            if mask.dtype == "bool":
                score = build.select(said, score, _number(kernel.made.fill))
            else:
                score = score + build.cast("float32", said)
        return score * LOG2_E

    def _largest(self, row: int) -> tuple[Expr, Expr]:
        """The factor that sums so far shrink by, and the power that all others are taken to."""
        ib = self.ib
        most: Expr = ib.let("most", _joined(self._of_row(row), larger))
        for distance in (1, 2):
            most = ib.let("most", larger(most, _of_lane(most, distance)))
        most_yet = ib.let("most_yet", larger(self.largest[row], most * self._scale()))
        # Where all is masked, 0 stands for the largest: -inf less -inf is no number.
        base = ib.let("base", build.select(most_yet.equal(_number(NEVER)), _number(0), most_yet))
        shrink = ib.let("shrink", flushed_exp2(self.largest[row] - base))
        self.largest[row] = most_yet
        return shrink, base

    def _store(self) -> None:
        ib, kernel = self.ib, self.kernel
        parts = []
        for row in range(2):
            whole = ib.allocate("float32", (1,), name="whole", scope="local")
            whole[0] = self.total[row]
            for distance in (1, 2):
                whole[0] = whole[0] + _of_lane(whole[0], distance)
            parts.append(ib.let("part", _number(1) / whole[0]))
        for number in range(0, kernel.shape.value_width // 2, 2):
            row = number // 2 % 2
            query = self.row + 8 * row
            column = 8 * (number // 4) + self.lane % 4 * 2
            low, high = (self.sums[number + which] * parts[row] for which in (0, 1))
            with ib.if_scope(query < kernel.shape.queries):
                index = (kernel.image, query, kernel.head, column)
                place = kernel.out[tuple(index[axis] for axis in kernel.moved.axes)]
                if kernel.out.dtype.bits == 32:
                    ib.emit(store_pair(place, low, high))
                else:
                    ib.emit(store_word(place, pack_pair(kernel.kind, low, high)))


def _joined(values: Sequence[Expr], join: Callable[[Expr, Expr], Expr]) -> Expr:
    """All values as one, in pairs, so that few wait for each other."""
    found = list(values)
    while len(found) > 1:
        found = [join(*found[n : n + 2]) if n + 1 < len(found) else found[n]
                 for n in range(0, len(found), 2)]
    return found[0]


def _descriptor(address: Expr, constant: int) -> Expr:
    """What wgmma is told about a matrix: its address in 16 bytes, and how its rows lie."""
    return build.cast("int64", address) + build.const(constant, "int64")


def _of_lane(value: Expr, distance: int) -> Expr:
    """What the lane has whose number differs by one bit."""
    everyone = build.const(0xFFFFFFFF, "uint32")
    arguments = (everyone, value, *(build.const(n) for n in (distance, WARP, WARP)))
    return Call(DataType("float32"), "tvm_warp_shuffle_xor", arguments)


def _number(value: float) -> Expr:
    return build.const(value, "float32")
