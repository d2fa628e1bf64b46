"""The symbols that kernels are given as scalars, behind their operands."""

from collections.abc import Iterator

from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import flatten_type
from sterna.relay.expr import Call, Function
from sterna.relay.symbols import symbols_in
from sterna.relay.traverse import post_order


def scalars_of(kernel: Function) -> list[Var]:
    """All of them, in the order of the kernel's parameters."""
    return [*inner_scalars(kernel), *_of_operands(kernel)]


def inner_scalars(kernel: Function) -> list[Var]:
    """Those which no operand's shape tells: numbers of operators that are fused into others."""
    told = {*_of_operands(kernel)}
    found: dict[Var, None] = {}
    for part in post_order(kernel.body):
        if isinstance(part, Call):
            found.update(dict.fromkeys(symbols_in(flatten_type(part.checked_type))))
            for number in leaves_of(tuple(value for _, value in part.attrs.items())
                                    if part.attrs is not None else ()):
                if isinstance(number, Expr) and not isinstance(number, AnyDim):
                    found.update(dict.fromkeys(variables_in(number)))
    return [symbol for symbol in found if symbol not in told]


def leaves_of(value: object) -> Iterator[object]:
    """The parts of nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves_of(part)
    else:
        yield value


def _of_operands(kernel: Function) -> list[Var]:
    kinds = [leaf for param in kernel.params for leaf in flatten_type(param.checked_type)]
    return symbols_in([*kinds, *flatten_type(kernel.body.checked_type)])
