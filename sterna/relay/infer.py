"""Types of expressions. Only what has no type yet is looked at, so inference is incremental."""

from collections.abc import Sequence
from typing import Any

from sterna.ir.types import (
    FuncType,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    show_shape,
)
from sterna.relay.adt import Match, bind_pattern
from sterna.relay.expr import (
    Call,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.op import AnyOp, Op, is_packed
from sterna.relay.steps import Step
from sterna.relay.symbols import simplified
from sterna.relay.unify import join, replace_types, unify
from sterna.support.errors import TVMError, register_error


@register_error
class TypeInferenceError(TVMError, ValueError):
    """An expression whose parts do not fit together."""


class UnknownType(TypeInferenceError):
    """A variable without a type, which nothing else says."""


# Steps of the walk: look at an expression, conclude its type, give a Let's variable its type.
_LOOK, _CONCLUDE, _BIND = range(3)


def infer(root: RelayExpr) -> Type:
    """The type of an expression; every type that is found on the way is kept."""
    stack: list[tuple[int, RelayExpr]] = [(_LOOK, root)]
    while stack:
        step, expr = stack.pop()
        if step == _BIND:
            if isinstance(expr, Match):
                _bind_patterns(expr)
                continue
            assert isinstance(expr, Let)
            if expr.var._type is None:
                expr.var._type = expr.value._type
        elif expr._type is not None:
            continue
        elif step == _CONCLUDE:
            expr._type = _conclude(expr)
        else:
            stack.append((_CONCLUDE, expr))
            if isinstance(expr, Let):
                _declare(expr)
                stack += [(_LOOK, expr.body), (_BIND, expr), (_LOOK, expr.value)]
            elif isinstance(expr, Match):
                stack += [(_LOOK, clause.rhs) for clause in reversed(expr.clauses)]
                stack += [(_BIND, expr), (_LOOK, expr.data)]
            elif isinstance(expr, Function):
                stack.append((_LOOK, expr.body))
            else:
                inner = expr.operands()  # type: ignore[attr-defined]
                stack += [(_LOOK, e) for e in reversed(inner) if _open(e)]
    assert root._type is not None
    return root._type


def _declare(let: Let) -> None:
    """A function may call itself by the name that it gets, if it says what it gives."""
    function = let.value
    if let.var._type is not None or not isinstance(function, Function):
        return
    given = [param._type for param in function.params]
    known = tuple([kind for kind in given if kind is not None])
    if function.ret_type is not None and len(known) == len(given):
        let.var._type = FuncType(known, function.ret_type, function.type_params)


def _open(expr: RelayExpr) -> bool:
    """Whether the walk can find the expression's type; a call's operator may know a variable's."""
    return expr._type is None and not isinstance(expr, Var)


def _conclude(expr: RelayExpr) -> Type:
    if isinstance(expr, Call):
        return _type_of_call(expr)
    if isinstance(expr, Tuple):
        return TupleType(tuple(_known(part, expr) for part in expr.fields))
    if isinstance(expr, TupleGetItem):
        return _type_of_item(expr)
    if isinstance(expr, Function):
        result = _known(expr.body, expr)
        if expr.ret_type is not None and not fits(result, expr.ret_type):
            raise TypeInferenceError(
                f"the function is declared to give {expr.ret_type!r} but gives {result!r}"
            )
        taken = tuple(_known(p, expr) for p in expr.params)
        return FuncType(taken, expr.ret_type or result, expr.type_params)
    if isinstance(expr, Let):
        declared, given = expr.var._type, expr.value._type
        if declared is not None and given is not None and not fits(given, declared):
            raise TypeInferenceError(
                f"%{expr.var.name_hint} is declared as {declared!r} but its value is {given!r}"
            )
        return _known(expr.body, expr)
    if isinstance(expr, If):
        return _type_of_if(expr)
    if isinstance(expr, Match):
        return _joined([clause.rhs for clause in expr.clauses], expr, "the clauses of match")
    if isinstance(expr, Step):
        try:
            return expr.conclude(*[_known(part, expr) for part in expr.operands()])
        except UnknownType:
            raise
        except ValueError as error:
            raise TypeInferenceError(str(error)) from None
    return _known(expr, expr)


def _known(expr: RelayExpr, user: RelayExpr) -> Type:
    if expr._type is not None:
        return expr._type
    if isinstance(expr, Var):
        raise UnknownType(
            f"the variable {expr.name_hint} has no type and nothing says which; give it a shape: "
            f'relay.var("{expr.name_hint}", shape=(...))'
        )
    if isinstance(expr, GlobalVar):
        raise UnknownType(f"the function @{expr.name_hint} is not in a module yet")
    raise UnknownType(f"an operator has no type of its own: {expr!r}")


def _type_of_item(expr: TupleGetItem) -> Type:
    kind = _known(expr.tuple_value, expr)
    if not isinstance(kind, TupleType):
        raise TypeInferenceError(f"item {expr.index} of {kind!r}, which is no tuple")
    if not 0 <= expr.index < len(kind.fields):
        raise TypeInferenceError(f"item {expr.index} of a tuple of {len(kind.fields)}: {kind!r}")
    return kind.fields[expr.index]


def _type_of_if(expr: If) -> Type:
    condition = _known(expr.cond, expr)
    if not isinstance(condition, TensorType) or condition.shape or condition.dtype != "bool":
        raise TypeInferenceError(f"the condition of if is a bool scalar, not {condition!r}")
    return _joined([expr.true_branch, expr.false_branch], expr, "the branches of if")


def _joined(values: Sequence[RelayExpr], user: RelayExpr, what: str) -> Type:
    """The type of values one of which is taken."""
    kinds = [_known(value, user) for value in values]
    if not kinds:
        raise TypeInferenceError(f"{what} are none")
    found = kinds[0]
    for kind in kinds[1:]:
        met = found if kind == found else join(found, kind) if _is_loose(kind, found) else None
        if met is None:
            raise TypeInferenceError(f"{what} have types {found!r} and {kind!r}")
        found = met
    return found


def _is_loose(*kinds: Type) -> bool:
    """Whether types may hold what nothing has decided yet: those of data types and functions."""
    return all(not isinstance(kind, TensorType) for kind in kinds)


def _bind_patterns(expr: Match) -> None:
    kind = _known(expr.data, expr)
    try:
        for clause in expr.clauses:
            bind_pattern(clause.lhs, kind)
    except ValueError as error:
        raise TypeInferenceError(str(error)) from None


def _type_of_call(call: Call) -> Type:
    if isinstance(call.op, Op):
        return _type_of_operator_call(call, call.op.record)
    kind = _known(call.op, call)
    if not isinstance(kind, FuncType):
        raise TypeInferenceError(f"a value of type {kind!r} cannot be called")
    given = [_known(arg, call) for arg in call.args]
    if len(given) != len(kind.arg_types):
        raise TypeInferenceError(f"the function takes {len(kind.arg_types)} values: {kind!r}; got "
                                 f"{len(given)}")
    names = [param.name_hint for param in kind.type_params if isinstance(param, TypeVar)]
    bound: dict[str, Type] = dict.fromkeys(names, IncompleteType())
    for place, (have, want) in enumerate(zip(given, kind.arg_types, strict=True)):
        if not unify(have, want, bound):
            raise TypeInferenceError(f"argument {place} of the function is {want!r}, not {have!r}")
    return replace_types(kind.ret_type, bound) if names else kind.ret_type


def _type_of_operator_call(call: Call, record: AnyOp) -> Type:
    kinds: list[Any] = [arg._type for arg in call.args]
    if not record.takes(len(kinds), call.attrs):
        names = ", ".join(record.inputs) or "nothing"
        raise TypeInferenceError(f"{record.name} takes {names}; got {len(kinds)} arguments")
    if None in kinds and record.complete is not None and not is_packed(call.attrs):
        kinds = _completed(call, record, kinds)
    for arg in call.args:
        _known(arg, call)
    try:
        return simplified(record.infer(call.attrs, *kinds))
    except TypeInferenceError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        place = f"\n  at {call.span}" if call.span else ""
        raise TypeInferenceError(f"{error}\n  in {show_call(call)}{place}") from None


def _completed(call: Call, record: AnyOp, kinds: Sequence[Type | None]) -> list[Type | None]:
    """Types of the arguments, with those of untyped variables as the operator wants them."""
    assert record.complete is not None
    found = list(record.complete(call.attrs, *kinds))
    for arg, kind in zip(call.args, found, strict=True):
        if arg._type is None and isinstance(arg, Var):
            arg._type = kind
    return found


def fits(given: Type, wanted: Type) -> bool:
    """Whether a value of one type may be used as another; Any takes every dimension."""
    return unify(given, wanted, {})


def show_call(call: Call) -> str:
    """A call with its operands' types, for messages."""
    record = call.op.record if isinstance(call.op, Op) else None
    names = record.inputs if record is not None else tuple(f"{i}" for i in range(len(call.args)))
    parts = []
    for place, arg in enumerate(call.args):
        name = names[place].lstrip("*") if place < len(names) else f"{place}"
        own = f"%{arg.name_hint}: " if isinstance(arg, Var) else ""
        parts.append(f"{name}={own}{_show_type(arg._type)}")
    if call.attrs is not None:
        parts += [f"{name}={value!r}" for name, value in call.attrs.shown()]
    return f"{call.op}({', '.join(parts)})"


def _show_type(kind: Type | None) -> str:
    if isinstance(kind, TensorType):
        return f"{kind.dtype}{show_shape(kind.shape)}"
    return "?" if kind is None else repr(kind)


RelayExpr.infer = staticmethod(infer)
