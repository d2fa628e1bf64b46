"""Steps of training by the backend `sterna` of torch.compile compute what eager ones do."""

import copy
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402

from sterna.contrib.torch_compile import sterna as backend  # noqa: E402
from tests.contrib.torch_graphs import compiled  # noqa: E402
from tests.contrib.torch_graphs import fresh as fresh  # noqa: E402  (a fixture)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

NO_KEY = torch.ones(4, 4, dtype=torch.bool).tril(-1)  # the first query sees nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_changed_by_way_of_their_data(dtype: Any) -> None:
    net = nn.Conv2d(2, 8, 3).to(dtype=dtype, memory_format=torch.channels_last).eval()
    fast = compiled(net)
    x = torch.randn(1, 2, 5, 5).to(dtype)
    with torch.no_grad():
        fast(x)
        for most in (0.1, 0.01):
            net.weight.data.clamp_(-most, most)
            torch.testing.assert_close(fast(x), net(x))
        net.weight.data = torch.ones_like(net.weight)
        torch.testing.assert_close(fast(x), net(x))


def test_weights_that_are_no_whole_memory() -> None:
    shared = torch.randn(100)
    net = nn.Linear(4, 3, bias=False).eval()
    net.weight = nn.Parameter(shared[7:].as_strided((3, 4), (2, 8), 7))
    fast = compiled(net)
    x = torch.randn(2, 4)
    with torch.no_grad():
        fast(x)
        net.weight.data[2, 3] = 9.0
        torch.testing.assert_close(fast(x), net(x))


STEPS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda given: torch.optim.AdamW(given, 0.01, foreach=True, amsgrad=True),
    "one by one": lambda given: torch.optim.Adamax(given, 0.01, foreach=False),
    "momentum": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, foreach=True),
}


@pytest.mark.parametrize("kind", list(STEPS))
def test_steps_of_optimisers_are_compiled_whole(kind: str) -> None:
    def trained(wrap: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(1)
        net = nn.Linear(4, 3)
        optimiser = STEPS[kind](net.parameters())
        step = wrap(lambda: optimiser.step())
        for _ in range(3):
            net(torch.randn(5, 4)).square().mean().backward()
            step()
            optimiser.zero_grad()
        return [each.detach() for each in net.parameters()]

    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*as PyTorch runs.*")
        torch.testing.assert_close(trained(compiled), trained(lambda step: step))


def test_operators_on_lists() -> None:
    def function(a: list[Any], b: list[Any]) -> Any:
        torch._foreach_addcmul_(b, a, a, 0.1)
        made = [
            torch._foreach_add(a, b, alpha=0.5), torch._foreach_add(a, [1.0, 2.0]),
            torch._foreach_addcdiv(a, b, a, [1.0, 2.0]), torch._foreach_lerp(a, b, 0.3),
            torch._foreach_maximum(a, 0.0), torch._foreach_norm(a, 1), torch._foreach_pow(2.0, a),
        ]
        torch._foreach_zero_(a)
        return made

    given = [[torch.randn(3), torch.randn(2, 2)] for _ in range(2)]
    own = [[each.clone() for each in part] for part in given]
    torch.testing.assert_close(compiled(function)(*own), function(*given))
    torch.testing.assert_close(own, given)


@pytest.mark.parametrize("dim", [0, None])
def test_gradients_of_normalised_weights(dim: int | None) -> None:
    net = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=dim)
    x = torch.randn(2, 4)
    made = []
    for function in (compiled(net), net):
        function(x).square().sum().backward()
        made.append([each.grad for each in net.parameters()])
        net.zero_grad()
    torch.testing.assert_close(*made)


@pytest.mark.parametrize("mask", [NO_KEY, torch.zeros(4, 4).masked_fill(~NO_KEY, -torch.inf)])
def test_queries_that_see_no_key(mask: Any) -> None:
    def attend(x: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    made = []
    for function in (compiled(attend), attend):
        x = torch.arange(64.0).sin().view(1, 2, 4, 8).requires_grad_()
        result = function(x)
        result.square().sum().backward()
        with torch.no_grad():
            made.append([result.detach(), x.grad, function(x.detach())])
    torch.testing.assert_close(*made)


def test_numbers_of_a_module_that_come_with_each_call() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    fast = torch.compile(net, backend=backend, dynamic=True, options={"opt_level": 1})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch may run the graph
        for rows in (2, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(fast(x), net(x))


def test_threads_that_bring_new_shapes_at_once() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    fast = torch.compile(net, backend=backend, options={"opt_level": 1})
    given = [torch.randn(rows, 4) for rows in (2, 3, 4, 5)]
    wanted = [net(x).detach() for x in given]

    def run(first: int) -> None:
        with torch.no_grad():
            for place in range(8):
                at = (first + place) % len(given)
                torch.testing.assert_close(fast(given[at]), wanted[at])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, first) for first in range(4)]:
            done.result()


def test_narrow_numbers_beside_wide_weights_are_trained() -> None:
    """Autocast has batch norm and attention in 16 bits, and keeps their weights in 32."""
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv1d(3, 8, 3, bias=False), nn.BatchNorm1d(8)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                rows = self.norm(self.conv(x)).mT.unflatten(2, (2, 4)).mT
                return nn.functional.scaled_dot_product_attention(rows, rows, rows)

    eager = Network()
    net = copy.deepcopy(eager)
    x = torch.randn(4, 3, 10)
    for each, function in ((eager, eager), (net, compiled(net))):
        made = function(x)
        made.float().square().sum().backward()
        each.made = made
    torch.testing.assert_close(net.made, eager.made, rtol=0.05, atol=0.05)
    for have, want in zip(net.parameters(), eager.parameters(), strict=True):
        assert have.grad is not None and have.grad.dtype == torch.float32
        assert (have.grad - want.grad).abs().max() <= 0.05 * want.grad.abs().max() + 0.05
    for have, want in zip(net.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(have, want, rtol=0.01, atol=0.01)


def test_numbers_of_modules_in_open_graphs() -> None:
    """Dynamo makes inputs of them, which may change; no part may be left to PyTorch."""
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.bent = nn.GroupNorm(2, 4, eps=0.1), nn.LeakyReLU(0.2)
            self.factor = 2.5

        def forward(self, x: Any) -> Any:
            return self.bent(self.norm(x)) * self.factor

    net = Network()
    options = {"opt_level": 1, "fallback": False}
    fast = torch.compile(net, backend=backend, options=options, dynamic=True)
    with torch.no_grad():
        for factor, shape in ((2.5, (2, 4, 5)), (2.5, (3, 4, 7)), (-1.5, (3, 4, 7))):
            net.factor = factor
            x = torch.randn(shape)
            torch.testing.assert_close(fast(x), net(x))
    x = torch.randn(2, 4, 6)
    found = torch.autograd.grad(fast(x).square().sum(), list(net.parameters()))
    wanted = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_numbers_that_only_calls_know() -> None:
    """They count as Python's numbers do beside tensors of any type."""
    def many(x: Any, number: float) -> Any:
        return (
            torch.softmax(x / number, 1), x.int() * number, number - x.sum(), x.double() / number,
            (x * 2 - number).bfloat16() + 1, x.gt(0) * number,
        )

    options = {"opt_level": 1, "fallback": False}
    fast = torch.compile(many, backend=backend, options=options, dynamic=True)
    for number, rows in ((0.3, 2), (0.7, 3), (-1.9, 5)):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x, number), many(x, number))


def test_singular_values_are_trained() -> None:
    """Of matrices with more rows than columns, whose vectors the gradient reads."""
    x = torch.randn(4, 3)
    found = []
    for function in (compiled(torch.linalg.svdvals), torch.linalg.svdvals):
        own = x.clone().requires_grad_()
        function(own).square().sum().backward()
        found.append(own.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_attention_of_heads_that_share_keys_is_trained() -> None:
    given = [torch.randn(2, heads, 5, 8) for heads in (4, 2, 2)]

    def attend(*parts: Any) -> Any:
        attention = nn.functional.scaled_dot_product_attention
        return attention(*parts, is_causal=True, enable_gqa=True)

    found = []
    for function in (compiled(attend), attend):
        own = [part.clone().requires_grad_() for part in given]
        function(*own).square().sum().backward()
        found.append([part.grad for part in own])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
