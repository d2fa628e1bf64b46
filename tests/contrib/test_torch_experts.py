"""Mixtures of experts under torch.compile: rows times the matrix of their group."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

Tensor: Any = torch.Tensor
OFFSETS = [3, 3, 10, 16]


def fallback() -> Any:
    """The operator with which transformers computes what PyTorch's own does not take."""
    found = torch.ops.transformers
    if not hasattr(found, "grouped_mm_fallback"):

        def plain(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
            parts = torch.tensor_split(input, offs[:-1].tolist())
            return torch.cat([part @ own for part, own in zip(parts, weight, strict=True)])

        name = "transformers::grouped_mm_fallback"
        torch.library.custom_op(name, plain, mutates_args=())
        torch.library.register_fake(
            name, lambda input, weight, offs: input.new_empty(len(input), weight.shape[2]))
    return found.grouped_mm_fallback


def own(x: Any, weight: Any, offs: Any) -> Any:
    return torch._grouped_mm(x, weight, offs=offs)


@pytest.mark.parametrize(
    ("product", "kind"), [(own, torch.bfloat16), (fallback(), torch.float32)],
    ids=["pytorch", "transformers"],
)
def test_experts_are_one_operator(product: Callable[..., Any], kind: Any) -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(4, 40, 32, dtype=kind))

    class Experts(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Any, offs: Any) -> Any:
            return product(x, self.weight.transpose(-2, -1), offs)

    experts, x = Experts(), torch.randn(16, 32, dtype=kind)
    offs = torch.tensor(OFFSETS, dtype=torch.int32)
    with torch.no_grad():
        made = torch.compile(experts, backend="sterna", fullgraph=True)(x, offs)
        torch.testing.assert_close(made, experts(x, offs))
