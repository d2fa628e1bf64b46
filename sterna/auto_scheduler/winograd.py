"""Convolutions that a user has written, by Winograd's way: transforms and layouts around it.

Weights are transformed when the function begins, G g G' in two steps; images with channels first
are laid out with channels last before, and their results back behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.op.nn._conv_shape import Conv2DAttrs, contraction_of
from sterna.op.nn.conv import compute_conv
from sterna.relay.layout import layout_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import KERNEL, MOVED
from sterna.schedule.implementation import Candidate, Plan
from sterna.schedule.implementations.winograd import IMPLEMENTATION as WINOGRAD
from sterna.schedule.implementations.winograd import block_of
from sterna.schedule.kernel import Processor
from sterna.schedule.winograd_plan import as_array, matrices
from sterna.te import Operation, Tensor, compute

LAST = "NHWC"


@dataclass(frozen=True)
class Written:
    """A convolution as it was written anew, and the stages that are not computed where read."""

    tensor: Tensor
    kept: frozenset[Operation] = frozenset()


@dataclass(frozen=True)
class WinogradWays:
    """The plans of a convolution with channels last, and how the user's tensors become its."""

    attrs: Conv2DAttrs
    made: Contraction
    """As the user wrote it."""
    seen: Contraction
    """The same with channels last."""
    processor: Processor

    @staticmethod
    def of(
        attrs: Conv2DAttrs, made: Contraction, image: TensorType, processor: Processor
    ) -> "WinogradWays | None":
        """Those of a convolution; None if its data and results are laid out apart."""
        if made.data_layout != made.out_layout:
            return None
        last = attrs.replace(data_layout=LAST, kernel_layout="OHWI", out_layout=LAST)
        extents = dict(zip(made.data_layout, image.concrete_shape, strict=True))
        data = TensorType(tuple(extents[letter] for letter in LAST), made.data)
        weight = TensorType((made.outputs, *made.window, made.depth), made.weight)
        seen = contraction_of(last, data, weight)
        return None if seen is None else WinogradWays(last, made, seen, processor)

    @property
    def moves(self) -> bool:
        """Whether channels are to be laid out last."""
        return self.made.data_layout != LAST

    def candidates(self) -> list[Candidate]:
        """The plans, with what laying out costs."""
        found = WINOGRAD.of_free_weights(self.seen, self.processor)
        if not self.moves:
            return list(found)
        pixels = self.made.batch * self.made.result[0] * self.made.result[1]
        moved = pixels * (self.made.inputs + self.made.outputs) * MOVED / self.processor.threads
        return [Candidate(each.plan, each.cycles + moved + 2 * KERNEL, growth=each.growth)
                for each in found]

    def written(self, plan: Plan, data: Tensor, weight: Tensor, layout: str) -> Written:
        """The convolution by a plan; layout: of the weights."""
        image = data
        if self.moves:
            image = compute(
                [data.shape[place] for place in (0, 2, 3, 1)],
                lambda n, y, x, c: data(n, c, y, x), name=f"{data.name}_last",
            )
        attrs = self.attrs.replace(
            implementation=str(plan), channels=self.made.outputs, kernel_size=self.made.window
        )
        shape = (self.made.batch, *self.made.result, self.made.outputs)
        stages = self._transformed(plan, weight, layout)
        found = compute_conv(attrs, TensorType(shape, self.made.out), image, stages[-1])
        kept = frozenset(tensor.op for tensor in (data, image, *stages, found))
        if not self.moves:
            return Written(found, kept)
        return Written(compute(
            (shape[0], shape[3], shape[1], shape[2]), lambda n, c, y, x: found(n, y, x, c),
            name="conv_first",
        ), kept)

    def _transformed(self, plan: Plan, weight: Tensor, layout: str) -> list[Tensor]:
        """The stages that make weights (position, block, input channel, channel of the block)."""
        made, own = self.seen, layout_of(layout)
        block, window = block_of(made, self.processor), made.window[0]
        g = as_array(matrices(plan.integer("m"), window).window).tolist()
        size, shape = len(g), (made.outputs // block, made.depth, block)

        def tap(r: Expr, s: Expr, b: Expr, i: Expr, o: Expr) -> Any:
            return weight(*own.index({"O": b * block + o, "I": i, "H": r, "W": s}))

        taps = compute((window, window, *shape), tap, name=f"{weight.name}_taps")
        half = compute(
            (size, window, *shape),
            lambda a, s, *at: _row_times(g, a, [taps(r, s, *at) for r in range(window)]),
            name=f"{weight.name}_half",
        )
        packed = compute(
            (size * size, *shape),
            lambda p, *at: _row_times(
                g, p % size, [half(p // size, s, *at) for s in range(window)]),
            name=f"{weight.name}_packed",
        )
        return [taps, half, packed]


def _row_times(matrix: Sequence[Sequence[float]], row: Expr, values: Sequence[Any]) -> Any:
    """A row of a known matrix times a column of values."""
    total = None
    for place, value in enumerate(values):
        factor: Any = build.const(float(matrix[-1][place]), "float32")
        for number in range(len(matrix) - 2, -1, -1):
            own = build.const(float(matrix[number][place]), "float32")
            factor = build.select(row.equal(number), own, factor)
        total = factor * value if total is None else total + factor * value
    return total
