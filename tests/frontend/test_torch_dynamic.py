"""Extents that data decides: places, selections and different elements, and what follows them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import load
from sterna.model import compile_closed
from sterna.relay.interpreter import interpret
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

Call = Callable[[Any], Any]


class Wrapped(torch.nn.Module):
    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def compiled(function: Call, x: Any) -> Any:
    with torch.no_grad():
        return sterna.compile(torch.export.export(Wrapped(function), (x,)), opt_level=0)


def expect_eager(function: Call, x: Any) -> None:
    """One program gives what an eager run gives, however many elements are found."""
    model = compiled(function, x)
    assert model.is_symbolic, model.why_not_symbolic
    for given in (x, -x, x.abs(), -x.abs()):
        made = model(given.numpy())
        wanted = function(given)
        pairs = zip(made, wanted, strict=True) if isinstance(made, tuple) else [(made, wanted)]
        for have, want in pairs:
            assert have.shape == tuple(want.shape)
            assert str(have.dtype) == str(want.dtype).removeprefix("torch.")
            np.testing.assert_allclose(have, want.numpy(), rtol=1e-5, atol=1e-6)


def rows(x: Any) -> Any:
    return x[x[:, 0] > 0]


FOUND: dict[str, Call] = {
    "nonzero": lambda x: torch.nonzero(x > 0),
    "where": lambda x: torch.where(x > 0),
    "masked_select": lambda x: torch.masked_select(x, x[0] > 0),
    "columns": lambda x: x[:, x[0] > 0],
    "elements": lambda x: x[x > 0] * 2,
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique_dim": lambda x: torch.unique(x.round(), dim=0),
    "consecutive": lambda x: torch.unique_consecutive(
        x.sign(), return_inverse=True, return_counts=True),
    "consecutive_dim": lambda x: torch.unique_consecutive(x.sign(), dim=1, return_counts=True),
}



def counts(x: Any) -> Any:
    """Whole numbers from 0."""
    return (2 * x.abs()).long()


def beginning(x: Any) -> Any:
    """As many rows as an element says, and the rest from there."""
    count = counts(x)[0, 0].item()
    torch._check(count >= 0)
    torch._check(count <= 6)
    return x[:count], torch.full((count, 2), 3.0)


TOLD: dict[str, Call] = {
    "bincount": lambda x: torch.bincount(counts(x[:, 0]), minlength=2),
    "bincount of weights": lambda x: torch.bincount(counts(x[:, 0]), x[:, 1]),
    "bincount of whole weights": lambda x: torch.bincount(counts(x[:, 0]), counts(x[:, 1])),
    "repeated places": lambda x: torch.repeat_interleave(counts(x[:, 0])),
    "repeated rows": lambda x: torch.repeat_interleave(x, counts(x[:, 0]), dim=0) * 2,
    "repeated elements": lambda x: torch.repeat_interleave(x, counts(x[0, 0]) + 1),
    "tensor_split": lambda x: torch.tensor_split(x, counts(x[0, :2]), dim=0),
    "numbers as sizes": beginning,
}

FOLLOWING: dict[str, Call] = {
    "product": lambda x: rows(x) @ x.t(),
    "joined": lambda x: torch.cat([rows(x), x]),
    "reshaped": lambda x: rows(x).reshape(-1, 2, 2).flatten(),
    "column": lambda x: torch.stack([rows(x)[:, 0], rows(x)[:, 1]], 1),
    "deviation": lambda x: x[x > 0].std(),
    "extent": lambda x: torch.ones(rows(x).shape[0], 2),
    "extent first": lambda x: torch.arange(rows(x).shape[0]) + rows(x)[:, 1],
    "number": lambda x: x.sum() / (x[x > 0].numel() + 1),
    "written back": lambda x: torch.zeros(6, 4).index_put((x > 0,), x[x > 0] * 2),
    "written rows": lambda x: x.index_put((x[:, 0] > 0,), rows(x) + 1, accumulate=True),
    "in another order": lambda x: rows(x)[rows(x)[:, 1].argsort()],
    "taken": lambda x: x[torch.nonzero(x[:, 0] > 0).squeeze(1)].softmax(-1),
    "taken by two axes": lambda x: x[torch.where(x > 0)][:, None] * x[0],
    "added": lambda x: x.index_add(0, torch.where(x[:, 0] > 0)[0], rows(x), alpha=2),
    "copied": lambda x: x.index_copy(0, torch.where(x[:, 0] > 0)[0], rows(x) * 3),
    "put": lambda x: x.index_put((torch.where(x[:, 0] > 0)[0],), rows(x) * 3),
    "put by two axes": lambda x: x.index_put(torch.where(x > 0), x[x > 0] * 3, accumulate=True),
    "put into columns": lambda x: x.index_put(
        (torch.arange(6)[:, None], torch.where(x[0] > 0)[0]), torch.tensor(7.0)),
    "filled": lambda x: x.index_fill(0, torch.where(x[:, 0] > 0)[0], 2.0),
    "averaged": lambda x: x.index_reduce(0, torch.where(x[:, 0] > 0)[0], -rows(x), "mean"),
    "scattered": lambda x: x[0].scatter_reduce(
        0, torch.where(x[:4, 0] > 0)[0], x[:4, 1][x[:4, 0] > 0], "amax", include_self=False),
}


@pytest.mark.parametrize("name", [*FOUND, *TOLD, *FOLLOWING])
def test_what_is_found(name: str) -> None:
    torch.manual_seed(0)
    expect_eager((FOUND | TOLD | FOLLOWING)[name], torch.randn(6, 4))


@pytest.mark.parametrize("name", TOLD)
def test_the_interpreter_finds_the_same(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    module, _ = load(torch.export.export(Wrapped(TOLD[name]), (x,)), ImportOptions())
    made, wanted = interpret(module["main"], x.numpy()), TOLD[name](x)
    pairs = zip(made, wanted, strict=True) if isinstance(made, tuple) else [(made, wanted)]
    for have, want in pairs:
        np.testing.assert_allclose(have, want.numpy(), rtol=1e-5, atol=1e-6)


def test_two_counts_that_must_be_equal_are_compared() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    model = compiled(lambda x: x[x[:, 0] > 0] * x[x[:, 1] > 0], x.abs())
    np.testing.assert_allclose(model(x.abs().numpy()), (x * x).numpy(), rtol=1e-6)
    x[:, 0], x[:4, 1], x[4:, 1] = 1, 1, -1
    with pytest.raises(ValueError, match="found0 and found1 must be equal"):
        model(x.numpy())
    np.testing.assert_allclose(model(x.abs().numpy()), (x * x).numpy(), rtol=1e-6)


def test_an_open_extent_beside_one_that_data_decides() -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(
        Wrapped(lambda x: rows(x).relu().sum(1)), (torch.randn(3, 4),),
        dynamic_shapes={"x": {0: batch}},
    )
    model: Any = sterna.compile(exported, opt_level=0)
    assert model.is_symbolic
    for count in (2, 5, 64):
        x = torch.randn(count, 4)
        np.testing.assert_allclose(
            model(x.numpy()), rows(x).relu().sum(1).numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("call", [torch.bincount, torch.repeat_interleave])
def test_numbers_below_0_are_refused(call: Call) -> None:
    x = torch.tensor([2, 0, 1])
    model = compiled(call, x)
    with pytest.raises(ValueError, match="cannot have the extent -4, which was computed for it"):
        model(np.array([2, -4, 1]))
    np.testing.assert_array_equal(model(x.numpy()), call(x).numpy())


def test_a_size_that_a_branch_computes_is_refused() -> None:
    def longer(x: Any) -> Any:
        return torch.bincount(x).sum().reshape(1)

    def choice(x: Any) -> Any:
        return torch.cond(x.sum() > 2, longer, lambda x: x.sum().reshape(1), (x,))

    with pytest.raises(NotImplementedError, match="a size that data decides, in a branch"):
        compiled(choice, torch.tensor([2, 0, 1]))


# ---- what is checked in a run ----


def number(x: Any) -> Any:
    return x[0, 0].long().item()


def checked(x: Any) -> Any:
    count = number(x)
    torch._check(count >= 0)
    torch._check(count < 5)
    return torch.zeros(count)


def moved(x: Any) -> Any:
    first = number(x)
    torch._check(first >= 0)
    torch._check(first <= 4)
    return torch.narrow(x, 0, first, 2)


def sized(x: Any) -> Any:
    first, second = number(x), x[0, 1].long().item()
    torch._check(first >= 0)
    torch._check(second >= 0)
    return torch.split(x, [first, second])


def chosen(x: Any) -> Any:
    place = number(x)
    torch._check(place < 6)
    torch._check(place >= -6)
    return x[place]


def stated(x: Any) -> Any:
    torch._check((x.sum() > 0).item(), lambda: "the sum is not above 0")
    return x * 2


def asserted(x: Any) -> Any:
    torch._assert_async((x > -5).all(), "an element is too small")
    return x * 2


def branched(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: torch.zeros(6, 4).masked_scatter(x > 1, x[:1]),
                      lambda x: x * 2, (x,))


# A function, a number that every element of the input may be, one that it may not be, the error.
CHECKED: dict[str, tuple[Call, float, float, str]] = {
    "a check": (checked, 4, 8, r"u0 <= 4 .*; the numbers of this run are 8"),
    "narrow": (moved, 2, 5, r"u0 <= 4 .*; the numbers of this run are 5"),
    "split": (sized, 3, 2, "split: the sizes come to 4, and the axis has 6 elements"),
    "select": (chosen, -2, 8, "select: index 8 is none of the 6 along the axis"),
    "a statement": (stated, 1, -1, "Runtime assertion failed for expression"),
    "an assertion": (asserted, 1, -9, "an element is too small"),
    "masked_scatter": (
        lambda x: torch.zeros(6, 4).masked_scatter(x > 1, x[:1]), 1, 2,
        "masked_scatter: the mask holds in 24 places, and the source has 4 elements",
    ),
    "index_put": (
        lambda x: torch.zeros(6, 4).index_put((x > 1,), x[x < 3] * 2), 2, 4,
        "index_put: the truth values hold in 24 places, and 0 values are written there",
    ),
    "in a branch": (
        branched, 1, 2,
        "masked_scatter: the mask holds in 24 places, and the source has 4 elements",
    ),
}


@pytest.mark.parametrize("name", CHECKED)
def test_what_a_program_assumes_is_checked_in_a_run(name: str) -> None:
    function, good, bad, error = CHECKED[name]
    x, wrong = torch.full((6, 4), float(good)), torch.full((6, 4), float(bad))
    with pytest.raises(RuntimeError):
        function(wrong)
    model = compiled(function, x)
    for _ in range(2):
        wanted, made = function(x), model(x.numpy())
        pairs = zip(made, wanted, strict=True) if isinstance(made, tuple) else [(made, wanted)]
        for have, want in pairs:
            np.testing.assert_allclose(have, want.numpy())
        with pytest.raises(ValueError, match=error):
            model(wrong.numpy())


@pytest.mark.parametrize("repeats, error", [
    ([1, 2, 3], "repeat_interleave: the repeats come to 6 elements, and output_size is 5"),
    ([1, 1, 1], "repeat_interleave: the repeats come to 3 elements, and output_size is 5"),
    ([-1, 4, 2], "repeat_interleave: repeats hold -1, which is below 0"),
])
def test_a_size_that_does_not_fit_the_repeats_is_refused(repeats: list[int], error: str) -> None:
    def repeated(x: Any) -> Any:
        return torch.repeat_interleave(torch.arange(3.0), x, output_size=5)

    x = torch.tensor([1, 2, 2])
    exported = torch.export.export(Wrapped(repeated), (x,))
    model: Any = sterna.compile(exported, opt_level=0)
    np.testing.assert_array_equal(model(x.numpy()), repeated(x).numpy())
    with pytest.raises(ValueError, match=error):
        model(np.array(repeats))
    module, _ = load(exported, ImportOptions())
    with pytest.raises(ValueError, match=error):
        interpret(module["main"], np.array(repeats))


def test_torch_compile_checks_too() -> None:
    def repeated(x: Any, times: Any) -> Any:
        return torch.repeat_interleave(x, times, dim=0, output_size=5) * 2

    fast = torch.compile(repeated, backend="sterna", options={"fallback": False})
    x, times = torch.randn(3, 2), torch.tensor([1, 2, 2])
    torch.testing.assert_close(fast(x, times), repeated(x, times))
    with pytest.raises(ValueError, match="come to 6 elements, and output_size is 5"):
        fast(x, torch.tensor([1, 2, 3]))


def test_equal_repeats_may_say_their_size() -> None:
    def repeated(x: Any) -> Any:
        return torch.repeat_interleave(x, 2, dim=0, output_size=6) + 1

    x = torch.randn(3, 2)
    model: Any = sterna.compile(Wrapped(repeated), (x,), opt_level=0)
    np.testing.assert_allclose(model(x.numpy()), repeated(x).numpy())


def test_known_repeats_that_do_not_fit_are_told_with_their_numbers() -> None:
    def repeated(x: Any) -> Any:
        return torch.repeat_interleave(x, torch.tensor([1, 2, 3]), dim=0, output_size=7)

    fast = torch.compile(repeated, backend="sterna")
    with pytest.raises(Exception, match="come to 6 elements, and output_size is 7"):
        fast(torch.randn(3, 2))


def test_checks_of_a_run_are_named_where_no_machine_runs_them() -> None:
    def checked(x: Any) -> Any:
        torch._assert_async((x >= 0).all(), "a number is below 0")
        return x * 2

    exported = torch.export.export(Wrapped(checked), (torch.ones(3),))
    with pytest.raises(ValueError, match=r"checks its numbers .*'a number is below 0'.*leave the"):
        compile_closed(exported)


def test_no_numbers_are_counted_as_integers() -> None:
    def counted(x: Any) -> Any:
        return torch.bincount(x, torch.ones(0), minlength=3)

    x = torch.zeros(0, dtype=torch.int64)
    model: Any = sterna.compile(Wrapped(counted), (x,), opt_level=0)
    made = model(x.numpy())
    assert made.dtype == np.int64 and made.tolist() == counted(x).tolist()


def test_truth_values_and_bits_of_numbers_that_data_decides() -> None:
    def joined(x: Any) -> Any:
        a, b = x[0].item(), x[1].item()
        torch._check(a < 10)
        torch._check(((a < 20) & (b < 30)) | (b == 77))
        return torch.ones(3) * ((a & 3) + (b | 8) + (a << 2) + (b >> 1))

    model = compiled(joined, torch.tensor([3, 4]))
    for given in ([3, 4], [6, 9], [-7, 77]):
        x = torch.tensor(given)
        np.testing.assert_array_equal(model(x.numpy()), joined(x).numpy())
    with pytest.raises(ValueError, match="Runtime assertion failed"):
        model(np.array([3, 31]))
