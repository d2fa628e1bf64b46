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
