"""Graphs of torch.compile that draw random numbers give what eager mode gives for a seed."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import (  # noqa: E402
    dropout,
    feature_alpha_dropout,
    gumbel_softmax,
    scaled_dot_product_attention,
)
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.contrib.torch_graphs import compiled  # noqa: E402
from tests.contrib.torch_graphs import fresh as fresh  # noqa: E402  (a fixture)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def noisy(x: Any) -> Any:
    """Noise of every kind that reads nothing of data."""
    y = x.tanh() + torch.randn_like(x) * torch.rand(x.shape[0], 1) + torch.randint(0, 5, (8,))
    y = dropout(y, 0.4, inplace=True)
    y = y * torch.empty_like(y).uniform_(0, 1) - torch.empty_like(y).exponential_().log()
    y = feature_alpha_dropout(y[..., None], 0.2, True)[..., 0] + gumbel_softmax(y, hard=True)
    return y[:, torch.randperm(8)] + torch.normal(0.0, 1.0, (8,))


DRAWING: dict[str, Callable[[Any], Any]] = {
    "many": noisy,
    "dropout": lambda x: dropout(x.relu(), 0.3, True) + 1,
    "all is dropped": lambda x: dropout(x, 1.0, True),
    "rows last": lambda x: dropout(x.t().clone(memory_format=torch.preserve_format), 0.5, True),
    "16 bits": lambda x: dropout(x.bfloat16(), 0.3, True) * 3,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", list(DRAWING))
def test_draws(name: str, dynamic: bool | None) -> None:
    function = DRAWING[name]
    fast = compiled(function, dynamic)
    for rows in (3, 5) if dynamic else (3, 3):
        x = torch.randn(rows, 8)
        made = []
        for each in (fast, function):
            torch.manual_seed(rows)
            made.append((each(x), torch.rand(2)))  # the generator goes on from the same place
        torch.testing.assert_close(*made)
        torch.testing.assert_close(made[0][0].stride(), made[1][0].stride())


def trained(function: Any, net: Any, x: Any) -> list[Any]:
    torch.manual_seed(3)
    net.zero_grad()
    made = function(x)
    made.square().sum().backward()
    return [made.detach(), torch.rand(2), *(each.grad.clone() for each in net.parameters())]


@pytest.mark.parametrize("dynamic", [None, True])
def test_layers_with_dropout_are_trained_whole(dynamic: bool | None) -> None:
    net = nn.TransformerEncoderLayer(16, 2, 32, 0.3, batch_first=True, norm_first=True)
    fast = compiled(net, dynamic)
    for length in (4, 5) if dynamic else (4,):
        x = torch.randn(2, length, 16)
        made, wanted = (trained(function, net, x) for function in (fast, net))
        torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


class Checkpointed(nn.Module):  # type: ignore[misc]
    """Attention, which may draw, and dropout, which does, each computed once more backward."""

    def __init__(self, p: float, draw: Callable[[Any], Any]) -> None:
        super().__init__()
        self.line, self.drop, self.draw = nn.Linear(8, 8), nn.Dropout(p), draw

    def inner(self, x: Any) -> Any:
        q = self.line(x).unflatten(-1, (2, 4)).transpose(1, 2)
        made = scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)
        return self.draw(self.drop(made))

    def forward(self, x: Any) -> Any:
        return self.drop(checkpoint(self.inner, x, use_reentrant=False).sin())


@pytest.mark.parametrize("p", [0.0, 0.2])
def test_checkpoints_draw_the_same_numbers_once_more(p: float) -> None:
    net = Checkpointed(p, lambda x: x + torch.randn_like(x) * x)
    x = torch.randn(2, 4, 8)
    torch.testing.assert_close(trained(compiled(net), net, x), trained(net, net, x))


def chosen(x: Any) -> Any:
    return x * torch.bernoulli(x.detach().sigmoid())


def test_draws_from_data_run_as_pytorch_runs_them() -> None:
    """What comes before and behind them is compiled."""
    x = torch.randn(2, 4, 8)
    for net in (Checkpointed(0.2, chosen), nn.Sequential(nn.Linear(8, 8), nn.ReLU())):
        def function(x: Any, net: Any = net) -> Any:
            return chosen(net(x)) * 2 + 1

        with pytest.warns(UserWarning, match="aten.bernoulli.default: random numbers|rng_state"):
            made = trained(compiled(function, fallback=True), net, x)
        torch.testing.assert_close(made, trained(function, net, x))


def test_sizes_that_an_export_makes_up_are_no_guards_of_dynamo() -> None:
    """Sizes given as tensors: the export of a graph has symbols of its own."""
    def padded(x: Any, left: Any, right: Any) -> Any:
        made = nn.functional.pad(x, (left, right), "reflect")
        return made[..., : made.shape[-1]]

    x, pads = torch.randn(1, 2, 20), (torch.tensor(6), torch.tensor(0))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # PyTorch may run the graph
        made = compiled(padded, fallback=True)(x, *pads)
    torch.testing.assert_close(made, padded(x, *pads))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_without_dropout_draw_nothing(kind: Any) -> None:
    """They stay whole: what takes them apart makes operators of one processor of them."""
    net, x = kind(6, 5, batch_first=True).eval(), torch.randn(2, 3, 6)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(compiled(net)(x), net(x))
