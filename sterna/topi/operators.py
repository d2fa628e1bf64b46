"""Operators of graphs as tensor expressions: what topi's functions are made of.

A function of topi builds the same call that relay's would, over variables of its tensors' types, so
that arguments are checked and completed in one place; the computations of the calls' records then
make tensors of it.
"""

from collections.abc import Callable
from typing import Any

from sterna.ir import build
from sterna.ir.types import TensorType, TupleType
from sterna.relay.arrays import to_numpy
from sterna.relay.builders import builder
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, TupleWrapper, Var
from sterna.relay.infer import infer
from sterna.relay.op import INJECTIVE, record_of
from sterna.relay.traverse import post_order
from sterna.te import ComputeOp, Tensor, compute
from sterna.topi.tag import BROADCAST, ELEMWISE
from sterna.topi.tag import INJECTIVE as INJECTIVE_TAG

_TAGS = (ELEMWISE, BROADCAST, INJECTIVE_TAG)


def operator(name: str) -> Callable[..., Any]:
    """The function of topi that computes an operator by its name in graphs."""

    def make(*args: Any, **attrs: Any) -> Any:
        return apply_operator(name, *args, **attrs)

    make.__name__ = make.__qualname__ = name.rpartition(".")[2]
    make.__doc__ = f"{name} of tensors; its arguments are those of relay.{name}."
    return make


def apply_operator(name: str, *args: Any, **attrs: Any) -> Any:
    """The tensor that an operator makes of tensors, or a list of those that it makes."""
    tensors: dict[Var, Tensor] = {}
    graph = [_as_graph(arg, tensors) for arg in args]
    named = {key: _as_graph(value, tensors) for key, value in attrs.items()}
    made = builder(name)(*graph, **named)
    root = made.astuple() if isinstance(made, TupleWrapper) else made
    infer(root)
    return tensors_of(root, tensors)


def _as_graph(value: Any, tensors: dict[Var, Tensor]) -> Any:
    """An argument with variables in the place of tensors."""
    if isinstance(value, Tensor):
        extents = [build.int_value(extent) for extent in value.shape]
        shape = [value.shape[i] if n is None else n for i, n in enumerate(extents)]
        var = Var(f"{value.op.name}_{len(tensors)}", TensorType(tuple(shape), value.dtype))
        tensors[var] = value
        return var
    if isinstance(value, list | tuple) and any(isinstance(part, Tensor) for part in value):
        return Tuple(tuple(_as_graph(part, tensors) for part in value))
    return value


def tensors_of(root: RelayExpr, given: dict[Var, Tensor]) -> Any:
    """What the computations of a typed graph's calls make of tensors."""
    values: dict[int, Any] = {id(var): tensor for var, tensor in given.items()}
    for expr in post_order(root):
        if id(expr) not in values:
            values[id(expr)] = _value_of(expr, values)
    return values[id(root)]


def _value_of(expr: RelayExpr, values: dict[int, Any]) -> Any:
    if isinstance(expr, Constant):
        return _constant(expr)
    if isinstance(expr, Tuple):
        return [values[id(part)] for part in expr.fields]
    if isinstance(expr, TupleGetItem):
        return values[id(expr.tuple_value)][expr.index]
    record = record_of(expr)
    if not isinstance(expr, Call) or record is None or record.compute is None:
        raise ValueError(
            f"{expr!r} has no computation of its own; build it as a graph of relay, whose passes "
            "rewrite it"
        )
    made = record.compute(expr.attrs, expr.checked_type, *[values[id(arg)] for arg in expr.args])
    found = list(made) if isinstance(made, list | tuple) else [made]
    for tensor in found:
        if record.pattern <= INJECTIVE and isinstance(tensor.op, ComputeOp) and not tensor.op.tag:
            tensor.op.tag = _TAGS[record.pattern]
    return found if isinstance(expr.checked_type, TupleType) else found[0]


def _constant(expr: Constant) -> Tensor:
    array = to_numpy(expr.data)
    if array.ndim:
        raise ValueError("arrays are placeholders of tensor expressions, not constants")
    number = build.const(array.item(), expr.data.dtype)
    made: Tensor = compute((), lambda: number, name="constant")
    return made


def one_tensor(name: str, *args: Any, **attrs: Any) -> Tensor:
    """The tensor of an operator that makes one."""
    made = apply_operator(name, *args, **attrs)
    assert isinstance(made, Tensor)
    return made
