"""Known weights in the order in which data lies: what moves it within rows is left out.

    nn.dense(reshape(layout_transform(%x, "NHWC", "NCHW")), W)  ->  nn.dense(reshape(%x), W')

W' has the columns of W in another order. The end of a convolutional network is such a row: its
channels lie side by side, its weights want pixels side by side.
"""

import math

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.infer import infer
from sterna.relay.op import call, record_of

MOVES = ("transpose", "layout_transform")
# Larger weights stay as the model has them, in memory that it may share.
MOST_WEIGHTS = 1 << 22


def as_data_lies(dense: Call) -> RelayExpr | None:
    """The product of data before it is moved, if each row is moved within itself."""
    data, weight = dense.args
    kind = infer(data)
    if not isinstance(weight, Constant) or not isinstance(kind, TensorType) or not kind.is_static:
        return None
    depth = kind.concrete_shape[-1]
    source, steps = _source(data)
    count = math.prod(kind.concrete_shape)
    if source is None or not 0 < count <= MOST_WEIGHTS:
        return None
    known = to_numpy(weight.data)
    if known.ndim != 2 or known.shape[1] != depth or known.size > MOST_WEIGHTS:
        return None
    order = _order(source, steps, depth)
    if order is None:
        return None
    columns = np.ascontiguousarray(known[:, np.argsort(order)])
    rows = call("reshape", source, newshape=kind.concrete_shape)
    return Call(dense.op, (rows, Constant(from_numpy(columns))), dense.attrs)


def _source(data: RelayExpr) -> tuple[RelayExpr | None, list[Call]]:
    """What views and moves are made of, and these, the first last; None if nothing is moved."""
    steps: list[Call] = []
    found, last = None, 0
    while isinstance(data, Call) and (record := record_of(data)) is not None:
        is_move = record.name in MOVES
        if not (is_move or record.is_view) or len(data.args) != 1:
            break
        steps.append(data)
        data = data.args[0]
        if is_move:
            found, last = data, len(steps)
    return found, steps[:last]


def _order(source: RelayExpr, steps: list[Call], depth: int) -> Array | None:
    """Where each element of a row comes from, if every row is moved as the first."""
    kind = infer(source)
    if not isinstance(kind, TensorType) or not kind.is_static:
        return None
    shape = kind.concrete_shape
    places = np.arange(math.prod(shape)).reshape(shape)
    for step in reversed(steps):
        record = record_of(step)
        assert record is not None
        if record.reference is None:
            return None
        places = record.reference(step.attrs, places)
    if places.size != math.prod(shape) or places.size % depth:
        return None
    rows = places.reshape(-1, depth)
    within = rows - depth * np.arange(len(rows))[:, None]
    order: Array = within[0]
    is_same = bool(np.all(within == order)) and bool(np.all(np.sort(order) == np.arange(depth)))
    return order if is_same else None
