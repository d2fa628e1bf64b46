"""Graphs in other layouts: what AlterOpLayout and ConvertLayout have in common.

    nn.relu(nn.conv2d(%x, %w))  ->  %1 = layout_transform(%x, NCHW, NHWC)
                                    %2 = nn.relu(nn.conv2d(%1, ..., data_layout="NHWC"))
                                    layout_transform(%2, NHWC, NCHW)

Some calls are altered to run in another layout; the rules of the operators around them let that
layout pass through, and only where it ends stands a transform. How far a layout may pass is its
reach: with that of a kernel the transforms stand before and behind each altered call with its
epilogue, with that of a call around each call alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sterna.ir.types import TensorType, TupleType
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.layout import layout_of
from sterna.relay.layout_rules import Laid, LayoutPlan, Operand, rule_of
from sterna.relay.op import BROADCAST, AnyOp, call, rules_of
from sterna.relay.traverse import not_primitive, post_order, rebuild
from sterna.support.errors import InternalError

# Other attributes for a call that shall run in another layout; None to leave it.
Alter = Callable[[AnyOp, Call], Attrs | None]


class Reach(IntEnum):
    """How far a layout passes from the call that was altered."""

    CALL = 0
    KERNEL = 1
    """Through the elementwise calls that alone read each other: an epilogue."""
    GRAPH = 2


@dataclass(slots=True)
class _Held:
    """What stands for an expression of the user's graph: itself, and its layout; or a tuple's."""

    expr: RelayExpr
    laid: Laid | None = None
    parts: "list[_Held] | None" = None


def rewrite_layouts(func: Function, alter: Alter, reach: Reach = Reach.GRAPH) -> Function:
    """The function with calls altered, and their layouts passed on as far as rules allow."""
    made = _Rewriter(alter, reach).run(func)
    assert isinstance(made, Function)
    return made


class _Rewriter:
    def __init__(self, alter: Alter, reach: Reach) -> None:
        self.alter, self.reach = alter, reach
        self.held: dict[int, _Held] = {}
        self.transforms: dict[tuple[int, str], RelayExpr] = {}
        self.kept: list[RelayExpr] = []

    def run(self, root: RelayExpr) -> RelayExpr:
        order = post_order(root, not_primitive)
        passing = _passing_on(order) if self.reach is Reach.KERNEL else set()
        for expr in order:
            held = self._rewrite(expr)
            if self.reach < Reach.GRAPH and id(expr) not in passing:
                held = _Held(self._plain(held), parts=held.parts and [
                    _Held(self._plain(part)) for part in held.parts
                ])
            self.held[id(expr)] = held
        return self._plain(self.held[id(root)])

    def _rewrite(self, expr: RelayExpr) -> _Held:
        if isinstance(expr, Tuple):
            parts = [self.held[id(part)] for part in expr.fields]
            return _Held(expr, parts=parts)
        if isinstance(expr, TupleGetItem):
            whole = self.held[id(expr.tuple_value)]
            if whole.parts is not None:
                return whole.parts[expr.index]
        record = rules_of(expr)
        if record is not None:
            assert isinstance(expr, Call)
            return self._call(expr, record)
        return _Held(self._as_before(expr) if not_primitive(expr) else expr)

    def _as_before(self, expr: RelayExpr) -> RelayExpr:
        """The expression over operands in the user's layouts."""
        inner = expr.operands()  # type: ignore[attr-defined]
        made = rebuild(expr, {id(part): self._plain(self.held[id(part)]) for part in inner})
        return made

    def _call(self, old: Call, record: AnyOp) -> _Held:
        altered = self.alter(record, old)
        rule = rule_of(record)
        plan = None
        if rule is not None and (altered is not None or self._any_laid(old)):
            attrs = old.attrs if altered is None else altered
            plan = rule(attrs, old.attrs, [self._operand(arg) for arg in old.args])
        if plan is None:
            return _Held(self._as_before(old))
        made = self._make(old, plan)
        if not _gives(made, old):
            raise InternalError(f"the layout rule of {record.name} is wrong: {old.checked_type!r}")
        return made

    def _any_laid(self, old: Call) -> bool:
        def laid(held: _Held) -> bool:
            return held.laid is not None or any(map(laid, held.parts or ()))

        return any(laid(self.held[id(arg)]) for arg in old.args)

    def _operand(self, arg: RelayExpr) -> Any:
        held = self.held[id(arg)]
        if held.parts is not None:
            assert isinstance(arg, Tuple)
            return [self._operand(part) for part in arg.fields]
        kind = arg.checked_type
        if isinstance(kind, TupleType):
            return [Operand(part, None, False) for part in kind.fields]  # type: ignore[arg-type]
        assert isinstance(kind, TensorType)
        return Operand(kind, held.laid, isinstance(held.expr, Constant))

    def _make(self, old: Call, plan: LayoutPlan) -> _Held:
        args: list[RelayExpr] = []
        for arg, laid in zip(old.args, plan.operands, strict=True):
            held = self.held[id(arg)]
            if held.parts is not None:
                assert isinstance(arg, Tuple)
                fields = zip(arg.fields, held.parts, strict=True)
                args.append(Tuple(tuple(self._in(part, field, laid) for field, part in fields)))
            else:
                args.append(self._in(held, arg, laid))
        made = Call(old.op, tuple(args), plan.attrs)
        made.span = old.span
        if isinstance(old.checked_type, TupleType):
            items = enumerate(plan.results)
            return _Held(made, parts=[_Held(TupleGetItem(made, i), laid) for i, laid in items])
        return _Held(made, plan.results[0])

    def _in(self, held: _Held, arg: RelayExpr, laid: Laid | None) -> RelayExpr:
        """An operand in a layout."""
        if laid is None:
            return self._plain(held)
        if held.laid is not None and held.laid.before == laid.before:
            return self._transform(held.expr, held.laid.now, laid.now)
        expr = self._plain(held)  # axes that the user calls otherwise here are others
        kind = arg.checked_type
        assert isinstance(kind, TensorType)
        missing = laid.rank - kind.ndim
        if missing:
            expr = self._once(expr, f"rank{missing}", lambda e: call(
                "expand_dims", e, axis=0, num_newaxis=missing))
        return self._transform(expr, laid.before, laid.now)

    def _plain(self, held: _Held) -> RelayExpr:
        """What stands for an expression, in the user's layout."""
        if held.parts is not None:
            plain = tuple(self._plain(part) for part in held.parts)
            same = isinstance(held.expr, Tuple) and all(
                a is b for a, b in zip(plain, held.expr.fields, strict=True)
            )
            return held.expr if same else Tuple(plain)
        if held.laid is None:
            return held.expr
        return self._transform(held.expr, held.laid.now, held.laid.before)

    def _transform(self, expr: RelayExpr, source: str, wanted: str) -> RelayExpr:
        if source == wanted:
            return expr
        return self._once(expr, f"{source}->{wanted}", lambda e: call(
            "layout_transform", e, src_layout=source, dst_layout=wanted))

    def _once(
        self, expr: RelayExpr, what: str, make: Callable[[RelayExpr], RelayExpr]
    ) -> RelayExpr:
        """The same change of the same expression is made once."""
        key = (id(expr), what)
        if key not in self.transforms:
            self.kept.append(expr)
            self.transforms[key] = make(expr)
        return self.transforms[key]


def _passing_on(order: list[RelayExpr]) -> set[int]:
    """Calls whose results one elementwise call alone reads, once."""
    users: dict[int, list[RelayExpr]] = {}
    for expr in order:
        for part in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
            users.setdefault(id(part), []).append(expr)
    found = set()
    for made, readers in users.items():
        record = rules_of(readers[0])
        if len(readers) == 1 and record is not None and record.pattern <= BROADCAST:
            found.add(made)
    return found


def _gives(made: _Held, old: RelayExpr) -> bool:
    """Whether what a rule led to has the shape that the user's expression has in that layout."""
    if made.parts is not None:
        items = [TupleGetItem(old, place) for place in range(len(made.parts))]
        return all(map(_gives, made.parts, items))
    wanted, given = old.checked_type, made.expr.checked_type
    if made.laid is None:
        return wanted == given
    assert isinstance(wanted, TensorType) and isinstance(given, TensorType)
    dims = layout_of(made.laid.before).dims(wanted.shape)
    return TensorType(layout_of(made.laid.now).shape(dims), wanted.dtype) == given
