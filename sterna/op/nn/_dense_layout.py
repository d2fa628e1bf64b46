"""The layout of a dense layer's weights: packed by the register tile that will compute them."""

import math
from collections.abc import Sequence
from typing import Any

from sterna.ir.types import Dim, TensorType, as_dim
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.layout import Layout, expect_axes, layout_of, to_plain
from sterna.relay.layout_rules import Laid, LayoutPlan, Operands
from sterna.schedule.choose import deciding
from sterna.schedule.chunked_sum import run_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import are_bytes, dot_width
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import tile_of_rows
from sterna.support.dtype import DataType

PLAIN = "NC"
# Vectors side by side of the widest tile.
WIDEST = 4


def weight_layout(attrs: Any) -> Layout | None:
    """The layout that attributes name; None for the plain one."""
    name = getattr(attrs, "weight_layout", PLAIN)
    return None if name == PLAIN else expect_axes(layout_of(name), PLAIN, "weight_layout")


def plain_shape(attrs: Any, shape: Sequence[Dim]) -> Sequence[Dim]:
    """Units and depth of weights in any layout."""
    layout = weight_layout(attrs)
    if layout is None:
        return shape
    extents = layout.dims(shape)
    return (extents["N"], extents["C"])


def plain_weight(attrs: Any, weight: Array) -> Array:
    """Weights in the plain layout."""
    layout = weight_layout(attrs)
    return weight if layout is None else to_plain(weight, layout, PLAIN)


def dense_layout(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """Only the weights have a layout of their own."""
    if attrs is old:
        return None
    return LayoutPlan((None, Laid(old.weight_layout, attrs.weight_layout)), (None,), attrs)


def _columns_that_fit(rows: int, units: int, depth: int, lanes: int, cache: int) -> int:
    """How many units a tile may be wide: with those behind it, which are fetched meanwhile.

    Both stay in the second cache, of so many elements, beside the data; data that is larger than
    half of it comes in blocks, and nothing is fetched ahead of time for a single row.
    """
    most = (cache - rows * depth) // max(1, 2 * depth)
    if rows == 1 or 2 * rows * depth > cache or most >= WIDEST * lanes:
        return units
    fitting = [n * lanes for n in range(2, WIDEST) if units % (n * lanes) == 0]
    return max([n for n in fitting if n <= most], default=min(fitting, default=units))


def dense_contraction(attrs: Any, data: Any, weight: Any) -> Contraction | None:
    """The contraction of rows of known extents: pixels of one line."""
    *outer, depth = map(as_dim, data.shape)
    units = attrs.units if attrs.implementation else plain_shape(attrs, weight.shape)[0]
    if not all(type(extent) is int for extent in (*outer, depth, units)):
        return None
    rows = math.prod(outer)
    kind = DataType(str(data.dtype))
    return Contraction(
        batch=1, image=(1, rows), inputs=depth, result=(1, rows), outputs=units,  # type: ignore[arg-type]
        data=kind, weight=DataType(str(weight.dtype)), out=DataType(attrs.out_dtype or kind),
    )


def alter_dense(attrs: Any, args: tuple[RelayExpr, ...], processor: Processor) -> Attrs | None:
    """Weights packed so that a vector of units lies together for every step of the sum."""
    data, weight = args[0].checked_type, args[1]
    assert isinstance(data, TensorType)
    if attrs.weight_layout != PLAIN or not isinstance(weight, Constant) or not data.is_static:
        return None
    with deciding(str(dense_contraction(attrs, data, weight.checked_type))):
        return _packed(attrs, args, data, weight, processor)


def _packed(
    attrs: Any, args: tuple[RelayExpr, ...], data: TensorType, weight: Constant,
    processor: Processor,
) -> Attrs | None:
    units = weight.data.shape[0]
    rows = math.prod(data.concrete_shape[:-1])
    if attrs.out_dtype == "int32" and are_bytes(*[arg.checked_type for arg in args]):
        wide = dot_width(rows, units, weight.data.shape[1], processor)
        packed: Attrs = attrs.replace(weight_layout=f"NC{wide}n4c")
        return None if wide is None or len(data.shape) < 2 else packed
    lanes = processor.lanes(data.dtype)
    depth = weight.data.shape[1]
    most = _columns_that_fit(rows, units, depth, lanes, processor.l2_bytes // data.dtype.bytes)
    width = tile_of_rows(
        processor, rows, most, data.dtype, depth, throughput=processor.smt_throughput
    ).columns
    while units % width:
        width //= 2
    if width < min(lanes, 4):
        return None
    half = data.dtype == weight.data.dtype == "float16" and attrs.out_dtype in ("", "float16")
    run = run_of([weight.data.shape[1]]) if half and processor.fp16_arithmetic else 0
    made: Attrs = attrs.replace(weight_layout=f"NC{width}n", run=attrs.run or run)
    return made
