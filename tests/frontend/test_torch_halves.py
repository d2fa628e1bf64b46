"""Sums and functions of 16 bits are as near the exact result as those of PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import sterna  # noqa: E402
from sterna.frontend.torch.tensors import array_of_tensor  # noqa: E402

F = torch.nn.functional
PLACES = torch.arange(600) % 3

CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "attention": (F.scaled_dot_product_attention, [(1, 2, 500, 16)] * 3),
    "causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(1, 2, 300, 16)] * 3,
    ),
    "spelled out": (
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v,
        [(1, 2, 500, 16)] * 3,
    ),
    "var": (lambda x: x.var(-1), [(8, 1000)]),
    "std": (lambda x: x.std(), [(8, 1000)]),
    "rms_norm": (lambda x: F.rms_norm(x, (300,)), [(8, 300)]),
    "index_add": (lambda x: x[:3].index_add(0, PLACES, x.abs()), [(600, 4)]),
    "scatter_add": (
        lambda x: x[:3].scatter_add(0, PLACES[:, None].expand(600, 4), x.abs()), [(600, 4)],
    ),
    "index_reduce": (
        lambda x: x[:3].index_reduce(0, PLACES, x.abs(), "mean"), [(600, 4)],
    ),
    "embedding_bag": (
        lambda x: F.embedding_bag(torch.arange(400)[None], x, mode="mean"), [(400, 8)],
    ),
    "hardswish": (F.hardswish, [(40, 300)]),
    "mish": (F.mish, [(40, 300)]),
}


class Called(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_as_near_as_pytorch(name: str, dtype: Any) -> None:
    function, shapes = CASES[name]
    torch.manual_seed(0)
    given = tuple(torch.randn(shape).to(dtype) for shape in shapes)
    exact = function(*(each.double() for each in given))

    def off(made: Any) -> float:
        return float((made.double() - exact).norm() / exact.norm())

    made = sterna.compile(Called(function), given, opt_level=1)(*given)
    theirs = function(*given)
    assert str(made.dtype) == str(array_of_tensor(theirs, "").dtype)
    assert off(torch.from_numpy(made.astype("float64"))) < 1.5 * off(theirs) + 1e-6
