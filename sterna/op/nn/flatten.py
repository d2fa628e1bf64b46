"""All dimensions but the first in one."""


from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least
from sterna.op.integer_rules import carried
from sterna.op.tensor.reshape import product, regrouped
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register


def _infer(attrs: None, data: Type) -> TensorType:
    kind = at_least(data, "data", 1)
    first, *rest = kind.shape
    unknown = any(isinstance(dim, AnyDim) for dim in rest)
    return TensorType((first, AnyDim() if unknown else product(rest)), kind.dtype)


register(OpRecord(
    "nn.batch_flatten",
    inputs=("data",),
    infer=_infer,
    compute=regrouped("batch_flatten"),
    reference=lambda attrs, data: data.reshape(data.shape[0], int(product(data.shape[1:]))),
    simplify=lambda attrs, args: call(
        "reshape", args[0], newshape=_infer(attrs, args[0].checked_type).shape, allowzero=True)
        if _infer(attrs, args[0].checked_type).is_static else None,
    integer=carried("nn.batch_flatten"),
    pattern=INJECTIVE,
    is_view=True,
    cases=[Case(((2, 3, 4),)), Case(((3,),)), Case((((2, 0, 3), "int8"),))],
    doc="All dimensions but the first in one.",
))
