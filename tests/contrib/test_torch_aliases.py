"""Results of torch.compile that share memory with inputs or each other, as eager PyTorch has it."""

from collections.abc import Callable
from typing import Any

import pytest

from sterna.support.errors import OpNotImplemented

torch = pytest.importorskip("torch")
while_loop = pytest.importorskip("torch._higher_order_ops.while_loop").while_loop


def _views(x: Any) -> Any:
    return x.view(-1), x.t()[1:], x * 2


def _itself(x: Any) -> Any:
    x.relu_()
    return x, x[0]


def _of_each_other(x: Any) -> Any:
    y = x * 3
    return y, y.t(), y[1:, 2], y


def _of_a_copy(x: Any) -> Any:
    return x.t().reshape(-1), x.clone(), x.to(torch.float64)


CASES = {"views": _views, "itself": _itself, "each other": _of_each_other, "copies": _of_a_copy}


def _shared(inputs: Any, results: Any) -> list[list[int | None]]:
    """For each pair of tensors, how far apart they begin; None in other memory."""
    every = [*inputs, *results]
    return [
        [a.storage_offset() - b.storage_offset()
         if a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() else None
         for b in every]
        for a in every
    ]


def _check(run: Callable[..., Any], function: Callable[..., Any], x: Any) -> None:
    own = x.detach().as_strided(x.shape, x.stride()).clone(memory_format=torch.preserve_format)
    want, made = function(x), run(own)
    assert _shared([x], want) == _shared([own], made)
    for a, b in zip(want, made, strict=True):
        a.add_(1)
        b.add_(1)
    for a, b in zip([x, *want], [own, *made], strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("function", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_what_is_written_to_a_result_shows_where_it_shows_in_pytorch(
    function: Callable[..., Any], is_open: bool
) -> None:
    torch._dynamo.reset()
    run = torch.compile(function, backend="sterna", dynamic=is_open, fullgraph=True)
    with torch.no_grad():
        for rows in (4, 5) if is_open else (4,):
            _check(run, function, torch.randn(rows, 6))


def _loop(x: Any) -> Any:
    def step(i: Any, y: Any) -> Any:
        return i + 1, y * 2

    _, made = while_loop(lambda i, y: i < 3, step, (torch.tensor(0), x))
    return made, x.t()


def test_graphs_with_loops_have_views_among_their_results() -> None:
    torch._dynamo.reset()
    run = torch.compile(_loop, backend="sterna", fullgraph=True)
    with torch.no_grad():
        _check(run, _loop, torch.randn(4, 6))


def test_views_of_an_input_that_is_a_view_itself() -> None:
    torch._dynamo.reset()
    run = torch.compile(_views, backend="sterna", fullgraph=True)
    for start in (1, 3):
        base = torch.randn(8, 6)
        x = base[start : start + 4]
        made = run(x)
        assert made[0].data_ptr() == x.data_ptr()
        made[1].zero_()
        assert not base[start : start + 4, 1:].any() and base[start : start + 4, 0].all()


def _written(x: Any, y: Any) -> Any:
    x.add_(1)
    return y * 2


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_what_is_written_to_an_input_shows_in_another_of_its_memory(is_open: bool) -> None:
    torch._dynamo.reset()
    run = torch.compile(_written, backend="sterna", dynamic=is_open, fullgraph=True)
    x, own = torch.randn(4, 6), torch.randn(6)
    torch.testing.assert_close(run(x, own), own * 2)
    with pytest.warns(UserWarning, match="shares memory with another"):
        made = run(x, x[0])
    torch.testing.assert_close(made, x[0] * 2)


def test_inputs_in_one_memory_are_an_error_where_nothing_may_run_as_pytorch_runs_it() -> None:
    torch._dynamo.reset()
    run = torch.compile(_written, backend="sterna", fullgraph=True, options={"fallback": False})
    x = torch.randn(4, 6)
    with pytest.raises(OpNotImplemented, match="clone one of them"):
        run(x, x[0])
