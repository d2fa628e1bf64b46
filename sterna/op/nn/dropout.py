"""Dropout, which does nothing outside of training."""

from typing import Any

import numpy as np

from sterna.ir.types import TupleType, Type
from sterna.op.checks import of_kind, tensor
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike, Tuple
from sterna.relay.op import ELEMWISE, Case, OpRecord, call, register


@attributes
class DropoutAttrs(Attrs):
    """Of nn.dropout."""

    rate: float = 0.5


def _infer(attrs: DropoutAttrs, data: Type) -> TupleType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    return TupleType((kind, kind))


def _dropout(data: RelayExprLike, rate: float = 0.5) -> Any:
    """The data without what training leaves out; outside of training that is the data itself."""
    return make("nn.dropout", data, rate=rate)[0]


register(OpRecord(
    "nn.dropout",
    inputs=("data",),
    attrs=DropoutAttrs,
    infer=_infer,
    reference=lambda attrs, data: (data, np.ones_like(data)),
    simplify=lambda attrs, args: Tuple((args[0], call("ones_like", args[0]))),
    builder=_dropout,
    num_outputs=2,
    pattern=ELEMWISE,
    cases=[Case(((2, 3),), {"rate": 0.3})],
    doc="The data and a mask of what training would leave out; outside of training nothing is.",
))
