"""Program points: statements in their places, when they run, what they compute and write."""

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from sterna.tir.value_numbers import Value, ValueNumbers


class Region:
    """A statement in its place."""

    __slots__ = (
        "ends", "inner", "is_certain", "parent", "place", "roots", "stmt", "writes",
        "writes_anything",
    )

    def __init__(self, stmt: Stmt, parent: "Region | None", place: int, is_certain: bool) -> None:
        self.stmt = stmt
        self.parent = parent
        self.place = place
        """Its number in its parent's sequence."""
        self.is_certain = is_certain
        """Whether it runs whenever its parent begins."""
        self.roots: list[Value] = []
        """What the statement itself computes, in the order of roots_of."""
        self.inner: list[Region] = []
        self.writes: set[Buffer] = set()
        self.writes_anything = False
        self.ends = False
        """Whether it may end the function."""

    @property
    def is_sequence(self) -> bool:
        """Whether names may begin between its parts."""
        return isinstance(self.stmt, SeqStmt)

    def changes(self, buffers: frozenset[Buffer]) -> bool:
        """Whether one of the buffers may be different after it."""
        return bool(buffers) and (self.writes_anything or not buffers.isdisjoint(self.writes))

    def is_one_store(self) -> bool:
        """Whether all that it computes is computed before it writes."""
        return isinstance(self.stmt, BufferStore) and not self.writes_anything

    def path(self) -> "list[Region]":
        """The regions around it, the outermost first, and itself."""
        found: list[Region] = []
        region: Region | None = self
        while region is not None:
            found.append(region)
            region = region.parent
        return found[::-1]


def roots_of(stmt: Stmt) -> list[tuple[Expr, bool]]:
    """The expressions that a statement certainly evaluates, and whether they index or bound."""
    if isinstance(stmt, BufferStore):
        found = [(stmt.value, False), *[(index, True) for index in stmt.indices]]
        return found if stmt.predicate is None else [*found, (stmt.predicate, False)]
    if isinstance(stmt, For):
        return [(stmt.min, True), (stmt.extent, True)]
    if isinstance(stmt, (IfThenElse, AssertStmt)):
        return [(stmt.condition, False)]
    if isinstance(stmt, (LetStmt, Evaluate)):
        return [(stmt.value, False)]
    return []


def find_regions(
    stmt: Stmt, numbers: ValueNumbers, parent: Region | None = None, place: int = 0,
    is_certain: bool = True,
) -> Region:
    """A statement and all inside it; a statement of another kind is taken as a whole."""
    region = Region(stmt, parent, place, is_certain)
    for expr, exact in roots_of(stmt):
        value = numbers.of(expr, exact)
        region.roots.append(value)
        if value.acts:
            region.writes_anything = region.ends = True
    if isinstance(stmt, SeqStmt):
        for number, inner in enumerate(stmt.stmts):
            _join(region, find_regions(inner, numbers, region, number, not region.ends))
    elif isinstance(stmt, BufferStore):
        region.writes.add(stmt.buffer)
    elif isinstance(stmt, AssertStmt):
        region.ends = True
    elif isinstance(stmt, IfThenElse):
        for way in (stmt.then, stmt.otherwise):
            if way is not None:
                _join(region, find_regions(way, numbers, region, 0, False))
    elif isinstance(stmt, For):
        is_run = (build.int_value(stmt.extent) or 0) > 0 and not region.ends
        _join(region, find_regions(stmt.body, numbers, region, 0, is_run))
    elif isinstance(stmt, (LetStmt, Allocate, AttrStmt)):
        _join(region, find_regions(stmt.body, numbers, region, 0, not region.ends))
    elif not isinstance(stmt, Evaluate):
        region.writes_anything = region.ends = True
    return region


def _join(region: Region, inner: Region) -> None:
    region.inner.append(inner)
    region.writes |= inner.writes
    region.writes_anything = region.writes_anything or inner.writes_anything
    region.ends = region.ends or inner.ends
