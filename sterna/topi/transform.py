"""Shapes, slices, gathers and sorting; most are the operators of graphs on tensors."""

from typing import Any

from sterna.te import Tensor
from sterna.topi.operators import one_tensor, operator
from sterna.topi.stage import stage
from sterna.topi.tag import INJECTIVE

adv_index = operator("adv_index")
argsort = operator("argsort")
broadcast_to = operator("broadcast_to")
concatenate = operator("concatenate")
cumprod = operator("cumprod")
cumsum = operator("cumsum")
dft = operator("dft")
expand_dims = operator("expand_dims")
fixed_point_multiply = operator("fixed_point_multiply")
flip = operator("reverse")
gather = operator("gather")
gather_nd = operator("gather_nd")
invert_permutation = operator("invert_permutation")
layout_transform = operator("layout_transform")
matrix_set_diag = operator("matrix_set_diag")
meshgrid = operator("meshgrid")
one_hot = operator("one_hot")
repeat = operator("repeat")
reshape = operator("reshape")
reverse_sequence = operator("reverse_sequence")
scatter_elements = operator("scatter_elements")
scatter_nd = operator("scatter_nd")
searchsorted = operator("searchsorted")
sequence_mask = operator("sequence_mask")
shape = operator("shape_of")
sliding_window = operator("sliding_window")
slice_like = operator("slice_like")
sort = operator("sort")
sparse_to_dense = operator("sparse_to_dense")
split = operator("split")
squeeze = operator("squeeze")
stack = operator("stack")
strided_set = operator("strided_set")
strided_slice = operator("strided_slice")
take = operator("take")
tile = operator("tile")
topk = operator("topk")
transpose = operator("transpose")
trilu = operator("trilu")
unravel_index = operator("unravel_index")
where = operator("where")


def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """The sum of products that NumPy's notation says, such as "ij,jk->ik"."""
    return one_tensor("einsum", list(operand), subscripts)


def ndarray_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements."""
    return one_tensor("ndarray_size", array, dtype=dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Tensor:
    """The numbers from start on, below stop."""
    first, last = (0, start) if stop is None else (start, stop)
    count = max(0, -int(-(last - first) // step))
    return stage(
        (count,), lambda i: (i * step + first).astype(dtype), name="T_arange", tag=INJECTIVE
    )
