"""The layouts of convolutions: which runs best on a processor, and how others pass through."""

from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._conv_shape import contraction_of
from sterna.op.nn._in_line import of_single_pixels, pays_in_line
from sterna.op.nn._whole_vectors import has_few_channels
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.relay.expr import RelayExpr
from sterna.relay.infer import infer
from sterna.relay.layout import from_plain, layout_of
from sterna.relay.layout_rules import Laid, LayoutPlan, Operands
from sterna.relay.op import find
from sterna.relay.passes.combine_parallel import ParallelRule
from sterna.relay.passes.fold_scale_axis import ScaleRule
from sterna.schedule.choose import choose, deciding
from sterna.schedule.chunked_sum import run_of, whole_run
from sterna.schedule.conv_stages import UNROLLED_CHANNELS
from sterna.schedule.dot4 import are_bytes, dot_width
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import tile_of_group


def conv_layout(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """A convolution has the layouts that its attributes name."""
    result = Laid(old.out_layout or old.data_layout, attrs.out_layout or attrs.data_layout)
    data = Laid(old.data_layout, attrs.data_layout)
    return LayoutPlan((data, Laid(old.kernel_layout, attrs.kernel_layout)), (result,), attrs)


def convert_conv(
    attrs: Any, args: tuple[RelayExpr, ...], layouts: tuple[str, ...]
) -> Attrs | None:
    """The layouts that a user wants: of the data, and of the weights or "default"."""
    data = layouts[0] if layouts else "default"
    if data == "default":
        return None
    kernel = layouts[1] if len(layouts) > 1 else "default"
    spatial = "".join(axis for axis in layout_of(data).primal if axis not in "NC")
    if kernel == "default":
        last = layout_of(data).primal.endswith("C")
        per_channel = "OI" if attrs.groups > 1 and last else "IO"
        kernel = f"{spatial}{per_channel}" if last else f"OI{spatial}"
    made: Attrs = attrs.replace(data_layout=data, kernel_layout=kernel, out_layout="")
    return made


def alter_conv2d(
    attrs: Any, args: tuple[RelayExpr, ...], processor: Processor
) -> Attrs | None:
    """Channels last, and weights packed by the register tile that will compute them.

    A few channels stay where they are: a tile reads them one by one, wherever they lie. So does
    everything where few channels are made by vectors of pixels.
    """
    data, weight = args[0].checked_type, args[1]
    assert isinstance(data, TensorType)
    plain = attrs.data_layout in ("NCHW", "NHWC") and not layout_of(attrs.kernel_layout).is_blocked
    kinds = (data, weight.checked_type)
    if not plain or not all(isinstance(k, TensorType) and k.is_static for k in kinds):
        return None
    kernel = layout_of(attrs.kernel_layout).dims(weight.checked_type.shape)  # type: ignore[attr-defined]
    channels = layout_of(attrs.data_layout).dims(data.shape)["C"]
    window: Any = [kernel[axis] for axis in "OHW"]
    if _is_by_pixels(attrs, data, *window):
        return None
    with deciding(str(contraction_of(attrs, data, weight.checked_type))):  # type: ignore[arg-type]
        packed, line = _kernel_layout(attrs, args, kernel, channels, processor)
    few = attrs.groups == 1 and type(channels) is int and channels <= UNROLLED_CHANNELS
    few = few and not layout_of(packed).blocks_of("I")  # groups of channels lie together
    few = few and str(data.dtype) not in processor.matrix_tiles  # which take whole windows
    made: Attrs = attrs.replace(
        data_layout=attrs.data_layout if few else "NHWC", kernel_layout=packed,
        out_layout="NHWC" if few else "", run=_run(attrs, args, kernel, channels, processor),
        in_line=line,
    )
    return made


def _is_by_pixels(attrs: Any, data: TensorType, channels: int, height: int, width: int) -> bool:
    plain = attrs.data_layout == (attrs.out_layout or attrs.data_layout) == "NCHW"
    floats = data.dtype == "float32" and attrs.groups == 1
    return plain and floats and has_few_channels(channels, height * width)


def _run(
    attrs: Any, args: tuple[RelayExpr, ...], kernel: dict[str, Any], channels: Any, p: Processor
) -> int:
    """How many products are summed in float16; all or none where there are several groups."""
    result = find("nn.conv2d").infer(attrs, *[infer(arg) for arg in args])
    kinds = [result, *(arg.checked_type for arg in args)]
    narrow = all(isinstance(kind, TensorType) and kind.dtype == "float16" for kind in kinds)
    if attrs.run or not narrow or not p.fp16_arithmetic:
        return int(attrs.run)
    window = [kernel["H"], kernel["W"]]
    if attrs.groups == 1:
        return run_of([kernel["I"], *window])
    return whole_run([1 if attrs.groups == channels else kernel["I"], *window])


def _kernel_layout(
    attrs: Any, args: tuple[RelayExpr, ...], kernel: dict[str, Any], channels: Any, p: Processor
) -> tuple[str, bool]:
    """The layout of the weights, and whether the image's pixels are computed as one row."""
    if attrs.groups == channels > 1:
        return "HWOI", False
    result = find("nn.conv2d").infer(attrs, *[infer(arg) for arg in args])
    assert isinstance(result, TensorType)
    extents: Any = layout_of(attrs.out_layout or attrs.data_layout).dims(result.shape)
    if attrs.groups > 1 and not result.dtype.is_float:
        return "HWIO", False
    if result.dtype == "int32" and are_bytes(*[arg.checked_type for arg in args]):
        width = dot_width(int(extents["W"]), kernel["O"], kernel["I"], p)
        return ("HWIO" if width is None else f"OHWI{width}o4i"), False
    data: Any = args[0].checked_type
    depth: Any = kernel["I"] if data.dtype == result.dtype else 1
    depth = depth if depth > UNROLLED_CHANNELS or attrs.groups > 1 else 1
    height, width = extents["H"], extents["W"]
    columns = kernel["O"] // attrs.groups
    tile = tile_of_group(p, width, columns, attrs.groups, result.dtype, depth)
    alone = of_single_pixels(attrs, [kernel["H"], kernel["W"]]) and depth > 1 == tile.together
    image = (height, width, max(kernel["O"], channels))
    can = alone and not attrs.run
    pays = can and pays_in_line(image, tile, result.dtype, p)
    line = can and choose("one line of pixels", [False, True], lambda line: line is not pays)
    if line:
        tile = tile_of_group(p, height * width, columns, attrs.groups, result.dtype, depth)
    packed = columns % tile.columns == 0 or attrs.groups > 1
    return (f"OHWI{tile.columns}o", line) if packed else ("HWIO", False)


def _channel(layout: str, axis: str) -> int | None:
    found = layout_of(layout)
    return None if found.is_blocked else found.index_of(axis)


def _for_result(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    """Weights are given per output channel, or per input channel and the channels made of it."""
    outer, inner = _extents(attrs, shape)
    per_weight = factors[:, None] if factors.size == outer else factors.reshape(outer, inner)
    return _over_window(attrs, np.broadcast_to(per_weight, (outer, inner)))


def _for_data(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    """An output channel reads the input channels of its group."""
    outer, inner = _extents(attrs, shape)
    if 1 < attrs.groups == factors.size == outer:
        return _over_window(attrs, np.broadcast_to(factors[:, None], (outer, inner)))
    grouped = factors.reshape(attrs.groups, inner)
    return _over_window(attrs, grouped.repeat(outer // attrs.groups, axis=0))


def _extents(attrs: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    found: Any = layout_of(attrs.kernel_layout).dims(shape)
    return found["O"], found["I"]


def _over_window(attrs: Any, factors: Array) -> Array:
    layout = layout_of(attrs.kernel_layout)
    spatial = "".join(axis for axis in layout.primal if axis not in "OI")
    return from_plain(factors.reshape(*factors.shape, *(1,) * len(spatial)), f"OI{spatial}", layout)


CONV_SCALE = ScaleRule(
    result=lambda attrs: _channel(attrs.out_layout or attrs.data_layout, "C"),
    for_result=_for_result,
    data=lambda attrs: _channel(attrs.data_layout, "C"),
    for_data=_for_data,
)


def _weight_axis(attrs: Any) -> int | None:
    return _channel(attrs.kernel_layout, "O") if attrs.groups == 1 else None


CONV_PARALLEL = ParallelRule(
    result=lambda attrs: _channel(attrs.out_layout or attrs.data_layout, "C"),
    weight=_weight_axis,
    joined=lambda attrs, channels: attrs.replace(channels=channels),
)
