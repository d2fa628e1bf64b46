"""Graphs for the numbers that modules have."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402

from sterna.contrib.torch_numbers import for_numbers  # noqa: E402


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        return x * number.item()


def test_a_graph_is_compiled_once_for_a_number_even_if_that_is_none() -> None:
    compiled = []

    def compile_graph(gm: Any, examples: Sequence[Any]) -> Callable[..., Any]:
        compiled.append(gm)
        return gm.forward  # type: ignore[no-any-return]

    def run(number: float) -> Any:
        return graph(torch.ones(1), torch.tensor(number, dtype=torch.float64)).item()

    gm = torch.fx.symbolic_trace(Scaled())
    examples = [torch.ones(1), torch.tensor(2.0, dtype=torch.float64)]
    graph = for_numbers(gm, [1], examples, compile_graph, None)
    assert run(2.0) == run(2.0) == 2.0 and len(compiled) == 1
    assert math.isnan(run(math.nan)) and math.isnan(run(math.nan)) and len(compiled) == 2
    assert math.copysign(1, run(0.0)) == 1 and math.copysign(1, run(-0.0)) == -1
