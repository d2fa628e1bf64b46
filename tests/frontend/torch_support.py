"""Modules of PyTorch, imported, run by the operators' references and held against eager runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.frontend.format import ImportOptions
from sterna.frontend.formats import recognise
from sterna.ir.module import IRModule
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret


def imported(model: Any, example_inputs: Sequence[Any] | None = None) -> IRModule:
    """The graph of anything that is a model of PyTorch, its weights in place."""
    options = ImportOptions(example_inputs=example_inputs)
    module, params = recognise(model).load_model(model, options)
    assert not params
    return module


def results(module: IRModule, *inputs: Any) -> list[Array]:
    """What a graph computes for tensors or arrays."""
    found = interpret(module["main"], *(np.asarray(each) for each in inputs))
    return list(found) if isinstance(found, tuple | list) else [np.asarray(found)]


def tensors_of(made: Any) -> list[Any]:
    """The tensors that a module gives back, in order."""
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, tuple | list):
        return [tensor for each in made for tensor in tensors_of(each)]
    return [] if made is None else [made]


def expect_close(found: Sequence[Any], wanted: Any, tolerance: float = 1e-4) -> None:
    """Results are those of an eager run."""
    expected = tensors_of(wanted)
    assert len(found) == len(expected)
    for have, want in zip(found, expected, strict=True):
        array = want.detach().numpy() if hasattr(want, "detach") else np.asarray(want)
        assert np.asarray(have).dtype == array.dtype
        np.testing.assert_allclose(have, array, rtol=tolerance, atol=tolerance)


def expect_eager(model: Any, *inputs: Any, tolerance: float = 1e-4) -> IRModule:
    """A module computes here what it computes in an eager run."""
    module = imported(model, inputs)
    expect_close(results(module, *inputs), model(*inputs), tolerance)
    return module
