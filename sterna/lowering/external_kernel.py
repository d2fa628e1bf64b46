"""Kernels of external compilers (BYOC): all that is left of them is the call."""

from sterna.ir.types import flatten_type
from sterna.lowering.empty_kernel import in_order
from sterna.relay.expr import Function
from sterna.relay.passes.annotate_target import compiler_of
from sterna.schedule.registry import FoundSchedule
from sterna.te import create_schedule, extern, placeholder
from sterna.te.lower import lower_schedule
from sterna.tir.external import call_packed
from sterna.tir.stmt import PrimFunc

CALLED = FoundSchedule(in_order, "another compiler's code", is_generic=False)


def is_made_elsewhere(func: Function) -> bool:
    """Whether another compiler makes a kernel."""
    return compiler_of(func) is not None


def call_of_other(func: Function, name: str) -> PrimFunc:
    """The kernel: it calls the function of its symbol with operands and results."""
    assert func.attrs is not None
    symbol = str(func.attrs["global_symbol"])
    inputs = []
    for param in func.params:
        (kind,) = flatten_type(param.checked_type)
        inputs.append(placeholder(kind.shape, kind.dtype, param.name_hint))
    kinds = flatten_type(func.body.checked_type)
    made = extern(
        [kind.shape for kind in kinds], inputs,
        lambda ins, outs: call_packed(symbol, *ins, *outs), name=f"{symbol}_call",
        dtype=[str(kind.dtype) for kind in kinds],
    )
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    schedule = create_schedule([outputs[0].op])
    return lower_schedule(schedule, [*inputs, *outputs], name)
