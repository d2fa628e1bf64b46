"""Layouts: their text, shapes, indices, and arrays brought from one to another."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.ir.build import const
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType
from sterna.relay.layout import bijective_layout, layout_of, to_plain, transform
from sterna.te import size_var


def test_a_layout_knows_its_axes() -> None:
    layout = layout_of("NCHW16c")
    assert str(layout) == "NCHW16c"
    assert layout.primal == "NCHW"
    assert len(layout) == 5
    assert layout.is_blocked
    assert layout.factor_of("C") == 16
    assert layout.factor_of("N") == -1
    assert [layout.index_of(letter) for letter in "NCcD"] == [0, 1, 4, -1]
    assert "c" in layout
    assert "h" not in layout
    assert layout[4] == "c"


def test_blocks_of_blocks() -> None:
    layout = layout_of("OIHW4i16o4i")
    assert layout.blocks_of("I") == [4, 4]
    assert layout.index({"O": 35, "I": 29, "H": 1, "W": 2}) == (2, 1, 1, 2, 3, 3, 1)
    assert layout.coordinates((2, 1, 1, 2, 3, 3, 1)) == {"O": 35, "I": 29, "H": 1, "W": 2}
    assert layout.dims((3, 2, 5, 6, 4, 16, 4)) == {"O": 48, "I": 32, "H": 5, "W": 6}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NCHW16", "'16' begins neither with an axis"),
        ("NCHWc", "'c' begins neither with an axis"),
        ("NHW4c", "has blocks 4c but no axis C"),
        ("NCHN", "has the axis N twice"),
        ("NCHW0c", "'0c' begins neither"),
    ],
)
def test_text_that_is_no_layout(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        layout_of(name)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="layout NCHW4c has blocks 4c, so that dimension is 4"):
        layout_of("NCHW4c").dims((1, 2, 3, 4, 8))
    with pytest.raises(ValueError, match="layout NCHW has 4 dimensions, the shape has 3"):
        layout_of("NCHW").dims((1, 2, 3))
    with pytest.raises(ValueError, match="layouts NCHW and NCDHW have different axes"):
        bijective_layout("NCHW", "NCDHW")


def test_shapes_that_only_the_run_knows() -> None:
    way = bijective_layout("NCHW", "NHWC8c")
    n = size_var("n")
    shape = way.forward_shape((n, AnyDim(), 5, 6))
    assert shape[0] is n
    assert isinstance(shape[3], AnyDim)
    assert (shape[1], shape[2], shape[4]) == (5, 6, 8)
    assert str(way.forward_shape((1, n, 2, 3))[3]) == "(n + 7) // 8"


def test_indices_may_be_expressions() -> None:
    way = bijective_layout("NCHW", "NCHW4c")
    assert [str(i) for i in way.forward_index([const(0), const(9), const(1), const(2)])] == [
        "0", "2", "1", "2", "1",
    ]


def test_a_block_that_is_not_full_is_padded() -> None:
    array = np.arange(6, dtype="float32").reshape(1, 6)
    made = transform(array, layout_of("NC"), layout_of("NC4c"))
    np.testing.assert_array_equal(made, [[[0, 1, 2, 3], [4, 5, 0, 0]]])


@st.composite
def layouts(draw: Any) -> str:
    parts = list("NCH")
    for _ in range(draw(st.integers(0, 3))):
        parts.append(f"{draw(st.sampled_from([2, 3, 4]))}{draw(st.sampled_from('nch'))}")
    return "".join(draw(st.permutations(parts)))


@given(layouts(), layouts(), st.sampled_from(["float32", "int8", ml_dtypes.bfloat16]))
def test_the_array_follows_the_indices(first: str, second: str, dtype: Any) -> None:
    way = bijective_layout(first, second)
    shape = TensorType(way.source.shape({"N": 2, "C": 24, "H": 3})).concrete_shape
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    made = transform(array, way.source, way.target)
    assert made.shape == way.forward_shape(shape)
    for indices in np.ndindex(*shape):
        assert made[way.forward_index(indices)] == array[indices]
    order = way.source.primal
    plain = to_plain(array, way.source)
    there = to_plain(made, way.target, order)
    np.testing.assert_array_equal(there[tuple(map(slice, plain.shape))], plain)
