"""Attention by Tensor Cores (wgmma): scores stay in registers, as sums and then as factors.

A block has 64 queries of a head for each group of four warps. One more warp brings tiles of keys
and values into shared memory (TMA). A group multiplies its queries with a tile of keys, makes
powers of the scores where they are, in registers, and multiplies these with the tile of values.
Largest scores and totals of a query are in the four lanes that share its row (online softmax).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Call, Expr, ExprLike
from sterna.schedule.attention import AttentionStages
from sterna.schedule.gpu.operand import MAP_TYPES, ROW_BYTES, SWIZZLE_128
from sterna.schedule.gpu.strided import Strided, strided
from sterna.te import Tensor, exp2, extern, thread_axis
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.register_products import wgmma_registers
from sterna.tir.stmt import Buffer, Stmt
from sterna.tir.threads import barrier as block_barrier
from sterna.tir.warpgroups import (
    first_lane,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    pack_pair,
    shared_address,
    store_word,
    tensor_map,
    tma_load,
    wgmma,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

KINDS = ("bfloat16", "float16")
WARP, GROUP, GROUP_ROWS = 32, 128, 64
KEYS = 128
"""Of a tile."""
UNIT = 64
"""Numbers in a row of 128 bytes in shared memory."""
STEP = 16
"""Numbers of each sum in one product."""
STAGES = 2
MOST_WIDTH = 128
BUSY = 132
LOG2_E = math.log2(math.e)
# Descriptors of matrices with rows along the sum, and across it (section "descriptor" of the PTX
# manual): a swizzle of 128 bytes, and 1,024 bytes between groups of eight rows.
_ALONG_SUM, _ACROSS = 0x4000004000010000, 0x4000004000000000
_ALL_LANES = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """What is multiplied."""

    kind: str
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def suits(self) -> bool:
        """Whether rows are whole, and fit into the registers of a group."""
        widths = (self.width, self.value_width)
        return self.kind in KINDS and all(n % 8 == 0 and n <= MOST_WIDTH for n in widths)

    @property
    def groups(self) -> int:
        """Groups of four warps in a block: two where there are blocks enough."""
        return 2 if self.batch * self.heads * -(-self.queries // (2 * GROUP_ROWS)) >= BUSY else 1

    @property
    def boxes(self) -> tuple[int, int]:
        """How many boxes of 64 numbers a row of keys, and of values, has."""
        return -(-self.width // UNIT), -(-self.value_width // UNIT)


def attention_on_tensor_cores(
    made: AttentionStages, out: Tensor, shape: Shape
) -> Tensor | None:
    """The statements of attention of such a shape; None if copies do not reach its operands."""
    found = [_part_of(tensor) for tensor in made.operands[:3]]
    parts = [part for part in found if part is not None]
    return _Writer(made, out, shape, parts).tensor() if len(parts) == 3 else None


@dataclass(frozen=True, slots=True)
class Part:
    """Heads of rows in an array: queries, keys or values."""

    array: Tensor
    before: int
    """Heads that lie before the first in the array."""
    steps: tuple[int, int, int]
    """From sample to sample, row to row and head to head, in bytes."""


def _part_of(tensor: Tensor) -> Part | None:
    """Where queries, keys or values lie; an array of their own where no rule says it."""
    whole, width = [build.int_value(n) or 0 for n in tensor.shape], build.int_value(tensor.shape[3])
    assert width is not None
    found = strided(tensor)
    if found is None or (width > 1 and found.steps[3] != 1):
        found = Strided(tensor, 0, (math.prod(whole[1:]), whole[2] * width, width, 1))
    batch, row, head, _ = found.steps
    head = head or width
    row, batch = row or head * whole[2], batch or max(row, head) * whole[1]
    steps = tuple(2 * step for step in (batch, row, head))
    if found.first % head or any(step % 16 or step <= 0 for step in steps):
        return None
    return Part(found.array, found.first // head, (steps[0], steps[1], steps[2]))


class _Writer:
    ib: IRBuilder
    operands: list[Buffer]
    masks: list[Buffer]
    out: BufferVar

    def __init__(
        self, made: AttentionStages, out: Tensor, shape: Shape, parts: Sequence[Part]
    ) -> None:
        self.made, self.result, self.shape, self.parts = made, out, shape, parts
        self.arrays = list(dict.fromkeys(part.array for part in parts))
        self.groups = shape.groups
        self.rows = self.groups * GROUP_ROWS
        key_boxes, value_boxes = shape.boxes
        self.query_bytes = self.rows * ROW_BYTES * key_boxes
        self.key_bytes = KEYS * ROW_BYTES * key_boxes
        self.stage_bytes = self.key_bytes + KEYS * ROW_BYTES * value_boxes
        self.barriers = self.query_bytes + STAGES * self.stage_bytes
        self.tiles = -(-shape.keys // KEYS)
        # Scores with a mask are made what powers of two are taken of; others when these are.
        self.factor = made.scale * LOG2_E
        self.left = 1.0 if made.operands[3:] else self.factor

    def tensor(self) -> Tensor:
        """The result."""
        extents = [build.int_value(n) or 0 for n in self.result.shape]
        found: Tensor = extern(
            extents, [*self.arrays, *self.made.operands[3:]], self._body, name="T_attention",
            dtype=str(self.result.dtype),
            attrs={"schedule": f"wgmma, online softmax, {self.rows} queries, {KEYS} keys at once"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        held = dict(zip(self.arrays, ins, strict=False))
        self.operands = [held[part.array] for part in self.parts]
        self.masks, self.out = ins[len(self.arrays) :], self.ib.buffer_ptr(outs[0])
        self._write()
        return self.ib.get()

    # ---- the block ----

    def _write(self) -> None:
        ib, shape = self.ib, self.shape
        block, head = thread_axis("blockIdx.x"), thread_axis("blockIdx.y")
        thread = thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", -(-shape.queries // self.rows))
        ib.scope_attr(head, "thread_extent", shape.batch * shape.heads)
        ib.scope_attr(thread, "thread_extent", self.groups * GROUP + WARP)
        size = self.barriers + 8 * (2 * STAGES + 1)
        shared = ib.allocate("uint8", (size,), name="tiles", scope="shared.dyn")
        self.scores = ib.allocate("float32", (KEYS // 2,), name="scores", scope="local")
        self.sums = ib.allocate(
            "float32", (shape.value_width // 2,), name="sums", scope="local")
        self.words = ib.allocate("uint32", (KEYS // 4,), name="powers", scope="local")
        self.largest = ib.allocate("float32", (2,), name="largest", scope="local")
        self.total = ib.allocate("float32", (2,), name="total", scope="local")
        self.base = ib.let("base", shared_address(shared[0]))
        self.loaded = self.base + self.barriers
        self.full, self.free = self.loaded + 8, self.loaded + 8 * (STAGES + 1)
        self.thread = thread.var
        self.at = (head.var // shape.heads, head.var % shape.heads)
        self.first = ib.let("first", block.var * self.rows)
        with ib.if_scope(self.thread.equal(0)):
            ib.emit(mbarrier_init(self.loaded, 1))
            for stage in range(STAGES):
                ib.emit(mbarrier_init(self.full + 8 * stage, 1))
                ib.emit(mbarrier_init(self.free + 8 * stage, self.groups))
            ib.emit(mbarrier_ready())
        ib.emit(block_barrier())
        warp = ib.let("warp", first_lane(self.thread // WARP))
        with ib.if_scope(warp.equal(self.groups * 4)), (
            ib.if_scope((self.thread % WARP).equal(0))
        ):
            self._produce()
        with ib.else_scope():
            self._consume(warp)

    def _map(self, place: int, rows: int) -> Expr:
        """The map of queries, keys or values: boxes of some rows of one head."""
        shape, part, array = self.shape, self.parts[place], self.operands[place]
        length = shape.queries if place == 0 else shape.keys
        width = shape.value_width if place == 2 else shape.width
        numbers = [
            MAP_TYPES[shape.kind], SWIZZLE_128, 4, width, part.before + shape.heads, length,
            shape.batch, *reversed(part.steps), UNIT, 1, rows, 1,
        ]
        line = " ".join(["tiled", *map(str, numbers)])
        return tensor_map(array[(build.const(0),) * len(array.shape)], line)

    # ---- the producer ----

    def _produce(self) -> None:
        ib, (key_boxes, value_boxes) = self.ib, self.shape.boxes
        query, key, value = (
            self._map(place, rows) for place, rows in enumerate((self.rows, KEYS, KEYS))
        )
        ib.emit(mbarrier_expect(self.loaded, self.query_bytes))
        self._bring(0, query, self.base, self.loaded, key_boxes, self.first)
        with ib.for_range(0, self.tiles, name="tile") as tile:
            stage = tile % STAGES
            with ib.if_scope(tile >= STAGES):
                ib.emit(mbarrier_wait(self.free + stage * 8, (tile // STAGES + 1) % 2))
            full = self.full + stage * 8
            ib.emit(mbarrier_expect(full, self.stage_bytes))
            to = self.base + self.query_bytes + stage * self.stage_bytes
            self._bring(1, key, to, full, key_boxes, tile * KEYS)
            self._bring(2, value, to + self.key_bytes, full, value_boxes, tile * KEYS)

    def _bring(
        self, which: int, map_: Expr, to: Expr, on: Expr, boxes: int, first: Expr
    ) -> None:
        rows, (batch, head) = KEYS if which else self.rows, self.at
        head = head + self.parts[which].before
        for box in range(boxes):
            place = to + box * rows * ROW_BYTES
            self.ib.emit(tma_load(place, on, map_, (box * UNIT, head, first, batch)))

    # ---- the consumers ----

    def _consume(self, warp: Expr) -> None:
        ib = self.ib
        lane = self.thread % WARP
        self.group = ib.let("group", warp // 4)
        self.row = ib.let("row", self.group * GROUP_ROWS + warp % 4 * 16 + lane // 4)
        self.column = ib.let("column", lane % 4 * 2)
        for row in range(2):
            self.largest[row] = _number(-math.inf)
            self.total[row] = _number(0)
        for place in range(self.shape.value_width // 2):
            self.sums[place] = _number(0)
        ib.emit(mbarrier_wait(self.loaded, build.const(0)))
        whole = self.tiles if self.shape.keys % KEYS == 0 else self.tiles - 1
        if whole:
            with ib.for_range(0, whole, name="tile") as tile:
                self._tile(tile, False)
        if whole < self.tiles:
            self._tile(build.const(whole), True)
        self._store()

    def _tile(self, tile: Expr, is_cut: bool) -> None:
        ib, shape = self.ib, self.shape
        with ib.new_scope():
            stage = ib.let("stage", tile % STAGES)
            ib.emit(mbarrier_wait(self.full + stage * 8, tile // STAGES % 2))
            at = ib.let("at", self.base + self.query_bytes + stage * self.stage_bytes)
            own = self.base + self.group * (GROUP_ROWS * ROW_BYTES)
            ib.emit(wgmma_fence())
            for step in range(-(-shape.width // STEP)):
                box, inside = divmod(step * STEP, UNIT)
                query = own + box * self.rows * ROW_BYTES + inside * 2
                key = at + box * KEYS * ROW_BYTES + inside * 2
                ib.emit(wgmma(
                    shape.kind, KEYS, self.scores[0], _descriptor(query, _ALONG_SUM),
                    _descriptor(key, _ALONG_SUM), int(step > 0),
                ))
            ib.emit(wgmma_commit())
            ib.emit(wgmma_wait(0))
            self._mask(tile, is_cut)
            self._powers()
            ib.emit(wgmma_fence())
            between = (KEYS * ROW_BYTES >> 4) << 16
            for step in range(KEYS // STEP):
                value = at + self.key_bytes + step * STEP * ROW_BYTES
                ib.emit(wgmma_registers(
                    shape.kind, shape.value_width, self.sums[0], self.words[4 * step],
                    _descriptor(value, _ACROSS | between), True,
                ))
            ib.emit(wgmma_commit())
            ib.emit(wgmma_wait(0))
            with ib.if_scope((self.thread % GROUP).equal(0)):
                ib.emit(mbarrier_arrive(self.free + stage * 8))

    def _mask(self, tile: Expr, is_cut: bool) -> None:
        """Scores with their mask, and none behind the last key."""
        if not self.masks and not is_cut:
            return
        batch, head = self.at
        for place in range(KEYS // 2):
            key = tile * KEYS + self.column + (place // 4 * 8 + place % 2)
            query = build.minimum(
                self.first + self.row + place // 2 % 2 * 8, self.shape.queries - 1)
            score: Expr = self.scores[place]
            for mask in self.masks:
                inside = build.minimum(key, self.shape.keys - 1) if is_cut else key
                own = (batch, head, query, inside)[4 - len(mask.shape) :]
                said = mask[tuple(
                    build.const(0) if build.is_const(extent, 1) else index
                    for index, extent in zip(own, mask.shape, strict=True)
                )]
                if mask.dtype == "bool":
                    score = build.select(
                        said, score * _number(self.factor), _number(self.made.fill * LOG2_E))
                else:
                    score = score * _number(self.factor) + (
                        build.cast("float32", said) * _number(LOG2_E))
            if is_cut:
                score = build.select(key < self.shape.keys, score, _number(-math.inf))
            self.scores[place] = score

    def _powers(self) -> None:
        """Powers of the scores of a tile in the place of these; what was summed shrinks."""
        ib, count = self.ib, KEYS // 2
        for row in range(2):
            own = [place for place in range(count) if place // 2 % 2 == row]
            with ib.new_scope():
                most: Expr = self.scores[own[0]]
                for place in own[1:]:
                    most = build.maximum(most, self.scores[place])
                most = ib.let("most", most)
                for other in (1, 2):
                    most = ib.let("most", build.maximum(most, _from_lane(most, other)))
                most = ib.let("most", build.maximum(most, self.largest[row]))
                # Where all is masked, 0 stands for the largest: -inf less -inf is no number.
                none = most.equal(_number(-math.inf))
                base = ib.let(
                    "base", build.select(none, _number(0), most) * _number(self.left))
                factor = ib.let("factor", exp2(self.largest[row] * _number(self.left) - base))
                self.largest[row] = most
                for place in own:
                    self.scores[place] = exp2(self.scores[place] * _number(self.left) - base)
                total: Expr = self.scores[own[0]]
                for place in own[1:]:
                    total = total + self.scores[place]
                self.total[row] = self.total[row] * factor + total
                for place in range(self.shape.value_width // 2):
                    if place // 2 % 2 == row:
                        self.sums[place] = self.sums[place] * factor
        for word in range(count // 2):
            self.words[word] = pack_pair(
                self.shape.kind, self.scores[2 * word], self.scores[2 * word + 1])

    def _store(self) -> None:
        ib, (batch, head) = self.ib, self.at
        for row in range(2):
            with ib.new_scope():
                total = ib.let("total", self.total[row])
                for other in (1, 2):
                    total = ib.let("total", total + _from_lane(total, other))
                factor = ib.let("factor", _number(1) / total)
                query = ib.let("query", self.first + self.row + row * 8)
                with ib.if_scope(query < self.shape.queries):
                    for place in range(2 * row, self.shape.value_width // 2, 4):
                        pair = [self.sums[place + n] * factor for n in range(2)]
                        column = self.column + place // 4 * 8
                        ib.emit(store_word(
                            self.out[batch, query, head, column],
                            pack_pair(self.shape.kind, *pair),
                        ))


def _descriptor(address: Expr, constant: int) -> Expr:
    """What names a matrix in shared memory."""
    return build.cast("int64", address // 16) + build.const(constant, "int64")


def _from_lane(value: Expr, distance: int) -> Expr:
    """What another lane of the four has."""
    return Call(value.dtype, "tvm_warp_shuffle_xor", (
        build.const(_ALL_LANES), value, build.const(distance), build.const(WARP), build.const(WARP),
    ))


def _number(value: ExprLike) -> Expr:
    return build.const(float(value), "float32")  # type: ignore[arg-type]
