"""Changes in place of views and of copies, through every reader, against eager PyTorch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import import_program, load
from sterna.frontend.torch.memory import Layout, shares_memory
from sterna.frontend.torch.program import Step
from sterna.frontend.torch.read_exported import read_recorded
from sterna.relay.interpreter import interpret
from sterna.support.errors import OpNotImplemented
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# What is taken of a tensor, and changed; the tensor must be what eager PyTorch leaves it as.
TAKEN: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda y: y.contiguous(),
    "contiguous of a transposed one": lambda y: y.t().contiguous(),
    "other elements": lambda y: y.to(torch.float64),
    "the same elements": lambda y: y.to(torch.float32),
    "the same elements as a copy": lambda y: y.to(torch.float32, copy=True),
    "type_as": lambda y: y.type_as(y),
    "reshape": lambda y: y.reshape(2, 2, 3),
    "reshape of a transposed one": lambda y: y.t().reshape(-1),
    "reshape of whole rows": lambda y: y[1:].reshape(-1),
    "reshape of parts of rows": lambda y: y[:, 1:].reshape(-1),
    "reshape of another's layout": lambda y: torch.relu(y.t()).reshape(-1),
    "flatten": lambda y: y.flatten(),
    "flatten of every other row": lambda y: y[::2].flatten(),
    "ravel of a transposed one": lambda y: y.t().ravel(),
    "channels last": lambda y: y.reshape(1, 3, 2, 2).contiguous(memory_format=torch.channels_last),
    "dropout": lambda y: torch.nn.functional.dropout(y, 0.5, False),
    "unbind": lambda y: y.unbind(1)[2],
    "split": lambda y: y.split(3, 1)[1],
    "split in sizes": lambda y: y.split([1, 2, 1], 1)[1],
    "narrow": lambda y: y.narrow(0, 1, 2),
    "movedim": lambda y: y.movedim(0, 1)[1],
    "T": lambda y: y.T[1:],
    "swapaxes": lambda y: y.swapaxes(0, 1)[2],
    "transposed in place": lambda y: y[1:].t_(),
    "unsqueezed in place": lambda y: y[1:].unsqueeze_(0),
}


class _Changed(torch.nn.Module):
    def __init__(self, take: Callable[[Any], Any]) -> None:
        super().__init__()
        self.take = take

    def forward(self, x: Any) -> tuple[Any, ...]:
        y = x.clone()
        before = y[0]
        taken = self.take(y)
        taken.mul_(2)
        y.add_(1)
        return y, taken, before


def _recorded(module: Any, x: Any, folder: Path) -> Any:
    program = read_recorded(torch.export.export(module, (x,)))
    return import_program(program, ImportOptions())[0]["main"]


def _of_a_file(module: Any, x: Any, folder: Path) -> Any:
    torch.export.save(torch.export.export(module, (x,)), folder / "changed.pt2")
    return load(str(folder / "changed.pt2"), ImportOptions())[0]["main"]


def _traced(module: Any, x: Any, folder: Path) -> Any:
    script = torch.jit.trace(module, x, check_trace=False)
    return relay.frontend.from_pytorch(script, [("x", tuple(x.shape))])[0]["main"]


@pytest.mark.parametrize("read", [_recorded, _of_a_file, _traced])
@pytest.mark.parametrize("taken", TAKEN)
def test_changes_reach_what_shares_memory(taken: str, read: Any, tmp_path: Path) -> None:
    module, x = _Changed(TAKEN[taken]), torch.arange(12.0).reshape(3, 4)
    found = interpret(read(module, x, tmp_path), x.numpy())
    for have, want in zip(found, module(x), strict=False):
        np.testing.assert_array_equal(np.asarray(have), want.numpy())


def test_what_may_be_a_view_is_not_changed() -> None:
    """A file with open extents does not tell whether a reshape copies."""
    step = Step("aten.reshape.default", "reshape", {}, ["z"])
    base, own = Layout("float32", ["s0", 4], [4, 1]), Layout("float32", ["4*s0"], [1])
    assert shares_memory("reshape", step, base, own) is None
    assert shares_memory("reshape", step, base, base) is True
    assert shares_memory("select", step, None, None) is True


def test_an_undecided_view_is_refused(tmp_path: Path) -> None:
    """Rather than a guess: with open extents strides do not tell whether reshape copies."""
    module, x = _Changed(lambda y: y.t().reshape(-1)), torch.zeros(3, 4)
    rows = {"x": {0: torch.export.Dim("rows", max=64)}}
    exported = torch.export.export(module, (x,), dynamic_shapes=rows)
    torch.export.save(exported, tmp_path / "open.pt2")
    with pytest.raises(OpNotImplemented, match="may be a view or a copy"):
        load(str(tmp_path / "open.pt2"), ImportOptions())


# Elements by their places in memory, whatever view of it is given.
BY_PLACES: dict[str, Callable[[Any], Any]] = {
    "windows": lambda x: x.unfold(1, 3, 2).as_strided((2, 2), (3, 1)),
    "transposed": lambda x: x.t().as_strided((2, 2), (3, 1)),
    "whole rows": lambda x: x[1:].as_strided((2, 2), (3, 1)),
    "part of rows": lambda x: x[1:, 1:].as_strided((2, 2), (3, 1), 2),
    "changed": lambda x: x.clone().mul_(2).t().as_strided((2, 2), (3, 1), 1),
}


class ByPlaces(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", BY_PLACES)
def test_places_in_memory_are_those_of_the_whole_tensor(name: str, tmp_path: Path) -> None:
    x = torch.arange(15.0).reshape(3, 5)
    exported = torch.export.export(ByPlaces(BY_PLACES[name]), (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    for model in (exported, tmp_path / "model.pt2"):
        module, _ = load(model, ImportOptions())
        np.testing.assert_array_equal(interpret(module["main"], x.numpy()), BY_PLACES[name](x))


def test_places_in_memory_of_a_part_are_refused() -> None:
    x = torch.arange(15.0).reshape(3, 5)
    model = ByPlaces(lambda x: x[:, 1:].as_strided((2, 2), (3, 1)))
    with pytest.raises(OpNotImplemented, match="places in the memory of a part of a tensor"):
        import_program(read_recorded(torch.export.export(model, (x,))), ImportOptions())
