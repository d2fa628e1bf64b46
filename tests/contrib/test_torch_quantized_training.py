"""Networks that are trained for integers, and products of bytes, by torch.compile."""

from typing import Any

import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

from tests.contrib.torch_graphs import compiled  # noqa: E402
from tests.contrib.torch_graphs import fresh as fresh  # noqa: E402  (a fixture)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Rounded(nn.Module):  # type: ignore[misc]
    """A layer whose weights, inputs and results are rounded as integers would be."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        zeros = torch.zeros(4, dtype=torch.int32)
        weight = torch.fake_quantize_per_channel_affine(
            self.line.weight, torch.full((4,), 0.01), zeros, 0, -30, 30
        )
        x = torch.fake_quantize_per_tensor_affine(x, 0.5, 3, 0, 7)
        made = f.rrelu(f.linear(x, weight, self.line.bias), training=False)
        one = torch.tensor(1, dtype=torch.int32)
        return torch.fake_quantize_per_tensor_affine(made, torch.tensor(0.1), one, -8, 7)


def test_training_for_integers() -> None:
    """Halves between two numbers are rounded to the even one, and gradients end at the range."""
    net, x = Rounded(), torch.arange(-12, 12).reshape(4, 6) / 4
    found = []
    for function in (compiled(net), net):
        net.zero_grad()
        own = x.clone().requires_grad_()
        made = function(own)
        made.square().sum().backward()
        found.append([made.detach(), own.grad, net.line.weight.grad, net.line.bias.grad])
    torch.testing.assert_close(*found)


def test_products_of_bytes() -> None:
    rows, columns = torch.randint(-128, 128, (2, 32, 32), dtype=torch.int8)
    scales = torch.rand(32, dtype=torch.bfloat16)

    def products(x: Any) -> Any:
        return torch._int_mm(rows, columns), torch._weight_int8pack_mm(x, columns, scales)

    x = torch.randn(4, 32, dtype=torch.bfloat16)
    torch.testing.assert_close(compiled(products)(x), products(x))
