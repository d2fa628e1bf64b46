"""Elements picked and put by indices: references, compiled code, unknown dimensions, messages."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna import relay
from sterna.ir.types import Dim
from sterna.op.tensor.take import TakeAttrs
from sterna.relay.op import find
from tests.op.harness import compiled, kind, reference

ANY = relay.Any()


def var(*shape: Dim, dtype: str = "float32") -> relay.Var:
    return relay.var("x", shape=shape, dtype=dtype)


def ints(*shape: Dim) -> relay.Var:
    return relay.var("i", shape=shape, dtype="int64")


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 2))
def test_gather_and_scatter_are_pytorchs(torch: Any, seed: int, axis: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((3, 4, 5))
    shape = rng.integers(1, [4, 5, 6])
    indices = rng.integers(0, data.shape[axis], shape)
    t_data, t_indices = torch.from_numpy(data), torch.from_numpy(indices)
    wanted = torch.gather(t_data, axis, t_indices).numpy()
    np.testing.assert_array_equal(reference("gather", data, indices, axis=axis), wanted)
    updates = rng.standard_normal(tuple(shape))
    for mode, reduce in {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}.items():
        wanted = t_data.scatter_reduce(axis, t_indices, torch.from_numpy(updates), reduce).numpy()
        got = reference("scatter_elements", data, indices, updates, axis=axis, reduction=mode)
        np.testing.assert_allclose(got, wanted)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_pieces_by_several_indices(seed: int) -> None:
    """gather_nd and scatter_nd against loops over every index."""
    rng = np.random.default_rng(seed)
    data = rng.integers(-9, 9, rng.integers(1, 4, rng.integers(1, 4)))
    batch = int(rng.integers(0, data.ndim))
    rank = int(rng.integers(1, data.ndim - batch + 1))
    rows = (*data.shape[:batch], *rng.integers(1, 4, rng.integers(0, 2)))
    limits = np.array(data.shape[batch : batch + rank]).reshape(rank, *(1,) * len(rows))
    indices = rng.integers(-limits, limits, (rank, *rows))
    got = reference("gather_nd", data, indices, batch_dims=batch)
    for row in np.ndindex(*rows):
        wanted = data[(*row[:batch], *indices[(slice(None), *row)])]
        np.testing.assert_array_equal(got[row], wanted)
    if batch == 0:
        updates = rng.integers(-9, 9, (*rows, *data.shape[rank:]))
        changed = data.copy()
        for row in np.ndindex(*rows):
            changed[tuple(indices[(slice(None), *row)])] = updates[row]
        np.testing.assert_array_equal(reference("scatter_nd", data, indices, updates), changed)


def test_nothing_outside_is_touched() -> None:
    """Indices of any size: what is read lies within, what would be written elsewhere is not."""
    data = np.arange(6, dtype="int32")
    wild = np.array([-(2**62), -7, 6, 2**33, 2**62])
    for mode in ("clip", "wrap", "fast"):
        (got,) = compiled(find("take"), TakeAttrs(0, 0, mode), [data, wild])
        np.testing.assert_array_equal(got, reference("take", data, wild, axis=0, mode=mode))
    record = find("scatter_elements")
    assert record.attrs is not None
    (got,) = compiled(record, record.attrs(), [data, wild, np.full(5, 99, "int32")])
    np.testing.assert_array_equal(got, data)
    record = find("invert_permutation")
    (got,) = compiled(record, None, [wild])
    np.testing.assert_array_equal(got, np.zeros(5))


def test_the_last_of_several_updates_counts() -> None:
    data, places = np.zeros(3, "float32"), np.array([1, 1, 1])
    record = find("scatter_elements")
    assert record.attrs is not None
    (got,) = compiled(record, record.attrs(), [data, places, np.array([3, 2, 1], "float32")])
    np.testing.assert_array_equal(got, [0, 1, 0])


def test_unknown_dimensions() -> None:
    x = var(ANY, 3)
    assert relay.take(x, ints(2, 5), axis=0).checked_type == kind((2, 5, 3))
    assert relay.take(x, ints(ANY), axis=1).checked_type == kind((ANY, ANY))
    assert relay.gather(x, 0, ints(2, 3)).checked_type == kind((2, 3))
    assert relay.gather_nd(x, ints(1, 7)).checked_type == kind((7, 3))
    assert relay.gather_nd(x, ints(ANY, 7), index_rank=2).checked_type == kind((7,))
    assert relay.scatter_nd(x, ints(1, 7), var(7, 3)).checked_type == kind((ANY, 3))
    shape = relay.var("shape", shape=(2,), dtype="int64")
    dense = relay.sparse_to_dense(ints(4, 2), shape, var(4), 0.0)
    assert dense.checked_type == kind((ANY, ANY))


def test_the_order_of_arguments_is_the_classic_one() -> None:
    x = var(2, 3)
    assert relay.take(x, ints(4), 1, 0, "wrap").checked_type == kind((2, 4))
    assert relay.scatter(x, ints(1, 3), var(1, 3), 0).checked_type == kind((2, 3))
    assert relay.scatter_add(x, ints(1, 3), var(1, 3), axis=0).checked_type == kind((2, 3))
    assert relay.scatter_elements(x, ints(1, 3), var(1, 3), 0, "add").checked_type == kind((2, 3))
    assert relay.sparse_to_dense(ints(2), (5,), var(2)).checked_type == kind((5,))
    assert relay.adv_index([x, ints(4)]).checked_type == kind((4, 3))


@pytest.mark.parametrize(("make", "text"), [
    (lambda x: relay.take(x, x), "indices has elements of type int or uint, not float32"),
    (lambda x: relay.take(x, ints(2), axis=2), "axis 2 is not one of the 2 dimensions"),
    (lambda x: relay.take(x, ints(2), mode="raise"), "mode is 'clip', 'wrap' or 'fast'"),
    (lambda x: relay.take(x, ints(2), axis=1, batch_dims=2), "batch_dims 2 is more than"),
    (lambda x: relay.take(var(0, 2), ints(2), axis=0), "pick from an axis without elements"),
    (lambda x: relay.gather(x, 0, ints(2)), "indices has 2 dimensions"),
    (lambda x: relay.gather(x, 0, ints(2, 4)), "dimension 1 of indices is at most 3, not 4"),
    (lambda x: relay.gather_nd(x, ints(3, 4)), "3 indices for each element do not fit to 2"),
    (lambda x: relay.gather_nd(x, ints(ANY, 4)), "is not known; give index_rank"),
    (lambda x: relay.scatter_elements(x, ints(1, 3), var(1, 2)), "dimension 1 of updates is 3"),
    (lambda x: relay.scatter_elements(x, ints(1, 3), var(1, 3), 0, "mean"), "reduction is one of"),
    (lambda x: relay.scatter_nd(x, ints(3, 4), var(4)), "how many of data's 2 axes"),
    (lambda x: relay.scatter_nd(x, ints(1, 4), var(4, 2)), "dimension 1 of updates is 3, not 2"),
    (lambda x: relay.sparse_to_dense(ints(4), (2, 2), var(4)), "are rows of 2 numbers"),
    (lambda x: relay.adv_index([x, ints(2), ints(2), ints(2)]), "for one to 2 of its axes, not 3"),
])
def test_messages(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make(var(2, 3))
