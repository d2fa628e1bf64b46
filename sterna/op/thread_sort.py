"""Sorts and prefix sums by threads of a GPU: each step is a loop whose iterations are independent.

Threads cannot wait for all others, so that every step over all elements is a kernel of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.op.axis_rows import index_type
from sterna.op.statements import Variable, variable
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Numbers of a run that find their places by being compared with all others of it.
RUN = 64
# Numbers that one thread adds up in a prefix sum.
PART = 32
# Fewer elements one thread goes through in the time that several launches take.
SHORTEST_BY_THREADS = 64


@contextmanager
def each(ib: IRBuilder, count: int, kind: str, name: str = "number") -> Iterator[Var]:
    """A loop whose iterations threads share."""
    with ib.for_range(0, count, name=name, dtype=kind, kind="parallel") as number:
        yield number


class KeyedLines:
    """Lines of order keys and the places of their numbers, with as much room again to sort in."""

    def __init__(self, ib: IRBuilder, key: DataType, lines: int, length: int) -> None:
        self.ib, self.length = ib, length
        self.count = lines * length
        self.kind = index_type(2 * self.count)
        self.keys: BufferVar = ib.allocate(key, (2 * self.count,), name="keys")
        self.places: BufferVar = ib.allocate(self.kind, (2 * self.count,), name="places")

    def fill(self, key_at: Callable[[Expr, Expr], Expr]) -> None:
        """Sets all entries, by what gives the key of a line and a place in it."""
        ib = self.ib
        with each(ib, self.count, self.kind) as number:
            line = ib.let("line", number // self.length)
            place = ib.let("place", number % self.length)
            self.keys[number] = key_at(line, place)
            self.places[number] = place

    def sort(self) -> Expr:
        """Sorts every line by its keys; gives where the first line of the result begins.

        A merge sort whose runs are merged by binary search: in the merged run an element stands
        behind those before it in its own run, and behind those of the other run that come first.
        Of equals those of the run in front come first.
        """
        ib, kind, length = self.ib, self.kind, self.length
        self._rank_in_runs()
        passes = (-(-length // RUN) - 1).bit_length()
        with ib.for_range(0, passes, name="round", dtype=kind) as round_:
            width = ib.let("width", build.const(RUN, kind) << round_)
            source = ib.let("source", (1 - round_ % 2) * self.count)
            with each(ib, self.count, kind) as number:
                place = ib.let("place", number % length)
                start = ib.let("start", source + number - place)
                own = ib.let("own", self.keys[source + number])
                begin = ib.let("begin", place // (width * 2) * (width * 2))
                middle = ib.let("middle", build.minimum(begin + width, length))
                end = build.minimum(middle + width, length)
                in_front = ib.let("in_front", place < middle)
                other = ib.let("other", build.select(in_front, middle, begin))
                low = variable(ib, kind, "low", other)
                high = variable(ib, kind, "high", build.select(in_front, end, middle))
                self._search(start, low, high, lambda key: build.select(
                    in_front, key < own, key <= own))
                before = low.get() - other - build.select(in_front, 0, middle - begin)
                self._put(self.count - source + number + before, own, self.places[source + number])
        return build.const(0 if passes % 2 else self.count, kind)

    def _put(self, at: Expr, key: Expr, place: Expr) -> None:
        to = self.ib.let("to", at)
        self.keys[to] = key
        self.places[to] = place

    def _rank_in_runs(self) -> None:
        """Every element of a run counts what comes before it; the result is the second half."""
        ib, kind = self.ib, self.kind
        with each(ib, self.count, kind) as number:
            place = ib.let("place", number % self.length)
            start = ib.let("start", number - place % RUN)
            size = build.minimum(place % RUN + self.length - place, RUN)
            own = ib.let("own", self.keys[number])
            rank = variable(ib, kind, "rank", 0)
            with ib.for_range(0, size, name="other", dtype=kind) as other:
                found = ib.let("found", self.keys[start + other])
                is_first = build.logical_or(found < own, build.logical_and(
                    found.equal(own), start + other < number))
                rank.set(rank.get() + build.select(is_first, 1, 0))
            self._put(self.count + start + rank.get(), own, self.places[number])

    def _search(
        self, start: Expr, low: Variable, high: Variable, comes_first: Callable[[Expr], Expr]
    ) -> None:
        """Moves low to the first place of a sorted run whose key does not come first."""
        ib = self.ib
        with (
            ib.for_range(0, self.length.bit_length(), name="step", dtype=self.kind),
            ib.if_scope(low.get() < high.get()),
        ):
            half = ib.let("half", (low.get() + high.get()) // 2)
            first = ib.let("first", comes_first(self.keys[start + half]))
            low.set(build.select(first, half + 1, low.get()))
            high.set(build.select(first, high.get(), half))


class Positions:
    """How many of the places in front of each are marked: where a marked one's result goes."""

    def __init__(self, ib: IRBuilder, count: int) -> None:
        self.ib, self.count = ib, count
        self.kind = index_type(count)
        self.sums: BufferVar = ib.allocate(self.kind, (count + 1,), name="sums")

    def mark(self, is_marked: Callable[[Expr], Expr]) -> None:
        """Marks places, and adds up."""
        ib, zero, one = self.ib, build.const(0, self.kind), build.const(1, self.kind)
        with each(ib, self.count, self.kind) as number:
            self.sums[number] = build.select(is_marked(number), one, zero)
        self.add_up()

    def add_up(self) -> None:
        """Replaces the numbers of all places by the sums of those in front."""
        with each(self.ib, 1, self.kind) as last:
            self.sums[last + self.count] = build.const(0, self.kind)
        _add_up(self.ib, self.sums, self.count + 1, self.kind)

    def __getitem__(self, place: Expr) -> Expr:
        return self.sums[place]

    @property
    def total(self) -> Expr:
        """How many are marked."""
        return self.sums[self.count]


def _add_up(ib: IRBuilder, numbers: BufferVar, count: int, kind: str) -> None:
    """Exclusive prefix sums in place: of parts first, then of their sums, then within parts."""
    parts = -(-count // PART)
    sums = ib.allocate(kind, (parts,), name="part_sums") if parts > 1 else None
    if sums is not None:
        with each(ib, parts, kind, "part") as part:
            total = variable(ib, kind, "total", 0)
            with ib.for_range(part * PART, build.minimum(part * PART + PART, count), "k") as k:
                total.set(total.get() + numbers[k])
            sums[part] = total.get()
        _add_up(ib, sums, parts, kind)
    with each(ib, parts, kind, "part") as part:
        before = variable(ib, kind, "before", 0 if sums is None else sums[part])
        with ib.for_range(part * PART, build.minimum(part * PART + PART, count), "k") as k:
            own = ib.let("own", numbers[k])
            numbers[k] = before.get()
            before.set(before.get() + own)
