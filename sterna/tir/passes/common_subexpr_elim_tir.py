"""Common subexpression elimination (CSE): compute once what is needed several times."""

from typing import NamedTuple

from sterna.ir.expr import (
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    Let,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from sterna.tir.regions import Region, find_regions
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from sterna.tir.value_numbers import Value, ValueNumbers


def common_subexpr_elim_tir(func: PrimFunc) -> PrimFunc:
    """A[i*8 + j] = exp(x + y); B[i*8 + j] = exp(x + y) * 2

    ->  cse1 = exact(i*8 + j); cse2 = exp(x + y); A[cse1] = cse2; B[cse1] = cse2 * 2

    A name begins before the first statement that needs it. What reads memory gets one only where
    nothing changes that memory in between; what has no meaning, or is dear, where a guard fails
    gets one only where it is certainly needed. exact keeps what is known about indices: that they
    do not wrap.
    """
    numbers = ValueNumbers()
    whole = find_regions(func.body, numbers)
    naming = _Naming(numbers)
    naming.visit(whole)
    naming.run()
    return func.with_body(_Writer(naming).stmt(whole)) if naming.named else func


class _Use(NamedTuple):
    """A place where a value is needed: a statement, or before the part of a sequence."""

    region: Region
    place: int
    is_certain: bool
    """Whether it is needed whenever the statement runs."""


class _Branch(NamedTuple):
    """A place where a value is needed: a branch of an if_then_else."""

    choice: Value
    which: int


_Place = _Use | _Branch


class _Home(NamedTuple):
    """Where a name begins, and for which uses."""

    region: Region
    place: int
    last: int
    """The last part of a sequence that may use it."""
    covered: frozenset[_Use]


class _Naming:
    """Decides which values get names, and where these begin."""

    def __init__(self, numbers: ValueNumbers) -> None:
        self.values = numbers.all
        self.uses: dict[Value, list[_Place]] = {}
        self.named: set[Value] = set()
        self.begins: dict[tuple[Region, int], list[tuple[Value, int]]] = {}
        """Names that begin before a part of a sequence, and the last part that may use them; or
        before a statement (0)."""
        self.in_branch: dict[_Branch, list[Value]] = {}

    def visit(self, region: Region) -> None:
        """Note what a statement and those inside it need."""
        for root in region.roots:
            if root.is_interesting:
                self.uses.setdefault(root, []).append(_Use(region, 0, True))
        for inner in region.inner:
            self.visit(inner)

    def run(self) -> None:
        """From the largest values on: a part of a value is needed where that gets its name."""
        for value in reversed(self.values):
            places = self.uses.get(value)
            if places is None:
                continue
            if value.is_candidate and len(places) > 1:
                places = self.uses[value] = self.name(value, places)
            is_choice = isinstance(value.expr, Call) and value.expr.op == "if_then_else"
            for number, part in enumerate(value.children):
                if part.is_interesting:
                    known = self.uses.setdefault(part, [])
                    if is_choice and number > 0:
                        known.append(_Branch(value, number))
                    else:
                        known.extend(places)

    def name(self, value: Value, places: list[_Place]) -> list[_Place]:
        """Give a value names where that is possible; the places where it is computed then."""
        uses, branches = self.lifted(places)
        computed: list[_Place] = []
        for home in self.homes(value, uses):
            self.begins.setdefault((home.region, home.place), []).append((value, home.last))
            self.named.add(value)
            computed.append(_Use(home.region, home.place, True))
            uses = [use for use in uses if use not in home.covered]
        left = [b for b in branches if any(use in uses for use in self.lifted([b])[0])]
        if not value.is_safe:
            for branch in dict.fromkeys(left):
                if left.count(branch) > 1:
                    self.in_branch.setdefault(branch, []).append(value)
                    self.named.add(value)
            left = list(dict.fromkeys(left))
        plain = [use for use in uses if use in places]
        return [*computed, *plain, *left]

    def lifted(self, places: list[_Place]) -> tuple[list[_Use], list[_Branch]]:
        """The statements that places are in, and those places that are branches."""
        uses: list[_Use] = []
        branches: list[_Branch] = []
        for place in places:
            if isinstance(place, _Use):
                uses.append(place)
            else:
                branches.append(place)
                around, _ = self.lifted(self.uses[place.choice])
                uses.extend(_Use(use.region, use.place, False) for use in around)
        return uses, branches

    # ---- places for names ----

    def homes(self, value: Value, uses: list[_Use]) -> list[_Home]:
        """Where names of a value may begin."""
        if len(uses) < 2:
            return []
        common = _common(uses)
        if common.is_sequence:
            return self.homes_in_sequence(value, common, uses)
        stays = not common.changes(value.reads) or common.is_one_store()
        if stays and (value.is_safe or any(_is_certain(use, common) for use in uses)):
            return [_Home(common, 0, 0, frozenset(uses))]
        found = []
        for inner in common.inner:
            found += self.homes(value, [use for use in uses if inner in use.region.path()])
        return found

    def homes_in_sequence(self, value: Value, common: Region, uses: list[_Use]) -> list[_Home]:
        """Names before parts of a sequence, each for as long as nothing changes what it reads."""
        groups: dict[int, list[_Use]] = {}
        for use in uses:
            groups.setdefault(_place_in(common, use), []).append(use)
        found: list[_Home] = []
        run: list[int] = []

        def finish() -> None:
            covered = [use for place in run for use in groups[place]]
            direct = any(use.region is common for use in covered)
            if len(run) > 1 or (run and direct and len(covered) > 1):
                found.append(_Home(common, run[0], run[-1], frozenset(covered)))
            elif run:
                found.extend(self.homes(value, covered))
            run.clear()

        for place in sorted(groups):
            part = common.inner[place]
            if run and any(common.inner[p].changes(value.reads) for p in range(run[-1], place)):
                finish()
            is_steady = not part.changes(value.reads) or part.is_one_store()
            begins = value.is_safe or any(_is_certain(u, part, common) for u in groups[place])
            if is_steady and (run or begins):
                run.append(place)
            else:
                finish()
                inside = [use for use in groups[place] if use.region is not common]
                if inside:  # those before the part stay as they are
                    found.extend(self.homes(value, inside))
                elif begins and len(groups[place]) > 1:
                    found.append(_Home(common, place, place, frozenset(groups[place])))
        finish()
        return found


def _common(uses: list[_Use]) -> Region:
    """The innermost statement that contains all uses."""
    path = uses[0].region.path()
    for use in uses[1:]:
        other = use.region.path()
        shared = 0
        while shared < min(len(path), len(other)) and path[shared] is other[shared]:
            shared += 1
        path = path[:shared]
    return path[-1]


def _place_in(sequence: Region, use: _Use) -> int:
    """The part of a sequence in which, or before which, a use is."""
    if use.region is sequence:
        return use.place
    path = use.region.path()
    return path[path.index(sequence) + 1].place


def _is_certain(use: _Use, region: Region, around: Region | None = None) -> bool:
    """Whether a use happens whenever a region runs; or right before it, in the one around."""
    if not use.is_certain:
        return False
    if use.region is around:
        return True
    path = use.region.path()
    return all(inner.is_certain for inner in path[path.index(region) + 1 :])


class _Writer:
    """Writes the statements with names."""

    def __init__(self, naming: _Naming) -> None:
        self.naming = naming
        self.names: dict[Value, Var] = {}
        self.until: dict[tuple[Region, int], list[Value]] = {}
        self.count = 0
        owners = {branch.choice for branch in naming.in_branch}
        self.touched: set[Value] = set()
        for value in naming.values:
            if (
                value in naming.named
                or value in owners
                or any(part in self.touched for part in value.children)
            ):
                self.touched.add(value)

    # ---- statements ----

    def stmt(self, region: Region) -> Stmt:
        if region.is_sequence:
            return self.inside(region)
        named = [value for value, _ in self.naming.begins.get((region, 0), [])]
        lets = self.begin(named)
        done = self.inside(region)
        self.end(named)
        return _with_lets(lets, done)

    def begin(self, values: list[Value]) -> list[tuple[Var, Expr]]:
        """Names for values from here on, those of parts first."""
        lets = []
        for value in sorted(values, key=lambda v: v.number):
            computed = self.compute(value)
            if value.exact:
                computed = Call(computed.dtype, "exact", (computed,))
            self.count += 1
            self.names[value] = Var(f"cse{self.count}", computed.dtype)
            lets.append((self.names[value], computed))
        return lets

    def end(self, values: list[Value]) -> None:
        for value in values:
            del self.names[value]

    def sequence(self, region: Region, first: int, last: int, is_begun: bool = False) -> list[Stmt]:
        """Parts of a sequence, the first of which may have its names already."""
        done: list[Stmt] = []
        place = first
        while place <= last:
            named = self.naming.begins.get((region, place))
            if named is None or (is_begun and place == first):
                done.append(self.stmt(region.inner[place]))
                self.expire(region, place)
                place += 1
                continue
            end = self.reach(region, place)
            lets = self.begin([value for value, _ in named])
            for value, until in named:
                self.until.setdefault((region, until), []).append(value)
            inner = self.sequence(region, place, end, True)
            body = inner[0] if len(inner) == 1 else SeqStmt(tuple(inner))
            done.append(_with_lets(lets, body))
            place = end + 1
        return done

    def reach(self, region: Region, place: int) -> int:
        """The last part in the scope of the names that begin somewhere: scopes do not cross."""
        end = place
        while place <= end:
            named = self.naming.begins.get((region, place), [])
            end = max([end, *[until for _, until in named]])
            place += 1
        return end

    def expire(self, region: Region, place: int) -> None:
        """Forget names whose values may have changed after a part of a sequence."""
        self.end(self.until.pop((region, place), []))

    def inside(self, region: Region) -> Stmt:
        stmt = region.stmt
        if isinstance(stmt, SeqStmt):
            parts = self.sequence(region, 0, len(region.inner) - 1)
            same = len(parts) == len(stmt.stmts) and all(
                a is b for a, b in zip(parts, stmt.stmts, strict=True)
            )
            return stmt if same else SeqStmt(tuple(parts)) if len(parts) > 1 else parts[0]
        bodies = [self.stmt(inner) for inner in region.inner]
        before = [inner.stmt for inner in region.inner]
        if all(a is b for a, b in zip(bodies, before, strict=True)) and not any(
            root in self.touched for root in region.roots
        ):
            return stmt
        return _rebuilt(stmt, [self.expr(root) for root in region.roots], bodies)

    # ---- expressions ----

    def expr(self, value: Value) -> Expr:
        name = self.names.get(value)
        if name is not None:
            return name
        return self.compute(value) if value in self.touched else value.expr

    def compute(self, value: Value) -> Expr:
        """A value from its parts."""
        expr = value.expr
        if isinstance(expr, Call) and expr.op == "if_then_else":
            parts = [self.expr(value.children[0])]
            parts += [self.branch(value, which) for which in (1, 2)]
        else:
            parts = [self.expr(part) for part in value.children]
        return _recomputed(expr, parts)

    def branch(self, value: Value, which: int) -> Expr:
        named = self.naming.in_branch.get(_Branch(value, which), [])
        named = [inner for inner in named if inner not in self.names]
        lets = self.begin(named)
        done = self.expr(value.children[which])
        self.end(named)
        for var, computed in reversed(lets):
            done = Let(var, computed, done)
        return done


def _with_lets(lets: list[tuple[Var, Expr]], stmt: Stmt) -> Stmt:
    for var, computed in reversed(lets):
        stmt = LetStmt(var, computed, stmt)
    return stmt


def _rebuilt(stmt: Stmt, roots: list[Expr], bodies: list[Stmt]) -> Stmt:
    """A statement with other expressions, in the order of roots_of, and other bodies."""
    if isinstance(stmt, BufferStore):
        predicate = None if stmt.predicate is None else roots[-1]
        return BufferStore(
            stmt.buffer, roots[0], tuple(roots[1 : len(stmt.indices) + 1]), predicate
        )
    if isinstance(stmt, For):
        return For(stmt.var, roots[0], roots[1], stmt.kind, bodies[0], stmt.thread,
                   stmt.annotations)
    if isinstance(stmt, IfThenElse):
        return IfThenElse(roots[0], *bodies)
    if isinstance(stmt, LetStmt):
        return LetStmt(stmt.var, roots[0], bodies[0])
    if isinstance(stmt, AssertStmt):
        return AssertStmt(roots[0], stmt.kind, stmt.message, stmt.values)
    if isinstance(stmt, Evaluate):
        return Evaluate(roots[0])
    if isinstance(stmt, Allocate):
        return Allocate(stmt.buffer, bodies[0])
    assert isinstance(stmt, AttrStmt)
    return AttrStmt(stmt.key, stmt.node, stmt.value, bodies[0])


def _recomputed(expr: Expr, parts: list[Expr]) -> Expr:
    """An expression of other parts, in the order of a value's children."""
    if isinstance(expr, BinaryExpr):
        return type(expr)(parts[0], parts[1])
    if isinstance(expr, BufferLoad):
        return BufferLoad(expr.buffer, tuple(parts))
    if isinstance(expr, Call):
        return Call(expr.dtype, expr.op, tuple(parts))
    if isinstance(expr, Cast):
        return Cast(expr.dtype, parts[0])
    if isinstance(expr, Select):
        return Select(parts[0], parts[1], parts[2])
    if isinstance(expr, Broadcast):
        return Broadcast(parts[0], expr.lanes)
    if isinstance(expr, Ramp):
        return Ramp(parts[0], parts[1], expr.lanes)
    if isinstance(expr, Shuffle):
        return Shuffle(tuple(parts), expr.indices)
    if isinstance(expr, Let):
        return Let(expr.var, parts[0], parts[1])
    assert isinstance(expr, Not)
    return Not(parts[0])
