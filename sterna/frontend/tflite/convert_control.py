"""Choices and loops, whose branches and rounds are other graphs of the model.

Where a condition is known at import there is one branch, and short loops become rows of rounds.
Else they stay choices and loops of the graph, which the virtual machine runs. What they write to
variables is among their results.
"""

from collections.abc import Mapping, Sequence

from sterna.frontend.calls import is_sequence, type_of
from sterna.frontend.kept_loops import Round, kept_loop, scalar
from sterna.frontend.tflite.node import Node, Part, converter
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, If, RelayExpr, Var
from sterna.support.errors import OpNotImplemented

# Loops of more rounds stay loops.
MOST_ROUNDS = 32


def _known(condition: RelayExpr) -> bool | None:
    """Whether a condition holds, if that is known at import."""
    if isinstance(condition, Constant):
        return bool(to_numpy(condition.data).reshape(-1)[0])
    return None


@converter("IF")
def choice(node: Node) -> list[RelayExpr]:
    condition = scalar(node[0], "bool")
    operands = [node[place] for place in range(1, len(node.inputs))]
    places = {True: int(node.attr("then_subgraph")), False: int(node.attr("else_subgraph"))}
    known = _known(condition)
    if known is not None:
        part = _part(node, places[known], operands, 1)
        for name, value in part.assigned.items():
            node.variables.assign(name, value)
        return part.results
    yes, no = (_part(node, places[way], operands, 1) for way in (True, False))
    for name in {**yes.assigned, **no.assigned}:
        either = yes.assigned.get(name) or no.assigned[name]
        before = _variable(node, name, either)
        node.variables.assign(name, _either(
            condition, yes.assigned.get(name, before), no.assigned.get(name, before)))
    return [_either(condition, a, b) for a, b in zip(yes.results, no.results, strict=True)]


@converter("STABLEHLO_COMPOSITE")
def composite(node: Node) -> list[RelayExpr]:
    """A graph that has a name, under which some runtimes know a kernel."""
    part = _part(node, int(node.attr("decomposition_subgraph")), node.operands(), 0)
    for name, value in part.assigned.items():
        node.variables.assign(name, value)
    return part.results


def _either(condition: RelayExpr, yes: RelayExpr, no: RelayExpr) -> RelayExpr:
    if type_of(yes) != type_of(no):
        raise OpNotImplemented(f"branches that give {type_of(yes)!r} and {type_of(no)!r}")
    return If(condition, yes, no)


def _part(
    node: Node, place: int, operands: Sequence[RelayExpr], first: int,
    holding: Mapping[str, RelayExpr] | None = None,
) -> Part:
    """What another graph gives, one of whose results are the node's."""
    part = node.run_part(place, operands, first, holding or {})
    if len(part.results) != len(node.outputs):
        raise ValueError(
            f"it has {len(node.outputs)} results, and subgraph {place} {len(part.results)}")
    return part


def _variable(node: Node, name: str, like: RelayExpr) -> RelayExpr:
    """What a variable holds before the node; its type is that of what is written."""
    kind = type_of(like)
    return node.variables.read(name, kind.concrete_shape, str(kind.dtype))


@converter("WHILE")
def loop(node: Node) -> list[RelayExpr]:
    states = [node[place] for place in range(len(node.inputs))]
    made = _unrolled(node, states)
    return _kept(node, states) if made is None else made


def _goes_on(
    node: Node, states: Sequence[RelayExpr], holding: Mapping[str, RelayExpr]
) -> RelayExpr:
    part = node.run_part(int(node.attr("cond_subgraph")), states, 0, holding)
    if len(part.results) != 1 or part.assigned:
        raise ValueError("the graph that says whether it goes on gives one bool and nothing else")
    return scalar(part.results[0], "bool")


def _round(
    node: Node, states: Sequence[RelayExpr], holding: Mapping[str, RelayExpr]
) -> Part:
    return _part(node, int(node.attr("body_subgraph")), states, 0, holding)


def _unrolled(node: Node, states: list[RelayExpr]) -> list[RelayExpr] | None:
    """Round after round, if it is known of each whether there is one, and there are few."""
    held: dict[str, RelayExpr] = {}
    for _ in range(MOST_ROUNDS + 1):
        known = _known(_goes_on(node, states, held))
        if known is None:
            return None
        if not known:
            for name, value in held.items():
                node.variables.assign(name, value)
            return states
        part = _round(node, states, held)
        states, held = part.results, {**held, **part.assigned}
    return None


def _kept(node: Node, states: list[RelayExpr]) -> list[RelayExpr]:
    """A loop of the virtual machine over states and the variables that rounds write."""
    count = len(states)
    trial = _round(node, [Var(f"state{i}", type_of(x)) for i, x in enumerate(states)], {})
    names = list(trial.assigned)
    held = [_variable(node, name, trial.assigned[name]) for name in names]

    def body(number: Var, goes_on: Var, carried: list[Var]) -> Round:
        holding = dict(zip(names, carried[count:], strict=True))
        part = _round(node, carried[:count], holding)
        after = {**holding, **part.assigned}
        again = _goes_on(node, part.results, after)
        return Round(again, [*part.results, *(after[name] for name in names)], [])

    if any(is_sequence(state) for state in states):
        raise OpNotImplemented("loops over lists")
    first = _goes_on(node, states, dict(zip(names, held, strict=True)))
    made = kept_loop(body, [*states, *held], first, None)
    if made is None:
        raise OpNotImplemented("loops whose rounds change the type of what they carry")
    for name, value in zip(names, made.states[count:], strict=True):
        node.variables.assign(name, value)
    return made.states[:count]
