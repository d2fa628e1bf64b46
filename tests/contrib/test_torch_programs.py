"""Small programs under torch.compile, held against eager mode: results, and what they write to."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

Program = Callable[..., Any]


def expect_eager(function: Program, *given: Any) -> None:
    torch._dynamo.reset()
    own, other = ([each.clone() for each in given] for _ in range(2))
    options = {"opt_level": 1, "fallback": False}
    made = torch.compile(function, backend="sterna", options=options)(*own)
    torch.testing.assert_close(made, function(*other), equal_nan=True)
    torch.testing.assert_close(own, other)


VIEWS: dict[str, Program] = {
    "expand": lambda x: x[:1].expand(3).select(-1, 0),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[0],
    "broadcast_tensors of one number": lambda x: torch.broadcast_tensors(x[:1], x)[0].select(0, 1),
    "meshgrid": lambda x: torch.meshgrid(x, x, indexing="ij")[0].select(1, 0),
    "einsum": lambda x: torch.einsum("ij->ji", x[None]),
    "atleast_2d": torch.atleast_2d,
    "sum_to_size": lambda x: x.sum_to_size(4),
    "another type": lambda x: x.view(torch.int32),
    "chunk": lambda x: x.chunk(2)[1],
    "transposed": lambda x: x.view(2, 2).t(),
    "diagonal": lambda x: x.view(2, 2).diagonal(),
    "squeeze": lambda x: x[None].squeeze((0,)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_written_to_a_view_is_written_to_its_base(name: str) -> None:
    def program(x: Any) -> Any:
        view = VIEWS[name](x)
        view.add_(3)
        return view * 1

    expect_eager(program, torch.arange(4.0))


FLOATS, WHOLE = torch.tensor([-1.5, 0.0, 2.0, 3.5]), torch.tensor([2, -7, 0])
MIXED: dict[str, Program] = {
    "isin": lambda: (torch.isin(WHOLE, FLOATS), torch.isin(FLOATS, WHOLE)),
    "searchsorted": lambda: torch.searchsorted(FLOATS, WHOLE),
    "bucketize": lambda: torch.bucketize(FLOATS.half(), WHOLE.sort()[0]),
    "einsum": lambda: torch.einsum("i,j->ij", FLOATS, WHOLE),
    "truth values": lambda: torch.add(WHOLE > 0, WHOLE == 0, alpha=2),
    "mse_loss": lambda: torch.nn.functional.mse_loss(FLOATS[:3], WHOLE),
}


@pytest.mark.parametrize("name", MIXED)
def test_operands_of_several_types(name: str) -> None:
    expect_eager(MIXED[name])


@pytest.mark.parametrize(("have", "want"), [
    (torch.float64, torch.int32), (torch.int16, torch.float32), (torch.float32, torch.uint8),
    (torch.uint8, torch.int64), (torch.bfloat16, torch.float32), (torch.int64, torch.float16),
], ids=str)
def test_the_same_bits_as_elements_of_another_size(have: Any, want: Any) -> None:
    expect_eager(lambda x: x.view(want) * 1, torch.randn(3, 8).mul(50).to(have))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_results_of_training_graphs_are_written_to(dtype: Any) -> None:
    def program(x: Any) -> Any:
        first, last = x * 2, x.sum() * 1
        torch._dynamo.graph_break()
        first.mul_(3)
        last.mul_(3)
        return first, last

    given = torch.randn(3, 4).to(dtype).requires_grad_()
    torch._dynamo.reset()
    made, wanted = torch.compile(program, backend="sterna")(given), program(given)
    torch.testing.assert_close(made, wanted)
    sums = [abs(first).sum() + abs(last) for first, last in (made, wanted)]
    torch.testing.assert_close(*[torch.autograd.grad(each, given) for each in sums])
