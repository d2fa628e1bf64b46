"""torch.cond, while_loop, scan and map: imported, and run by the virtual machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch._higher_order_ops import (  # noqa: E402
    scan,
    while_loop,
    while_loop_stack_output,
)
from torch._higher_order_ops.map import map as map_parts  # noqa: E402

import sterna  # noqa: E402
from sterna.support.errors import OpNotImplemented  # noqa: E402
from tests.frontend.torch_support import expect_close, imported, results, tensors_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Cond(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2 - 1, (x,))


class While(torch.nn.Module):
    def forward(self, x: Any, count: Any) -> Any:
        first = (torch.tensor(0), x)
        return while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * 2), first)


class StackedWhile(torch.nn.Module):
    def forward(self, count: Any, x: Any) -> Any:
        return while_loop_stack_output(
            lambda i, y: i > 0, lambda i, y: (i - 1, y * 2), (count, x), ()
        )


class Scan(torch.nn.Module):
    def forward(self, first: Any, xs: Any) -> Any:
        return scan(lambda state, x: (state + x, state * x), first, xs, dim=0)


class Map(torch.nn.Module):
    def forward(self, xs: Any, y: Any) -> Any:
        return map_parts(lambda x, y: x.sin() + y, xs, y)


def line(*shape: int) -> Any:
    return torch.linspace(-1, 1, int(np.prod(shape))).reshape(shape)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cond, yes": (Cond(), (torch.ones(3),)),
    "cond, no": (Cond(), (-torch.ones(3),)),
    "while": (While(), (torch.ones(3), torch.tensor(4))),
    "stacked states": (StackedWhile(), (torch.tensor(3), line(3))),
    "states of no round": (StackedWhile(), (torch.tensor(0), line(3))),
    "a short scan": (Scan(), (torch.ones(3), line(5, 3))),
    "a long scan": (Scan(), (torch.ones(3), line(20, 3))),
    "map": (Map(), (line(12, 3), torch.ones(3))),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_is_imported(name: str) -> None:
    model, given = CASES[name]
    expect_close(results(imported(model, given), *given), model(*given))


def test_a_compiled_loop_runs_as_often_as_its_input_says() -> None:
    x = line(4)
    model = sterna.compile(While(), (x, torch.tensor(3)))
    for count in (0, 1, 7):
        made = tensors_of(model(x, torch.tensor(count)))
        expect_close(made, While()(x, torch.tensor(count)))


def test_a_compiled_condition_takes_either_branch() -> None:
    model = sterna.compile(Cond(), (line(4),))
    for x in (torch.ones(4), -torch.ones(4)):
        expect_close([model(x)], Cond()(x))


def test_control_flow_of_a_file(tmp_path: Path) -> None:
    for name in ("cond, no", "while"):
        model, given = CASES[name]
        path = tmp_path / "model.pt2"
        torch.export.save(torch.export.export(model, given), path)
        expect_close(results(imported(path), *given), model(*given))


def test_what_a_branch_lacks_is_named() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: torch.bernoulli(x), lambda x: x + 1, (x,))

    with pytest.raises(OpNotImplemented, match=r"aten\.bernoulli"):
        imported(Branch(), (torch.ones(3),))
