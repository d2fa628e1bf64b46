"""Programs written line by line: lets and choices."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sterna.ir.types import Type
from sterna.relay.expr import If, Let, RelayExpr, Var, as_expr


class ScopeBuilder:
    """Collects lets, and gives them as one expression.

        sb = relay.ScopeBuilder()
        with sb.if_scope(condition):
            y = sb.let("y", relay.add(x, x))
            sb.ret(y)
        with sb.else_scope():
            sb.ret(x)
        body = sb.get()
    """

    def __init__(self) -> None:
        self._scopes: list[_Scope] = [_Scope()]

    def let(self, var: Var | str | tuple[str, Type], value: Any) -> Var:
        """Name a value; the name is a variable, text, or text and a type."""
        made = var if isinstance(var, Var) else Var(var) if isinstance(var, str) else Var(*var)
        self._scopes[-1].lets.append((made, as_expr(value)))
        return made

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What happens if a condition holds; else_scope must follow."""
        self._expect_open()
        self._scopes.append(_Scope())
        yield
        taken = self._close("if_scope")
        self._scopes[-1].choice = (as_expr(cond), taken)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What happens if the condition of the if_scope before does not hold."""
        outer = self._scopes[-1]
        if outer.choice is None:
            raise ValueError("else_scope follows an if_scope")
        condition, taken = outer.choice
        self._scopes.append(_Scope())
        yield
        other = self._close("else_scope")
        outer.choice = None
        self.ret(If(condition, taken, other))

    def type_of(self, expr: RelayExpr) -> Type:
        """The type of an expression."""
        return expr.checked_type

    def ret(self, value: Any) -> None:
        """The result of the scope."""
        self._expect_open()
        self._scopes[-1].result = as_expr(value)

    def get(self) -> RelayExpr:
        """The whole expression."""
        if len(self._scopes) != 1:
            raise ValueError("a scope is still open")
        return self._scopes[0].expression("the whole")

    def _expect_open(self) -> None:
        if self._scopes[-1].result is not None:
            raise ValueError("the scope has its result already: ret ends it")

    def _close(self, name: str) -> RelayExpr:
        return self._scopes.pop().expression(name)


class _Scope:
    """Lets in order and the result."""

    def __init__(self) -> None:
        self.lets: list[tuple[Var, RelayExpr]] = []
        self.result: RelayExpr | None = None
        self.choice: tuple[RelayExpr, RelayExpr] | None = None

    def expression(self, name: str) -> RelayExpr:
        if self.choice is not None:
            raise ValueError(f"{name} ends after an if_scope; else_scope must follow it")
        if self.result is None:
            raise ValueError(f"{name} has no result; say it by ret")
        made = self.result
        for var, value in reversed(self.lets):
            made = Let(var, value, made)
        return made
