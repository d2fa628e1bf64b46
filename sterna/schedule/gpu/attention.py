"""Attention as one kernel: scores never go into memory (online softmax).

A block has some queries of a head. It takes keys and values in tiles through shared memory; each
thread has scores of a few queries and keys, and sums of values of these queries, in registers. With
every tile the largest score of a query may grow: what was summed before shrinks by the same factor.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import product

from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.ir.types import TensorType
from sterna.schedule.attention import AttentionStages, attention_of
from sterna.schedule.choose import choose
from sterna.schedule.gpu.attention_tile import Shape
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.transposed_result import moved_result
from sterna.schedule.gpu.warpgroup_attention import attention_on_tensor_cores
from sterna.schedule.kernel import ScheduleTarget
from sterna.te import Tensor, exp, extern, thread_axis
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, Stmt
from sterna.tir.threads import barrier

ACROSS = 16
"""Threads along keys, and along the width of values."""
QUERIES = (64, 32, 16)
KEYS = (64, 32, 16)
OWN_QUERIES = 4
# Blocks that keep a device busy.
BUSY = 128
KINDS = ("float32", "float16", "bfloat16")
NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block takes at once."""

    queries: int
    keys: int
    width: int
    """Of queries and keys."""
    value_width: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return ACROSS * self.queries // OWN_QUERIES

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The arrays in shared memory; a column beside lets threads read different banks."""
        return {
            "query": (self.queries, self.width + 1), "key": (self.keys, self.width + 1),
            "value": (self.keys, self.value_width), "score": (self.queries, self.keys + 1),
        }

    @property
    def shared_bytes(self) -> int:
        """What they take."""
        return 4 * sum(rows * columns for rows, columns in self.sizes.values())

    def __str__(self) -> str:
        return f"{self.queries} queries, {self.keys} keys at once"


def fused_attention(outputs: Sequence[Tensor], target: ScheduleTarget | None) -> Tensor | None:
    """The statements of attention for a GPU; None if a kernel is none, or no block has room."""
    moved = moved_result(outputs[0]) if len(outputs) == 1 else None
    if moved is None or str(moved.source.dtype) not in KINDS:
        return None
    made = attention_of(moved.source)
    if made is None:
        return None
    shapes = [[build.int_value(n) for n in t.shape] for t in made.operands]
    if any(not extent for shape in shapes for extent in shape):
        return None
    query, key, value = (_shape(tensor) for tensor in made.operands[:3])
    shape = Shape(
        str(moved.source.dtype), query[0], query[2], query[1], key[1], query[3], value[3]
    )
    if target is not None and target.attrs.get("arch") == "sm_90a" and shape.suits:
        room = Architecture.of("sm_90a").most_shared
        found = attention_on_tensor_cores(made, moved, shape, room)
        if found is not None:
            return found
    tile = _tile_of(made, Limits.of(target))
    return None if tile is None else moved.of(_Writer(made, moved.source, tile).tensor())


def _tile_of(made: AttentionStages, limits: Limits) -> Tile | None:
    """The tile that loads keys and values the fewest times, as long as all processors are busy."""
    query, key, value = (_shape(tensor) for tensor in made.operands[:3])
    found = [
        tile
        for queries, keys in product(QUERIES, KEYS)
        if (tile := Tile(queries, keys, query[3], value[3])).shared_bytes <= limits.shared_bytes
        and tile.threads <= limits.threads
    ]

    def cost(tile: Tile) -> float:
        blocks = query[0] * query[2] * -(-query[1] // tile.queries)
        turns = -(-blocks // BUSY) * -(-key[1] // tile.keys)
        return turns * (tile.queries * tile.keys + 8 * (tile.queries + tile.keys) + 512)

    return choose("tile of attention", found, cost) if found else None


def _shape(tensor: Tensor) -> list[int]:
    return [build.int_value(extent) or 0 for extent in tensor.shape]


class _Writer:
    """The statements of a block."""

    ib: IRBuilder
    query: BufferVar
    key: BufferVar
    value: BufferVar
    out: BufferVar
    masks: list[Buffer]

    def __init__(self, made: AttentionStages, out: Tensor, tile: Tile) -> None:
        self.made, self.result, self.tile = made, out, tile
        self.batch, self.queries, self.heads, self.width = _shape(made.operands[0])
        self.keys = _shape(made.operands[1])[1]
        self.value_width = _shape(made.operands[2])[3]
        self.columns = -(-self.value_width // ACROSS)
        self.own_keys = tile.keys // ACROSS
        self.down = tile.queries // OWN_QUERIES

    def tensor(self) -> Tensor:
        """The result."""
        kind = TensorType(tuple(_shape(self.result)), self.result.dtype)
        found: Tensor = extern(
            kind.shape, list(self.made.operands), self._body, name="T_attention",
            dtype=str(kind.dtype), attrs={"schedule": f"online softmax, {self.tile}"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        self.query, self.key, self.value = map(self.ib.buffer_ptr, ins[:3])
        self.masks, self.out = ins[3:], self.ib.buffer_ptr(outs[0])
        self._write()
        return self.ib.get()

    def _write(self) -> None:
        ib, tile = self.ib, self.tile
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        parts = -(-self.queries // tile.queries)
        ib.scope_attr(block, "thread_extent", self.batch * self.heads * parts)
        ib.scope_attr(thread, "thread_extent", tile.threads)
        head = ib.let("head", block.var // parts)
        self.at = (head // self.heads, head % self.heads)
        self.first = ib.let("first", block.var % parts * tile.queries)
        self.thread = thread.var
        self.x, self.y = thread.var % ACROSS, thread.var // ACROSS
        shared = {
            name: ib.allocate("float32", size, name=name, scope="shared")
            for name, size in tile.sizes.items()
        }
        self.held, self.scores = shared, shared["score"]
        self.own = ib.allocate(
            "float32", (OWN_QUERIES, self.own_keys), name="own", scope="local"
        )
        self.sums = ib.allocate(
            "float32", (OWN_QUERIES, self.columns), name="sums", scope="local"
        )
        self.largest = ib.allocate("float32", (OWN_QUERIES,), name="largest", scope="local")
        self.total = ib.allocate("float32", (OWN_QUERIES,), name="total", scope="local")
        self._fetch("query", self.query, self.first, self.queries)
        with self._each(OWN_QUERIES, "row") as row:
            self.largest[row] = _number(NEVER)
            self.total[row] = _number(0)
            with self._each(self.columns, "column") as column:
                self.sums[row, column] = _number(0)
        with ib.for_range(0, -(-self.keys // tile.keys), name="tile") as number:
            self._tile(number * tile.keys)
        self._store()

    def _each(self, count: int, name: str) -> AbstractContextManager[Var]:
        """A short loop over what a thread has in registers."""
        return self.ib.for_range(0, count, name=name, kind="unroll")

    def _fetch(self, name: str, source: BufferVar, first: Expr, count: int) -> None:
        """All threads bring rows of a head into shared memory; behind the last are zeros."""
        ib, held = self.ib, self.held[name]
        rows = self.tile.sizes[name][0]
        width = self.value_width if name == "value" else self.width
        batch, head = self.at
        with ib.for_range(0, -(-rows * width // self.tile.threads), name="part") as part:
            place = part * self.tile.threads + self.thread
            row, column = place // width, place % width

            def bring(row: Expr = row, column: Expr = column) -> None:
                read = build.cast("float32", source[batch, first + row, head, column])
                if count % rows:
                    read = build.if_then_else(first + row < count, read, _number(0))
                held[row, column] = read

            if rows * width % self.tile.threads:
                with ib.if_scope(place < rows * width):
                    bring()
            else:
                bring()

    def _tile(self, first: Expr) -> None:
        """Scores of a tile of keys, and what they add to the sums."""
        ib = self.ib
        ib.emit(barrier())  # others have read the tile before
        self._fetch("key", self.key, first, self.keys)
        self._fetch("value", self.value, first, self.keys)
        ib.emit(barrier())
        self._score(first)
        ib.emit(barrier())
        self._shrink()
        ib.emit(barrier())  # all have seen the scores
        with self._each(OWN_QUERIES, "row") as row, self._each(self.own_keys, "key") as key:
            self.scores[self._row(row), key * ACROSS + self.x] = self.own[row, key]
        ib.emit(barrier())
        self._add()

    def _row(self, row: Expr) -> Expr:
        return row * self.down + self.y

    def _score(self, first: Expr) -> None:
        ib, query, key = self.ib, self.held["query"], self.held["key"]
        with self._each(OWN_QUERIES, "row") as row, self._each(self.own_keys, "key") as k:
            self.own[row, k] = _number(0)
        with ib.for_range(0, self.width, name="step") as step, (
            self._each(OWN_QUERIES, "row")
        ) as row, self._each(self.own_keys, "key") as k:
            self.own[row, k] = self.own[row, k] + (
                query[self._row(row), step] * key[k * ACROSS + self.x, step]
            )
        with self._each(OWN_QUERIES, "row") as row, self._each(self.own_keys, "key") as k:
            place = first + k * ACROSS + self.x
            made = self._masked(self.own[row, k] * self.made.scale, self._row(row), place)
            if self.keys % self.tile.keys:
                made = build.if_then_else(place < self.keys, made, _number(NEVER))
            self.own[row, k] = made
            self.scores[self._row(row), k * ACROSS + self.x] = self.own[row, k]

    def _masked(self, score: Expr, row: Expr, key: Expr) -> Expr:
        batch, head = self.at
        if self.made.causal:
            score = build.select(key <= self.first + row, score, _number(NEVER))
        query = build.minimum(self.first + row, self.queries - 1)
        place = build.minimum(key, self.keys - 1)
        for mask in self.masks:
            own = (batch, head, query, place)[4 - len(mask.shape) :]
            said = mask[tuple(
                build.const(0) if build.is_const(extent, 1) else index
                for index, extent in zip(own, mask.shape, strict=True)
            )]
            if mask.dtype == "bool":
                score = build.select(said, score, _number(self.made.fill))
            else:
                score = score + build.cast("float32", said)
        return score

    def _shrink(self) -> None:
        """The largest score so far: all that was summed shrinks by the same factor."""
        ib = self.ib
        with self._each(OWN_QUERIES, "row") as row, ib.new_scope():
            most = ib.allocate("float32", (1,), name="most", scope="local")
            most[0] = self.largest[row]
            with ib.for_range(0, self.tile.keys, name="key") as key:
                most[0] = build.maximum(most[0], self.scores[self._row(row), key])
            # Where all is masked, 0 stands for the largest: -inf less -inf is no number.
            base = ib.let("base", build.select(
                most[0].equal(_number(NEVER)), _number(0), most[0]))
            factor = ib.let("factor", exp(self.largest[row] - base))
            self.largest[row] = most[0]
            self.total[row] = self.total[row] * factor
            with self._each(self.columns, "column") as column:
                self.sums[row, column] = self.sums[row, column] * factor
            with self._each(self.own_keys, "key") as k:
                self.own[row, k] = exp(self.own[row, k] - base)

    def _add(self) -> None:
        """The values of a tile, by the powers of their scores."""
        ib, value = self.ib, self.held["value"]
        with ib.for_range(0, self.tile.keys, name="key") as key, (
            self._each(OWN_QUERIES, "row")
        ) as row:
            power = ib.let("power", self.scores[self._row(row), key])
            self.total[row] = self.total[row] + power
            with self._each(self.columns, "column") as column:
                self.sums[row, column] = self.sums[row, column] + (
                    power * value[key, self._column(column)]
                )

    def _column(self, column: Expr) -> Expr:
        place = column * ACROSS + self.x
        whole = self.value_width % ACROSS == 0
        return place if whole else build.minimum(place, self.value_width - 1)

    def _store(self) -> None:
        ib = self.ib
        batch, head = self.at
        with self._each(OWN_QUERIES, "row") as row:
            query = self.first + self._row(row)
            with ib.if_scope(query < self.queries), self._each(self.columns, "column") as column:
                place = column * ACROSS + self.x
                with ib.if_scope(place < self.value_width):
                    made = self.sums[row, column] / self.total[row]
                    self.out[batch, query, head, place] = build.cast(self.result.dtype, made)


def _number(value: float) -> Expr:
    return build.const(value, "float32")
