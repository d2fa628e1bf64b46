"""Weights as halves of words, by four (first, third, second, fourth), in records of channels."""

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.schedule.dot4 import GROUP
from sterna.te import Tensor


def halves_of(weights: Array) -> Array:
    """Weights of 16 bits as words of two, by four: first and third, second and fourth."""
    words = weights.astype(np.int16).reshape(len(weights), -1, 2, 2).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(words).astype("<i2").view("<i4").reshape(len(weights), -1)


def weights_of(words: Array) -> Array:
    """The weights (output, input) that halves_of has packed."""
    halves = np.ascontiguousarray(words).astype("<i4").view("<i2")
    weights = halves.reshape(len(words), -1, 2, 2).transpose(0, 1, 3, 2)
    return weights.reshape(len(words), -1).astype(np.int64)


def weight_at(records: Tensor, output: Expr, channel: Expr) -> Expr:
    """A weight out of a record, in which the words of weights are behind the first."""
    place = channel % GROUP
    word = records(output, 1 + channel // GROUP * 2 + place % 2)
    return (word << (16 - place // 2 * 16)) >> 16


def macs(attrs: Attrs, out: TensorType, data: TensorType, *others: TensorType) -> int:
    """One for each element of the result and each channel of the data."""
    return int(np.prod(out.concrete_shape)) * data.concrete_shape[-1]
