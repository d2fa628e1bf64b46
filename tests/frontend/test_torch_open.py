"""Exported programs with open dimensions: one object for any shape, in memory and from a file."""

from pathlib import Path

import numpy as np
import pytest

import sterna
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
    assert isinstance(model, OpenModel) and model.compiled == 3


def test_a_script_is_recorded_anew_for_other_example_inputs(tmp_path: Path) -> None:
    require_module("torch")
    import torch

    path = tmp_path / "layer.pt"
    torch.jit.script(torch.nn.Linear(4, 3)).save(path)
    for rows in (2, 5):
        model = sterna.compile(path, (torch.zeros(rows, 4),))
        assert np.asarray(model(np.ones((rows, 4), "float32"))).shape == (rows, 3)
