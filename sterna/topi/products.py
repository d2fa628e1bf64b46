"""Products of tensors over some of their axes."""

from typing import Any

from sterna import te
from sterna.te import Tensor
from sterna.topi import nn
from sterna.topi.stage import stage
from sterna.topi.utils import differ


def matmul(
    a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False
) -> Tensor:
    """The product of two matrices."""
    return nn.matmul(a, b, transpose_a=transp_a, transpose_b=transp_b)


def tensordot(a: Tensor, b: Tensor, axes: Any = 2) -> Tensor:
    """The sum of products over pairs of axes: a number of them, or two lists of axes."""
    if isinstance(axes, int):
        left = list(range(len(a.shape) - axes, len(a.shape)))
        right = list(range(axes))
    else:
        first, second = axes
        left = [first] if isinstance(first, int) else list(first)
        right = [second] if isinstance(second, int) else list(second)
    if len(left) != len(right):
        raise ValueError(f"tensordot pairs axes: {left} and {right} are not as many")
    for i, j in zip(left, right, strict=True):
        if differ(a.shape[i], b.shape[j]):
            raise ValueError(f"axis {i} of {a} and axis {j} of {b} differ in extent")
    inner = [te.reduce_axis((0, a.shape[i]), f"k{n}") for n, i in enumerate(left)]
    free_a = [i for i in range(len(a.shape)) if i not in left]
    free_b = [i for i in range(len(b.shape)) if i not in right]

    def element(*indices: Any) -> Any:
        of_a = dict(zip([*free_a, *left], [*indices[: len(free_a)], *inner], strict=True))
        of_b = dict(zip([*free_b, *right], [*indices[len(free_a):], *inner], strict=True))
        one = a(*[of_a[i] for i in range(len(a.shape))])
        other = b(*[of_b[i] for i in range(len(b.shape))])
        return te.sum(one * other, axis=inner)

    shape = [*[a.shape[i] for i in free_a], *[b.shape[i] for i in free_b]]
    return stage(tuple(shape), element, name="T_tensordot", tag="matmul")
