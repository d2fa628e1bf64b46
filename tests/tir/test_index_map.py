"""Index maps: there, back, what lies in between, and which have no way back."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.tir import IndexMap
from tests.arith.evaluate import evaluate

from_func = IndexMap.from_func


def texts(items: Any) -> list[str]:
    return [str(item) for item in items]


def test_a_map_maps_indices_and_shapes() -> None:
    blocked = from_func(lambda n, h, w, c: [n, c // 4, h, w, c % 4])
    assert texts(blocked.initial_indices) == ["n", "h", "w", "c"]
    i = te.var("i")
    assert texts(blocked.map_indices([0, i, 5, i * 8 + 6])) == ["0", "i*2 + 1", "i", "5", "2"]
    assert texts(blocked.map_shape([1, 7, 7, 64])) == ["1", "16", "7", "7", "4"]
    assert texts(blocked.map_shape([1, 7, 7, 66])) == ["1", "17", "7", "7", "4"]
    n = te.size_var("n")
    assert texts(blocked.map_shape([n, 7, 7, n])) == ["n", "(n + 3) // 4", "7", "7", "4"]


def test_a_function_may_take_any_indices_and_the_last_ones() -> None:
    last = from_func(lambda *others, i: [i // 4, *others, i % 4], ndim=3)
    assert texts(last.map_shape([5, 6, 8])) == ["2", "5", "6", "4"]
    with pytest.raises(ValueError, match=r"takes \*others: say how many"):
        from_func(lambda *others, i: [i, *others])
    with pytest.raises(ValueError, match="takes 2 indices, but there are 3"):
        from_func(lambda i, j: [j, i], ndim=3)
    with pytest.raises(ValueError, match="without defaults"):
        from_func(lambda i, j=1: [i, j])
    with pytest.raises(TypeError, match="gives integers, not float32"):
        from_func(lambda i: [i * 0.5])
    with pytest.raises(ValueError, match="takes 1 indices, not 2"):
        from_func(lambda i: [i]).map_indices([1, 2])


def test_separators_are_places_between_final_indices() -> None:
    made, separators = IndexMap.from_func_with_separators(
        lambda i, j: [i // 4, te.AXIS_SEPARATOR, j, i % 4]
    )
    assert separators == [1] and len(made.final_indices) == 3
    with pytest.raises(ValueError, match="use from_func_with_separators"):
        from_func(lambda i, j: [i, IndexMap.AXIS_SEPARATOR, j])


def test_inverses() -> None:
    blocked = from_func(lambda n, h, w, c: [n, c // 4, h, w, c % 4])
    back = from_func(lambda n, C, h, w, c: [n, h, w, C * 4 + c])
    assert blocked.inverse([1, 7, 7, 64]).is_equivalent_to(back)
    assert back.inverse([1, 16, 7, 7, 4]).is_equivalent_to(blocked)
    assert not blocked.is_equivalent_to(back)
    with pytest.raises(ValueError, match=r"not bijective on the shape \[1, 7, 7, 66\]"):
        blocked.inverse([1, 7, 7, 66])
    transposed = from_func(lambda i, j: [j, i])
    ranges = [te.Range(te.const(0), te.const(3)), te.Range(te.const(0), te.const(4))]
    assert transposed.inverse(ranges).is_equivalent_to(transposed)
    with pytest.raises(ValueError, match="count from 0, but the range of i does not"):
        transposed.inverse([te.Range(te.const(1), te.const(3)), 4])


def test_padding_is_where_no_element_goes() -> None:
    inverse, padding = from_func(lambda i: [i // 4, i % 4]).non_surjective_inverse([14])
    assert inverse.is_equivalent_to(from_func(lambda j, k: [4 * j + k]))
    assert str(padding) == "axis0*4 + axis1 >= 14"


def test_a_given_inverse_is_taken() -> None:
    squeezed = from_func(
        lambda i: [te.min(i, 3), te.max(i, 3) - 3], inverse_index_map=lambda a, b: [a + b]
    )
    inverse, padding = squeezed.non_surjective_inverse([6])
    assert texts(inverse.final_indices) == ["axis0 + axis1"]
    for place, is_padding in (((2, 0), False), ((2, 1), True)):
        at = dict(zip(inverse.initial_indices, place, strict=True))
        assert bool(evaluate(padding, at)) == is_padding


@pytest.mark.parametrize(
    ("function", "shape", "reason"),
    [
        (lambda i: [i % 4], [8], "the result does not tell what i was"),
        (lambda i, j: [i + j], [4, 4], "the result does not tell what"),
        (lambda i, j: [i, i], [4, 4], "the result does not tell what j was"),
        (lambda i, j: [i * j], [4, 4], "is a product of variables"),
        (lambda i, j: [i, j // (i + 1)], [4, 4], "does not divide by a positive constant"),
        (lambda i, j: [i, (j * 2 + i) // 3], [4, 4], "a sum with gaps or overlaps"),
    ],
)
def test_maps_without_a_way_back(
    function: Callable[..., Any], shape: list[int], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"has no inverse on the shape .*{reason}"):
        from_func(function).inverse(shape)


def test_arrays_are_mapped() -> None:
    values = np.arange(2 * 6, dtype="float32").reshape(2, 6)
    blocked = from_func(lambda i, j: [j // 4, i, j % 4])
    expected = np.zeros((2, 2, 4), "float32")
    expected[0], expected[1, :, :2] = values[:, :4], values[:, 4:]
    np.testing.assert_array_equal(blocked.map_ndarray(values), expected)
    mapped = blocked.map_ndarray(tvm.nd.array(values))
    assert isinstance(mapped, tvm.nd.NDArray)
    np.testing.assert_array_equal(mapped.numpy(), expected)


# ---- all maps that these steps make ----


def random_map(rng: random.Random, shape: list[int]) -> Callable[..., list[Any]]:
    """Splits, fusions, permutations, mirrors, offsets and gaps, one after the other."""
    steps: list[Any] = []
    extents = list(shape)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(extents))
        kind = rng.choice(["split", "fuse", "permute", "mirror", "offset", "gap"])
        if kind == "split":
            factor = rng.randint(1, 5)
            steps.append(lambda x, at=at, f=factor: [*x[:at], x[at] // f, x[at] % f, *x[at + 1 :]])
            extents[at : at + 1] = [-(-extents[at] // factor), factor]
        elif kind == "fuse" and at + 1 < len(extents):
            inner = extents[at + 1]
            steps.append(
                lambda x, at=at, n=inner: [*x[:at], x[at] * n + x[at + 1], *x[at + 2 :]]
            )
            extents[at : at + 2] = [extents[at] * inner]
        elif kind == "permute":
            order = rng.sample(range(len(extents)), len(extents))
            steps.append(lambda x, order=order: [x[i] for i in order])
            extents = [extents[i] for i in order]
        elif kind == "mirror":
            steps.append(lambda x, at=at, n=extents[at]: [*x[:at], n - 1 - x[at], *x[at + 1 :]])
        elif kind == "offset" and rng.random() < 0.5:
            shift, factor = rng.randint(1, 3), rng.randint(2, 4)
            steps.append(
                lambda x, at=at, s=shift, f=factor: [
                    *x[:at], (x[at] + s) // f, (x[at] + s) % f, *x[at + 1 :]
                ]
            )
            extents[at : at + 1] = [-(-(extents[at] + shift) // factor), factor]
        elif kind == "gap" and rng.random() < 0.3:
            steps.append(lambda x, at=at: [*x[:at], x[at] * 2, *x[at + 1 :]])
            extents[at] = extents[at] * 2 - 1

    def mapped(*indices: Any) -> list[Any]:
        values = list(indices)
        for step in steps:
            values = step(values)
        return values

    return mapped


@pytest.mark.parametrize("seed", range(150))
def test_random_maps_come_back(seed: int) -> None:
    rng = random.Random(seed)
    shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
    function = random_map(rng, shape)
    made = from_func(function, len(shape))
    try:
        mapped = [int(str(extent)) for extent in made.map_shape(shape)]
        inverse, padding = made.non_surjective_inverse(shape)
    except ValueError as error:
        # a mirror or an offset of something with padding: such a map need not be understood
        assert any(text in str(error) for text in ("gaps or overlaps", "begins at", "tell what"))
        return
    image = {tuple(function(*place)): place for place in itertools.product(*map(range, shape))}
    assert len(image) == np.prod(shape)
    for final in itertools.product(*map(range, mapped)):
        at = dict(zip(inverse.initial_indices, final, strict=True))
        assert bool(evaluate(padding, at)) == (final not in image), (made, final)
        if final in image:
            assert tuple(evaluate(i, at) for i in inverse.final_indices) == image.pop(final)
    assert not image
    assert (np.prod(mapped) == np.prod(shape)) == (str(padding) == "False"), (made, padding)
