"""Loops that stay loops: a function that calls itself in tail position, for the virtual machine.

    loop(number, goes_on, states, lists) =
        if (goes_on and number < most) { loop(number + 1, body(...)) }
        else { (number, states, lists) }

What each round gives beside the states is collected in lists, which are stacked at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sterna.frontend.calls import call, constant, dtype_of, is_sequence, reshape, type_of
from sterna.ir.types import ListType, TensorType, TupleType, Type
from sterna.relay.expr import Call, Function, If, Let, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.steps import Append, EmptyList, Stack
from sterna.support.dtype import DataType


@dataclass(frozen=True, slots=True)
class Round:
    """What a round of a loop gives: whether it goes on, the states, and what is collected."""

    goes_on: RelayExpr
    states: list[RelayExpr]
    collected: list[RelayExpr]


@dataclass(frozen=True, slots=True)
class KeptLoop:
    """What a loop gives in the end, and how many rounds it took."""

    count: RelayExpr
    states: list[RelayExpr]
    collected: list[RelayExpr]


def scalar(value: RelayExpr, dtype: str) -> RelayExpr:
    """One number without dimensions, which models also give with one."""
    if dtype_of(value) != dtype:
        raise ValueError(f"it takes one {dtype}, not {type_of(value)!r}")
    return reshape(value, ()) if type_of(value).shape else value


def kept_loop(
    body: Callable[[Var, Var, list[Var]], Round], states: list[RelayExpr], first: RelayExpr,
    most: RelayExpr | None,
) -> KeptLoop | None:
    """A loop over states of fixed types; None if a round gives them other types."""
    number, goes_on = _var("number", "int64"), _var("goes_on", "bool")
    carried = [Var(f"state{place}", type_of(each)) for place, each in enumerate(states)]
    made = body(number, goes_on, carried)
    if any(is_sequence(each) for each in (*made.states, *made.collected)):
        return None
    kinds = [type_of(each) for each in made.states]
    if kinds != [type_of(each) for each in states] or not all(kind.is_symbolic for kind in kinds):
        return None
    elements = [type_of(each) for each in made.collected]
    if not all(kind.is_symbolic for kind in elements):
        return None
    lists = [Var(f"list{i}", ListType(kind)) for i, kind in enumerate(elements)]
    results: tuple[Type, ...] = (
        type_of(number), *kinds, *(ListType(kind) for kind in elements)
    )
    loop = Var("loop")
    again = Call(loop, (
        call("add", number, constant(1, "int64")), made.goes_on, *made.states,
        *(Append(each, value) for each, value in zip(lists, made.collected, strict=True)),
    ))
    holds: RelayExpr = goes_on
    if most is not None:
        holds = call("logical_and", goes_on, call("less", number, most))
    end = Tuple((number, *carried, *lists))
    function = Function(
        (number, goes_on, *carried, *lists), If(holds, again, end), TupleType(results)
    )
    start = Call(loop, (
        constant(0, "int64"), first, *states, *(EmptyList(kind) for kind in elements)
    ))
    whole = Let(loop, function, start)
    parts = [TupleGetItem(whole, place) for place in range(len(results))]
    return KeptLoop(parts[0], list(parts[1 : 1 + len(kinds)]),
                    [Stack(each) for each in parts[1 + len(kinds) :]])


def _var(name: str, dtype: str) -> Var:
    return Var(name, TensorType((), DataType(dtype)))
