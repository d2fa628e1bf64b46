"""A few of PyTorch's sample calls; `python -m tests.frontend.torch_opinfo` runs all of them."""

from typing import Any

import pytest

import sterna
from sterna.frontend.torch.tensors import array_of_tensor
from tests.support import require_module

require_module("torch")
require_module("expecttest")
import torch  # noqa: E402

from tests.frontend.torch_opinfo import RIGHT, name_of, operators, run_operator  # noqa: E402
from tests.frontend.torch_support import expect_eager  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLE = {
    "index_put", "cumsum", "std", "nn.functional.conv2d", "lgamma", "scatter_reduce.amax",
    "nn.functional.cross_entropy", "nn.functional.avg_pool2d", "cummax", "roll", "diag_embed",
    "linalg.solve", "svd", "fft.irfft2", "special.bessel_j1", "mode", "nn.functional.embedding_bag",
}


def test_sample_calls() -> None:
    wanted = [op for op in operators(torch.float32) if name_of(op) in SAMPLE]
    outcomes = [run_operator(op, torch.float32, 1, compiled=False) for op in wanted]
    assert {one.name for one in outcomes} == SAMPLE
    assert [one for one in outcomes if one.reason != RIGHT] == []


def test_the_floor_of_a_quotient_is_exact() -> None:
    class Floors(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a // b, torch.div(a, b, rounding_mode="floor")

    a = torch.tensor([1.0, -1.0, 7.0, -7.0, 0.0, 3.0, -3.0, 1.0])
    b = torch.tensor([0.1, 0.1, -2.0, -2.0, 5.0, 0.0, float("inf"), 0.3])
    expect_eager(Floors(), a, b)


def test_dropping_nothing_in_place() -> None:
    layers = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.Dropout(inplace=True), torch.nn.AlphaDropout(inplace=True)
    )
    expect_eager(layers.eval(), torch.randn(2, 4))


def test_a_row_that_bags_leave_out_may_be_counted_from_the_end() -> None:
    class Bags(torch.nn.Module):
        def forward(self, weight: Any, words: Any, offsets: Any) -> Any:
            return torch.nn.functional.embedding_bag(
                words, weight, offsets, mode="sum", padding_idx=-1
            )

    words, offsets = torch.tensor([0, 4, 2, 4, 1]), torch.tensor([0, 3])
    expect_eager(Bags(), torch.randn(5, 3), words, offsets)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_sums_of_narrow_convolutions_are_rounded_behind_their_bias(kind: Any) -> None:
    class Convolutions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain = torch.nn.Conv2d(8, 4, 3)
            self.transposed = torch.nn.ConvTranspose2d(8, 4, 3)

        def forward(self, x: Any) -> Any:
            return self.plain(x), self.transposed(x)

    torch.manual_seed(1)
    model, x = Convolutions().to(kind).eval(), torch.randn(1, 8, 5, 5).to(kind)
    with torch.no_grad():
        exact = Convolutions()
        exact.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
        wanted = [each.to(kind).float().numpy() for each in exact(x.float())]
    made = sterna.compile(model, example_inputs=(x,), opt_level=1)(array_of_tensor(x, "x"))
    for have, want in zip(made, wanted, strict=True):
        # one rounding: sums of another order may still fall on the other side of a half
        apart = abs(have.astype("float32") - want)
        assert (apart <= torch.finfo(kind).eps * abs(want)).all()
        assert (apart == 0).mean() > 0.9


def test_a_window_that_would_begin_behind_the_data_is_none() -> None:
    class Means(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            pool = torch.nn.functional.avg_pool1d
            hows = [(2, 3, 1), (1, 4, 0), (4, 3, 2)]
            return [
                mean for extent in (8, 10) for window, step, pad in hows for mean in (
                    pool(x[..., :extent], window, step, pad, ceil_mode=True),
                    torch.nn.functional.avg_pool2d(
                        x[..., None, :extent], (1, window), (1, step), (0, pad), ceil_mode=True,
                        divisor_override=7,
                    ),
                )
            ]

    expect_eager(Means(), torch.randn(1, 2, 12))
