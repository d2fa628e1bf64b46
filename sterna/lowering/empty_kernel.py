"""Kernels of tensors without elements.

Where a result has none there is nothing to compute; where only operands have none, what is left of
a kernel are sums and products of nothing, whose loops run in the order of their axes: schedules
that split them by their extents have nothing to go by.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.types import flatten_type, has_no_elements
from sterna.lowering.kernel_scalars import inner_scalars
from sterna.relay.expr import Function
from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import FoundSchedule
from sterna.te import Tensor
from sterna.tir.stmt import Buffer, PrimFunc, nothing


def gives_nothing(func: Function) -> bool:
    """Whether all shapes are known, and none of a function's results has elements."""
    results = flatten_type(func.body.checked_type)
    given = [kind for param in func.params for kind in flatten_type(param.checked_type)]
    return all(map(has_no_elements, results)) and all(
        kind.is_static for kind in (*results, *given)
    )


def function_of_nothing(func: Function, name: str) -> PrimFunc:
    """The kernel of a function whose results have no elements: it takes them, and returns."""
    results = flatten_type(func.body.checked_type)
    named = [(param.name_hint, flatten_type(param.checked_type)[0]) for param in func.params]
    named += [(f"result{place}", kind) for place, kind in enumerate(results)]
    buffers = [
        Buffer(each, kind.dtype, tuple(map(build.const, kind.concrete_shape)))
        for each, kind in named
    ]
    scalars = inner_scalars(func)
    params = (*(buffer.data for buffer in buffers), *scalars)
    return PrimFunc(name, params, (*buffers, *[None] * len(scalars)), nothing())


def meets_nothing(outputs: Sequence[Tensor]) -> bool:
    """Whether a tensor on the way to these has no elements."""
    waiting, seen = list(outputs), set(outputs)
    while waiting:
        tensor = waiting.pop()
        if any(build.is_const(extent, 0) for extent in tensor.shape):
            return True
        fresh = [source for source in tensor.op.input_tensors if source not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def in_order(kernel: Kernel) -> None:
    """Loops in the order of their axes."""


IN_ORDER = FoundSchedule(in_order, "tensors without elements", is_generic=False)
