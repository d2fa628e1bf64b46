"""Runs graphs by the operators' references: slow, plain, and the oracle for everything else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.arith.substitute import substitute
from sterna.ir.expr import Expr, IntImm
from sterna.ir.expr import Var as ShapeVar
from sterna.ir.module import IRModule
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType, Type
from sterna.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from sterna.relay.arrays import to_numpy
from sterna.relay.attributes import Attrs
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.op import record_of
from sterna.relay.reference import value_of_type
from sterna.relay.steps import Step
from sterna.relay.symbols import simplified_dim

# A NumPy array, a tuple of values, or a function of values.
Value = Any


def interpret(func: Function, *args: Value, mod: IRModule | None = None) -> Value:
    """The value of a function for NumPy arrays; tuples come as tuples."""
    if len(args) != len(func.params):
        names = ", ".join(param.name_hint for param in func.params)
        raise ValueError(f"the function takes {names}; got {len(args)} values")
    run = _Run(mod)
    for param, arg in zip(func.params, args, strict=True):
        if param.type_annotation is not None:
            run.tell_extents(param.type_annotation, arg)
    return run.value(func.body, dict(zip(func.params, args, strict=True)))


class _Run:
    def __init__(self, mod: IRModule | None) -> None:
        self.mod = mod
        self.extents: dict[ShapeVar, Expr] = {}
        """What variables of shapes stand for, as far as it is known."""

    def tell_extents(self, kind: Type, value: Value) -> None:
        """Learn what variables stand for from a value that has them in its type."""
        if isinstance(kind, TensorType) and not kind.is_static:
            for dim, extent in zip(kind.shape, np.shape(value), strict=True):
                if isinstance(dim, ShapeVar):
                    self.extents[dim] = IntImm(dim.dtype, int(extent))

    def _numbered(self, value: Any) -> Any:
        """An attribute, in which numbers stand where variables of shapes stood."""
        if isinstance(value, tuple | list):
            parts = [self._numbered(part) for part in value]
            is_same = all(a is b for a, b in zip(parts, value, strict=True))
            return value if is_same else type(value)(parts)
        if isinstance(value, Expr) and not isinstance(value, AnyDim):
            return simplified_dim(substitute(value, self.extents))
        return value

    def _attributes(self, attrs: Attrs | None) -> Attrs | None:
        if attrs is None or not self.extents:
            return attrs
        changed = {name: self._numbered(value) for name, value in attrs.items()}
        is_same = all(value is changed[name] for name, value in attrs.items())
        return attrs if is_same else type(attrs)(**changed)

    def value(self, root: RelayExpr, known: Mapping[RelayExpr, Value]) -> Value:
        """The value of an expression whose free variables are known."""
        values: dict[RelayExpr, Value] = dict(known)
        stack = [root]
        while stack:
            expr = stack[-1]
            if expr in values:
                stack.pop()
                continue
            waiting = [e for e in _needs(expr, values) if e not in values]
            if waiting:
                stack += reversed(waiting)
                continue
            values[expr] = self._evaluate(expr, values)
            stack.pop()
        return values[root]

    def _evaluate(self, expr: RelayExpr, values: dict[RelayExpr, Value]) -> Value:
        if isinstance(expr, Constant):
            return to_numpy(expr.data)
        if isinstance(expr, Tuple):
            return tuple(values[part] for part in expr.fields)
        if isinstance(expr, TupleGetItem):
            return values[expr.tuple_value][expr.index]
        if isinstance(expr, Let):
            return values[expr.body]
        if isinstance(expr, If):
            return values[_branch(expr, values)]
        if isinstance(expr, Function):
            return self._closure(expr, values)
        if isinstance(expr, GlobalVar):
            if self.mod is None:
                raise ValueError(f"the function @{expr.name_hint} is called outside of a module")
            return self._closure(self.mod[expr], {})
        if isinstance(expr, Call):
            return self._call(expr, values)
        if isinstance(expr, Match):
            return values[_clause(expr, values).rhs]
        if isinstance(expr, Constructor):
            return lambda *fields: ConstructorValue(expr.tag, fields, expr)
        if isinstance(expr, Step):
            made = expr.evaluate(*[values[part] for part in expr.operands()])
            self.tell_extents(expr.checked_type, made)
            return made
        assert isinstance(expr, Var)
        raise ValueError(f"the variable {expr.name_hint} has no value")

    def _call(self, call: Call, values: dict[RelayExpr, Value]) -> Value:
        record = record_of(call)
        args = [values[arg] for arg in call.args]
        if record is None:
            return values[call.op](*args)
        if record.reference is None:
            raise ValueError(f"{record.name} has no reference to run it by")
        given = [list(arg) if isinstance(arg, tuple) else arg for arg in args]
        made = value_of_type(record, self._attributes(call.attrs), call.checked_type, given)
        return tuple(made) if isinstance(made, list | tuple) else made

    def _closure(
        self, func: Function, values: Mapping[RelayExpr, Value]
    ) -> Callable[..., Value]:
        return _Closure(self, func, {e: v for e, v in values.items() if isinstance(e, Var)})


@dataclass(eq=False, slots=True)
class _Closure:
    """A function with the variables that it reads."""

    run: _Run
    function: Function
    known: dict[RelayExpr, Value]

    def __call__(self, *args: Value) -> Value:
        given: dict[RelayExpr, Value] = dict(zip(self.function.params, args, strict=True))
        return self.run.value(self.function.body, {**self.known, **given})


def _needs(expr: RelayExpr, values: dict[RelayExpr, Value]) -> list[RelayExpr]:
    """What must be known before an expression; of a choice only the branch that is taken."""
    if isinstance(expr, If):
        return [expr.cond] if expr.cond not in values else [_branch(expr, values)]
    if isinstance(expr, Match):
        return [expr.data] if expr.data not in values else [_clause(expr, values).rhs]
    if isinstance(expr, Let):
        if expr.value in values:
            made = values[expr.var] = values[expr.value]
            if isinstance(made, _Closure):
                made.known.setdefault(expr.var, made)  # it may call itself
            return [expr.body]
        return [expr.value]
    if isinstance(expr, Function | Var | Constant | GlobalVar | Constructor):
        return []
    if isinstance(expr, Call) and record_of(expr) is None:
        return [expr.op, *expr.args]
    return list(expr.operands())  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class ConstructorValue:
    """A value that a constructor made."""

    tag: int
    fields: tuple[Value, ...]
    constructor: Constructor


def _clause(expr: Match, values: dict[RelayExpr, Value]) -> Clause:
    """The clause that a value looks like; its pattern's variables get their values."""
    for clause in expr.clauses:
        found: dict[RelayExpr, Value] = {}
        if _looks_like(values[expr.data], clause.lhs, found):
            values.update(found)
            return clause
    raise ValueError("no clause of a match holds for its value")


def _looks_like(value: Value, pattern: Pattern, found: dict[RelayExpr, Value]) -> bool:
    if isinstance(pattern, PatternVar):
        found[pattern.var] = value
        return True
    if isinstance(pattern, PatternTuple):
        parts = value
    elif isinstance(pattern, PatternConstructor):
        if value.tag != pattern.constructor.tag:
            return False
        parts = value.fields if pattern.patterns else ()
    else:
        return True
    return all(_looks_like(p, q, found) for p, q in zip(parts, pattern.patterns, strict=True))


def _branch(expr: If, values: dict[RelayExpr, Value]) -> RelayExpr:
    return expr.true_branch if bool(values[expr.cond]) else expr.false_branch
