"""Basic block normal form: names for what branches or functions share, where all of them see it.

    %0 = exp(%x); if (%c) { add(%0, %0) } else { %0 }
        -> let %x_0 = exp(%x); if (%c) { add(%x_0, %x_0) } else { %x_0 }

What is read in one block only stays an expression.
"""

from dataclasses import dataclass, field

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Constant, Function, GlobalVar, If, Let, RelayExpr, Var
from sterna.relay.passes.to_graph_normal_form import to_graph_normal_form
from sterna.relay.traverse import not_primitive, post_order, rebuild


def ToBasicBlockNormalForm() -> Pass:
    """Name what several branches or functions share."""
    made: Pass = function_pass(
        lambda func, mod, context: to_basic_block_normal_form(func),
        opt_level=1, name="ToBasicBlockNormalForm", kind=Function,
    )
    return made


@dataclass(eq=False, slots=True)
class _Block:
    """A branch or a function's body, with the names that begin in it."""

    parent: "_Block | None" = None
    depth: int = 0
    lets: list[tuple[Var, RelayExpr]] = field(default_factory=list)

    def inner(self) -> "_Block":
        return _Block(self, self.depth + 1)

    def wrap(self, body: RelayExpr) -> RelayExpr:
        for var, value in reversed(self.lets):
            body = Let(var, value, body)
        return body


def to_basic_block_normal_form(func: Function) -> Function:
    """The function in which no expression is read from two blocks."""
    func.checked_type  # noqa: B018
    graph = to_graph_normal_form(func)
    order = post_order(graph, not_primitive)
    home, inside = _blocks(order)
    if not any(id(expr) in home and home[id(expr)][1] for expr in order):
        return func if graph is func else graph
    memo: dict[int, RelayExpr] = {}
    count = 0
    for expr in order:
        memo[id(expr)] = _made(expr, memo, inside)
        if id(expr) in home and home[id(expr)][1] and not isinstance(expr, _ATOMS):
            var = Var(f"x_{count}", expr.checked_type)
            count += 1
            home[id(expr)][0].lets.append((var, memo[id(expr)]))
            memo[id(expr)] = var
    made = memo[id(graph)]
    assert isinstance(made, Function)
    return made


_ATOMS = (Var, Constant, GlobalVar)


def _made(
    expr: RelayExpr, memo: dict[int, RelayExpr], inside: dict[int, tuple[_Block, ...]]
) -> RelayExpr:
    """The expression over its parts; the bodies of its blocks begin with their names."""
    if not not_primitive(expr):
        return expr
    blocks = inside.get(id(expr))
    if blocks is None:
        return rebuild(expr, memo)
    bodies = expr.operands()[-len(blocks) :]  # type: ignore[attr-defined]
    wrapped = {
        id(body): block.wrap(memo[id(body)]) for body, block in zip(bodies, blocks, strict=True)
    }
    if isinstance(expr, If) and expr.true_branch is expr.false_branch:
        return memo[id(expr.true_branch)]
    return rebuild(expr, {**{id(e): memo[id(e)] for e in expr.operands()}, **wrapped})  # type: ignore[attr-defined]


def _blocks(
    order: list[RelayExpr],
) -> tuple[dict[int, tuple[_Block, bool]], dict[int, tuple[_Block, ...]]]:
    """Where every expression belongs and whether other blocks read it; the blocks inside each."""
    home: dict[int, tuple[_Block, bool]] = {id(order[-1]): (_Block(), False)}
    inside: dict[int, tuple[_Block, ...]] = {}

    def read(part: RelayExpr, block: _Block) -> None:
        known = home.get(id(part))
        if known is None:
            home[id(part)] = (block, False)
        elif known[0] is not block:
            home[id(part)] = (_common(known[0], block), True)

    for expr in reversed(order):
        block = home[id(expr)][0]
        parts = expr.operands() if not_primitive(expr) else ()  # type: ignore[attr-defined]
        if isinstance(expr, If | Function) and parts:
            count = 2 if isinstance(expr, If) else 1
            inside[id(expr)] = tuple(block.inner() for _ in range(count))
            for part, own in zip(parts[-count:], inside[id(expr)], strict=True):
                read(part, own)
            parts = parts[:-count]
        for part in parts:
            read(part, block)
    return home, inside


def _common(a: _Block, b: _Block) -> _Block:
    """The innermost block that has both in it."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a
