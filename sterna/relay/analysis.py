"""Questions about graphs."""

from collections.abc import Callable

from sterna.ir.module import IRModule
from sterna.ir.types import FuncType, TensorType, TupleType, Type, flatten_type
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Var,
)
from sterna.relay.op import Op, record_of
from sterna.relay.passes.fuse_ops import FuseOps
from sterna.relay.traverse import not_primitive, post_order
from sterna.support.classic import classic_names


def post_order_visit(expr: RelayExpr, fvisit: Callable[[RelayExpr], object]) -> None:
    """Visit every expression once, what it is made of first."""
    for found in post_order(expr):
        fvisit(found)


def all_vars(expr: RelayExpr) -> list[Var]:
    """Every variable, in the order in which a walk meets them."""
    return [found for found in post_order(expr) if isinstance(found, Var)]


def bound_vars(expr: RelayExpr) -> list[Var]:
    """The variables that functions and lets inside bind."""
    bound: dict[Var, None] = {}
    for found in post_order(expr):
        if isinstance(found, Function):
            bound.update(dict.fromkeys(found.params))
        elif isinstance(found, Let):
            bound.setdefault(found.var)
    return [v for v in all_vars(expr) if v in bound]


def free_vars(expr: RelayExpr) -> list[Var]:
    """The variables that nothing inside binds."""
    bound = set(bound_vars(expr))
    return [v for v in all_vars(expr) if v not in bound]


# ---- whether a graph is what it should be ----


def well_formed(expr: RelayExpr) -> bool:
    """Whether every variable is bound in one place and read only where it is bound."""
    binder: dict[Var, RelayExpr] = {}
    for found in post_order(expr):
        for var in _binds(found):
            if binder.setdefault(var, found) is not found:
                return False
    visible: set[Var] = set()
    seen: set[int] = set()
    opened: list[tuple[RelayExpr, list[int]]] = []  # scopes, and what was seen first in each
    stack: list[tuple[str, RelayExpr]] = [("visit", expr)]
    while stack:
        step, found = stack.pop()
        if step == "open":
            visible.update(_binds(found))
            opened.append((found, []))
        elif step == "close":
            visible.difference_update(_binds(found))
            seen.difference_update(opened.pop()[1])
        elif isinstance(found, Var):
            if found in binder and found not in visible:
                return False
        elif id(found) not in seen:
            seen.add(id(found))
            if opened:
                opened[-1][1].append(id(found))
            stack += reversed(_scoped(found))
    return True


def _binds(expr: RelayExpr) -> tuple[Var, ...]:
    if isinstance(expr, Function):
        return expr.params
    return (expr.var,) if isinstance(expr, Let) else ()


def _scoped(expr: RelayExpr) -> list[tuple[str, RelayExpr]]:
    """The steps through an expression: its parts, those in its scope after it is opened."""
    if isinstance(expr, Let):
        first: list[tuple[str, RelayExpr]] = [("visit", expr.value)]
        return [*first, ("open", expr), ("visit", expr.body), ("close", expr)]
    if isinstance(expr, Function):
        return [("open", expr), ("visit", expr.body), ("close", expr)]
    return [("visit", part) for part in expr.operands()]  # type: ignore[attr-defined]


def check_constant(expr: RelayExpr) -> bool:
    """Whether a value is known: made of constants alone."""
    return not any(isinstance(found, Var | GlobalVar) for found in post_order(expr))


def check_basic_block_normal_form(expr: RelayExpr) -> bool:
    """Whether no expression is shared between branches or functions without a name for it."""
    scope_of: dict[int, int] = {}
    stack: list[tuple[RelayExpr, int]] = [(expr, 0)]
    scopes = 0
    while stack:
        found, scope = stack.pop()
        if isinstance(found, Var | GlobalVar | Constant | Op):
            continue
        if id(found) in scope_of:
            if scope_of[id(found)] != scope:
                return False
            continue
        scope_of[id(found)] = scope
        if isinstance(found, If):
            stack.append((found.cond, scope))
            for branch in (found.true_branch, found.false_branch):
                scopes += 1
                stack.append((branch, scopes))
        elif isinstance(found, Function):
            if not_primitive(found):
                scopes += 1
                stack.append((found.body, scopes))
        else:
            stack += [(part, scope) for part in found.operands()]  # type: ignore[attr-defined]
    return True


# ---- types ----


def all_dtypes(expr: RelayExpr) -> set[str]:
    """The element types of all values."""
    found: set[str] = set()
    for part in post_order(expr):
        found |= {str(kind.dtype) for kind in _tensors(part.checked_type)}
    return found


def _tensors(kind: Type) -> list[TensorType]:
    if isinstance(kind, FuncType):
        return [one for part in (*kind.arg_types, kind.ret_type) for one in _tensors(part)]
    return flatten_type(kind) if isinstance(kind, TensorType | TupleType) else []


# ---- counting ----


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """How often each operator is called."""
    counts: dict[str, int] = {}
    for call in _calls(mod):
        assert isinstance(call.op, Op)
        counts[call.op.name] = counts.get(call.op.name, 0) + 1
    return counts


def get_total_mac_number(expr: RelayExpr) -> int:
    """The multiply-adds of all products: convolutions, dense layers and their like."""
    expr.checked_type  # noqa: B018
    total = 0
    for found in post_order(expr):
        record = record_of(found)
        if record is not None and record.macs is not None:
            assert isinstance(found, Call)
            kinds = [arg.checked_type for arg in found.args]
            total += record.macs(found.attrs, found.checked_type, *kinds)
    return total


def _calls(mod: IRModule) -> list[Call]:
    functions = [f for f in mod.functions.values() if isinstance(f, RelayExpr)]
    return [
        found for function in functions for found in post_order(function)
        if isinstance(found, Call) and record_of(found) is not None
    ]


# ---- parts of graphs ----


def extract_fused_functions(mod: IRModule) -> dict[str, Function]:
    """The kernels that fusion makes, by names made of their operators."""
    fused = FuseOps()(mod)
    found: dict[str, Function] = {}
    for function in fused.functions.values():
        for part in post_order(function) if isinstance(function, RelayExpr) else ():
            if isinstance(part, Function) and part.is_primitive:
                name = _kernel_name(part)
                count = sum(known.rstrip("0123456789").rstrip("_") == name for known in found)
                found[f"{name}_{count}" if count else name] = part
    return found


def _kernel_name(kernel: Function) -> str:
    names = [e.op.name for e in post_order(kernel) if isinstance(e, Call) and isinstance(e.op, Op)]
    return "fused_" + "_".join(name.replace(".", "_") for name in names)


def extract_intermdeiate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module that gives the value of one call of main, counted as post_order_visit does."""
    calls = [e for e in post_order(mod["main"]) if isinstance(e, Call)]
    if not 0 <= expr_id < len(calls):
        raise ValueError(f"main has {len(calls)} calls; there is none with the number {expr_id}")
    return IRModule.from_expr(calls[expr_id])

__getattr__ = classic_names(__name__)
