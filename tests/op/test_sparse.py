"""Sparse matrices and segments: references, builders, and what is wrong with operands."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from sterna import relay
from tests.op.harness import reference


class Matrix(NamedTuple):
    data: Any
    indices: Any
    indptr: Any


def rows_of(dense: np.ndarray) -> Matrix:
    """The elements of a matrix that are not zero."""
    at = np.argwhere(dense)
    counts = np.bincount(at[:, 0], minlength=len(dense))
    begins = np.concatenate([[0], np.cumsum(counts)]).astype("int32")
    return Matrix(dense[tuple(at.T)], at[:, 1].astype("int32"), begins)


RNG = np.random.default_rng(8)
SQUARE = (RNG.standard_normal((6, 6)) * (RNG.random((6, 6)) < 0.3)).astype("float32")


def test_products_and_sums_are_those_of_whole_matrices() -> None:
    sparse, dense = rows_of(SQUARE), RNG.standard_normal((4, 6)).astype("float32")
    np.testing.assert_allclose(reference("nn.sparse_dense", dense, *sparse), dense @ SQUARE.T,
                               rtol=1e-5, atol=1e-6)
    left = reference("nn.sparse_dense", dense, *sparse, sparse_lhs=True)
    np.testing.assert_allclose(left, SQUARE @ dense.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(reference("nn.sparse_add", SQUARE, *sparse), 2 * SQUARE)


def test_transposed() -> None:
    for got, want in zip(reference("nn.sparse_transpose", *rows_of(SQUARE)), rows_of(SQUARE.T),
                         strict=True):
        np.testing.assert_array_equal(got, want)


def test_matrices_as_objects_and_tuples() -> None:
    x, sparse = relay.var("x", shape=(4, 6)), rows_of(SQUARE)
    constants = tuple(relay.const(part) for part in sparse)
    assert relay.nn.sparse_dense(x, constants).checked_type.shape == (4, 6)
    made = relay.nn.sparse_dense(x, Matrix(*constants), sparse_lhs=True)
    assert made.checked_type.shape == (6, 4)
    assert len(relay.nn.sparse_transpose(constants)) == 3


def test_what_is_wrong_is_told() -> None:
    x, sparse = relay.var("x", shape=(4, 6)), [relay.const(part) for part in rows_of(SQUARE)]
    with pytest.raises(ValueError, match="rows of the sparse matrix is 4, not 6"):
        relay.nn.sparse_add(x, sparse)
    with pytest.raises(TypeError, match="is \\(data, indices, indptr\\)"):
        relay.nn.sparse_dense(x, sparse[:2])
    with pytest.raises(ValueError, match="length of sparse_indices"):
        relay.nn.sparse_dense(x, [sparse[0], sparse[2], sparse[2]])


def test_sums_of_segments() -> None:
    data = np.arange(8, dtype="float32").reshape(4, 2)
    ids = np.array([1, 0, 1, 7])
    got = reference("segment_sum", data, ids, num_segments=3)
    np.testing.assert_array_equal(got, [[2, 3], [4, 6], [0, 0]])
    x = relay.var("x", shape=(4, 2))
    assert relay.segment_sum(x, relay.const(ids)).checked_type.shape == (8, 2)
    with pytest.raises(ValueError, match="needs num_segments"):
        relay.segment_sum(x, relay.var("ids", shape=(4,), dtype="int64"))
