"""Where results of a graph of torch.compile lie: in memory of others, or in an order of their own.

    def f(x):                  what eager PyTorch gives back: x itself, and a view of it;
        x.relu_()              a program that writes to either afterwards sees it in both
        return x, x.t()

    def g(x, y):               g(x, x[0]) gives what was written to x
        x.add_(1)
        return y * 2
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from sterna.support.errors import OpNotImplemented

Graph = Callable[..., Any]

# Of how many shapes a graph with open extents knows where its views lie.
MOST_SHAPES = 32


@dataclass(frozen=True, slots=True)
class Alias:
    """A result as a view of an input, or of a result that comes before it."""

    base: int
    """The number of the input, or of the result."""
    of_input: bool
    is_base: bool
    """Whether it is the very tensor."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Elements behind the first one of its base."""

    def of(self, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        """The view."""
        base = (inputs if self.of_input else results)[self.base]
        if self.is_base:
            return base
        return base.as_strided(self.size, self.stride, base.storage_offset() + self.offset)


@dataclass(frozen=True, slots=True)
class Laid:
    """A result in memory of its own whose elements do not lie in the order of its axes."""

    result: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        """The result as PyTorch lays it out: channels last, or as a transpose left it."""
        made = results[self.result]
        laid = torch.empty_strided(self.size, self.stride, dtype=made.dtype, device=made.device)
        return laid.copy_(made)


Aliases = Sequence[Alias | Laid | None]


def find_aliases(inputs: Sequence[Any], results: Any) -> Aliases:
    """Which results of a run share memory with what, or lie in an order that is not plain.

    The tensors of the run may hold no data.
    """
    every = results if isinstance(results, tuple | list) else [results]
    found: list[Alias | Laid | None] = []
    bases = [(place, each, True) for place, each in enumerate(inputs)]
    for place, result in enumerate(every):
        sharing = (made for base in bases if (made := _alias(result, *base)) is not None)
        found.append(next(sharing, None) or laid_out(place, result))
        bases.append((place, result, False))
    return found


def laid_out(place: int, result: Any) -> Laid | None:
    """How a result lies; None for the order of its axes, which compiled code gives."""
    if not _is_strided(result) or result.is_contiguous():
        return None
    dense = torch._prims_common.is_non_overlapping_and_dense_or_false(result)
    return Laid(place, tuple(result.shape), result.stride()) if dense else None


def _alias(result: Any, place: int, base: Any, of_input: bool) -> Alias | None:
    if not _is_strided(result) or not _is_strided(base) or result.dtype != base.dtype:
        return None
    if result.untyped_storage()._cdata != base.untyped_storage()._cdata:
        return None
    offset = result.storage_offset() - base.storage_offset()
    # Memory of a compiled result has the elements of that result alone, in their order.
    last = offset + sum((n - 1) * s for n, s in zip(result.shape, result.stride(), strict=True))
    if not of_input and not (base.is_contiguous() and offset >= 0 and last < base.numel()):
        return None
    return Alias(place, of_input, result is base, tuple(result.shape), result.stride(), offset)


def _is_strided(value: Any) -> bool:
    """Whether a value is a tensor of known extents that as_strided makes views of."""
    return (
        isinstance(value, torch.Tensor) and value.layout is torch.strided
        and not value.is_conj() and not value.is_neg()
        and all(isinstance(extent, int) for extent in value.shape)
    )


def aliases_of(gm: Any, inputs: Sequence[Any]) -> Aliases:
    """Those of a graph, by a run of it without data; none where data decides how it runs."""
    # Loops, branches and what data decides give extents that are symbols.
    mode = FakeTensorMode(
        shape_env=ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True
    )
    with tracing(None), torch.no_grad():
        given = [
            mode.from_tensor(each, static_shapes=True) if isinstance(each, torch.Tensor) else each
            for each in inputs
        ]
        try:
            with mode:
                return find_aliases(given, torch.fx.Interpreter(gm).run(*given))
        except Exception:
            return ()


def no_view(tensor: Any) -> Any:
    """The same memory as a tensor of its own: autograd lets nobody write to views of results."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape)


def with_aliases(graph: Graph, aliases: Aliases) -> Graph:
    """The graph with its results as views, and in orders, as PyTorch gives them."""
    if not any(aliases):
        return graph

    def run(*given: Any) -> list[Any]:
        results = list(graph(*given))
        for place, alias in enumerate(aliases):
            if alias is not None:
                results[place] = alias.of(given, results)
        return results

    return run


def with_open_aliases(graph: Graph, gm: Any, inputs: Sequence[Any]) -> Graph:
    """The same of a graph for any extents: where views lie is found once for each shape."""
    if not any(aliases_of(gm, inputs)):
        return graph
    known: dict[tuple[Any, ...], Graph] = {}

    def run(*given: Any) -> Any:
        key = tuple(map(_layout, given))
        if key not in known:
            if len(known) >= MOST_SHAPES:
                known.clear()
            known[key] = with_aliases(graph, aliases_of(gm, given))
        return known[key](*given)

    return run


def _layout(value: Any) -> Any:
    return (tuple(value.shape), value.stride()) if _is_strided(value) else repr(value)


def unless_written_memory_is_shared(
    graph: Graph, written: Sequence[int], eager: Graph, fallback: bool
) -> Graph:
    """The graph for inputs of which those that it writes to lie in memory of their own.

    Compiled code reads what it is given as it was before; other inputs go to PyTorch's own graph.
    """
    if not written:
        return graph

    def run(*given: Any) -> Any:
        memory = [each.untyped_storage().data_ptr() if _is_strided(each) else 0 for each in given]
        uses = Counter(memory)
        if all(uses[memory[place]] == 1 or not memory[place] for place in written):
            return graph(*given)
        refused = "it writes to an input that shares memory with another; clone one of them"
        if not fallback:
            raise OpNotImplemented(f"a graph cannot run compiled: {refused}")
        warnings.warn(f"a graph runs as PyTorch runs it: {refused}", stacklevel=2)
        return eager(*given)

    return run
