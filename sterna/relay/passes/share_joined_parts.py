"""Groups of parts that several concatenations share, joined once.

    %1 = concatenate((%x0, ..., %x39)); %2 = concatenate((%x0, ..., %x39, %x40))
        -> %0 = concatenate((%x0, ..., %x31))
           %1 = concatenate((%0, %x32, ..., %x39)); %2 = concatenate((%0, %x32, ..., %x40))

Layers that each join all results before them (DenseNet) have code that grows with their number so,
and not with its square.
"""

from collections import Counter

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr, Tuple
from sterna.relay.op import is_call_of
from sterna.relay.traverse import not_primitive, post_order, rewrite

# The parts of a group: what a kernel reads at the end of a list, and cannot share, is less.
GROUP = 32

Group = tuple[int, ...]
"""The identities of parts that follow each other."""


def ShareJoinedParts() -> Pass:
    """Join parts once that several concatenations share."""
    made: Pass = function_pass(
        lambda func, mod, context: share_joined_parts(func),
        opt_level=2, name="ShareJoinedParts", kind=Function,
    )
    return made


def share_joined_parts(func: Function) -> Function:
    """The function with groups of parts that occur more than once joined first."""
    uses = Counter(
        group for expr in post_order(func, not_primitive)
        for group, _ in _groups(expr)
    )
    shared: dict[tuple[int, Group], RelayExpr] = {}

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        found = {start: group for group, start in _groups(old) if uses[group] > 1}
        if not found:
            return new
        assert isinstance(new, Call) and new.attrs is not None
        (parts,) = new.args
        assert isinstance(parts, Tuple)
        axis: int = new.attrs.axis  # type: ignore[attr-defined]
        fields: list[RelayExpr] = []
        for start in range(0, len(parts.fields), GROUP):
            own = parts.fields[start : start + GROUP]
            if start not in found:
                fields += own
                continue
            key = axis, found[start]
            if key not in shared:
                shared[key] = Call(new.op, (Tuple(own),), new.attrs)
            fields.append(shared[key])
        return Call(new.op, (Tuple(tuple(fields)),), new.attrs)

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _groups(expr: RelayExpr) -> list[tuple[Group, int]]:
    """The whole groups of a concatenation's parts, and where they begin."""
    if not isinstance(expr, Call) or not is_call_of(expr, "concatenate"):
        return []
    (parts,) = expr.args
    if not isinstance(parts, Tuple) or len(parts.fields) <= GROUP:
        return []
    names = [id(part) for part in parts.fields]
    return [
        (tuple(names[start : start + GROUP]), start)
        for start in range(0, len(names) - GROUP + 1, GROUP)
    ]
