"""Inputs that are fixed to a value, so that what depends on them folds."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.frontend.open_shapes import UndecidedError
from tests.model.networks import by_rate


@pytest.mark.parametrize(("rate", "size"), [(16000, 8), (8000, 4)])
def test_the_branch_of_a_fixed_input_is_compiled(rate: int, size: int) -> None:
    model = sterna.compile(by_rate(), shapes={"n": size}, fixed={"rate": rate})
    assert [spec.name for spec in model.inputs] == ["frame"]
    np.testing.assert_array_equal(model(np.ones((1, size), "float32")), [[size * size] * 2])


def test_parameters_of_a_graph_are_fixed() -> None:
    x, scale = relay.var("x", shape=(3,)), relay.var("scale", shape=(3,))
    function = relay.Function([x, scale], x * scale)
    model = sterna.compile(function, fixed={"scale": 2})
    np.testing.assert_array_equal(model(np.float32([1, 2, 3])), [2, 4, 6])


@pytest.mark.parametrize(
    ("fixed", "text"),
    [
        ({"rat": 1}, "fixed names 'rat', which is no input of the model; its inputs are frame"),
        ({"rate": [1, 2]}, r"fixed gives input 'rate' of Tensor\[\(\), int64\] a value of shape"),
        ({"rate": 0.5}, r"fixed gives input 'rate' of Tensor\[\(\), int64\] 0.5, which is none"),
    ],
)
def test_values_that_do_not_fit_are_refused(fixed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sterna.compile(by_rate(), shapes={"n": 8}, fixed=fixed)


def test_a_branch_that_shapes_do_not_go_with_is_undecided() -> None:
    with pytest.raises(UndecidedError, match=r"'by_rate'(.|\n)*dense4(.|\n)*the value of"):
        sterna.model.compile_closed(by_rate(), shapes={"n": 8})
