"""Operators that move elements: indices, references, unknown dimensions, messages."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna import relay, te
from sterna.ir import build
from sterna.ir.types import Dim, TensorType
from sterna.op.indexing import same_row
from tests.op.harness import kind, reference

ANY = relay.Any()


def var(*shape: Dim, dtype: str = "float32") -> relay.Var:
    return relay.var("x", shape=shape, dtype=dtype)


# ---- reshape ----


@st.composite
def factorings(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two shapes of as many elements."""
    primes = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=0, max_size=5))

    def shape() -> list[int]:
        cuts = draw(st.lists(st.integers(0, len(primes)), max_size=4).map(sorted))
        bounds = [0, *cuts, len(primes)]
        return [math.prod(primes[a:b]) for a, b in pairwise(bounds)]

    return shape(), shape()


@settings(max_examples=150)
@given(factorings())
def test_indices_of_reshaped_tensors(shapes: tuple[list[int], list[int]]) -> None:
    shape, source = shapes
    for place, index in enumerate(np.ndindex(*shape)):
        found = same_row([build.const(i) for i in index], shape, source)
        numbers = tuple(build.int_value(part) for part in found)
        assert numbers == tuple(map(int, np.unravel_index(place, source)))


def test_reshape_divides_only_what_it_regroups() -> None:
    n = te.size_var("n")
    i, j = te.var("i"), te.var("j")
    found = same_row([i, j], [n, 6], [n, 2, 3])
    assert found[0] is i
    assert [str(part) for part in found[1:]] == ["j // 3", "j % 3"]


@pytest.mark.parametrize(("shape", "newshape", "wanted"), [
    ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
    ((2, 3, 4), (2, 0, 0), (2, 3, 4)),
    ((2, 3, 4), (3, -1, 8), (3, 1, 8)),
    ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
    ((2, 3, 4, 5), (-3, -3), (6, 20)),
    ((2, 3, 4), (0, -3), (2, 12)),
    ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
    ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
    ((ANY, 3, 4), (0, -1), (ANY, 12)),
    ((ANY, 3, 4), (-1, 12), (ANY, 12)),
    ((ANY, 3, ANY), (0, -2), (ANY, 3, ANY)),
    ((ANY, 3, 4), (-3, 0), (ANY, 4)),
    ((2, 6), (0, -4, -1, 3), (2, 2, 3)),
    ((0, 3), (-1, 3), (0, 3)),
])
def test_shapes_of_reshape(
    shape: tuple[Dim, ...], newshape: tuple[int, ...], wanted: tuple[Dim, ...]
) -> None:
    assert relay.reshape(var(*shape), newshape).checked_type == kind(wanted)


def test_reshape_keeps_symbolic_dimensions() -> None:
    n = te.size_var("n")
    assert relay.reshape(var(n, 2, 3), (0, -1)).checked_type == kind((n, 6))
    flat = relay.reshape(var(n, 2, 3), (-1,)).checked_type
    assert isinstance(flat, TensorType)
    assert str(flat.shape[0]) == "n*6"


# ---- references ----


@settings(max_examples=200)
@given(st.integers(0, 6), st.integers(-9, 9), st.integers(-9, 9),
       st.sampled_from([-3, -2, -1, 1, 2, 3]))
def test_slices_are_pythons(dim: int, begin: int, end: int, stride: int) -> None:
    data = np.arange(dim)
    attrs = {"begin": (begin,), "end": (end,), "strides": (stride,)}
    wanted = data[begin:end:stride]
    np.testing.assert_array_equal(reference("strided_slice", data, **attrs), wanted)
    sliced = relay.strided_slice(var(dim), [begin], [end], [stride])
    assert sliced.checked_type == kind(wanted.shape)
    new = -np.ones_like(wanted)
    changed = data.copy()
    changed[begin:end:stride] = new
    np.testing.assert_array_equal(reference("strided_set", data, new, **attrs), changed)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_is_pytorchs(torch: Any, mode: str) -> None:
    data = np.random.default_rng(0).standard_normal((1, 2, 4, 5))
    wanted = torch.nn.functional.pad(
        torch.from_numpy(data), (3, 1, 2, 0),
        mode={"edge": "replicate", "wrap": "circular"}.get(mode, mode),
    ).numpy()
    got = reference("nn.pad", data, np.array(0.0),
                    pad_width=((0, 0), (0, 0), (2, 0), (3, 1)), pad_mode=mode)
    np.testing.assert_array_equal(got, wanted)


def test_blocks_are_pytorchs(torch: Any) -> None:
    data = np.random.default_rng(0).standard_normal((2, 8, 3, 4))
    shuffled = torch.nn.functional.pixel_shuffle(torch.from_numpy(data), 2).numpy()
    got = reference("nn.depth_to_space", data, block_size=2, mode="CRD")
    np.testing.assert_array_equal(got, shuffled)
    there = reference("nn.depth_to_space", data, block_size=2)
    np.testing.assert_array_equal(reference("nn.space_to_depth", there, block_size=2), data)
    far = reference("nn.space_to_batch_nd", data, block_shape=(2, 3), paddings=((0, 0), (1, 2)))
    back = reference("nn.batch_to_space_nd", far, block_shape=(2, 3), crops=((0, 0), (1, 2)))
    np.testing.assert_array_equal(back, data)


def test_arange_is_numpys() -> None:
    for start, stop, step in [(0, 7, 2), (5, -4, -3), (3, 3, 1), (1, 9, -1), (-2, 8, 7)]:
        got = reference("arange", start=start, stop=stop, step=step, dtype="int32")
        np.testing.assert_array_equal(got, np.arange(start, stop, step))
    got = reference("arange", start=0.5, stop=3.1, step=0.25, dtype="float64")
    np.testing.assert_allclose(got, np.arange(0.5, 3.1, 0.25))


# ---- builders ----


def test_arange_takes_numbers_constants_and_expressions() -> None:
    assert relay.arange(5).checked_type == kind((5,))
    assert relay.arange(relay.const(1), relay.const(7), relay.const(2), "int32").checked_type == (
        kind((3,), "int32"))
    stop = relay.var("stop", shape=(), dtype="int64")
    assert relay.arange(0, stop, dtype="int64").checked_type == kind((ANY,), "int64")


def test_shapes_that_are_expressions() -> None:
    x = var(2, 3)
    shape = relay.var("shape", shape=(3,), dtype="int64")
    assert relay.reshape(x, shape).checked_type == kind((ANY,) * 3)
    assert relay.broadcast_to(x, shape).checked_type == kind((ANY,) * 3)
    assert relay.tile(x, shape).checked_type == kind((ANY,) * 3)
    axis = relay.var("axis", shape=(), dtype="int32")
    assert relay.expand_dims(x, axis).checked_type == kind((ANY,) * 3)
    begin = relay.var("begin", shape=(1,), dtype="int64")
    assert relay.strided_slice(x, begin, [9]).checked_type == kind((ANY, 3))
    assert relay.strided_slice(x, begin, [9], axes=[1]).checked_type == kind((2, ANY))
    width = relay.var("width", shape=(2, 2), dtype="int64")
    assert relay.nn.pad(x, width).checked_type == kind((ANY, ANY))
    depth = relay.var("depth", shape=(), dtype="int64")
    hot = relay.one_hot(var(4, dtype="int32"), 1.0, 0.0, depth, -1, "float32")
    assert hot.checked_type == kind((4, ANY))


def test_shapes_that_are_constants() -> None:
    x = var(2, 3)
    assert relay.reshape(x, relay.const(np.array([3, 2]))).checked_type == kind((3, 2))
    assert relay.reshape(x, 6).checked_type == kind((6,))
    assert relay.squeeze(var(1, 3, 1), axis=[0]).checked_type == kind((3, 1))
    width = relay.const(np.array([[0, 1], [2, 0]]))
    assert relay.nn.pad(x, width).checked_type == kind((3, 5))
    assert relay.strided_slice(x, [0, 1], relay.const(np.array([1, 3]))).checked_type == (
        kind((1, 2)))


def test_several_results() -> None:
    parts = relay.split(var(2, 6), (2, 3), axis=1)
    assert len(parts) == 3
    assert [part.checked_type for part in parts] == [kind((2, 2)), kind((2, 1)), kind((2, 3))]
    assert relay.concatenate(list(parts), axis=1).checked_type == kind((2, 6))
    assert relay.concatenate(parts, 1).checked_type == kind((2, 6))
    grids = relay.meshgrid([var(2), var(3), var(4)])
    assert len(grids) == 3
    assert relay.stack(list(grids), 0).checked_type == kind((3, 2, 3, 4))


def test_unknown_dimensions() -> None:
    x = var(ANY, 3)
    assert relay.concatenate([x, var(2, 3)], 0).checked_type == kind((ANY, 3))
    assert relay.concatenate([x, var(2, 4)], 1).checked_type == kind((2, 7))
    assert relay.transpose(x).checked_type == kind((3, ANY))
    assert relay.split(x, 3, axis=1)[0].checked_type == kind((ANY, 1))
    assert relay.split(x, (1,), axis=0)[1].checked_type == kind((ANY, 3))
    assert relay.strided_slice(x, [0, 1], [2**31 - 1, 3]).checked_type == kind((ANY, 2))
    assert relay.nn.pad(x, ((0, 0), (1, 1))).checked_type == kind((ANY, 5))
    assert relay.tile(x, (2, 2)).checked_type == kind((ANY, 6))
    assert relay.layout_transform(var(ANY, 32, 7, 7), "NCHW", "NCHW16c").checked_type == (
        kind((ANY, 2, 7, 7, 16)))


def test_untyped_bias_gets_its_type() -> None:
    bias = relay.var("bias")
    y = relay.nn.bias_add(var(1, 4, 2), bias)
    assert y.checked_type == kind((1, 4, 2))
    assert bias.checked_type == kind((4,))


@pytest.mark.parametrize(("make", "text"), [
    (lambda x: relay.reshape(x, (4, 2)), r"has 6 elements; shape \(4, 2\) has 8"),
    (lambda x: relay.reshape(x, (-1, -1)), "newshape has more than one -1"),
    (lambda x: relay.reshape(x, (-1, 4)), "cannot be put into rows of 4"),
    (lambda x: relay.reshape(x, (0, 0, 0)), "newshape has 0 for dimension 2 of data"),
    (lambda x: relay.reshape(x, (2, -4, 3)), "-4 without two numbers after it"),
    (lambda x: relay.reshape(x, (-7,)), "newshape has -7; below 0 it may hold"),
    (lambda x: relay.transpose(x, (0, 0)), "names every one of the 2 dimensions once"),
    (lambda x: relay.expand_dims(x, 4), "axis 4 is no place before, between or after 2"),
    (lambda x: relay.squeeze(x, [0]), "is 2; only dimensions of 1 can be squeezed"),
    (lambda x: relay.squeeze(var(ANY, 1)), "say by axis which dimensions are 1"),
    (lambda x: relay.broadcast_to(x, (2, 4)), r"cannot be broadcast to shape \(2, 4\)"),
    (lambda x: relay.concatenate([x, var(3, 3)], 1), r"dimension 0 of data\[1\] is 2, not 3"),
    (lambda x: relay.concatenate([x, var(2, 3, dtype="int8")], 1), r"data\[1\] has the element"),
    (lambda x: relay.split(x, 2, axis=1), "3 cannot be split into 2 equal parts"),
    (lambda x: relay.split(x, (2, 1), axis=1), "places in rising order"),
    (lambda x: relay.strided_slice(x, [0], [1], [0]), "strides are not 0"),
    (lambda x: relay.strided_slice(x, [0], [1, 2]), "begin has 1 numbers, end has 2"),
    (lambda x: relay.strided_slice(x, [0], [1], slice_mode="stop"), "is 'end' or 'size'"),
    (lambda x: relay.nn.pad(x, ((1, 1),)), "a pair for each of the 2 dimensions, not 1 pairs"),
    (lambda x: relay.nn.pad(x, ((0, 0), (0, 0)), pad_mode="mirror"), "pad_mode is one of"),
    (lambda x: relay.nn.pad(x, ((-3, 0), (0, 0))), "takes more than the 2 elements"),
    (lambda x: relay.arange(0, 5, 0), "step is not 0"),
    (lambda x: relay.layout_transform(x, "NC", "NH"), "have different axes"),
    (lambda x: relay.tile(x, (-1,)), "reps are at least 0"),
    (lambda x: relay.one_hot(x, 1.0, 0.0, 3, 0, "int8"), "indices has elements of type int"),
    (lambda x: relay.nn.bias_add(x, var(4)), "the length of bias is 3, not 4"),
    (lambda x: relay.slice_like(x, var(3, 3)), "shape_like is 3 along axis 0, where data"),
    (lambda x: relay.nn.space_to_depth(var(1, 1, 3, 4), 2), "the height is a multiple of 2"),
    (lambda x: relay.matrix_set_diag(x, var(2), k=5), r"k \(5, 5\) lies outside of a matrix"),
])
def test_messages(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(var(2, 3))
