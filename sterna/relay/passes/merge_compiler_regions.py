"""Regions of other compilers, as large as they may be.

    relu(begin(end(add(begin(%x)))))   ->   relu(add(begin(%x)))

Two regions become one unless a value would leave it and come back: that is a cycle.
"""

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.relay.expr import Call, Function, If, Let, RelayExpr
from sterna.relay.op import record_of
from sterna.relay.passes.annotate_target import BEGIN, END, compiler_of, outside_composites
from sterna.relay.traverse import post_order, rewrite


def MergeCompilerRegions() -> Pass:
    """Join the regions of a compiler that pass values to each other."""
    made: Pass = module_pass(
        lambda mod, context: merge_compiler_regions(mod), opt_level=0, name="MergeCompilerRegions"
    )
    return made


def merge_compiler_regions(mod: IRModule) -> IRModule:
    """The module without marks between regions that are one."""
    made = mod.shallow_copy()
    for name, function in mod.functions.items():
        if isinstance(function, Function) and compiler_of(function) is None:
            made[name] = _merged(function)
    return made


def is_mark(expr: RelayExpr, name: str) -> bool:
    """Whether an expression is a mark of this kind."""
    record = record_of(expr) if isinstance(expr, Call) else None
    return record is not None and record.name == name


class Regions:
    """Which region an expression of a function belongs to; regions are numbered, and joined."""

    def __init__(self, function: Function) -> None:
        self.order = post_order(function, outside_composites)
        self.places = {id(expr): place for place, expr in enumerate(self.order)}
        self._into: list[int] = []
        self.of_expr: dict[int, int] = {}
        self.begins: list[list[Call]] = []
        for expr in self.order:
            if is_mark(expr, END):
                self._add(expr)

    def _add(self, end: RelayExpr) -> None:
        """The region before an end; regions that share an expression are one."""
        region = len(self._into)
        self._into.append(region)
        self.begins.append([])
        stack = [end]
        while stack:
            expr = stack.pop()
            known = self.of_expr.get(id(expr))
            if known is not None:
                self._join(known, region)
                continue
            self.of_expr[id(expr)] = region
            if is_mark(expr, BEGIN):
                assert isinstance(expr, Call)
                self.begins[self.find(region)].append(expr)
                continue
            for part in expr.operands():  # type: ignore[attr-defined]
                if not isinstance(part, Function) or outside_composites(part):
                    stack.append(part)

    def find(self, region: int) -> int:
        """The number of the region that this one has become a part of."""
        while self._into[region] != region:
            self._into[region] = self._into[self._into[region]]
            region = self._into[region]
        return region

    def region_of(self, expr: RelayExpr) -> int | None:
        """The region of an expression, if it is in one."""
        found = self.of_expr.get(id(expr))
        return None if found is None else self.find(found)

    def _join(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self._into[other] = one
            self.begins[one] += self.begins[other]
            self.begins[other] = []

    def merge(self, one: int, other: int) -> None:
        """Make two regions one, unless a value would leave it and come back."""
        one, other = self.find(one), self.find(other)
        if one == other:
            return
        both = {one, other}
        begins = [*self.begins[one], *self.begins[other]]
        first = min(self.places[id(begin)] for begin in begins) if begins else 0
        stack = [b.args[0] for b in begins if self.region_of(b.args[0]) not in both]
        seen: set[int] = set()
        while stack:
            expr = stack.pop()
            if id(expr) in seen or self.places.get(id(expr), 0) < first:
                continue
            seen.add(id(expr))
            if self.region_of(expr) in both:
                return
            stack.extend(expr.operands())  # type: ignore[attr-defined]
        self._join(one, other)


def _merged(function: Function) -> Function:
    regions = Regions(function)
    if any(isinstance(expr, If | Let) for expr in regions.order):
        return function  # values of one branch or scope stay there
    between = [e for e in regions.order if is_mark(e, BEGIN) and is_mark(_inside(e), END)]
    for begin in between:
        end = _inside(begin)
        if _compiler(begin) == _compiler(end):
            one, other = regions.region_of(end), regions.region_of(begin)
            assert one is not None
            if other is not None:
                regions.merge(one, other)
    gone = {id(begin) for begin in between
            if regions.region_of(begin) == regions.region_of(_inside(begin))}

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        return _inside(_inside(new)) if id(old) in gone else new

    made = rewrite(function, change, outside_composites)
    assert isinstance(made, Function)
    return made


def _inside(mark: RelayExpr) -> RelayExpr:
    assert isinstance(mark, Call)
    return mark.args[0]


def _compiler(mark: RelayExpr) -> str:
    assert isinstance(mark, Call) and mark.attrs is not None
    return str(mark.attrs.compiler)  # type: ignore[attr-defined]
