"""Visitors and mutators that users derive from.

Methods are visit_call, visit_function, ... as in the classic API, and they may call themselves
through self.visit. Long chains do not nest: before a call, a tuple or an item of one is visited,
what lies below it has been visited already, and the results are remembered.
"""

from typing import Any

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

_METHODS: dict[type, str] = {
    Function: "visit_function", Call: "visit_call", Let: "visit_let", Var: "visit_var",
    GlobalVar: "visit_global_var", If: "visit_if", Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem", Constant: "visit_constant", Op: "visit_op",
}

# What is visited before what is made of it; the others open a scope and are entered by choice.
_DATAFLOW = (Call, Tuple, TupleGetItem)


class ExprFunctor:
    """Gives each expression to the method of its class, once."""

    def __init__(self) -> None:
        self.memo_map: dict[RelayExpr, Any] = {}

    def visit(self, expr: RelayExpr) -> Any:
        """What the method of the expression's class gives."""
        if expr in self.memo_map:
            return self.memo_map[expr]
        stack = [(expr, False)]
        while stack:
            current, ready = stack.pop()
            if current in self.memo_map:
                continue
            if ready or not isinstance(current, _DATAFLOW):
                self.memo_map[current] = self._dispatch(current)
                continue
            stack.append((current, True))
            inner = current.operands()
            stack += [(e, False) for e in reversed(inner) if isinstance(e, _DATAFLOW)]
        return self.memo_map[expr]

    def _dispatch(self, expr: RelayExpr) -> Any:
        method = _METHODS.get(type(expr))
        if method is None:
            raise TypeError(f"{expr!r} is no expression of a graph")
        return getattr(self, method)(expr)


class ExprVisitor(ExprFunctor):
    """Walks through everything; override what is of interest and call super() to go on."""

    def visit_tuple(self, tup: Tuple) -> Any:
        """Visit the fields."""
        for part in tup.fields:
            self.visit(part)

    def visit_call(self, call: Call) -> Any:
        """Visit what is called and the arguments."""
        self.visit(call.op)
        for arg in call.args:
            self.visit(arg)

    def visit_var(self, var: Var) -> Any:
        """Nothing is inside."""

    def visit_let(self, let: Let) -> Any:
        """Visit the values of a chain of lets, then the body."""
        body: RelayExpr = let
        while isinstance(body, Let):
            self.visit(body.var)
            self.visit(body.value)
            body = body.body
        self.visit(body)

    def visit_function(self, fn: Function) -> Any:
        """Visit the parameters and the body."""
        for param in fn.params:
            self.visit(param)
        self.visit(fn.body)

    def visit_if(self, i: If) -> Any:
        """Visit the condition and both branches."""
        self.visit(i.cond)
        self.visit(i.true_branch)
        self.visit(i.false_branch)

    def visit_global_var(self, gv: GlobalVar) -> Any:
        """Nothing is inside."""

    def visit_op(self, op: Op) -> Any:
        """Nothing is inside."""

    def visit_constant(self, const: Constant) -> Any:
        """Nothing is inside."""

    def visit_tuple_getitem(self, t: TupleGetItem) -> Any:
        """Visit the tuple."""
        self.visit(t.tuple_value)


class ExprMutator(ExprFunctor):
    """Rebuilds expressions; what does not change stays the same object."""

    def visit_function(self, fn: Function) -> RelayExpr:
        """The function over its rebuilt body."""
        params = tuple(self.visit(p) for p in fn.params)
        body = self.visit(fn.body)
        if body is fn.body and all(a is b for a, b in zip(params, fn.params, strict=True)):
            return fn
        return _like(fn, Function(params, body, fn.ret_type, fn.type_params, fn.attrs))

    def visit_let(self, let: Let) -> RelayExpr:
        """The chain of lets over its rebuilt values and body."""
        chain: list[tuple[Let, Any, RelayExpr]] = []
        body: RelayExpr = let
        while isinstance(body, Let):
            chain.append((body, self.visit(body.var), self.visit(body.value)))
            body = body.body
        result: RelayExpr = self.visit(body)
        for old, var, value in reversed(chain):
            same = var is old.var and value is old.value and result is old.body
            result = old if same else _like(old, Let(var, value, result))
        return result

    def visit_call(self, call: Call) -> RelayExpr:
        """The call over its rebuilt operator and arguments."""
        op = self.visit(call.op)
        args = tuple(self.visit(arg) for arg in call.args)
        if op is call.op and all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        return _like(call, Call(op, args, call.attrs))

    def visit_var(self, var: Var) -> RelayExpr:
        """The variable itself."""
        return var

    def visit_global_var(self, gv: GlobalVar) -> RelayExpr:
        """The global name itself."""
        return gv

    def visit_op(self, op: Op) -> RelayExpr:
        """The operator itself."""
        return op

    def visit_constant(self, const: Constant) -> RelayExpr:
        """The constant itself."""
        return const

    def visit_if(self, i: If) -> RelayExpr:
        """The choice over its rebuilt parts."""
        parts = (self.visit(i.cond), self.visit(i.true_branch), self.visit(i.false_branch))
        same = all(a is b for a, b in zip(parts, i.operands(), strict=True))
        return i if same else _like(i, If(*parts))

    def visit_tuple(self, tup: Tuple) -> RelayExpr:
        """The tuple over its rebuilt fields."""
        fields = tuple(self.visit(part) for part in tup.fields)
        same = all(a is b for a, b in zip(fields, tup.fields, strict=True))
        return tup if same else _like(tup, Tuple(fields))

    def visit_tuple_getitem(self, t: TupleGetItem) -> RelayExpr:
        """The item of the rebuilt tuple."""
        value = self.visit(t.tuple_value)
        return t if value is t.tuple_value else _like(t, TupleGetItem(value, t.index))


def _like(old: RelayExpr, new: RelayExpr) -> RelayExpr:
    new.span = old.span
    return new
