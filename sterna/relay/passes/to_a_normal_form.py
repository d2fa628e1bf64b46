"""A-normal form: every value named by a let, in order of execution.

    multiply(add(%x, %x), %x)   ->   let %x_0 = add(%x, %x); let %x_1 = multiply(%x_0, %x); %x_1
"""

from sterna.ir.transform import Pass, function_pass
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
from sterna.relay.op import Op
from sterna.relay.traverse import not_primitive, rebuild

_ATOMS = (Var, Constant, GlobalVar, Op)


def ToANormalForm() -> Pass:
    """Name every value by a let."""
    made: Pass = function_pass(
        lambda func, mod, context: to_a_normal_form(func),
        opt_level=1, name="ToANormalForm", kind=Function,
    )
    return made


def to_a_normal_form(func: Function) -> Function:
    """The function whose body is a chain of lets."""
    return _Namer().function(func, {})


class _Namer:
    def __init__(self) -> None:
        self.count = 0

    def function(self, func: Function, outer: dict[int, RelayExpr]) -> Function:
        if func.is_primitive:
            return func
        body = self.scope(func.body, dict(outer))
        return Function(func.params, body, func.ret_type, func.type_params, func.attrs)

    def scope(self, root: RelayExpr, atoms: dict[int, RelayExpr]) -> RelayExpr:
        """The chain of lets that computes an expression; atoms are what has a name already."""
        chain: list[tuple[Var, RelayExpr]] = []
        stack: list[RelayExpr] = [root]
        while stack:
            expr = stack[-1]
            if id(expr) in atoms or isinstance(expr, _ATOMS):
                atoms.setdefault(id(expr), expr)
                stack.pop()
                continue
            waiting = [e for e in _evaluated(expr) if id(e) not in atoms]
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            if isinstance(expr, Let):
                self._enter_let(expr, atoms, chain, stack)
                continue
            value = self._value(expr, atoms)
            var = Var(f"x_{self.count}", value._type)
            self.count += 1
            chain.append((var, value))
            atoms[id(expr)] = var
        result = atoms[id(root)]
        for var, value in reversed(chain):
            result = Let(var, value, result)
        return result

    def _enter_let(
        self,
        let: Let,
        atoms: dict[int, RelayExpr],
        chain: list[tuple[Var, RelayExpr]],
        stack: list[RelayExpr],
    ) -> None:
        """A let of the user's: its value has a name, and the body follows."""
        atoms[id(let.var)] = atoms[id(let.value)]
        if id(let.body) in atoms or isinstance(let.body, _ATOMS):
            atoms[id(let)] = atoms.get(id(let.body), let.body)
        else:
            stack += [let, let.body]

    def _value(self, expr: RelayExpr, atoms: dict[int, RelayExpr]) -> RelayExpr:
        if isinstance(expr, Function):
            return self.function(expr, atoms)
        if isinstance(expr, If):
            first = self.scope(expr.true_branch, dict(atoms))
            second = self.scope(expr.false_branch, dict(atoms))
            return If(atoms[id(expr.cond)], first, second)
        return rebuild(expr, atoms)


def _evaluated(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    """What must have a name before an expression is computed."""
    if isinstance(expr, If):
        return (expr.cond,)
    if isinstance(expr, Let):
        return (expr.value,)
    if isinstance(expr, Function):
        return ()
    if isinstance(expr, Call):
        if isinstance(expr.op, Function) and not not_primitive(expr.op):
            return expr.args
        return expr.operands()
    assert isinstance(expr, Tuple | TupleGetItem)
    return expr.operands()
