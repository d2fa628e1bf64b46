"""Contractions of bytes whose channels fill no vectors of dot products, with further ones.

    nn.dense(%x, const of 283 units)  ->  strided_slice(nn.dense(%x, const of 284 units))

Instructions add four products of bytes in each lane of a vector. Channels that are left over would
have their bytes widened and multiplied one by one, which takes many times as long.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._padded_channels import with_wider_groups
from sterna.relay.arrays import Array, shared_numpy
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.infer import infer
from sterna.relay.layout import layout_of
from sterna.relay.op import call, find
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import KERNEL, STREAMED
from sterna.schedule.dot4 import INT32, LEAST_LANES, takes_dot4
from sterna.schedule.implementation import cheapest_cycles
from sterna.schedule.kernel import Processor
from sterna.target import processor_of

# Vectors side by side of the widest tile.
WIDEST = 4


def with_whole_dots(
    name: str, attrs: Any, args: tuple[RelayExpr, ...], target: Any
) -> RelayExpr | None:
    """A contraction of bytes with known weights, where dot products and its channels do not fit."""
    data, weight = args
    picks = target is not None and target.kind.picks_instructions
    if not picks or not isinstance(weight, Constant) or attrs.implementation:
        return None
    kinds = [infer(arg) for arg in args]
    described = find(name).contraction.describe
    if not all(isinstance(kind, TensorType) and kind.is_static for kind in kinds):
        return None
    made: Contraction | None = None if described is None else described(attrs, *kinds)
    if made is None or not made.is_of_bytes or made.out != INT32 or made.is_depthwise:
        return None
    axes = _channel_axes(name, attrs, kinds)
    processor, own = processor_of(target), made.outputs // made.groups
    if axes is None or made.macs == 0:
        return None
    more = _further_channels(made, processor)
    if not more:
        return None
    if made.groups > 1:
        return with_wider_groups(attrs, args, own, more)
    outer, last = axes
    weights = shared_numpy(weight.data)
    wide = np.pad(weights, [(0, more if axis == outer else 0) for axis in range(weights.ndim)])
    field = "units" if name == "nn.dense" else "channels"
    wider = call(name, data, const(wide), **{**dict(attrs.items()), field: made.outputs + more})
    return call("strided_slice", wider, begin=(0,), end=(made.outputs,), axes=(last,))


def _channel_axes(name: str, attrs: Any, kinds: Any) -> tuple[int, int] | None:
    """The axes of the output channels of weights and of the result; None if they are blocked."""
    if name == "nn.dense":
        return 0, kinds[0].ndim - 1
    kernel, out = layout_of(attrs.kernel_layout), layout_of(attrs.out_layout or attrs.data_layout)
    if kernel.is_blocked or out.is_blocked:
        return None
    return kernel.index_of("O"), out.index_of("C")


def _further_channels(made: Contraction, processor: Processor) -> int:
    """How many further channels, which are cut off again, each group gets; 0 if none pay.

    Tiles do not cross groups: of 68 channels no tile has more than one vector of four, though dot
    products take them as they are.
    """
    own, lanes = made.outputs // made.groups, processor.lanes(INT32)
    if made.groups == 1:
        widths = [] if takes_dot4(own, made.depth, processor) else [lanes]
    else:
        widths = [LEAST_LANES, *(lanes * vectors for vectors in range(1, WIDEST + 1))]

    def cycles(more: int) -> float:
        seen = replace(made, outputs=made.outputs + more * made.groups)
        weights: Array = np.ones((seen.outputs, *seen.window, seen.depth), "int8")
        copied = 2 * made.pixels * made.outputs * made.out.bytes / STREAMED / processor.threads
        return cheapest_cycles(seen, weights, processor) + (copied + KERNEL if more else 0.0)

    offered = sorted({0, *(-own % width for width in widths)})
    with deciding(str(made)):
        return choose("whole dot products", offered, cycles) if len(offered) > 1 else 0
