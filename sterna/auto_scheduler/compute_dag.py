"""What a workload computes: its operations, from inputs to outputs, and how many they count."""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.workload_registry import workload_key_to_tensors
from sterna.te import ComputeOp, Operation, PlaceholderOp, Schedule, Tensor, create_schedule
from sterna.te.flops import count_flops
from sterna.te.tensor import Reduce


class ComputeDAG:
    """The operations of a workload in the order that logs number them by."""

    def __init__(self, compute_or_sche: str | Sequence[Tensor] | Schedule) -> None:
        if isinstance(compute_or_sche, str):
            self.tensors = workload_key_to_tensors(compute_or_sche)
        elif isinstance(compute_or_sche, Schedule):
            self.tensors = [op.output(0) for op in compute_or_sche.outputs]
        else:
            self.tensors = list(compute_or_sche)
        if not self.tensors or not all(isinstance(each, Tensor) for each in self.tensors):
            raise ValueError("a workload returns its inputs and outputs, a list of tensors")
        self.ops = _sorted([tensor.op for tensor in self.tensors])

    @property
    def outputs(self) -> list[Operation]:
        """Operations whose results nothing else here reads."""
        read = {source.op for op in self.ops for source in op.input_tensors}
        return [op for op in self.ops if op not in read and not isinstance(op, PlaceholderOp)]

    @cached_property
    def flop_ct(self) -> float:
        """How many operations one run does."""
        return float(sum(count_flops(op) for op in self.ops))

    @property
    def init_state(self) -> State:
        """The loops as they are before any step."""
        return State(self)

    def get_init_state(self) -> State:
        """The loops as they are before any step."""
        return self.init_state

    def apply_steps_from_state(
        self, state: State, layout_rewrite: Any = 0
    ) -> tuple[Schedule, list[Tensor]]:
        """The schedule of a state, and the tensors that its function takes."""
        if layout_rewrite not in (0, None, False):
            raise ValueError("layouts of inputs stay as the workload says; layout_rewrite is 0")
        return state.apply()

    def print_python_code_from_state(self, state: State) -> str:
        """The steps of a state as calls of te."""
        return "\n".join(state.lines())

    def workload_key(self) -> str:
        """A key of what is computed, for workloads that are registered under no name."""
        told = hashlib.md5(str(self).encode(), usedforsecurity=False).hexdigest()
        shapes = [[int(str(extent)) for extent in tensor.shape] for tensor in self.tensors]
        return json.dumps([told, *shapes])

    def new_schedule(self) -> Schedule:
        """A schedule of all outputs."""
        return create_schedule(self.outputs)

    def __str__(self) -> str:
        return "\n".join(_line(op) for op in self.ops) + "\n"

    def __hash__(self) -> int:
        return id(self)


def _sorted(outputs: Sequence[Operation]) -> list[Operation]:
    """Operations behind those that they read, from the last output's first input on."""
    found: dict[Operation, None] = {}

    def visit(op: Operation) -> None:
        stack: list[tuple[Operation, int]] = [(op, 0)]
        while stack:
            own, place = stack.pop()
            sources = own.input_tensors
            if own in found:
                continue
            if place == len(sources):
                found[own] = None
                continue
            stack.append((own, place + 1))
            stack.append((sources[place].op, 0))

    for op in outputs:
        if not isinstance(op, PlaceholderOp):
            visit(op)
    return list(found)


def _line(op: Operation) -> str:
    if not isinstance(op, ComputeOp):
        shape = ", ".join(str(extent) for extent in op.output(0).shape)
        return f"{op.name} = PLACEHOLDER [{shape}]"
    axes = ", ".join(axis.var.name for axis in op.axis)
    body = op.body[0]
    if isinstance(body, Reduce):
        return f"{op.name}({axes}) += {body.source[0]}"
    return f"{op.name}({axes}) = {body}"
