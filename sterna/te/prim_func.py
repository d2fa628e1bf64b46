"""Functions of loops from tensors, without a schedule of the user's."""

from collections import OrderedDict
from collections.abc import Sequence

from sterna.ir.expr import Var
from sterna.te.lower import lower_schedule
from sterna.te.schedule import create_schedule
from sterna.te.tensor import Operation, PlaceholderOp, Tensor
from sterna.tir.stmt import PrimFunc, Stmt


def create_prim_func(
    ops: Tensor | Operation | Sequence[Tensor | Operation | Var],
    index_dtype_override: str | None = None,
) -> PrimFunc:
    """The function main of these arguments in order: inputs, scalars, and the tensors it computes.

    Every stage is computed whole, one after the other.
    """
    if index_dtype_override is not None:
        raise ValueError(
            "index_dtype_override is not supported: give the shapes extents of that type"
        )
    args: list[Tensor | Var] = []
    for item in ops if isinstance(ops, list | tuple) else [ops]:
        if isinstance(item, Operation):
            args += item.outputs
        elif isinstance(item, Tensor | Var):
            args.append(item)
        else:
            raise TypeError(f"create_prim_func takes tensors and variables, not {item!r}")
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    outputs = [t.op for t in tensors if not isinstance(t.op, PlaceholderOp)]
    if not outputs:
        raise ValueError("create_prim_func: none of the tensors is computed")
    made = lower_schedule(create_schedule(list(dict.fromkeys(outputs))), args, "main")
    attrs = {**made.attrs, "arguments": len(args)}
    func = PrimFunc(made.name, made.params, made.buffers, made.body, attrs)
    if len(tensors) == len(args):
        _remember(func, tensors)
    return func


# What bodies of functions were made of, so that they can be scheduled anew; the last ones are kept.
_MADE_OF: OrderedDict[int, tuple[Stmt, list[Tensor]]] = OrderedDict()
_MOST_KEPT = 256


def _remember(func: PrimFunc, tensors: list[Tensor]) -> None:
    _MADE_OF[id(func.body)] = func.body, tensors
    while len(_MADE_OF) > _MOST_KEPT:
        _MADE_OF.popitem(last=False)


def tensors_of(func: PrimFunc) -> list[Tensor] | None:
    """What create_prim_func made this very function of, or one with its body; None elsewhere."""
    made = _MADE_OF.get(id(func.body))
    return None if made is None else made[1]
