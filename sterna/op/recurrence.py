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

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type, show_shape
from sterna.op.checks import expect_dim, map_dims, of_kind, same_dtype, tensor, tensors
from sterna.op.gates import ACTIVATIONS, Gate, gates_of
from sterna.op.kernel import Kernel
from sterna.op.products import wide, widened
from sterna.op.schedules import PARALLEL_ELEMENTS, extents_of, schedule_elements
from sterna.op.statements import statements
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.te import ComputeOp, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum
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
    step: Callable[..., None]
    """step(line): writes the statements that make the next state."""
    array_step: Callable[..., Any]
    """array_step(attrs, gate functions, x, h, c, parts): the next state in NumPy."""

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
        count, (time, batch) = len(attrs.directions), _by_layout(attrs, x.shape[:2])
        recurrence = tensor(parts[1], "recurrence", 3)
        size = recurrence.shape[2]
        rows = map_dims(lambda n: n * self.gates, size)
        state = _by_layout(attrs, (count, batch))
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
        """The product with the input, and the recurrence as statements."""
        kind = wide(data.dtype)
        weight, recurrence, *others = weights
        time, batch = _by_layout(attrs, data.shape[:2])
        count, rows, size = recurrence.shape
        feature = reduce_axis((0, data.shape[2]), "k")
        turned: Tensor = compute(
            (count, data.shape[2], rows), lambda d, k, g: weight(d, g, k),
            name=f"T_{self.name}_weight",
        )  # fmt: skip
        projected: Tensor = compute(
            (count, time, batch, rows),
            lambda d, t, b, g: te_sum(
                data(*_by_layout(attrs, (t, b)), feature).astype(kind)
                * turned(d, feature, g).astype(kind),
                axis=[feature],
            ),
            name=f"T_{self.name}_input",
        )
        columns: Tensor = compute(
            (count, size, rows), lambda d, k, g: recurrence(d, g, k), name=f"T_{self.name}_columns"
        )

        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            functions = self.functions(attrs)
            given = dict(zip(attrs.given, ins[2:], strict=True))
            for place, backwards in enumerate(attrs.directions):
                with ib.for_range(0, batch, name="b", kind="parallel") as b:
                    line = Line(self, attrs, ib, kind, ins[0], ins[1], given, outs,
                                place, b, functions[place])  # fmt: skip
                    line.run(time, backwards)

        return statements(out, [projected, columns, *others], fill, f"T_{self.name}")

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
                states = [_initial(attrs, parts, n, d, b, size, x.dtype) for n in _STATES]
                order = range(int(lengths[b]))
                for t in reversed(order) if backwards else order:
                    states = self.array_step(attrs, functions, x[t, b], *states, own)
                    made[t, d, b] = states[0]
                for place in range(self.states):
                    last[place, d, b] = states[place]
        if attrs.layout:
            made, last = made.transpose(2, 0, 1, 3), last.transpose(0, 2, 1, 3)
        return [np.ascontiguousarray(part).astype(data.dtype) for part in (made, *last)]


_STATES = ("initial_h", "initial_c")
_PER_SEQUENCE = ("sequence_lens", *_STATES)


def _by_layout(attrs: RecurrentAttrs, pair: Sequence[Any]) -> tuple[Any, Any]:
    """(time, batch) or (direction, batch) as layout 1 turns them round, there and back."""
    first, second = pair
    return (second, first) if attrs.layout else (first, second)


def _initial(
    attrs: RecurrentAttrs, parts: dict[str, Array], name: str, d: int, b: int, size: int, dtype: Any
) -> Array:
    if name not in parts:
        return np.zeros(size, dtype)
    made: Array = parts[name][_by_layout(attrs, (d, b))]
    return made


class Line:
    """The statements for one sequence in one direction."""

    def __init__(
        self, network: Network, attrs: RecurrentAttrs, ib: IRBuilder, kind: str,
        projected: BufferVar, columns: BufferVar, given: dict[str, BufferVar],
        outs: list[BufferVar], direction: int, sequence: Expr, functions: list[Gate],
    ) -> None:  # fmt: skip
        self.attrs, self.ib, self.kind = attrs, ib, kind
        self.projected, self.columns, self.given, self.outs = projected, columns, given, outs
        self.direction, self.sequence, self.functions = direction, sequence, functions
        self.size = columns.shape[1]
        self.rows = columns.shape[2]
        self.pair = _by_layout(attrs, (build.const(direction), sequence))
        self.states = [
            ib.allocate(kind, (self.size,), name=name) for name in ("h", "c")[: network.states]
        ]
        self.gates = ib.allocate(kind, (self.rows,), name="gates")
        self.step = network.step

    def run(self, time: Expr, backwards: bool) -> None:
        """All steps, and what comes out of them."""
        ib, outs = self.ib, self.outs
        for name, state in zip(_STATES, self.states, strict=False):
            with ib.for_range(0, self.size, name="j") as j:
                state[j] = self.part(name, *self.pair, j)
        length = ib.let("length", self.length(time))
        with ib.for_range(0, length, name="step") as step:
            now = ib.let("now", length - 1 - step if backwards else step)
            self.step(self, now)
            with ib.for_range(0, self.size, name="j") as j:
                outs[0][self.at(now, j)] = build.cast(outs[0].dtype, self.states[0][j])
        with (
            ib.for_range(length, time, name="step") as step,
            ib.for_range(0, self.size, name="j") as j,
        ):
            outs[0][self.at(step, j)] = build.const(0, outs[0].dtype)
        for result, state in zip(outs[1:], self.states, strict=True):
            with ib.for_range(0, self.size, name="j") as j:
                result[(*self.pair, j)] = build.cast(result.dtype, state[j])

    def at(self, time: Expr, j: Expr) -> tuple[Any, ...]:
        """Where the state of a step belongs."""
        if self.attrs.layout:
            return (self.sequence, time, self.direction, j)
        return (time, self.direction, self.sequence, j)

    def length(self, time: Expr) -> Expr:
        """How many steps this sequence has."""
        if "sequence_lens" not in self.given:
            return time
        told = build.cast("int64", self.given["sequence_lens"][self.sequence])
        zero, most = build.const(0, "int64"), build.cast("int64", time)
        return build.cast(time.dtype, build.maximum(build.minimum(told, most), zero))

    def part(self, name: str, *indices: Any) -> Expr:
        """An element of an optional operand; 0 without it."""
        if name not in self.given:
            return build.const(0, self.kind)
        return build.cast(self.kind, self.given[name][indices])

    def bias(self, row: Any, *, recurrent: bool) -> Expr:
        """What is added to a gate beside the input's weights or the recurrence's."""
        return self.part("bias", self.direction, row + self.rows if recurrent else row)

    def input(self, now: Expr, row: Any) -> Expr:
        """What the input adds to a gate."""
        return self.projected[self.direction, now, self.sequence, row] + self.bias(
            row, recurrent=False
        )

    def add_recurrence(self, begin: Any, end: Any, state: Callable[[Expr], Expr]) -> None:
        """Adds to gates from begin to end what a state gives them."""
        ib = self.ib
        with ib.for_range(0, self.size, name="k") as k:
            value = ib.let("value", state(k))
            with ib.for_range(begin, end, name="g") as g:
                each = build.cast(self.kind, self.columns[self.direction, k, g])
                self.gates[g] = self.gates[g] + value * each


def schedule_recurrent(kernel: Kernel) -> None:
    """The product with the input by vectors of gates, steps in parallel; all else as it comes."""
    for stage in list(kernel.schedule.stages):
        if not isinstance(stage.op, ComputeOp) or stage.attach_type != "root":
            continue
        if not stage.op.reduce_axis:
            schedule_elements(stage, kernel.processor)
            continue
        direction, time, batch, row = stage.op.axis
        lanes = kernel.processor.lanes(stage.op.output(0).dtype)
        outer, inner = stage.split(row, factor=lanes)
        stage.reorder(direction, time, batch, outer, *stage.op.reduce_axis, inner)
        stage.vectorize(inner)
        if math.prod(extents_of([direction, time, batch, outer])) * lanes >= PARALLEL_ELEMENTS:
            stage.parallel(stage.fuse(direction, time))
