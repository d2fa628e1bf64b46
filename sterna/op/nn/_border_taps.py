"""Convolutions by parts whose windows see no border.

    pixels 0..3   of an axis of 28, dilation 24: taps 1, 2
    pixels 4..23                                 tap 1
    pixels 24..27                                taps 0, 1

Along each axis the results fall into runs of pixels that see the same taps of the window; a run of
rows times a run of columns is a convolution of its own, of a part of the image. Or each tap is a
product of its own, of the pixels that it does not see the border for, so that no weight is read
twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Any

import numpy as np

from sterna.op.nn._conv_implementation import with_known_weights
from sterna.relay.arrays import shared_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.layout import layout_of
from sterna.relay.op import call as call_of
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import KERNEL, products_per_cycle
from sterna.schedule.implementation import least_cycles
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32

# Cycles in which an element is copied, out of the image or into the result.
COPIED = 1.0
# Cycles in which an element comes into zeros and out of them, in the second cache and behind it.
ADDED_NEAR, ADDED_FAR = 0.6, 4.0
COMPUTED, SKIPPED, BY_TAPS = "computed", "skipped", "by taps"
# These pay only if they are this much cheaper: they are more kernels.
PAYS = {SKIPPED: 0.8, BY_TAPS: 0.6}


@dataclass(frozen=True, slots=True)
class Run:
    """Results side by side along an axis that see the same taps."""

    first: int
    count: int
    taps: range
    seen: range
    """The places of the data that they see, from the first to the last."""


def runs_of(made: Contraction, axis: int) -> list[Run]:
    """The runs of an axis, from the first result to the last."""
    stride, dilation, before = made.strides[axis], made.dilation[axis], made.before[axis]
    size, window = made.image[axis], made.window[axis]

    def taps(result: int) -> range:
        start = result * stride - before
        inside = [n for n in range(window) if 0 <= start + n * dilation < size]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    found: list[Run] = []
    for own, results in groupby(range(made.result[axis]), taps):
        places = list(results)
        start = places[0] * stride - before + own.start * dilation
        reach = (len(places) - 1) * stride + (len(own) - 1) * dilation + 1
        found.append(Run(places[0], len(places), own, range(start, start + reach)))
    return found


def _seen_by(made: Contraction, axis: int, tap: int) -> Run:
    """The results of an axis for which a tap sees the data."""
    stride, start = made.strides[axis], tap * made.dilation[axis] - made.before[axis]
    first = max(0, -(start // stride))
    end = max(first, min(made.result[axis], -(-(made.image[axis] - start) // stride)))
    begin = first * stride + start
    return Run(first, end - first, range(tap, tap + 1),
               range(begin, begin + max(0, end - first - 1) * stride + (end > first)))


def without_border(call: Call, processor: Processor) -> RelayExpr | None:
    """A convolution as parts of it, where that costs less than products with the border."""
    known = with_known_weights(call)
    made = None if known is None else _padded(call, known[0])
    if known is None or made is None:
        return None
    runs = [runs_of(made, axis) for axis in range(made.rank)]
    if any(not run.taps for each in runs for run in each):
        return None
    taps = [[_seen_by(made, axis, tap) for tap in range(made.window[axis])]
            for axis in range(made.rank)]
    ways = {SKIPPED: list(product(*runs)), BY_TAPS: list(product(*taps))}
    spared = made.macs - sum(_contraction(made, part).macs for part in ways[SKIPPED])
    around = {way: _around(made, way, parts, processor) for way, parts in ways.items()}
    if spared / products_per_cycle(processor) / processor.threads <= min(around.values()):
        return None  # they could not pay
    weights = known[1]

    def cycles(way: str) -> float:
        if way == COMPUTED:
            return least_cycles(made, weights, processor)
        each = (
            least_cycles(_contraction(made, part), weights[(slice(None), *_taps(part))], processor)
            for part in ways[way]
        )
        return (around[way] + sum(each)) / PAYS[way]

    with deciding(str(made)):
        way = choose("border", [COMPUTED, *ways], cycles)
    if way == COMPUTED:
        return None
    return _by_parts(call, runs) if way == SKIPPED else _by_taps(call, made, ways[way])


def _padded(call: Call, made: Contraction) -> Contraction | None:
    """The contraction of float32 that has a border, with channels last; None if it is none."""
    attrs: Any = call.attrs
    layouts = [layout_of(name) for name in (attrs.data_layout, attrs.kernel_layout)]
    if attrs.out_layout not in ("", attrs.data_layout) or any(one.is_blocked for one in layouts):
        return None
    if {*made.dtypes} != {FLOAT32} or made.border or not made.is_padded:
        return None
    if made.depth == 1 or made.macs == 0:
        return None
    return replace(made, data_layout="NHWC", out_layout="NHWC")


def _around(
    made: Contraction, way: str, parts: Sequence[Sequence[Run]], processor: Processor
) -> float:
    """Cycles for cutting the image and joining rows, then images, or adding what taps make."""
    seen = sum(math.prod(_contraction(made, part).image) for part in parts) * made.inputs
    results = math.prod(made.result) * made.outputs
    joined = 2.0 * results
    if way == BY_TAPS:  # each with zeros around it
        fits = len(parts) * made.batch * results * made.out.bytes <= processor.l2_bytes
        joined = len(parts) * results * (ADDED_NEAR if fits else ADDED_FAR)
    return COPIED * made.batch * (seen + joined) / processor.threads + 2 * len(parts) * KERNEL


def _contraction(made: Contraction, part: Sequence[Run]) -> Contraction:
    zero = (0,) * made.rank
    return replace(
        made, image=tuple(len(run.seen) for run in part),
        result=tuple(run.count for run in part), window=tuple(len(run.taps) for run in part),
        before=zero, after=zero,
    )


def _taps(part: Sequence[Run]) -> tuple[slice, ...]:
    return tuple(slice(run.taps.start, run.taps.stop) for run in part)


def _by_parts(call: Call, runs: Sequence[Sequence[Run]]) -> RelayExpr:
    """The parts, joined to rows and these to images."""
    attrs: Any = call.attrs
    layout = layout_of(attrs.data_layout)
    down, across = layout.index_of("H"), layout.index_of("W")
    rows = []
    for above in runs[0]:
        parts = [_part(call, (above, beside)) for beside in runs[1]]
        rows.append(_joined(parts, across))
    return _joined(rows, down)


def _by_taps(call: Call, made: Contraction, taps: Sequence[Sequence[Run]]) -> RelayExpr:
    """The sum of what each tap adds to the results that it sees the data for.

    The last adds to most: what the others make together is added where its products end.
    """
    attrs: Any = call.attrs
    layout = layout_of(attrs.data_layout)
    total: RelayExpr | None = None
    for part in sorted(taps, key=lambda part: math.prod(run.count for run in part)):
        if not all(run.count for run in part):
            continue
        width = [(0, 0)] * len(layout)
        for axis, run, results in zip("HW", part, made.result, strict=True):
            width[layout.index_of(axis)] = (run.first, results - run.first - run.count)
        own = _part(call, part)
        if any(map(any, width)):
            own = call_of("nn.pad", own, const(np.zeros((), "float32")), pad_width=tuple(width))
        total = own if total is None else call_of("add", own, total)
    assert total is not None, "some results see some data"
    return total


def _joined(parts: list[RelayExpr], axis: int) -> RelayExpr:
    return parts[0] if len(parts) == 1 else call_of("concatenate", Tuple(tuple(parts)), axis=axis)


def _part(call: Call, part: Sequence[Run]) -> RelayExpr:
    attrs: Any = call.attrs
    data, kernel = (layout_of(name) for name in (attrs.data_layout, attrs.kernel_layout))
    weight = call.args[1]
    assert isinstance(weight, Constant)
    index: list[slice] = [slice(None)] * len(kernel)
    for axis, taps in zip("HW", _taps(part), strict=True):
        index[kernel.index_of(axis)] = taps
    seen = call_of(
        "strided_slice", call.args[0], axes=tuple(data.index_of(axis) for axis in "HW"),
        begin=tuple(run.seen.start for run in part), end=tuple(run.seen.stop for run in part),
    )
    own = {**dict(attrs.items()), "padding": (0, 0)}
    own["kernel_size"] = tuple(len(run.taps) for run in part)
    own_taps = np.ascontiguousarray(shared_numpy(weight.data)[tuple(index)])
    return call_of("nn.conv2d", seen, const(own_taps), **own)
