"""Products of matrices: one stage over the reduce axis k, and the bias after it."""

from typing import Any

from sterna import te
from sterna.ir import build
from sterna.te import Tensor
from sterna.topi.stage import stage
from sterna.topi.tag import BROADCAST
from sterna.topi.utils import differ


def _same(left: Any, right: Any, what: str) -> None:
    if differ(left, right):
        raise ValueError(f"{what}: the inner extents {left} and {right} differ")


def matmul(
    tensor_a: Tensor, tensor_b: Tensor, bias: Tensor | None = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
) -> Tensor:
    """The product of two matrices, either of which may lie transposed."""
    if len(tensor_a.shape) != 2 or len(tensor_b.shape) != 2:
        raise ValueError(f"matmul takes two matrices, not {tensor_a} and {tensor_b}")
    inner, rows = tensor_a.shape if transpose_a else reversed(tensor_a.shape)
    columns, other = tensor_b.shape if transpose_b else reversed(tensor_b.shape)
    _same(inner, other, f"the product of {tensor_a} and {tensor_b}")
    kind = str(tensor_a.dtype) if out_dtype is None else out_dtype
    k = te.reduce_axis((0, inner), name="k")

    def element(i: Any, j: Any) -> Any:
        a = tensor_a(k, i) if transpose_a else tensor_a(i, k)
        b = tensor_b(j, k) if transpose_b else tensor_b(k, j)
        return te.sum(a.astype(kind) * b.astype(kind), axis=k)

    name = {(False, True): "nt", (True, False): "tn", (True, True): "tt"}.get(
        (transpose_a, transpose_b), "nn"
    )
    tag = "dense" if name == "nt" else "matmul"
    made = stage((rows, columns), element, name=f"T_matmul_{name.upper()}", tag=tag)
    if bias is None:
        return made
    if differ(bias.shape[0], columns):
        raise ValueError(f"the bias {bias} is for {bias.shape[0]} columns, there are {columns}")
    return stage((rows, columns), lambda i, j: made(i, j) + bias(j).astype(kind), name="T_add",
                      tag=BROADCAST)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None,
    auto_scheduler_rewritten_layout: str = "",
) -> Tensor:
    """Rows of data times rows of weights."""
    return matmul(data, weight, bias, out_dtype, False, True)


def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, oshape: Any = None, out_dtype: str | None = None,
    transpose_a: bool = False, transpose_b: bool = True, auto_scheduler_rewritten_layout: str = "",
) -> Tensor:
    """The products of matrices pair by pair; a batch of one goes with every other."""
    if len(tensor_a.shape) != 3 or len(tensor_b.shape) != 3:
        raise ValueError(f"batch_matmul takes tensors of rank 3, not {tensor_a} and {tensor_b}")
    left, right = tensor_a.shape[0], tensor_b.shape[0]
    inner, rows = tensor_a.shape[1:] if transpose_a else reversed(tensor_a.shape[1:])
    columns, other = tensor_b.shape[1:] if transpose_b else reversed(tensor_b.shape[1:])
    _same(inner, other, f"the product of {tensor_a} and {tensor_b}")
    alone = (build.int_value(left) == 1, build.int_value(right) == 1)
    if not any(alone):
        _same(left, right, f"the batches of {tensor_a} and {tensor_b}")
    kind = str(tensor_a.dtype) if out_dtype is None else out_dtype
    k = te.reduce_axis((0, inner), name="k")

    def element(b: Any, i: Any, j: Any) -> Any:
        first, second = (0 if alone[0] else b), (0 if alone[1] else b)
        a = tensor_a(first, k, i) if transpose_a else tensor_a(first, i, k)
        c = tensor_b(second, j, k) if transpose_b else tensor_b(second, k, j)
        return te.sum(a.astype(kind) * c.astype(kind), axis=k)

    return stage((right if alone[0] else left, rows, columns), element,
                      name="T_batch_matmul_NT", tag="batch_matmul")
