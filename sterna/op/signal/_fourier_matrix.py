"""Fourier transforms on GPUs as products by a matrix of cosines and sines.

    dft(%re, zeros)  ->  split(nn.dense(%re, %cosines_and_sines))

A GPU multiplies such matrices faster than a few threads transform rows, up to some length.
"""

import math

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.op import call, is_call_of
from sterna.target import Target, is_gpu

MOST_LENGTH = 1024
"""Of a transform: the matrix of one takes 8 MiB, and of complex numbers 16."""
MOVES = ("transpose", "reshape", "expand_dims", "squeeze", "cast")
"""What leaves zeros zeros."""


def by_matrix(
    inverse: bool, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The real and imaginary parts of transforms of float32; None where they stay as they are."""
    real = tensor_type(args[0])
    if target is None or not is_gpu(target) or not real.is_static or real.dtype != "float32":
        return None
    *outer, length = real.concrete_shape
    if not 1 < length <= MOST_LENGTH or not math.prod(outer):
        return None
    turns = np.outer(np.arange(length), np.arange(length)) % length * (2 * np.pi / length)
    cosines, sines = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    weights = np.concatenate([cosines, sines]) / (length if inverse else 1)
    data = args[0]
    if not _is_zero(args[1]):
        of_imaginary = np.concatenate([-sines, cosines]) / (length if inverse else 1)
        weights = np.concatenate([weights, of_imaginary], axis=1)
        data = call("concatenate", Tuple((args[0], args[1])), axis=-1)
    rows = call("reshape", data, newshape=(math.prod(outer), weights.shape[1]))
    made = call("nn.dense", rows, const(weights.astype("float32")), units=2 * length)
    made = call("reshape", made, newshape=(*outer, 2 * length))
    parts = [
        call("strided_slice", made, begin=(first,), end=(first + length,), axes=(len(outer),))
        for first in (0, length)
    ]
    return Tuple(tuple(parts))


def _is_zero(part: RelayExpr) -> bool:
    """Whether all numbers are zero."""
    while isinstance(part, Call) and any(is_call_of(part, name) for name in MOVES):
        part = part.args[0]
    if isinstance(part, Constant):
        return not np.any(part.data.numpy())
    return is_call_of(part, "zeros") or is_call_of(part, "zeros_like")
