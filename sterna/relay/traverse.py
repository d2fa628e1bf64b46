"""Walking through graphs without recursion: a chain of 50,000 calls is an ordinary graph."""

from collections.abc import Callable

from sterna.relay.adt import Constructor, Match
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
from sterna.relay.steps import Step

Change = Callable[[RelayExpr, RelayExpr], RelayExpr]


def post_order(
    root: RelayExpr, enter: Callable[[RelayExpr], bool] | None = None
) -> list[RelayExpr]:
    """Every expression once, what it is made of first; enter says whether to look inside one."""
    order: list[RelayExpr] = []
    done: set[int] = set()
    opened: set[int] = set()
    stack = [root]
    while stack:
        expr = stack[-1]
        key = id(expr)
        if key in done:
            stack.pop()
        elif key in opened or (enter is not None and not enter(expr)):
            stack.pop()
            done.add(key)
            order.append(expr)
        else:
            opened.add(key)
            inner = expr.operands()  # type: ignore[attr-defined]
            if inner:
                stack.extend([e for e in reversed(inner) if id(e) not in done])
    return order


def rebuild(expr: RelayExpr, memo: dict[int, RelayExpr]) -> RelayExpr:
    """The expression over its parts' replacements; itself if no part is replaced."""
    inner = expr.operands()  # type: ignore[attr-defined]
    for part in inner:
        if memo.get(id(part), part) is not part:
            break
    else:
        return expr
    if isinstance(expr, Step | Match):
        made: RelayExpr = expr.with_operands([memo.get(id(part), part) for part in inner])
    else:
        made = _REBUILD[type(expr)](expr, lambda part: memo.get(id(part), part))
    made.span = expr.span
    return made


_REBUILD: dict[type, Callable[..., RelayExpr]] = {
    Call: lambda e, new: Call(new(e.op), tuple([new(a) for a in e.args]), e.attrs),
    Tuple: lambda e, new: Tuple(tuple([new(f) for f in e.fields])),
    TupleGetItem: lambda e, new: TupleGetItem(new(e.tuple_value), e.index),
    Let: lambda e, new: Let(new(e.var), new(e.value), new(e.body)),
    If: lambda e, new: If(new(e.cond), new(e.true_branch), new(e.false_branch)),
    Function: lambda e, new: Function(
        tuple([new(p) for p in e.params]), new(e.body), e.ret_type, e.type_params, e.attrs
    ),
    Var: lambda e, new: e,
    GlobalVar: lambda e, new: e,
    Constant: lambda e, new: e,
    Constructor: lambda e, new: e,
}


def rewrite(
    root: RelayExpr, change: Change, enter: Callable[[RelayExpr], bool] | None = None
) -> RelayExpr:
    """Rebuild a graph: change(new, old) gives what stands for an expression whose parts are done.

    Expressions that do not change stay the same objects; shared ones stay shared.
    """
    memo: dict[int, RelayExpr] = {}
    for expr in post_order(root, enter):
        entered = enter is None or enter(expr)
        memo[id(expr)] = change(rebuild(expr, memo) if entered else expr, expr)
    return memo[id(root)]


def substitute(root: RelayExpr, values: dict[Var, RelayExpr]) -> RelayExpr:
    """The expression with variables replaced."""

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        return values.get(old, new) if isinstance(old, Var) else new

    return rewrite(root, change)


def not_primitive(expr: RelayExpr) -> bool:
    """Enters everything but kernels that fusion has made."""
    return not (isinstance(expr, Function) and expr.is_primitive)


def inlined(func: Function, args: tuple[RelayExpr, ...]) -> RelayExpr:
    """A function's body for arguments; what it binds inside gets variables of its own."""
    values: dict[int, RelayExpr] = {
        id(param): arg for param, arg in zip(func.params, args, strict=True)
    }
    for expr in post_order(func.body):
        bound = (expr.var,) if isinstance(expr, Let) else ()
        for var in expr.params if isinstance(expr, Function) else bound:
            values[id(var)] = Var(var.name_hint, var._type)

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        return values.get(id(old), new)

    return rewrite(func.body, change)


def bind(expr: RelayExpr, binds: dict[Var, RelayExpr]) -> RelayExpr:
    """The expression with variables replaced; parameters of a function that are replaced go."""
    if not isinstance(expr, Function):
        return substitute(expr, binds)
    kept = tuple([param for param in expr.params if param not in binds])
    body = substitute(expr.body, binds)
    return Function(kept, body, expr.ret_type, expr.type_params, expr.attrs)
