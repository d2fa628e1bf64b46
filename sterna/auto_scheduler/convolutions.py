"""Convolutions that a user has written as tensor expressions, found by how their operands are read.

    conv[n, o, y, x] += image[n, c, y * 2 + p, x * 2 + q] * weight[o, c, p, q]

is one, with any order of its axes. It is written once more as the operator nn.conv2d writes it: its
weights are packed when the function begins, as layers do whose weights only the run knows.
"""

from dataclasses import dataclass
from typing import Any

from sterna.arith.interval import detect_linear
from sterna.auto_scheduler.winograd import WinogradWays, Written
from sterna.ir import build
from sterna.ir.expr import Add, Expr, Mul, Var, variables_in
from sterna.ir.types import TensorType
from sterna.op.nn._conv_shape import Conv2DAttrs, contraction_of
from sterna.op.nn.conv import compute_conv
from sterna.relay.layout import layout_of
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import tiled_cycles
from sterna.schedule.implementation import Candidate, Plan
from sterna.schedule.implementations.direct import packing_of
from sterna.schedule.implementations.im2col import IMPLEMENTATION as IM2COL
from sterna.schedule.implementations.im2col import im2col_cycles, offers_im2col
from sterna.schedule.kernel import Processor
from sterna.schedule.loops import extent_of
from sterna.schedule.sum_of_products import DIRECT
from sterna.te import ComputeOp, Operation, Tensor, compute
from sterna.te.tensor import ProducerLoad, Reduce

LAST, FIRST = "NHWC", "NCHW"


@dataclass(frozen=True)
class Convolution:
    """A sum that is a convolution of images."""

    data: Tensor
    weight: Tensor
    attrs: Conv2DAttrs
    made: Contraction

    def written(self, data: Tensor, weight: Tensor, processor: Processor) -> Written | None:
        """The same as nn.conv2d computes it; None where that has nothing better for its layout."""
        ways = WinogradWays.of(self.attrs, self.made, _type(self.data), processor)
        transformed = [] if ways is None else ways.candidates()
        if ways is not None and transformed:
            with_sums = Candidate(Plan.of(DIRECT), self._cycles(processor), label=DIRECT)
            taken = choose("implementation", [with_sums, *transformed], lambda each: each.cycles)
            if taken is not with_sums:
                return ways.written(taken.plan, data, weight, self.attrs.kernel_layout)
        plan, packed = self._packed(weight, processor)
        if plan is None:
            return None
        attrs = self.attrs.replace(
            implementation=str(plan), channels=self.made.outputs, kernel_size=self.made.window,
            kernel_layout="OHWI",
        )
        extents = {"N": self.made.batch, "C": self.made.outputs,
                   **dict(zip("HW", self.made.result, strict=True))}
        shape = layout_of(self.made.out_layout).shape(extents)
        return Written(compute_conv(attrs, TensorType(shape, self.made.out), data, packed))

    def _cycles(self, processor: Processor) -> float:
        """What it takes without a transform."""
        if self.made.channels_last or not offers_im2col(self.made, processor):
            return tiled_cycles(self.made, processor)
        return im2col_cycles(self.made, processor)

    def _packed(self, weight: Tensor, processor: Processor) -> tuple[Plan | None, Tensor]:
        """How it runs, and its weights as they are wanted there."""
        made, own = self.made, layout_of(self.attrs.kernel_layout)
        if made.data_layout == made.out_layout == LAST:
            how = packing_of(made, processor)
            if not how.weights:
                return None, weight
            layout = layout_of(how.weights)
            extents = dict(zip("OHWI", (made.outputs, *made.window, made.depth), strict=True))
            return how.plan(DIRECT), compute(
                layout.shape(extents), lambda *i: weight(*own.index(layout.coordinates(i))),
                name=f"{weight.name}_packed",
            )
        if made.data_layout != made.out_layout or not offers_im2col(made, processor):
            return None, weight
        plan = IM2COL.plan(made, processor)
        rows, taps, width = plan.integer("rows"), made.taps, made.window[1]
        blocks = -(-made.outputs // rows)

        def product(channel: Expr, step: Expr) -> Any:
            tap = step % taps
            return weight(*own.index({"O": channel, "I": step // taps, "H": tap // width,
                                      "W": tap % width}))

        flat = compute((made.outputs, made.products), product, name=f"{weight.name}_flat")

        def element(_: Expr, block: Expr, step: Expr, row: Expr) -> Expr:
            own_channel = block * rows + row
            read: Expr = flat(own_channel, step)
            if made.outputs % rows == 0:
                return read
            return build.if_then_else(own_channel < made.outputs, read, build.const(0.0))

        shape = (1, blocks, made.products, rows)
        return plan, compute(shape, element, name=f"{weight.name}_packed")


def convolution_of(op: Operation) -> Convolution | None:
    """The convolution that a sum is; None if it is none of images with channels first or last."""
    if not isinstance(op, ComputeOp) or len(op.axis) != 4 or len(op.reduce_axis) != 3:
        return None
    body = op.body[0]
    assert isinstance(body, Reduce)
    product = body.source[0]
    if not isinstance(product, Mul):
        return None
    first, second = product.a, product.b
    if not isinstance(first, ProducerLoad) or not isinstance(second, ProducerLoad):
        return None
    return _reading(op, first, second) or _reading(op, second, first)


def _reading(op: ComputeOp, data: ProducerLoad, weight: ProducerLoad) -> Convolution | None:
    """The convolution that reads its operands so."""
    spatial = dict.fromkeys(axis.var for axis in op.axis)
    letters = _letters(data, frozenset(spatial), frozenset(a.var for a in op.reduce_axis))
    if letters is None:
        return None
    layout, steps, taps, names = letters
    kernel = "".join(
        "O" if index in spatial else names.get(index, "?") if isinstance(index, Var) else "?"
        for index in weight.indices
    ).replace("C", "I")
    own = [index for index in weight.indices if index in spatial]
    if len(own) != 1 or own[0] in names or sorted(kernel) != sorted("OIHW"):
        return None
    out = "".join("C" if var is own[0] else names.get(var, "?") for var in spatial)
    if layout not in (FIRST, LAST) or out not in (FIRST, LAST):
        return None
    attrs = Conv2DAttrs(strides=steps, dilation=taps, data_layout=layout, kernel_layout=kernel,
                        out_layout=out)
    try:
        made = contraction_of(attrs, _type(data.tensor), _type(weight.tensor))
    except ValueError:  # its window is larger than the image, or channels are left out
        return None
    extents = dict(zip(out, map(extent_of, op.axis), strict=True))
    wanted = [made.batch, made.outputs, *made.result] if made is not None else []
    if made is None or [extents[letter] for letter in FIRST] != wanted:
        return None
    summed = dict(zip("CHW", (made.inputs, *made.window), strict=True))
    if any(extent_of(axis) != summed[names[axis.var]] for axis in op.reduce_axis):
        return None
    return Convolution(data.tensor, weight.tensor, attrs, made)


def _type(tensor: Tensor) -> TensorType:
    return TensorType(tuple(build.int_value(e) or 0 for e in tensor.shape), tensor.dtype)


def _letters(
    data: ProducerLoad, spatial: frozenset[Var], summed: frozenset[Var]
) -> tuple[str, tuple[int, int], tuple[int, int], dict[Var, str]] | None:
    """The layout of an image, its strides and dilations, and which axis is which letter."""
    layout, steps, taps = "", list[int](), list[int]()
    names: dict[Var, str] = {}
    for index in data.indices:
        if isinstance(index, Var):
            letter = "C" if index in summed else "N"
            names[index] = letter
        else:
            found = _window(index, spatial, summed)
            if found is None or len(steps) == 2:
                return None
            letter = "HW"[len(steps)]
            place, tap, stride, dilation = found
            names |= {place: letter, tap: letter}
            steps.append(stride)
            taps.append(dilation)
        layout += letter
    if sorted(layout) != sorted(FIRST) or len(names) != 6:
        return None
    return layout, (steps[0], steps[1]), (taps[0], taps[1]), names


def _window(
    index: Expr, spatial: frozenset[Var], summed: frozenset[Var]
) -> tuple[Var, Var, int, int] | None:
    """A place of the result and a tap, and by how much each moves what is read."""
    used = list(variables_in(index))
    places, taps = [v for v in used if v in spatial], [v for v in used if v in summed]
    if not isinstance(index, Add) or len(places) != 1 or len(taps) != 1 or len(used) != 2:
        return None
    linear = detect_linear(index, [places[0], taps[0]])
    if linear is None:
        return None
    stride, dilation, rest = (build.int_value(each) for each in linear)
    if rest != 0 or stride is None or dilation is None or min(stride, dilation) < 1:
        return None
    return places[0], taps[0], stride, dilation
