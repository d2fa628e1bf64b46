"""Radix sort, and a tournament for the first few: numbers in order by keys of unsigned integers.

A key holds the whole order of its number: downwards, NaN and zeros of both signs are settled when
it is made. Of equal keys the one that stood first stays first.
"""

import math

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.ir.types import Dim
from sterna.op.axis_rows import index_type
from sterna.op.insertion import KeyAt, PlaceOf, best_of, inserted_line, insertion_pays
from sterna.op.ordering import merge_sort
from sterna.op.statements import variable
from sterna.schedule.loops import PARALLEL_ELEMENTS
from sterna.support.dtype import DataType
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Shorter lines are merged: a radix sort must count through its histograms first.
RADIX_LENGTH = 96
# From here on wide digits save a pass for more than their histograms cost.
WIDE_DIGITS_LENGTH = 1 << 14
# Groups of a tournament have so many numbers; the best of one is found by vector instructions.
SMALLEST_GROUP, LARGEST_GROUP = 8, 64
# Threads share the groups of one line that has so many elements.
SHARED_LENGTH = 4 * PARALLEL_ELEMENTS
# To sort an element costs about as much as to look at so many.
SORT_COST = 8


def order_key_type(key: DataType) -> DataType:
    """The type of order keys of numbers that are compared as this type."""
    return DataType(f"uint{key.bits}")


def order_key(value: Expr, ascending: bool) -> Expr:
    """An unsigned integer that is smaller than another where its number comes before the other's.

    NaN is larger than every number and equal to NaN, and zeros of both signs are equal.
    """
    kind = value.dtype
    made = order_key_type(kind)
    bits = value if kind == made else Call(made, "reinterpret", (value,))
    sign = build.const(1 << (kind.bits - 1), made)
    if kind.is_float:
        flipped = build.select(value < build.const(0, kind), ~bits, bits | sign)
        bits = build.select(t.isnan(value), build.const((1 << kind.bits) - 1, made), flipped)
    elif kind.is_int:
        bits = bits ^ sign
    return bits if ascending else ~bits


class KeyedPlaces:
    """Order keys and the places where their numbers stand, with as much room again to sort in."""

    def __init__(self, ib: IRBuilder, key: DataType, room: Dim, name: str) -> None:
        self.ib = ib
        self.room = room
        self.kind = index_type(room)
        self.keys: BufferVar = ib.allocate(key, (room * 2,), name=f"{name}_keys")
        self.places: BufferVar = ib.allocate(self.kind, (room * 2,), name=f"{name}_places")

    def put(self, at: Expr, key: Expr, place: Expr) -> None:
        """Sets an entry."""
        self.keys[at] = key
        self.places[at] = build.cast(self.kind, place)

    def sort(self, count: Dim) -> Expr:
        """Sorts the first entries by their keys; gives where the result begins."""
        ib, most, known = self.ib, build.int_value(self.room), build.int_value(count)
        if most is not None and most < RADIX_LENGTH:
            return self._merge_sort(count)
        bits = 11 if known is not None and known >= WIDE_DIGITS_LENGTH else 8
        if known is not None:
            return self._radix_sort(build.const(known, self.kind), bits)
        entries = ib.let("entries", build.cast(self.kind, build.as_expr(count)))
        begin = variable(ib, self.kind, "start", 0)
        with ib.if_scope(entries < RADIX_LENGTH):
            begin.set(self._merge_sort(entries))
        with ib.else_scope():
            begin.set(self._radix_sort(entries, bits))
        return begin.get()

    def _merge_sort(self, count: Dim) -> Expr:
        keys = self.keys
        return merge_sort(
            self.ib, count, [keys, self.places], lambda i, j: keys[i] < keys[j])

    def _radix_sort(self, count: Expr, digit_bits: int) -> Expr:
        """Moves entries by one digit of their keys after the other, from the lowest to the highest.

        One pass counts how often each digit has each value. A digit that is the same in all keys
        moves nothing and is left out.
        """
        ib, kind = self.ib, self.kind
        key = self.keys.dtype
        digit_bits = min(digit_bits, key.bits)
        digits, values = -(-key.bits // digit_bits), 1 << digit_bits
        counts = ib.allocate(kind, (digits * values,), name="counts")

        def digit(number: Expr, place: Expr) -> Expr:
            low = (number >> build.cast(key, place * digit_bits)) & build.const(values - 1, key)
            return place * values + build.cast(kind, low)

        with ib.for_range(0, digits * values, name="v", dtype=kind) as v:
            counts[v] = build.const(0, kind)
        with ib.for_range(0, count, name="k", dtype=kind) as k:
            number = ib.let("number", self.keys[k])
            for own in range(digits):
                at = ib.let("at", digit(number, build.const(own, kind)))
                counts[at] = counts[at] + 1
        begin = variable(ib, kind, "begin", 0)
        total = variable(ib, kind, "total", 0)
        with ib.for_range(0, build.select(count > 1, digits, 0), name="place", dtype=kind) as place:
            source = ib.let("source", begin.get())
            alike = counts[digit(self.keys[source], place)].equal(count)
            with ib.if_scope(build.logical_not(alike)):
                target = ib.let("target", count - source)
                total.set(target)
                with ib.for_range(place * values, (place + 1) * values, name="v") as v:
                    many = ib.let("many", counts[v])
                    counts[v] = total.get()
                    total.set(total.get() + many)
                with ib.for_range(0, count, name="k", dtype=kind) as k:
                    moved = ib.let("moved", self.keys[source + k])
                    at = ib.let("at", digit(moved, place))
                    to = ib.let("to", counts[at])
                    counts[at] = to + 1
                    self.put(to, moved, self.places[source + k])
                begin.set(target)
        return begin.get()


def _sorted_line(ib: IRBuilder, length: Dim, key_at: KeyAt, key: DataType) -> PlaceOf:
    """All places of a line in their order."""
    line = KeyedPlaces(ib, key, length, "line")
    with ib.for_range(0, length, name="k", dtype=line.kind) as k:
        line.put(k, key_at(k), k)
    begin = ib.let("first", line.sort(length))
    return lambda k: line.places[begin + k]


def _group_size(length: int, count: int) -> int:
    """How many neighbours play for one place among the first: groups and players cost the same."""
    wanted = math.sqrt(SORT_COST * length / max(count, 1))
    return min(max(1 << round(math.log2(max(wanted, 1))), SMALLEST_GROUP), LARGEST_GROUP)


def _tournament_pays(length: int, count: int) -> bool:
    """Whether the first ones of a line are found sooner than all are sorted."""
    return length >= RADIX_LENGTH and count * _group_size(length, count) <= length


def _tournament(
    ib: IRBuilder, length: int, count: int, key_at: KeyAt, key: DataType, alone: bool
) -> PlaceOf:
    """The places of the first ones of a line in their order, by a tournament.

    Neighbours form groups, and the groups are ordered by their best. The first `count` elements are
    in the first `count` groups, for every other group has so many better ones before it; of these
    groups only what is not behind the worst of their best is sorted.
    """
    width = _group_size(length, count)
    whole, rest = divmod(length, width)
    number = whole + (rest > 0)
    groups = KeyedPlaces(ib, key, number, "group")
    kind = index_type(length)

    def enter(group: Expr, size: int) -> None:
        groups.put(group, best_of(ib, group * width, size, key_at, key), group)

    loop = "parallel" if alone and length >= SHARED_LENGTH else "serial"
    with ib.for_range(0, whole, name="g", dtype=kind, kind=loop) as g:
        enter(g, width)
    if rest:
        enter(build.const(whole, kind), rest)
    winners = ib.let("winners", groups.sort(number))
    worst = ib.let("worst", groups.keys[winners + count - 1])
    chosen = ib.allocate("uint8", (number,), name="chosen")
    with ib.for_range(0, number, name="g", dtype=kind) as g:
        chosen[g] = build.const(0, "uint8")
    with ib.for_range(0, count, name="k", dtype=kind) as k:
        chosen[groups.places[winners + k]] = build.const(1, "uint8")

    players = KeyedPlaces(ib, key, count * width, "player")
    entered = variable(ib, players.kind, "entered", 0)
    with ib.for_range(0, number, name="g", dtype=kind) as g, ib.if_scope(chosen[g] > 0):
        end = build.minimum(g * width + width, length)
        with ib.for_range(g * width, end, name="k", dtype=kind) as k:
            own = ib.let("own", key_at(k))
            players.put(entered.get(), own, k)
            entered.set(entered.get() + build.select(own <= worst, 1, 0))
    begin = ib.let("first", players.sort(ib.let("size", entered.get())))
    return lambda k: players.places[begin + k]


def first_of_line(
    ib: IRBuilder, length: Dim, count: Dim, key_at: KeyAt, key: DataType, *, alone: bool
) -> PlaceOf:
    """What gives the places of the first ones of a line, in their order.

    alone: there is no other line, so threads share this one if it is long.
    """
    if isinstance(length, int) and isinstance(count, int):
        if insertion_pays(length, count):
            return inserted_line(ib, length, count, key_at, key)
        if _tournament_pays(length, count):
            return _tournament(ib, length, count, key_at, key, alone)
    return _sorted_line(ib, length, key_at, key)
