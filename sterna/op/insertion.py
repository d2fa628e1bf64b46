"""The first few of a line in their order, kept by insertion while the line is read."""

from collections.abc import Callable

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim
from sterna.op.axis_rows import index_type
from sterna.op.statements import variable
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import IRBuilder

# As few as these are kept in order by insertion; of one line if even one that brings its best last,
# so that each element moves all before it, takes no more moves than this.
INSERTED, INSERTION_MOVES = 16, 1 << 13
# Of a line with so many groups for each one that is wanted, or more, the best of a group is found
# by vector instructions before its elements are looked at.
SEARCHED_GROUP, SEARCHED_GROUPS = 32, 4
# Lines side by side that are lanes of one vector.
LINES_AT_ONCE = 16

# The order key of what stands at a place of a line; the place of what comes so many-th in order.
KeyAt = Callable[[Expr], Expr]
PlaceOf = Callable[[Expr], Expr]


def few_are_kept(length: Dim, count: int) -> bool:
    """Whether the first ones of a line are so few that they are kept in order while it is read."""
    return isinstance(length, int) and 0 < count <= INSERTED and 2 * count <= length


def insertion_pays(length: int, count: int) -> bool:
    """Whether they are, even if each element comes before all that are kept."""
    return few_are_kept(length, count) and count * length <= INSERTION_MOVES


def inserted_line(ib: IRBuilder, length: int, count: int, key_at: KeyAt, key: DataType) -> PlaceOf:
    """The places of the first ones of a line in their order.

    Of a long line, groups of neighbours whose best does not come before the last of these are
    passed over.
    """
    kind = index_type(length)
    keys = ib.allocate(key, (count,), name="keys")
    places = ib.allocate(kind, (count,), name="places")
    free = variable(ib, kind, "free", 0)

    def insert(own: Expr, place: Expr, last: Expr) -> None:
        free.set(last)
        with ib.for_range(0, last, name="s", dtype=kind) as s:
            before = ib.let("before", last - 1 - s)
            with ib.if_scope(own < keys[before]):
                keys[before + 1] = keys[before]
                places[before + 1] = places[before]
                free.set(before)
        keys[free.get()] = own
        places[free.get()] = place

    def offer(begin: Expr, end: Expr) -> None:
        with ib.for_range(begin, end, name="k", dtype=kind) as k:
            own = ib.let("own", key_at(k))
            with ib.if_scope(own < keys[count - 1]):
                insert(own, k, build.const(count - 1, kind))

    with ib.for_range(0, count, name="k", dtype=kind) as k:
        insert(ib.let("own", key_at(k)), k, k)
    is_long = SEARCHED_GROUPS * SEARCHED_GROUP * count <= length
    groups = (length - count) // SEARCHED_GROUP if is_long else 0
    with ib.for_range(0, groups, name="g", dtype=kind) as g:
        begin = ib.let("begin", g * SEARCHED_GROUP + count)
        best = best_of(ib, begin, SEARCHED_GROUP, key_at, key)
        with ib.if_scope(best < keys[count - 1]):
            offer(begin, begin + SEARCHED_GROUP)
    offer(build.const(count + groups * SEARCHED_GROUP, kind), build.const(length, kind))
    return lambda k: places[k]


def best_of(ib: IRBuilder, begin: Expr, size: int, key_at: KeyAt, key: DataType) -> Expr:
    """The first key of some neighbours."""
    best = variable(ib, key, "best", build.const((1 << key.bits) - 1, key))
    with ib.for_range(0, size, name="e", dtype=begin.dtype) as e:
        best.set(build.minimum(best.get(), key_at(begin + e)))
    return best.get()


def inserted_lines(
    ib: IRBuilder, lines: int, length: int, count: int,
    key_at: Callable[[Expr, Expr], Expr], key: DataType,
) -> Callable[[Expr, Expr], Expr]:
    """The same of so many lines side by side: key_at(place, line), and so the places.

    Each of them is a lane of vectors, which hold what comes first, second, ... : of what comes
    after a new element each takes the place of the next one.
    """
    kind = index_type(length)
    keys = ib.allocate(key, (count * lines,), name="keys", scope="local")
    places = ib.allocate(kind, (count * lines,), name="places", scope="local")
    with ib.for_range(0, count, name="k") as k, \
            ib.for_range(0, lines, name="line", kind="vectorize") as line:
        keys[k * lines + line] = build.const(0, key)
        places[k * lines + line] = build.const(0, kind)

    def insert(place: Expr, held: Expr | int) -> None:
        with ib.for_range(0, lines, name="line", kind="vectorize") as line:
            own = ib.let("own", key_at(place, line))

            def moves(order: int) -> Expr:
                empty = build.less_equal(build.as_expr(held), order)
                return build.logical_or(own < keys[order * lines + line], empty)

            for order in reversed(range(count)):
                at, before = order * lines + line, (order - 1) * lines + line
                for column, new in ((places, place), (keys, own)):
                    pushed = build.select(moves(order - 1), column[before], new) if order else new
                    column[at] = build.select(moves(order), pushed, column[at])

    with ib.for_range(0, count, name="k", dtype=kind) as k:
        insert(k, k)
    with ib.for_range(count, length, name="k", dtype=kind) as k:
        insert(k, count)
    return lambda k, line: places[k * lines + line]
