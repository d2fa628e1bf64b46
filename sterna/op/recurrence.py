"""Recurrent networks of any kind of cell.

data is (time, batch, features), or (batch, time, features) with layout 1. The weights of a
direction stand in one matrix, gate under gate. bias holds those of the input's weights and then
those of the recurrence's. What the input adds to the gates is one product for all steps; only the
recurrence goes step by step. Sequences are independent of each other and run in parallel.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type, show_shape
from sterna.op.checks import expect_dim, map_dims, of_kind, same_dtype, tensor, tensors
from sterna.op.gates import ACTIVATIONS, Gate, gates_of
from sterna.op.recurrent_kernels import write_blocks
from sterna.op.recurrent_shares import Share
from sterna.op.recurrent_steps import (
    ONE_SEQUENCE,
    SEQUENCES,
    STATES,
    Step,
    Tile,
    by_layout,
    units_of_block,
    write_steps,
)
from sterna.op.statements import statements
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.schedule.default import schedule_elements
from sterna.schedule.kernel import Kernel
from sterna.schedule.loops import PARALLEL_ELEMENTS, extents_of
from sterna.schedule.products import wide, widened
from sterna.schedule.sum_of_products import CHANNEL, describe_sum
from sterna.te import ComputeOp, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum
from sterna.tir import if_then_else
from sterna.tir.ir_builder import BufferVar, IRBuilder

OPTIONAL = ("bias", "sequence_lens", "initial_h", "initial_c", "peepholes")


class RecurrentAttrs(Attrs):
    """What the networks share."""

    __slots__ = ()

    direction: str
    activations: tuple[str, ...]
    activation_alpha: tuple[float, ...]
    activation_beta: tuple[float, ...]
    clip: float | None
    layout: int
    given: tuple[str, ...]
    """Which of the optional operands there are, in their order."""

    @property
    def directions(self) -> list[bool]:
        """Whether each direction runs backwards."""
        both = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        return both[self.direction]

    def normalize(self) -> None:
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise ValueError(
                f"direction is forward, reverse or bidirectional, not {self.direction!r}"
            )
        if self.layout not in (0, 1):
            raise ValueError(f"layout is 0 (time first) or 1 (batch first), not {self.layout}")
        for name in self.activations:
            if name.lower() not in ACTIVATIONS:
                raise ValueError(f"activations are {', '.join(sorted(ACTIVATIONS))}, not {name}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is above 0, or None for none, not {self.clip}")


@dataclass(frozen=True, slots=True)
class Network:
    """What differs from one kind of network to the next."""

    name: str
    gates: int
    states: int
    activations: tuple[str, ...]
    step: Step
    """step(steps, now): writes the statements that make the next state."""
    array_step: Callable[..., Any]
    """array_step(attrs, gate functions, x, h, c, parts): the next state in NumPy."""
    late: Callable[[Any], int]
    """late(attrs): of how many of the last gates the step itself adds the recurrence's bias."""
    rounds: Callable[[Any], int] = lambda attrs: 1
    """rounds(attrs): how often a step multiplies what all units have made before."""

    def functions(self, attrs: RecurrentAttrs) -> list[list[Gate]]:
        """The gates' functions of each direction."""
        count = len(attrs.directions)
        names = attrs.activations or self.activations * count
        if len(names) != len(self.activations) * count:
            raise ValueError(
                f"activations are {len(self.activations)} for each direction, not {len(names)}"
            )
        made = gates_of(names, attrs.activation_alpha, attrs.activation_beta, attrs.clip)
        size = len(self.activations)
        return [made[size * i : size * (i + 1)] for i in range(count)]

    # ---- types ----

    def infer(self, attrs: RecurrentAttrs, data: Type, weights: Type) -> TupleType:
        """Sequences of the states, and the last states."""
        x = of_kind(tensor(data, "data", 3), "data", "float")
        parts = tensors(weights, "weights")
        if len(parts) != 2 + len(attrs.given):
            raise ValueError(
                f"weights are weight, recurrence{''.join(f', {n}' for n in attrs.given)}, "
                f"not {len(parts)} tensors"
            )
        self.functions(attrs)
        count = len(attrs.directions)
        time, batch = by_layout(attrs, (x.shape[0], x.shape[1]))
        recurrence = tensor(parts[1], "recurrence", 3)
        size = recurrence.shape[2]
        rows = map_dims(lambda n: n * self.gates, size)
        state = by_layout(attrs, (count, batch))
        wanted: dict[str, tuple[Dim, ...]] = {
            "weight": (count, rows, x.shape[2]),
            "recurrence": (count, rows, size),
            "bias": (count, map_dims(lambda n: n * 2, rows)),
            "sequence_lens": (batch,),
            "initial_h": (*state, size),
            "initial_c": (*state, size),
            "peepholes": (count, map_dims(lambda n: n * 3, size)),
        }
        for name, kind in zip(("weight", "recurrence", *attrs.given), parts, strict=True):
            found = tensor(kind, name, len(wanted[name]))
            if name == "sequence_lens":
                of_kind(found, name, "int", "uint")
            else:
                same_dtype([x, found], ["data", name])
            for have, want in zip(found.shape, wanted[name], strict=True):
                shape = show_shape(wanted[name])
                expect_dim(have, want, f"an extent of {name}, which has shape {shape},")
        all_steps = (time, count, batch) if attrs.layout == 0 else (batch, time, count)
        last = TensorType((*state, size), x.dtype)
        return TupleType((TensorType((*all_steps, size), x.dtype), *[last] * self.states))

    # ---- computation ----

    def compute(
        self, attrs: RecurrentAttrs, out: TupleType, data: Tensor, weights: list[Tensor]
    ) -> list[Tensor]:
        """The product with the input for all steps, and the steps as statements."""
        kind = wide(data.dtype)
        weight, recurrence, *others = weights
        given = dict(zip(attrs.given, others, strict=True))
        count, _, size = recurrence.shape
        units = units_of_block(self.gates, build.int_value(size) or 1)
        blocks = (size + units - 1) // units

        def packed(part: Tensor, name: str) -> Tensor:
            """By direction, block, what else there is, gate, unit."""
            shape: tuple[Any, ...] = (count, blocks, *part.shape[2:], part.shape[1] // size, units)

            def element(d: Expr, block: Expr, *place: Expr) -> Expr:
                *rest, gate, unit = place
                j = block * units + unit
                value = part(d, gate * size + j, *rest).astype(kind)
                return if_then_else(j < size, value, build.const(0, kind))

            made: Tensor = compute(shape, element, name=f"T_{self.name}_{name}")
            return made

        feature = reduce_axis((0, data.shape[2]), "k")
        turned = packed(weight, "weight")
        projected: Tensor = compute(
            (*data.shape[:2], count, blocks, self.gates, units),
            lambda a, b, d, n, g, u: te_sum(
                data(a, b, feature).astype(kind) * turned(d, n, feature, g, u), axis=[feature]
            ),
            name=f"T_{self.name}_input",
        )
        describe_sum(projected, [CHANNEL])
        operands = {"columns": packed(recurrence, "columns")}
        if "bias" in given:
            both = packed(given.pop("bias"), "bias")  # first those of the input, gate by gate
            early = self.gates - self.late(attrs)
            sums: Tensor = compute(
                (count, blocks, self.gates, units),
                lambda d, n, g, u: both(d, n, g, u)
                + if_then_else(g < early, both(d, n, g + self.gates, u), build.const(0, kind)),
                name=f"T_{self.name}_biases",
            )
            without = projected
            projected = compute(
                without.shape,
                lambda a, b, d, n, g, u: without(a, b, d, n, g, u) + sums(d, n, g, u),
                name=f"T_{self.name}_sum",
            )
            if self.late(attrs):
                operands["late_bias"] = compute(
                    (count, blocks, self.late(attrs), units),
                    lambda d, n, g, u: both(d, n, g + self.gates + early, u),
                    name=f"T_{self.name}_late",
                )
        if "peepholes" in given:
            given["peepholes"] = packed(given["peepholes"], "peepholes")
        return self.steps(attrs, out, {"projected": projected, **operands, **given})

    def steps(
        self, attrs: RecurrentAttrs, out: TupleType, operands: dict[str, Tensor],
        tile: Tile = ONE_SEQUENCE, share: str = SEQUENCES,
    ) -> list[Tensor]:
        """The steps of what is packed; share: what threads share, SEQUENCES or UNITS."""

        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            buffers = dict(zip(operands, ins, strict=True))
            write_steps(self.step, attrs, ib, buffers, outs, self.functions(attrs), tile, share)

        return statements(out, list(operands.values()), fill, f"T_{self.name}")

    def block_steps(
        self, attrs: RecurrentAttrs, out: TupleType, operands: dict[str, Tensor], share: Share
    ) -> list[Tensor]:
        """The steps of what is packed for a GPU."""

        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            buffers = dict(zip(operands, ins, strict=True))
            write_blocks(self.step, attrs, ib, buffers, outs, self.functions(attrs), share)

        return statements(out, list(operands.values()), fill, f"T_{self.name}")

    # ---- reference ----

    def reference(
        self, attrs: RecurrentAttrs, data: Array, weights: Sequence[Array]
    ) -> list[Array]:
        """One sequence after the other, one step after the other."""
        x = widened(data, str(data.dtype))
        x = np.swapaxes(x, 0, 1) if attrs.layout else x
        time, batch, _ = x.shape
        weight, recurrence, *others = weights
        given = dict(zip(attrs.given, others, strict=True))
        parts = {
            name: part if name == "sequence_lens" else widened(part, str(data.dtype))
            for name, part in {"weight": weight, "recurrence": recurrence, **given}.items()
        }
        count, _, size = recurrence.shape
        lengths = np.clip(parts.get("sequence_lens", np.full(batch, time)), 0, time)
        made = np.zeros((time, count, batch, size), x.dtype)
        last = np.zeros((self.states, count, batch, size), x.dtype)
        for d, backwards in enumerate(attrs.directions):
            functions = self.functions(attrs)[d]
            own = {n: p[d] for n, p in parts.items() if n not in _PER_SEQUENCE}
            for b in range(batch):
                states = [_initial(attrs, parts, n, d, b, size, x.dtype) for n in STATES]
                order = range(int(lengths[b]))
                for t in reversed(order) if backwards else order:
                    states = self.array_step(attrs, functions, x[t, b], *states, own)
                    made[t, d, b] = states[0]
                for place in range(self.states):
                    last[place, d, b] = states[place]
        if attrs.layout:
            made, last = made.transpose(2, 0, 1, 3), last.transpose(0, 2, 1, 3)
        return [np.ascontiguousarray(part).astype(data.dtype) for part in (made, *last)]


_PER_SEQUENCE = ("sequence_lens", *STATES)


def _initial(
    attrs: RecurrentAttrs, parts: dict[str, Array], name: str, d: int, b: int, size: int,
    dtype: npt.DTypeLike,
) -> Array:
    if name not in parts:
        return np.zeros(size, dtype)
    made: Array = parts[name][by_layout(attrs, (d, b))]
    return made


def schedule_recurrent(kernel: Kernel) -> None:
    """The product with the input by vectors of gates, steps in parallel; all else as it comes."""
    for stage in list(kernel.schedule.stages):
        if not isinstance(stage.op, ComputeOp) or stage.attach_type != "root":
            continue
        if not stage.op.reduce_axis:
            schedule_elements(stage, kernel.processor)
            continue
        *lines, unit = stage.op.axis
        stage.reorder(*lines, *stage.op.reduce_axis, unit)
        stage.vectorize(unit)
        if math.prod(extents_of(stage.op.axis)) >= PARALLEL_ELEMENTS:
            stage.parallel(stage.fuse(*lines[:2]))
