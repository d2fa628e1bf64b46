"""Functions of loops from tensors, without a schedule of the user's."""

from collections.abc import Sequence

from sterna.ir.expr import Var
from sterna.te.lower import lower_schedule
from sterna.te.schedule import create_schedule
from sterna.te.tensor import Operation, PlaceholderOp, Tensor
from sterna.tir.stmt import PrimFunc


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
    return PrimFunc(made.name, made.params, made.buffers, made.body, attrs)
