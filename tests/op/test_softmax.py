"""The softmax family's references against formulas of their own, and its mistakes."""

import numpy as np
import pytest

from sterna import relay
from sterna.op.nn.softmax import SoftmaxAttrs
from sterna.relay.op import find, is_call_of


def reference(name: str, data: np.ndarray, axis: int) -> np.ndarray:
    record = find(name)
    assert record.reference is not None
    made = record.reference(SoftmaxAttrs(axis), data)
    assert isinstance(made, np.ndarray)
    return made


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_references(axis: int) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 5))
    power = np.exp(x)
    total = power.sum(axis, keepdims=True)
    np.testing.assert_allclose(reference("nn.softmax", x, axis), power / total)
    np.testing.assert_allclose(reference("nn.log_softmax", x, axis), x - np.log(total))
    hard = reference("nn.hardmax", x, axis)
    np.testing.assert_array_equal(hard, (x == x.max(axis, keepdims=True)).astype(x.dtype))


def test_a_row_without_a_finite_element_has_no_softmax() -> None:
    x = np.full((1, 3), -np.inf, "float32")
    assert np.isnan(reference("nn.softmax", x, -1)).all()


def test_mistakes() -> None:
    x = relay.var("x", shape=(2, 3), dtype="int32")
    with pytest.raises(ValueError, match="data has elements of type float, not int32; cast it"):
        relay.nn.softmax(x)
    with pytest.raises(ValueError, match="axis 2 is not one of the 2 dimensions"):
        relay.nn.log_softmax(relay.var("x", shape=(2, 3)), axis=2)


def test_the_fast_form() -> None:
    x = relay.var("x", shape=(2, 3))
    soft = relay.nn.softmax(x, axis=0)
    record = find("nn.softmax")
    assert record.fast is not None
    fast = record.fast(soft.attrs, soft.args)
    assert isinstance(fast, relay.Call)
    assert is_call_of(fast, "nn.fast_softmax")
    assert isinstance(fast.attrs, SoftmaxAttrs)
    assert fast.attrs.axis == 0
