"""Control flow: conditions, loops, scans and maps, which stay so for the virtual machine."""

from collections.abc import Callable, Sequence

from sterna.frontend.calls import call, constant, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.graph_importer import UNMADE
from sterna.frontend.kept_loops import Round, kept_loop
from sterna.frontend.torch.checks import assume
from sterna.frontend.torch.convert_shape import shape_of, slice_
from sterna.frontend.torch.extents import found_here
from sterna.frontend.torch.promotion import Operand
from sterna.frontend.torch.table import aten
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, If, RelayExpr, Var
from sterna.relay.steps import Stack
from sterna.support.errors import OpNotImplemented

Function = Callable[..., list[RelayExpr]]

# Scans and maps of at most so many steps are written out, but for those in others: their steps fuse
# with what is around.
SHORT = 8


@aten("ops::higher_order.cond")
def cond(
    pred: Operand, true_fn: Function, false_fn: Function, operands: Sequence[RelayExpr] = ()
) -> list[RelayExpr]:
    """One of two branches; where the condition is known, that one alone."""
    known = _known(pred)
    if known is not None:
        return true_fn(*operands) if known else false_fn(*operands)
    assert isinstance(pred, RelayExpr)
    yes, no = true_fn(*operands), false_fn(*operands)
    if any(each is UNMADE for each in (*yes, *no)):
        return [UNMADE] * len(yes)
    for place, (a, b) in enumerate(zip(yes, no, strict=True)):
        if a.checked_type != b.checked_type:
            raise OpNotImplemented(
                f"branches whose result {place} is {a.checked_type!r} or {b.checked_type!r}"
            )
    flag = reshaped(pred, ()) if rank_of(pred) else pred
    return [If(flag, a, b) for a, b in zip(yes, no, strict=True)]


def _known(pred: Operand) -> bool | None:
    if not isinstance(pred, RelayExpr):
        return bool(pred)
    return bool(to_numpy(pred.data).any()) if isinstance(pred, Constant) else None


@aten("ops::higher_order.with_effects")
def with_effects(
    token: RelayExpr, op: str, operands: Sequence[RelayExpr | str], is_matrix: bool = True
) -> list[RelayExpr]:
    """An operator that must run in its place, which a token tells: a check of factorisations."""
    if op != "aten._linalg_check_errors.default":
        raise OpNotImplemented(f"the effect of {op}")
    info, name = operands
    assert isinstance(info, RelayExpr)
    is_right = call("equal", info, like(0, info))
    axes = tuple(range(rank_of(info)))
    holds = call("all", is_right, axis=axes) if axes else is_right
    assume(holds, f"{name}: a matrix is singular or not positive definite")
    return [token]


@aten("ops::higher_order.while_loop")
def while_loop(
    cond_fn: Function, body_fn: Function, carried: Sequence[RelayExpr],
    additional: Sequence[RelayExpr] = (),
) -> list[RelayExpr]:
    """A loop over tensors whose types stay the same."""

    def goes_on(states: Sequence[RelayExpr]) -> RelayExpr:
        (found,) = cond_fn(*states, *additional)
        return reshaped(found, ()) if rank_of(found) else found

    def body(number: Var, flag: Var, states: list[Var]) -> Round:
        made = body_fn(*states, *additional)
        _expect_made(made)
        return Round(goes_on(made), made, [])

    made = kept_loop(body, list(carried), goes_on(carried), None)
    if made is None:
        raise OpNotImplemented("a loop that changes the types of its tensors")
    return made.states


@aten("ops::higher_order.while_loop_stack_output")
def while_loop_stacked(
    cond_fn: Function, body_fn: Function, carried: Sequence[RelayExpr],
    additional: Sequence[RelayExpr] = (),
) -> list[RelayExpr]:
    """The states behind every round of a loop, stacked; those before it if there is no round.

    So that there is one in any case, the loop has a round that keeps the states as they were.
    """

    def goes_on(states: Sequence[RelayExpr]) -> RelayExpr:
        (found,) = cond_fn(*states, *additional)
        return reshaped(found, ()) if rank_of(found) else found

    def body(number: Var, flag: Var, states: list[Var]) -> Round:
        is_round, *own = states
        made = body_fn(*own, *additional)
        _expect_made(made)
        kept: list[RelayExpr] = [
            If(is_round, new, old) for new, old in zip(made, own, strict=True)
        ]
        more = call("logical_and", is_round, goes_on(kept))
        return Round(more, [is_round, *kept], kept)

    made = kept_loop(body, [goes_on(carried), *carried], constant(True), None)
    if made is None:
        raise OpNotImplemented("a loop that changes the types of its tensors")
    return made.collected


@aten("ops::higher_order.invoke_quant_packed")
def invoke_quant_packed(
    f: Function, operands: Sequence[RelayExpr], scheme: str | None = None,
    quant_options: object = None,
) -> list[RelayExpr]:
    """A part of the graph that is marked for other compilers."""
    return f(*operands)


def _expect_made(results: Sequence[RelayExpr]) -> None:
    if any(each is UNMADE for each in results):
        raise OpNotImplemented("a loop with such operators")


@aten("ops::higher_order.scan")
def scan(
    combine_fn: Function, init: Sequence[RelayExpr], xs: Sequence[RelayExpr],
    additional: Sequence[RelayExpr] = (),
) -> list[RelayExpr]:
    """States carried along the first axis, and what each step gives beside them."""
    length = shape_of(xs[0])[0]
    count = len(init)
    if length > SHORT or found_here().bodies:
        return _kept_scan(combine_fn, init, xs, additional, length)
    states, rows = list(init), []
    for place in range(length):
        parts = [_part(each, place) for each in xs]
        made = combine_fn(*states, *parts, *additional)
        _expect_made(made)
        states, rest = made[:count], made[count:]
        rows.append(rest)
    return [*states, *(call("stack", list(line), axis=0) for line in zip(*rows, strict=True))]


def _part(x: RelayExpr, place: int) -> RelayExpr:
    return reshaped(slice_(x, 0, place, place + 1), shape_of(x)[1:])


def _kept_scan(
    combine_fn: Function, init: Sequence[RelayExpr], xs: Sequence[RelayExpr],
    additional: Sequence[RelayExpr], length: int,
) -> list[RelayExpr]:
    def body(number: Var, flag: Var, states: list[Var]) -> Round:
        parts = [call("take", each, number, axis=0) for each in xs]
        made = combine_fn(*states, *parts, *additional)
        _expect_made(made)
        return Round(flag, made[: len(init)], made[len(init) :])

    made = kept_loop(body, list(init), constant(True), constant(length, "int64"))
    if made is None:
        raise OpNotImplemented("a scan that changes the types of its states")
    stacks = [Stack(each.items, length) for each in made.collected if isinstance(each, Stack)]
    return [*made.states, *stacks]


@aten("ops::higher_order.map_impl")
def map_(
    f: Function, xs: Sequence[RelayExpr], additional: Sequence[RelayExpr] = ()
) -> list[RelayExpr]:
    """A function of every part along the first axis: a scan that carries nothing."""
    return scan(f, (), xs, additional)
