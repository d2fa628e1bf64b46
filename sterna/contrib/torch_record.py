"""Graphs of torch.compile recorded as ATen operators, without what torch.export checks."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch._guards import tracing
from torch._ops import HigherOrderOperator
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from sterna.contrib.torch_aliases import Aliases, find_aliases
from sterna.contrib.torch_devices import autocast_kinds
from sterna.contrib.torch_random import Drawn, is_random, with_draws
from sterna.frontend.torch.program import Program
from sterna.frontend.torch.read_exported import read_recorded, read_recorded_fx
from sterna.support.errors import InternalError, OpNotImplemented

T = TypeVar("T")


class UnderAutocast(torch.nn.Module):  # type: ignore[misc]
    """A graph under the autocast that it was compiled under, as a part of the graph itself."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph
        self.dtypes = {kind: torch.get_autocast_dtype(kind) for kind in autocast_kinds()}

    def forward(self, *given: Any) -> Any:
        with ExitStack() as stack:
            for kind, dtype in self.dtypes.items():
                stack.enter_context(torch.autocast(kind, dtype=dtype))
            return self.graph(*given)


def with_autocast(gm: Any) -> Any:
    """The graph as torch.export records it: what is said outside of a graph is no part of it."""
    return UnderAutocast(gm) if autocast_kinds() else gm


class NotRecorded(Exception):
    """A graph that torch.export does not record."""


def by_torch(read: Callable[[], T]) -> T:
    """What a reader gives of an exported program, where PyTorch's passes are able to make one."""
    try:
        return read()
    except (NotRecorded, OpNotImplemented, InternalError, GuardOnDataDependentSymNode):
        raise
    except Exception as error:
        raise NotRecorded(str(error)) from error


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph as a program, and what lies around it."""

    program: Program
    aliases: Aliases
    """Which of its results share memory with what."""
    drawn: Drawn
    """The random numbers among its inputs."""


def record(gm: Any, inputs: Sequence[Any]) -> Recorded | None:
    """A graph for inputs of known extents, whose operators all have converters.

    None for any other: torch.export takes operators apart, lifts constants and keeps branches.
    """
    is_plain = all(isinstance(each, torch.Tensor) for each in inputs)
    if not is_plain or autocast_kinds() or _has_inner_graphs(gm):
        return None

    aliases: Aliases = ()

    def run(*tensors: Any) -> Any:
        nonlocal aliases
        results = torch.fx.Interpreter(gm).run(*tensors)
        aliases = find_aliases(tensors, results)
        return results

    mode = FakeTensorMode(allow_non_fake_inputs=True, static_shapes=True)
    # Dynamo's own context knows these tensors by other extents.
    with tracing(None), torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        fakes = [mode.from_tensor(each, static_shapes=True) for each in inputs]
        try:
            # "real": these tensors are fake already, and would be made fake again.
            made = make_fx(run, tracing_mode="real", pre_dispatch=True)(*fakes)
        except Exception:
            return None  # what data decides, or transforms; torch.export says which
    drawn = with_draws(made)
    _expect_no_draws(drawn.module)
    program = read_recorded_fx(drawn.module)
    return None if program is None else Recorded(program, aliases, drawn)


def read_drawless(exported: Any) -> Program:
    """The program of an export that draws no random numbers."""
    _expect_no_draws(exported.graph_module)
    return read_recorded(exported)


def _expect_no_draws(gm: Any) -> None:
    """Graphs with draws inside are for AOTAutograd, which undoes changes in place before."""
    if any(map(is_random, gm.graph.nodes)):
        raise NotRecorded("it draws random numbers")


def _has_inner_graphs(gm: Any) -> bool:
    """Whether a graph has branches or loops."""
    return any(isinstance(node.target, HigherOrderOperator) for node in gm.graph.nodes)
