"""Sorts by blocks of threads: bitonic networks in shared memory, and merges of what they gave.

Keys and places are packed into one unsigned integer each, so that no two are equal and an order
needs no second look. A block sorts a tile: each thread has some neighbours, or numbers that are
some power of two apart, in registers, does all steps of the network that concern these, and hands
them on through shared memory. Longer lines are merged: where a block's part of a merged run begins
in both runs is found by binary search (merge path), and what lies there is a bitonic sequence. The
first few of long lines are the first of the first few of its tiles.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.op.axis_rows import index_type
from sterna.op.ordering import key_type
from sterna.op.radix_sort import order_key, order_key_type
from sterna.support.dtype import DataType
from sterna.te import thread_axis
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.threads import barrier

# Bytes of a tile, which every device's blocks have in shared memory, and of a thread's part of it.
TILE_BYTES, OWN_BYTES = 16384, 64
# Low bits of order keys of float32 that are alike in all numbers which were narrower.
ALIKE_BITS = {"bfloat16": 16, "float16": 13}

# fetch(block, place in its tile) and store(block, place, number), of packed numbers.
Fetch = Callable[[Expr, Expr], Expr]
Store = Callable[[Expr, Expr, Expr], None]


class Packing:
    """A key of so many bits and a place in a line as one unsigned integer."""

    def __init__(self, key_bits: int, length: int) -> None:
        self.place_bits = max(length - 1, 1).bit_length()
        self.bits = key_bits + self.place_bits
        self.kind = DataType("uint32" if self.bits <= 32 else "uint64")

    @property
    def fits(self) -> bool:
        """Whether there is an integer that is wide enough."""
        return self.bits <= self.kind.bits

    def packed(self, key: Expr, place: Expr) -> Expr:
        """One that is smaller than another where its key is, or its place where keys are equal."""
        return self.first(key) | build.cast(self.kind, place)

    def first(self, key: Expr) -> Expr:
        """The smallest one of a key."""
        return build.cast(self.kind, key) << build.const(self.place_bits, self.kind)

    def place(self, packed: Expr, kind: str) -> Expr:
        """Where it stands in its line."""
        return build.cast(kind, packed & build.const((1 << self.place_bits) - 1, self.kind))

    @property
    def last(self) -> Expr:
        """What comes behind all others."""
        return build.const((1 << self.kind.bits) - 1, self.kind)

    @property
    def most(self) -> int:
        """Numbers of the largest tile."""
        return TILE_BYTES // self.kind.bytes

    def tile(self, count: int) -> int:
        """Numbers of a tile for so many, a power of two."""
        least = 2 * OWN_BYTES // self.kind.bytes
        return max(least, min(self.most, 1 << (count - 1).bit_length()))


class NumberKeys:
    """The order keys of numbers of a type, without the bits that are alike in all of them."""

    def __init__(self, dtype: str, ascending: bool) -> None:
        self.held, self.ascending = key_type(dtype), ascending
        self.dropped = ALIKE_BITS.get(dtype, 0)
        self.bits = self.held.bits - self.dropped

    def of(self, value: Expr) -> Expr:
        """A number's key."""
        key = order_key(build.cast(self.held, value), self.ascending)
        return key >> build.const(self.dropped, order_key_type(self.held)) if self.dropped else key


class LineSorter:
    """Sorts lines of packed numbers, or finds their first ones."""

    def __init__(
        self, ib: IRBuilder, packing: Packing, lines: int, length: int, at: Fetch
    ) -> None:
        """at(line, place): a packed number."""
        self.ib, self.packing, self.lines, self.length, self.at = ib, packing, lines, length, at

    def first(self, count: int, store: Store) -> None:
        """Hands the first ones of each line, in order, to store(line, rank, number)."""
        length, at, most = self.length, self.at, self.packing.most
        if length > most and 2 * count > most:
            self._merged(count, store)
            return
        while length > most:
            tiles = -(-length // most)
            at = self._first_of_tiles(at, length, tiles, count)
            length = tiles * count
        tile = self.packing.tile(length)

        def keep(line: Expr, rank: Expr, number: Expr) -> None:
            with self.ib.if_scope(rank < count) if count < tile else nullcontext():
                store(line, rank, number)

        _Tile(self.ib, self.packing, self.lines, tile).sort(
            lambda line, place: self._padded(at, line, place, length), keep)

    def _padded(self, at: Fetch, line: Expr, place: Expr, length: int) -> Expr:
        near = at(line, build.minimum(place, length - 1))
        return build.select(place < length, near, self.packing.last)

    def _first_of_tiles(self, at: Fetch, length: int, tiles: int, count: int) -> Fetch:
        ib, tile = self.ib, self.packing.most
        kind = index_type(self.lines * tiles * count)
        found = ib.allocate(
            self.packing.kind, (self.lines * tiles * count,), name="first_of_tiles")

        def fetch(block: Expr, place: Expr) -> Expr:
            return self._padded(at, block // tiles, block % tiles * tile + place, length)

        def keep(block: Expr, rank: Expr, number: Expr) -> None:
            with ib.if_scope(rank < count):
                found[build.cast(kind, block) * count + rank] = number

        _Tile(ib, self.packing, self.lines * tiles, tile).sort(fetch, keep)
        return lambda line, place: found[build.cast(kind, line) * (tiles * count) + place]

    def _merged(self, count: int, store: Store) -> None:
        ib, tile = self.ib, self.packing.most
        tiles = -(-self.length // tile)
        room = tiles * tile
        half = self.lines * room
        kind = index_type(2 * half)
        runs = ib.allocate(self.packing.kind, (2 * half,), name="runs")

        def fetch(block: Expr, place: Expr) -> Expr:
            return self._padded(
                self.at, block // tiles, block % tiles * tile + place, self.length)

        def keep(block: Expr, rank: Expr, number: Expr) -> None:
            runs[build.cast(kind, block) * tile + rank] = number

        _Tile(ib, self.packing, self.lines * tiles, tile).sort(fetch, keep)
        rounds = (tiles - 1).bit_length()
        with ib.for_range(0, rounds - 1, name="round", dtype=kind) as number:
            source = ib.let("source", number % 2 * half)

            def keep_merged(block: Expr, rank: Expr, value: Expr) -> None:
                runs[half - source + build.cast(kind, block) * tile + rank] = value

            self._merge(runs, source, build.const(tile, kind) << number, room, keep_merged)

        def put(block: Expr, rank: Expr, number: Expr) -> None:
            place = ib.let("rank", block % tiles * tile + rank)
            with ib.if_scope(place < count):
                store(block // tiles, place, number)

        last = build.const((rounds - 1) % 2 * half, kind)
        self._merge(runs, last, build.const(tile << (rounds - 1), kind), room, put)

    def _merge(
        self, runs: BufferVar, source: Expr, width: Expr, room: int, store: Store
    ) -> None:
        """Merges neighbouring runs of this width; room: numbers of a line."""
        tile = self.packing.most
        made = _Tile(self.ib, self.packing, self.lines * (room // tile), tile)
        with made.threads():
            self._merge_tile(made, runs, source, width, room, store)

    def _merge_tile(
        self, made: "_Tile", runs: BufferVar, source: Expr, width: Expr, room: int, store: Store
    ) -> None:
        ib, tile, kind = self.ib, self.packing.most, str(width.dtype)
        block = build.cast(kind, made.block)
        begin = ib.let("begin", block % (room // tile) * tile)
        pair = ib.let("pair", begin // (width * 2) * (width * 2))
        first = ib.let("first", source + block * tile - begin + pair)
        ends = ib.let("ends", build.minimum(width, room - pair))
        others = ib.let("others", build.minimum(width, room - pair - ends))
        second = ib.let("second", first + ends)
        cuts = self._cut(made, kind, runs, (first, ends), (second, others), begin - pair)
        start = ib.let("start", build.cast(kind, cuts[0]))
        end = ib.let("end", build.cast(kind, cuts[2]))
        many = ib.let("many", end - start)
        ib.emit(barrier())
        # Behind those of the first run come those of the second, the last one first.
        turned = ib.let("turned", second + (begin - pair + tile) - end - 1 + many)

        def fetch(place: Expr) -> Expr:
            own = build.cast(kind, place)
            return runs[build.select(own < many, first + start + own, turned - own)]

        made.bring(fetch)
        made.merge()
        made.hand_out(store)

    def _cut(
        self, made: "_Tile", kind: str, runs: BufferVar, one: tuple[Expr, Expr],
        other: tuple[Expr, Expr], before: Expr,
    ) -> BufferVar:
        """How many numbers of the first run come before a tile's begin, and before its end: places
        0 and 2 of shared memory; each run: where it begins and how long it is.

        Half of the threads look for each, all at once, between what they know at least and at most.
        """
        ib, half, tile = self.ib, made.count // 2, self.packing.most
        (first, ends), (second, others) = one, other
        cuts = made.shared  # which a device may have room for, but not for more
        group = ib.let("group", made.thread // half)
        probe = ib.let("probe", build.cast(kind, made.thread % half))
        behind = ib.let("behind", before + build.cast(kind, group) * tile)

        def keep(holds: Expr, number: int, value: Expr) -> None:
            with ib.if_scope(holds):
                cuts[group * 2 + number] = build.cast(self.packing.kind, value)

        def comes(at: Expr) -> Expr:
            """Also of what lies beside a run, which nobody asks for: where there is memory."""
            place = build.maximum(build.minimum(at, ends - 1), build.const(0, kind))
            facing = build.maximum(
                build.minimum(behind - 1 - place, others - 1), build.const(-1, kind))
            return runs[first + place] < runs[second + facing]

        keep(probe.equal(0), 0, build.maximum(behind - others, build.const(0, kind)))
        keep(probe.equal(0), 1, build.minimum(behind, ends))
        ib.emit(barrier())
        left = self.length + tile
        while left > 0:
            step = -(-left // (half + 1))
            left = max(step - 1, left - half * step)
            with ib.new_scope():
                low = ib.let("low", build.cast(kind, cuts[group * 2]))
                high = ib.let("high", build.cast(kind, cuts[group * 2 + 1]))
                ib.emit(barrier())
                wide = ib.let("wide", (high - low + half) // (half + 1))
                at = ib.let("at", build.minimum(low + (probe + 1) * wide, high) - 1)
                back = ib.let("back", build.minimum(low + probe * wide, high) - 1)
                is_here = ib.let("is_here", comes(at))
                is_before = ib.let(
                    "is_before", build.logical_or(probe.equal(0), comes(back)))
                is_open = low < high
                ends_here = ib.let("ends_here", t.all(
                    is_open, is_before, build.logical_not(is_here)))
                is_last = ib.let("is_last", t.all(is_open, is_here, probe.equal(half - 1)))
                keep(build.logical_or(ends_here, is_last), 0,
                     build.select(is_last, at, back) + 1)
                keep(ends_here, 1, at)
            ib.emit(barrier())
        return cuts


class _Tile:
    """A tile of numbers in the shared memory of a block.

    Numbers that threads need at once lie in different banks: the place of each is its number, with
    the lowest bits changed by those above them.
    """

    def __init__(self, ib: IRBuilder, packing: Packing, blocks: int, tile: int) -> None:
        self.ib, self.kind, self.blocks, self.size = ib, packing.kind, blocks, tile
        self.own_size = OWN_BYTES // packing.kind.bytes
        self.own_levels = self.own_size.bit_length() - 1
        self.levels = tile.bit_length() - 1
        self.count = tile // self.own_size

    def sort(self, fetch: Fetch, store: Store) -> None:
        """Sorts a tile in each block."""
        with self.threads():
            self.bring(lambda place: fetch(self.block, place))
            self._sort_own()
            for phase in range(self.own_levels + 1, self.levels + 1):
                self._phase(phase, True)
            self.hand_out(store)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """The statements of a kernel."""
        ib = self.ib
        with ib.new_scope():
            block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
            ib.scope_attr(block, "thread_extent", self.blocks)
            ib.scope_attr(thread, "thread_extent", self.count)
            self.block: Expr = block.var
            self.thread: Expr = thread.var
            self.shared = ib.allocate(str(self.kind), (self.size,), name="tile", scope="shared")
            self.own = ib.allocate(str(self.kind), (self.own_size,), name="own", scope="local")
            yield

    def _swizzled(self, place: Expr) -> Expr:
        mask = build.const(2 * self.own_size - 1, "int32")
        return place ^ ((place >> build.const(self.own_levels, "int32")) & mask)

    def bring(self, fetch: Callable[[Expr], Expr]) -> None:
        """Numbers come side by side."""
        ib = self.ib
        with ib.for_range(0, self.own_size, name="m", kind="unroll") as m:
            self.own[m] = fetch(m * self.count + self.thread)
        with ib.for_range(0, self.own_size, name="m") as m:
            self.shared[self._swizzled(m * self.count + self.thread)] = self.own[m]
        ib.emit(barrier())

    def hand_out(self, store: Store) -> None:
        """So they go."""
        with self.ib.for_range(0, self.own_size, name="m", kind="unroll") as m:
            place = m * self.count + self.thread
            store(self.block, place, self.shared[self._swizzled(place)])

    def merge(self) -> None:
        """Sorts a sequence that goes upwards and then downwards."""
        self._phase(self.levels, False)

    def _sort_own(self) -> None:
        """Sorts neighbours that a thread has, every second time downwards.

        Runs that have to be sorted downwards are complemented meanwhile: all steps are alike then.
        """
        self._load(0)
        for phase in range(1, self.own_levels):
            for level in reversed(range(phase)):
                self._step(level, phase)
        self._flip(build.cast("int32", self.thread & 1), None)
        for level in reversed(range(self.own_levels)):
            self._step(level)
        self._store(0)

    def _phase(self, phase: int, turns: bool) -> None:
        """A phase of a bitonic sort: of runs of so many bits of places, from their halves.

        turns: whether numbers are complemented by the bit of the phase before.
        """
        top = phase
        while top > self.own_levels:
            low = top - self.own_levels
            self._load(low)
            if top == phase and turns:
                bit = (self.thread >> build.const(low, "int32")) & 1
                self._flip(bit if phase < self.levels else None, self.own_levels - 1)
            for level in reversed(range(self.own_levels)):
                self._step(level)
            self._store(low)
            top = low
        self._load(0)
        for level in reversed(range(top)):
            self._step(level)
        self._store(0)

    def _place(self, m: Expr, low: int) -> Expr:
        """The place of a number of a thread, where its numbers differ by bits from low on."""
        thread, size = self.thread, build.const(low, "int32")
        below = thread & build.const((1 << low) - 1, "int32")
        above = (thread >> size) << build.const(low + self.own_levels, "int32")
        beside = m << size
        return self._swizzled(above | below) ^ self._swizzled(beside)

    def _load(self, low: int) -> None:
        with self.ib.for_range(0, self.own_size, name="m", kind="unroll") as m:
            self.own[m] = self.shared[self._place(m, low)]

    def _store(self, low: int) -> None:
        with self.ib.for_range(0, self.own_size, name="m") as m:  # one loop: no two places are one
            self.shared[self._place(m, low)] = self.own[m]
        self.ib.emit(barrier())

    def _flip(self, bit: Expr | None, level: int | None) -> None:
        """Complements numbers where a bit is set, or not, by the bit of a level of their own."""
        ib, zero = self.ib, build.const(0, self.kind)
        whole = build.const((1 << self.kind.bits) - 1, self.kind)
        with ib.new_scope():
            mask: Expr = zero
            if bit is not None:
                mask = ib.let("mask", build.select(bit.equal(0), zero, whole))
            for m in range(self.own_size):
                is_set = level is not None and m >> level & 1
                if is_set or bit is not None:
                    self.own[m] = self.own[m] ^ (mask ^ whole if is_set else mask)

    def _step(self, level: int, phase: int | None = None) -> None:
        """Compares numbers whose places differ by a bit; of a phase, downwards where its bit is
        set."""
        ib, own = self.ib, self.own
        for m in range(self.own_size):
            if m >> level & 1:
                continue
            other = m | 1 << level
            lower, upper = (m, other) if phase is None or not m >> phase & 1 else (other, m)
            with ib.new_scope():
                low = ib.let("low", build.minimum(own[m], own[other]))
                high = ib.let("high", build.maximum(own[m], own[other]))
                own[lower] = low
                own[upper] = high
