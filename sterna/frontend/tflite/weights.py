"""The elements of constant tensors: whole bytes, packed nibbles, and sparse ones."""

import math

import numpy as np

from sterna.frontend.limits import count_of, expect_moderate
from sterna.frontend.tflite.schema import Sparsity, TensorInfo, TFLiteModel
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented

# Types of less than a byte: how many bits, and whether they have a sign.
_PACKED = {"int4": (4, True), "uint4": (4, False), "int2": (2, True)}
_PLAIN = (
    "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool",
)


def held_type(dtype: str, what: str) -> str:
    """The type that elements have in the graph: nibbles are held as bytes."""
    if dtype in _PACKED:
        return "int8" if _PACKED[dtype][1] else "uint8"
    if dtype in _PLAIN or dtype == "bfloat16":
        return dtype
    raise OpNotImplemented(f"elements of type {dtype}, as {what} has them")


def constant_of(model: TFLiteModel, tensor: TensorInfo) -> Array:
    """The elements of a constant tensor."""
    what = f"tensor '{tensor.name}'"
    data = model.bytes_of(tensor)
    assert data is not None
    kind = held_type(tensor.dtype, what)
    count = count_of(tensor.shape, 8, what)
    if tensor.sparsity is not None:
        return _dense(tensor.sparsity, np.frombuffer(data, _stored(kind)), tensor.shape, what)
    if tensor.dtype in _PACKED:
        return _unpacked(data, count, *_PACKED[tensor.dtype], what).reshape(tensor.shape)
    if kind == "bfloat16":
        bits = _exactly(np.frombuffer(data, "<u2"), count, what).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor.shape)
    found = _exactly(np.frombuffer(data, _stored(kind), len(data) // _stored(kind).itemsize),
                     count, what)
    return found.reshape(tensor.shape)


def _stored(kind: str) -> "np.dtype[np.generic]":
    return np.dtype(kind).newbyteorder("<")


def _exactly(found: Array, count: int, what: str) -> Array:
    if found.size != count:
        raise ValueError(f"{what} has {found.size} elements in the file and {count} in its shape")
    return found


def _unpacked(data: memoryview, count: int, bits: int, signed: bool, what: str) -> Array:
    """Numbers of a few bits, the first of a byte in its lowest ones."""
    raw = np.frombuffer(data, np.uint8)
    per_byte = 8 // bits
    if raw.size != -(-count // per_byte):
        raise ValueError(f"{what} has {raw.size} bytes for {count} elements of {bits} bits")
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    parts = ((raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]
    if not signed:
        return parts
    half = 1 << (bits - 1)
    return ((parts.astype(np.int16) ^ half) - half).astype(np.int8)


def _dense(sparsity: Sparsity, values: Array, shape: tuple[int, ...], what: str) -> Array:
    """Sparse weights with the zeros that are left out.

    Dimensions are walked in an order, first those of the tensor, then those of blocks in it; a
    sparse one has the places of its elements, a dense one all.
    """
    rank, blocks = len(shape), len(sparsity.block_map)
    expect_moderate(math.prod(shape), what)
    fits = (
        sorted(sparsity.order) == list(range(rank + blocks))
        and len(sparsity.dims) == rank + blocks
        and all(0 <= axis < rank for axis in sparsity.block_map)
    )
    if not fits:
        raise ValueError(f"{what}: the order of its sparse dimensions does not fit {list(shape)}")
    paths = np.zeros((1, 0), np.int64)
    rows = np.zeros(1, np.int64)
    for dim in sparsity.dims:
        if dim.segments is None or dim.indices is None:
            size = dim.dense_size
            expect_moderate(len(paths) * max(size, 0), what)
            own = np.tile(np.arange(size), len(paths))
            parents = np.repeat(np.arange(len(paths)), size)
            rows = np.repeat(rows, size) * size + own
        else:
            if rows.size and (rows.max() + 1 >= dim.segments.size):
                raise ValueError(f"{what}: a sparse dimension has too few segments")
            first, last = dim.segments[rows], dim.segments[rows + 1]
            counts = last - first
            if np.any(counts < 0) or np.any(first < 0) or np.any(last > dim.indices.size):
                raise ValueError(f"{what}: a sparse dimension has segments out of order")
            expect_moderate(int(counts.sum()), what)
            parents = np.repeat(np.arange(len(paths)), counts)
            starts = np.repeat(first - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
            rows = starts + np.arange(parents.size)
            own = dim.indices[rows]
        paths = np.concatenate([paths[parents], own[:, None]], axis=1)
    if len(paths) != values.size:
        raise ValueError(f"{what} has {values.size} elements for {len(paths)} places")
    places = np.zeros((len(paths), rank + blocks), np.int64)
    places[:, sparsity.order] = paths
    sizes = {axis: sparsity.dims[sparsity.order.index(rank + b)].dense_size
             for b, axis in enumerate(sparsity.block_map)}
    index = [places[:, axis] * sizes.get(axis, 1) for axis in range(rank)]
    for block, axis in enumerate(sparsity.block_map):
        index[axis] = index[axis] + places[:, rank + block]
    for axis, extent in enumerate(shape):
        if np.any((index[axis] < 0) | (index[axis] >= extent)):
            raise ValueError(f"{what} has an element outside of its shape {list(shape)}")
    made = np.zeros(shape, values.dtype)
    made[tuple(index)] = values
    return made
