"""Operators compiled once for an extent that each run gives."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir.types import TensorType
from sterna.relay.op import find
from sterna.te import create_schedule, placeholder

CASES: list[tuple[str, int, list[tuple[int, ...]], dict[str, Any]]] = [
    ("nn.dense", 0, [(5, 3), (4, 3)], {}),
    ("nn.conv2d", 2, [(1, 3, 6, 5), (4, 3, 3, 3)], {"padding": 1, "strides": 2}),
    ("nn.conv2d_transpose", 2, [(1, 3, 4, 5), (3, 4, 3, 3)], {"padding": 1, "strides": 2}),
    ("nn.avg_pool2d", 3, [(1, 3, 6, 7)], {"pool_size": 3, "strides": 2, "ceil_mode": True}),
    ("nn.adaptive_avg_pool2d", 2, [(1, 3, 7, 5)], {"output_size": 3}),
    ("nn.global_max_pool2d", 2, [(1, 3, 6, 5)], {}),
    ("nn.softmax", 1, [(2, 6)], {}),
    ("nn.layer_norm", 0, [(3, 6), (6,), (6,)], {}),
    ("nn.group_norm", 2, [(2, 4, 5), (4,), (4,)], {"num_groups": 2}),
    ("nn.upsampling", 3, [(1, 2, 3, 4)], {"scale_h": 2, "scale_w": 2, "method": "bilinear"}),
    ("nn.dilate", 0, [(3, 2)], {"strides": (2, 2)}),
]

# Those that have a meaning where the extent is 0: a type rule refuses the others.
WITHOUT_ELEMENTS = [
    ("nn.dense", 0, [(5, 3), (4, 3)], {}),
    ("nn.dense", 0, [(5, 8), (16, 8)], {}),
    ("nn.batch_matmul", 0, [(2, 3, 4), (2, 5, 4)], {}),
    ("nn.softmax", 0, [(2, 6)], {}),
    ("nn.softmax", 1, [(2, 6)], {}),
    ("nn.log_softmax", 1, [(2, 6)], {}),
    ("nn.layer_norm", 0, [(3, 6), (6,), (6,)], {}),
    ("nn.group_norm", 0, [(2, 4, 5), (4,), (4,)], {"num_groups": 2}),
    ("nn.conv2d", 0, [(1, 3, 6, 5), (4, 3, 3, 3)], {"padding": 1}),
    ("nn.max_pool2d", 0, [(1, 3, 6, 7)], {"pool_size": 3, "strides": 2}),
    ("nn.upsampling", 0, [(1, 2, 3, 4)], {"scale_h": 2, "scale_w": 2, "method": "bilinear"}),
    ("nn.dilate", 0, [(3, 2)], {"strides": (2, 2)}),
    ("nn.relu", 1, [(3, 2)], {}),
    ("sum", 0, [(3, 2)], {"axis": (0,)}),
    ("sum", 1, [(3, 2)], {"axis": (0,)}),
    ("prod", 1, [(3, 2)], {"axis": (1,)}),
    ("transpose", 1, [(3, 2, 4)], {"axes": (2, 0, 1)}),
    ("cumsum", 0, [(3, 2)], {"axis": 0}),
    ("tile", 0, [(3, 2)], {"reps": (2, 2)}),
    ("repeat", 0, [(3, 2)], {"repeats": 2, "axis": 0}),
    ("reverse", 0, [(3, 2)], {"axis": 0}),
]


def compiled_for_any(
    name: str, axis: int, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> tuple[Any, Any]:
    """A function for any extent of the first operand's axis, and the reference."""
    record = find(name)
    assert record.compute is not None
    assert record.reference is not None
    values = record.attrs(**attrs) if record.attrs is not None else None
    n = te.size_var("n")
    first = tuple(n if i == axis else extent for i, extent in enumerate(shapes[0]))
    kinds = [TensorType(first), *map(TensorType, shapes[1:])]
    if name == "nn.batch_matmul":  # all of its operands have the extent
        kinds = [TensorType((n, *shape[1:])) for shape in shapes]
    inputs = [placeholder(kind.shape, name=f"p{i}") for i, kind in enumerate(kinds)]
    made = record.compute(values, record.infer(values, *kinds), *inputs)
    function = tvm.build(create_schedule(made.op), [*inputs, made], "llvm")
    reference = record.reference
    return function, lambda *given: reference(values, *given)


@pytest.mark.parametrize(("name", "axis", "shapes", "attrs"), CASES)
def test_an_extent_may_be_a_variable(
    name: str, axis: int, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    function, reference = compiled_for_any(name, axis, shapes, attrs)
    rng = np.random.default_rng(0)
    for more in (0, 1, 4):
        given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        given[0] = np.concatenate([given[0], *[given[0].take([0], axis)] * more], axis)
        want = reference(*given)
        got = np.empty(want.shape, "float32")
        function(*given, got)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "axis", "shapes", "attrs"), WITHOUT_ELEMENTS)
def test_an_extent_may_turn_out_to_be_none(
    name: str, axis: int, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    function, reference = compiled_for_any(name, axis, shapes, attrs)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    for place in range(len(given) if name == "nn.batch_matmul" else 1):
        given[place] = given[place].take([], axis)
    want = reference(*given)
    got = np.full(want.shape, np.nan, "float32")
    function(*given, got)
    np.testing.assert_array_equal(got, want)
