"""Attention as one kernel: scores never go into memory (online softmax).

A block has some queries of a head. It takes keys and values in tiles through shared memory; each
thread has scores of a few queries and keys, and sums of values of these queries, in registers. With
every tile the largest score of a query may grow: what was summed before shrinks by the same factor.
Threads move four numbers at once between memories where rows are whole quads.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike, Var
from sterna.ir.types import TensorType
from sterna.schedule.attention import AttentionStages, attention_of
from sterna.schedule.choose import choose
from sterna.schedule.gpu.attention_lanes import ACROSS, OF_DRIVER, QUAD, Room, Tile, tiles_of
from sterna.schedule.gpu.attention_tile import Shape
from sterna.schedule.gpu.few_queries import attention_of_few_queries, is_of_few_queries
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.strided import Strided, heads_shared, strided
from sterna.schedule.gpu.transposed_result import MovedResult, moved_result
from sterna.schedule.gpu.warpgroup_attention import attention_on_tensor_cores, parts_of
from sterna.schedule.kernel import ScheduleTarget
from sterna.te import Tensor, exp, extern, thread_axis
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, Stmt
from sterna.tir.threads import DYNAMIC, barrier

ROWS_OF_WARPS, TILES = "rows of warps", "tiles"
"""Ways to multiply on Tensor Cores."""
MMA = 80
"""The first GPUs whose warps multiply bfloat16."""
KINDS = ("float32", "float16", "bfloat16")
NEVER = -math.inf
MOST_TOGETHER = 16
"""Loads of a thread that are on their way at once."""
MOST_TURNS = 4
"""Steps that are written out, so that loads of the next run beside the products of one."""


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
    found = _of_tensor_cores(made, moved, shape, target)
    tile = None if found is not None else _tile_of(made, target)
    if tile is None:
        return found
    is_large = tile.shared_bytes > Limits.of(target).shared_bytes
    return _Writer(made, moved, tile, DYNAMIC if is_large else "shared").tensor()


def _of_tensor_cores(
    made: AttentionStages, moved: MovedResult, shape: Shape, target: ScheduleTarget | None
) -> Tensor | None:
    """The statements for a GPU with products of warps, or of groups of them; None for others."""
    arch = None if target is None else target.attrs.get("arch")
    if not isinstance(arch, str) or not shape.suits:
        return None
    parts = parts_of(made)
    if parts is None:
        return None
    gpu = Architecture.of(arch)
    ways = [
        way for way, fits in (
            (ROWS_OF_WARPS, gpu.number >= MMA and is_of_few_queries(shape, parts)),
            (TILES, arch == "sm_90a"),
        ) if fits
    ]
    way = choose("attention of few queries", ways, ways.index) if ways else None
    if way == ROWS_OF_WARPS:
        return attention_of_few_queries(made, moved, shape, parts)
    return None if way is None else (
        attention_on_tensor_cores(made, moved, shape, gpu.most_shared, parts)
    )


def _tile_of(made: AttentionStages, target: ScheduleTarget | None) -> Tile | None:
    """The tile whose blocks are through first."""
    query, key, value = (_shape(tensor) for tensor in made.operands[:3])
    limits, room = Limits.of(target), _room_of(target)
    found = [
        tile for tile in tiles_of(query[3], value[3])
        if tile.shared_bytes <= room.of_block and tile.threads <= limits.threads
    ]
    heads = query[0] * query[2]
    return choose("tile of attention", found, lambda tile: tile.time(
        heads, query[1], key[1], room, made.causal)) if found else None


def _room_of(target: ScheduleTarget | None) -> Room:
    """The shared memory of a block and of a processor."""
    own = Limits.of(target).shared_bytes
    arch = None if target is None else target.attrs.get("arch")
    if not isinstance(arch, str) or target is None or "max_shared_memory_per_block" in target.attrs:
        return Room(own, own)
    most = max(own, Architecture.of(arch).most_shared)
    return Room(most, most + OF_DRIVER)


def _shape(tensor: Tensor) -> list[int]:
    return [build.int_value(extent) or 0 for extent in tensor.shape]


class _Rows:
    """Rows of an array in shared memory."""

    def __init__(self, array: BufferVar, columns: int) -> None:
        self.array, self.columns = array, columns

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        found: Expr = self.array[at[0] * self.columns + at[1]]
        return found

    def __setitem__(self, at: tuple[Expr, Expr], value: Expr) -> None:
        self.array[at[0] * self.columns + at[1]] = value


class _Writer:
    """The statements of a block."""

    ib: IRBuilder
    given: list[BufferVar]
    out: BufferVar
    masks: list[Buffer]

    def __init__(
        self, made: AttentionStages, moved: MovedResult, tile: Tile, scope: str
    ) -> None:
        self.made, self.moved, self.tile, self.scope = made, moved, tile, scope
        self.batch, self.queries, self.heads, self.width = _shape(made.operands[0])
        self.keys = _shape(made.operands[1])[1]
        self.value_width = _shape(made.operands[2])[3]
        self.columns = -(-self.value_width // ACROSS)
        self.beside = QUAD if self.value_width % (QUAD * ACROSS) == 0 else 1
        """Columns of a thread that lie side by side."""
        self.own_keys = tile.keys // ACROSS
        self.down = tile.queries // tile.own
        shared = (1, *map(heads_shared, made.operands[1:3]))
        where = list(map(_where, made.operands[:3], shared))
        self.parts, self.shared = [part for part, _ in where], [count for _, count in where]
        self.arrays = list(dict.fromkeys(part.array for part in self.parts))

    def tensor(self) -> Tensor:
        """The result."""
        result = self.moved.result
        kind = TensorType(tuple(_shape(result)), result.dtype)
        found: Tensor = extern(
            kind.shape, [*self.arrays, *self.made.operands[3:]], self._body, name="T_attention",
            dtype=str(kind.dtype), attrs={"schedule": f"online softmax, {self.tile}"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        held = dict(zip(self.arrays, ins, strict=False))
        self.given = [self.ib.buffer_ptr(held[part.array]) for part in self.parts]
        self.masks, self.out = ins[len(self.arrays) :], self.ib.buffer_ptr(outs[0])
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
        part = block.var % parts
        if self.made.causal:  # those with the most keys begin
            part = parts - 1 - part
        self.first = ib.let("first", part * tile.queries)
        self.thread = thread.var
        self.x, self.y = thread.var % ACROSS, thread.var // ACROSS
        self.held = self._shared()
        self.own = self._private((tile.own, self.own_keys), "own")
        self.sums = self._private((tile.own, self.columns), "sums")
        self.largest = self._private((tile.own,), "most")
        self.total = self._private((tile.own,), "total")
        self._fetch("query", 0, self.first, self.queries)
        with self._each(tile.own, "row") as row:
            self.largest[row] = _number(NEVER)
            self.total[row] = _number(0)
            with self._each(self.columns, "column") as column:
                self.sums[row, column] = _number(0)
        tiles: ExprLike = -(-self.keys // tile.keys)
        if self.made.causal:
            seen = build.floordiv(self.first + (tile.queries - 1), tile.keys) + 1
            tiles = build.minimum(seen, tiles)
        with ib.for_range(0, tiles, name="tile") as number:
            self._tile(number * tile.keys)
        self._add_totals()
        self._store()

    def _shared(self) -> dict[str, "_Rows"]:
        """The arrays that threads share; powers lie where the keys were that nobody needs then."""
        arrays = {
            name: self.ib.allocate("float32", (count,), name=name, scope=self.scope)
            for name, count in self.tile.places.items()
        }
        return {
            name: _Rows(arrays[name if name in arrays else "key"], size[1])
            for name, size in self.tile.sizes.items()
        }

    def _private(self, shape: tuple[int, ...], name: str) -> BufferVar:
        return self.ib.allocate("float32", shape, name=name, scope="local")

    def _each(self, count: int, name: str) -> AbstractContextManager[Var]:
        """A short loop over what a thread has in registers."""
        return self.ib.for_range(0, count, name=name, kind="unroll")

    @contextmanager
    def _steps(self, count: int) -> Iterator[Expr]:
        """The steps of a sum, some of them written out."""
        turns = math.gcd(count, MOST_TURNS)
        with self.ib.for_range(0, count // turns, name="step") as step, (
            self._each(turns, "turn")
        ) as turn:
            yield step * turns + turn

    def _lanes(self, count: int) -> AbstractContextManager[Var]:
        """Numbers that are moved at once."""
        return self.ib.for_range(0, count, name="lane", kind="vectorize")

    def _fetch(self, name: str, which: int, first: Expr, count: int) -> None:
        """All threads bring rows of a head into shared memory; behind the last it comes again.

        A thread loads all that it brings before it stores the first: loads take long.
        """
        ib, held, part = self.ib, self.held[name], self.parts[which]
        rows, width = self.tile.sizes[name][0], _shape(self.made.operands[which])[3]
        batch, head = self.at
        lanes = QUAD if part.has_quads(width) else 1
        pieces, threads = rows * width // lanes, self.tile.threads
        parts = -(-pieces // threads)
        together = min(parts, MOST_TOGETHER)
        with ib.for_range(0, -(-parts // together), name="turn") as turn, ib.new_scope():
            brought = self._private((together, lanes), "brought")

            def piece(number: Expr) -> Expr:
                return (turn * together + number) * threads + self.thread

            with ib.for_range(0, together, name="part") as number:
                place = build.minimum(piece(number), pieces - 1) * lanes
                row = first + place // width
                if count % rows:
                    row = build.minimum(row, count - 1)
                own = head // self.shared[which]
                start = part.place((batch, row, own, place % width))
                with self._lanes(lanes) as lane:
                    read = self.given[which][start + lane * part.steps[3]]
                    brought[number, lane] = build.cast("float32", read)
            with ib.for_range(0, together, name="part") as number, (
                ib.if_scope(piece(number) < pieces)
            ):
                place = piece(number) * lanes
                with self._lanes(lanes) as lane:
                    held[place // width, place % width + lane] = brought[number, lane]

    def _tile(self, first: Expr) -> None:
        """Scores of a tile of keys, and what they add to the sums."""
        ib, own, power = self.ib, self.tile.own, self.held["power"]
        ib.emit(barrier())  # others have read the tile before
        self._fetch("key", 1, first, self.keys)
        self._fetch("value", 2, first, self.keys)
        ib.emit(barrier())
        self._score(first)
        ib.emit(barrier())
        self._shrink()
        with ib.for_range(0, own * self.own_keys, name="number") as number:
            row, key = number // self.own_keys, number % self.own_keys
            power[self._row(row), key * ACROSS + self.x] = self.own[row, key]
        ib.emit(barrier())
        self._add()

    def _row(self, row: Expr) -> Expr:
        return row * self.down + self.y

    def _score(self, first: Expr) -> None:
        """The scores of a thread, and the largest of each query's."""
        ib, own = self.ib, self.tile.own
        with self._each(own, "row") as row, self._each(self.own_keys, "key") as k:
            self.own[row, k] = _number(0)
        lanes = QUAD if self.width % QUAD == 0 else 1
        with self._steps(self.width // lanes) as step, ib.new_scope():
            query = self._private((own, lanes), "query_quad")
            key = self._private((self.own_keys, lanes), "key_quad")
            with self._each(own, "row") as row, self._lanes(lanes) as lane:
                query[row, lane] = self.held["query"][self._row(row), step * lanes + lane]
            with self._each(self.own_keys, "key") as k, self._lanes(lanes) as lane:
                key[k, lane] = self.held["key"][k * ACROSS + self.x, step * lanes + lane]
            with self._each(lanes, "part") as part, self._each(own, "row") as row, (
                self._each(self.own_keys, "key")
            ) as k:
                self.own[row, k] = self.own[row, k] + query[row, part] * key[k, part]
        with ib.for_range(0, own, name="row") as row, ib.new_scope():
            most = self._private((1,), "most_here")
            most[0] = _number(NEVER)
            with self._each(self.own_keys, "key") as k:
                place = first + k * ACROSS + self.x
                made = self._masked(self.own[row, k] * self.made.scale, self._row(row), place)
                if self.keys % self.tile.keys:
                    made = build.if_then_else(place < self.keys, made, _number(NEVER))
                self.own[row, k] = made
                most[0] = build.maximum(most[0], self.own[row, k])
            self.held["largest"][self._row(row), self.x] = most[0]

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
        with self._each(self.tile.own, "row") as row, ib.new_scope():
            all_of = self._private((ACROSS,), "all_of")
            most = self._private((1,), "most_so_far")
            with self._each(ACROSS // QUAD, "part") as part, self._lanes(QUAD) as lane:
                at = part * QUAD + lane
                all_of[at] = self.held["largest"][self._row(row), at]
            most[0] = self.largest[row]
            with self._each(ACROSS, "other") as other:
                most[0] = build.maximum(most[0], all_of[other])
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
                self.total[row] = self.total[row] + self.own[row, k]

    def _add(self) -> None:
        """The values of a tile, by the powers of their scores."""
        ib, own, beside = self.ib, self.tile.own, self.beside
        with self._steps(self.tile.keys // QUAD) as keys, ib.new_scope():
            power = self._private((own, QUAD), "power_quad")
            value = self._private((self.columns,), "values")
            with self._each(own, "row") as row, self._lanes(QUAD) as lane:
                power[row, lane] = self.held["power"][self._row(row), keys * QUAD + lane]
            with self._each(QUAD, "key") as key:
                with self._each(self.columns // beside, "part") as part, (
                    self._lanes(beside)
                ) as lane:
                    at = self._column(part * beside) + lane
                    value[part * beside + lane] = self.held["value"][keys * QUAD + key, at]
                with self._each(own, "row") as row, self._each(self.columns, "column") as column:
                    self.sums[row, column] = self.sums[row, column] + (
                        power[row, key] * value[column]
                    )

    def _column(self, column: Expr) -> Expr:
        """The place of one of a thread's columns."""
        beside = self.beside
        place = column // beside * (ACROSS * beside) + self.x * beside + column % beside
        whole = self.value_width % ACROSS == 0
        return place if whole else build.minimum(place, self.value_width - 1)

    def _add_totals(self) -> None:
        """The powers of all keys: each thread has added up those of its own."""
        ib, own, totals = self.ib, self.tile.own, self.held["largest"]
        ib.emit(barrier())
        with ib.for_range(0, own, name="row") as row:
            totals[self._row(row), self.x] = self.total[row]
        ib.emit(barrier())
        with self._each(own, "row") as row:
            self.total[row] = _number(0)
            with self._each(ACROSS, "other") as other:
                self.total[row] = self.total[row] + totals[self._row(row), other]

    def _store(self) -> None:
        ib = self.ib
        batch, head = self.at
        with self._each(self.tile.own, "row") as row:
            query = self.first + self._row(row)
            with ib.if_scope(query < self.queries), self._each(self.columns, "column") as column:
                place = self._column(column) if self.beside > 1 else column * ACROSS + self.x
                with ib.if_scope(place < self.value_width):
                    made = self.sums[row, column] / self.total[row]
                    index = (batch, query, head, place)
                    to = tuple(index[axis] for axis in self.moved.axes)
                    self.out[to] = build.cast(self.moved.result.dtype, made)


def _where(tensor: Tensor, shared: int) -> tuple[Strided, int]:
    """Where queries, keys or values lie: an array of their own where no rule says it; and how many
    heads of queries have each head there."""
    found = strided(tensor, shared)
    if found is not None and not found.is_rounded:
        return found, shared
    _, length, heads, width = _shape(tensor)
    return Strided(tensor, 0, (length * heads * width, heads * width, width, 1)), 1


def _number(value: float) -> Expr:
    return build.const(value, "float32")
