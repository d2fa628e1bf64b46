"""Errors that PyTorch raises of what data holds: places outside of an axis, divisors of zero."""

from collections.abc import Callable
from typing import Any

import pytest

import sterna
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

X = torch.arange(12.0).reshape(4, 3)
TWO, LINES = torch.ones(2, 3), torch.ones(1, 3)
Program = Callable[[Any], Any]

# Functions of places along an axis with four elements, which take so many of them; whether those
# below 0 count from the end.
PLACES: dict[str, tuple[Program, bool]] = {
    "index_select": (lambda i: torch.index_select(X, 0, i), False),
    "gather": (lambda i: torch.gather(X, 0, i[None]), False),
    "embedding": (lambda i: F.embedding(i, X), False),
    "embedding_bag": (lambda i: F.embedding_bag(i[None], X), False),
    "index": (lambda i: X[i], True),
    "index of two axes": (lambda i: X[i, torch.tensor([0, 1])], True),
    "take": (lambda i: torch.take(X[:, 0], i), True),
    "index_put": (lambda i: X.clone().index_put_((i,), TWO), True),
    "index_put of sums": (lambda i: X.clone().index_put_((i,), TWO, accumulate=True), True),
    "index_add": (lambda i: X.index_add(0, i, TWO), False),
    "index_copy": (lambda i: X.index_copy(0, i, TWO), False),
    "index_fill": (lambda i: X.index_fill(0, i, 7.0), True),
    "scatter": (lambda i: X.scatter(0, i[None], LINES), False),
    "scatter of a number": (lambda i: X.scatter(0, i[None], 2.0), False),
    "scatter_add": (lambda i: X.scatter_add(0, i[None], LINES), False),
    "scatter_reduce": (lambda i: X.scatter_reduce(0, i[None], LINES, "amax"), False),
    "put": (lambda i: X[:, 0].clone().put_(i, torch.ones(2)), True),
    "one_hot": (lambda i: F.one_hot(i, 4), False),
    "nll_loss": (lambda i: F.nll_loss(X.T[:2], i), False),
    "cross_entropy": (lambda i: F.cross_entropy(X.T[:2], i), False),
    "multi_margin_loss": (lambda i: F.multi_margin_loss(X.T[:2], i), False),
    "max_unpool": (lambda i: F.max_unpool1d(TWO[None, :1, :2], i[None, None], 2), False),
}


def compiled(function: Program) -> Program:
    torch._dynamo.reset()
    made: Program = torch.compile(function, backend="sterna", options={"fallback": False})
    return made


def agree(function: Program, made: Program, *given: Any) -> None:
    """Both give the same, or both an error."""
    try:
        wanted = function(*given)
    except (IndexError, RuntimeError):
        with pytest.raises((IndexError, RuntimeError)):
            made(*given)
    else:
        torch.testing.assert_close(made(*given), wanted)


@pytest.mark.parametrize("name", PLACES)
def test_places_outside_of_an_axis_are_errors(name: str) -> None:
    function, from_end = PLACES[name]
    made = compiled(function)
    for place in (3, 4, -1, -4, -5, 1 << 40):
        agree(function, made, torch.tensor([0, place]))
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.tensor([0, 4]))
    if not from_end:
        with pytest.raises((IndexError, RuntimeError)):
            function(torch.tensor([0, -1]))


def test_places_of_take_along_dim_go_round() -> None:
    def function(i: Any) -> Any:
        return torch.take_along_dim(X, i[:, None], 0)

    made = compiled(function)
    for place in (3, 4, -1, -5, 9):
        agree(function, made, torch.tensor([0, place]))


def test_classes_that_are_ignored_are_no_errors() -> None:
    def function(i: Any) -> Any:
        return F.cross_entropy(X.T[:2], i) + F.nll_loss(X.T[:2], i, ignore_index=-100)

    agree(function, compiled(function), torch.tensor([1, -100]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
@pytest.mark.parametrize("function", [
    torch.floor_divide, torch.remainder, torch.fmod,
    lambda a, b: torch.div(a, b, rounding_mode="trunc"), lambda a, b: 7 % b,
], ids=["floor", "remainder", "fmod", "trunc", "of a number"])
def test_divisors_of_zero_are_errors(function: Callable[[Any, Any], Any], dtype: Any) -> None:
    made = compiled(lambda both: function(both[0], both[1]))

    def eager(both: Any) -> Any:
        return function(both[0], both[1])

    low = torch.iinfo(dtype).min
    agree(eager, made, torch.tensor([[5, 6, low], [2, 3, 1]], dtype=dtype))
    both = torch.tensor([[5, 6, 7], [2, 0, 3]], dtype=dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        function(both[0], both[1])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        made(both)


class Rows(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        return torch.relu(x)[i]


@pytest.mark.parametrize("is_open", [False, True], ids=["known extents", "open extents"])
def test_exported_programs_check_places(is_open: bool) -> None:
    shapes = ({0: torch.export.Dim("n", min=2)}, None) if is_open else None
    i = torch.tensor([0, 3, -4])
    exported = torch.export.export(Rows(), (X, i), dynamic_shapes=shapes)
    model = sterna.compile(exported)
    torch.testing.assert_close(torch.from_numpy(model(X.numpy(), i.numpy())), X[i])
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        model(X.numpy(), torch.tensor([0, 4, 1]).numpy())
    if is_open:
        tall = torch.cat([X, X])
        i[0] = 7
        torch.testing.assert_close(torch.from_numpy(model(tall.numpy(), i.numpy())), tall[i])


def test_many_places_are_checked_by_all_threads() -> None:
    made = compiled(lambda i: X[i])
    places = torch.randint(-4, 4, (100_003,))
    torch.testing.assert_close(made(places), X[places])
    places[70_000] = 4
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        made(places)
