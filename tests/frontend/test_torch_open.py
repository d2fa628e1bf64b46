"""Exported programs with open dimensions: one object for any shape, in memory and from a file."""

from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna.model.arguments import InputError
from sterna.model.open_model import OpenModel
from tests.support import require_module


@pytest.mark.parametrize("from_file", [False, True])
def test_a_batch_stays_open(from_file: bool, tmp_path: Path) -> None:
    require_module("torch")
    import torch

    layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    given = torch.randn(2, 4)
    batch = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(layers, (given,), dynamic_shapes=({0: batch},))
    source: object = program
    if from_file:
        source = tmp_path / "layers.pt2"
        torch.export.save(program, source)
    model = sterna.compile(source)
    for rows in (1, 2, 5):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            np.testing.assert_allclose(
                np.asarray(model(x.numpy())), layers(x).numpy(), rtol=1e-4, atol=1e-5
            )
    assert isinstance(model, OpenModel) and model.is_symbolic and model.compiled == 1


def test_a_script_is_recorded_anew_for_other_example_inputs(tmp_path: Path) -> None:
    require_module("torch")
    import torch

    path = tmp_path / "layer.pt"
    torch.jit.script(torch.nn.Linear(4, 3)).save(path)
    for rows in (2, 5):
        model = sterna.compile(path, (torch.zeros(rows, 4),))
        assert np.asarray(model(np.ones((rows, 4), "float32"))).shape == (rows, 3)


@pytest.mark.parametrize("in_file", [False, True])
def test_extents_outside_of_a_programs_ranges_are_named(in_file: bool, tmp_path: Path) -> None:
    require_module("torch")
    import torch

    batch = torch.export.Dim("batch", min=3, max=16)
    program = torch.export.export(
        torch.nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes={"input": {0: batch}}
    )
    torch.export.save(program, tmp_path / "relu.pt2")
    model = sterna.compile(tmp_path / "relu.pt2" if in_file else program)
    for extent in (2, 17):
        with pytest.raises(InputError, match=rf"extent {extent} .*compiled for 3 to 16"):
            model(np.ones((extent, 2), "float32"))
    assert model(np.ones((16, 2), "float32")).shape == (16, 2)


def test_bfloat16_stays_open() -> None:
    require_module("torch")
    import torch

    batch = torch.export.Dim("batch", min=1, max=16)
    given = torch.ones(4, 2, dtype=torch.bfloat16)
    program = torch.export.export(torch.nn.ReLU(), (given,), dynamic_shapes={"input": {0: batch}})
    model = sterna.compile(program)
    for rows in (1, 3):
        made = model(torch.full((rows, 2), 0.5, dtype=torch.bfloat16))
        np.testing.assert_array_equal(np.asarray(made, "float32"), np.full((rows, 2), 0.5))
    with pytest.raises(InputError, match=r"is given float16\[3, 2\]; convert it to bfloat16"):
        model(torch.ones(3, 2, dtype=torch.float16))


@pytest.mark.parametrize("in_file", [False, True])
def test_buffers_that_an_open_program_changes(in_file: bool, tmp_path: Path) -> None:
    require_module("torch")
    import torch

    class Sums(torch.nn.Module):  # type: ignore[misc]
        total: torch.Tensor
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
            self.total.add_(x.sum(0))
            self.calls += 1
            return x + self.total * self.calls, None

    batch = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(Sums(), (torch.ones(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "sums.pt2")
    model = sterna.compile(tmp_path / "sums.pt2" if in_file else program)
    assert isinstance(model, OpenModel) and model.is_symbolic
    assert model.outputs == ("output_0", "new total", "new calls")
    state = [torch.zeros(4), torch.tensor(0)]
    eager = Sums()
    for rows in (2, 1, 3):
        x = torch.randn(rows, 4)
        made, *state = model(x, *state)
        np.testing.assert_allclose(made, eager(x)[0], rtol=1e-5, atol=1e-5)
    assert model.compiled == 1
    with pytest.raises(InputError, match=r"missing: total: float32\[4\], calls: int64"):
        model(x)


RESIZES = {
    "doubled": {"scale_factor": 2.0, "mode": "bilinear"},
    "by fractions": {"scale_factor": (1.75, 0.5), "mode": "nearest"},
    "cubic": {"scale_factor": 1.5, "mode": "bicubic"},
    "to corners": {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True},
}


@pytest.mark.parametrize("kind", list(RESIZES))
def test_images_of_any_size_are_resized_by_factors(kind: str) -> None:
    require_module("torch")
    import torch

    layer = torch.nn.Upsample(**RESIZES[kind])  # type: ignore[arg-type]
    sizes = {2: torch.export.Dim("height", min=2, max=64), 3: torch.export.Dim("width", min=4)}
    program = torch.export.export(layer, (torch.randn(1, 2, 4, 8),), dynamic_shapes=(sizes,))
    model = sterna.compile(program)
    assert isinstance(model, OpenModel)
    for height, width in ((4, 8), (7, 5), (2, 4)):
        x = torch.randn(1, 2, height, width)
        np.testing.assert_allclose(model(x), layer(x), rtol=1e-4, atol=1e-5)
    assert model.is_symbolic and model.compiled == 1
