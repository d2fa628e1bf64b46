"""Products of matrices by the library that NumPy has, as opaque operations.

The function is one of this process: where a program runs without Python, nothing has its name. The
products that schedules write (topi.matmul, relay.nn.dense) run everywhere.
"""

from typing import Any

import numpy as np

from sterna import te
from sterna.runtime import NDArray, register_func
from sterna.tir.external import call_packed

MATMUL, BATCH_MATMUL = "tvm.contrib.cblas.matmul", "tvm.contrib.cblas.batch_matmul"


def _product(a: NDArray, b: NDArray, out: NDArray, transa: bool, transb: bool) -> None:
    left, right = a.numpy(), b.numpy()
    left = np.swapaxes(left, -1, -2) if transa else left
    right = np.swapaxes(right, -1, -2) if transb else right
    out.copyfrom(np.matmul(left, right))


for _name in (MATMUL, BATCH_MATMUL):
    register_func(_name, _product, override=True)


def matmul(
    lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, **kwargs: Any
) -> te.Tensor:
    """The product of two matrices."""
    return _extern(MATMUL, lhs, rhs, transa, transb, kwargs)


def batch_matmul(
    lhs: te.Tensor, rhs: te.Tensor, transa: bool = False, transb: bool = False, **kwargs: Any
) -> te.Tensor:
    """The products of matrices, one by one."""
    return _extern(BATCH_MATMUL, lhs, rhs, transa, transb, kwargs)


def _extern(
    function: str, lhs: te.Tensor, rhs: te.Tensor, transa: bool, transb: bool, named: Any
) -> te.Tensor:
    word = function.rpartition(".")[2]
    dimensions = 2 if word == "matmul" else 3
    if lhs.ndim != dimensions or rhs.ndim != dimensions:
        raise ValueError(f"{word} takes tensors of {dimensions} dimensions")
    rows, columns = lhs.shape[-1 if transa else -2], rhs.shape[-2 if transb else -1]
    shape = (*lhs.shape[:-2], rows, columns)
    made: te.Tensor = te.extern(
        shape, [lhs, rhs],
        lambda ins, outs: call_packed(function, ins[0], ins[1], outs[0], transa, transb),
        **{"name": word, **named},
    )
    return made
