"""Products of matrices."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, cast, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_elementwise import add, mul
from sterna.frontend.torch.convert_quantized import quantized_bias
from sterna.frontend.torch.convert_shape import broadcast_dims, expand, places_of, shape_of
from sterna.frontend.torch.extents import dims_of, total
from sterna.frontend.torch.promotion import HALVES, in_float32, together
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("linear")
def linear(input: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None) -> RelayExpr:
    if rank_of(weight) == 1:
        made = matmul(input, weight)
        return made if bias is None else call("add", made, bias)
    *outer, inner = dims_of(input)
    rows = input if len(outer) == 1 else reshaped(input, (total(outer), inner))
    units = shape_of(weight)[0]
    made = call("nn.dense", rows, weight, units=units)
    if bias is not None:
        made = call("nn.bias_add", made, quantized_bias(input, weight, bias), axis=-1)
    return made if len(outer) == 1 else reshaped(made, (*outer, units))


@aten("mm")
def mm(x: RelayExpr, mat2: RelayExpr) -> RelayExpr:
    return call("nn.matmul", x, mat2)


@aten("bmm")
def bmm(x: RelayExpr, mat2: RelayExpr) -> RelayExpr:
    return call("nn.batch_matmul", x, mat2, transpose_a=False, transpose_b=False)


@aten("_grouped_mm")
def grouped_mm(
    x: RelayExpr, mat2: RelayExpr, offs: RelayExpr | None = None, bias: RelayExpr | None = None,
    out_dtype: str | None = None,
) -> RelayExpr:
    ranks = rank_of(x), rank_of(mat2)
    if bias is not None or ranks != ((2, 3) if offs is not None else (3, 3)):
        raise OpNotImplemented(
            "products of groups are those of rows (2-D) by one matrix for each (3-D), with no bias"
        )
    made = bmm(x, mat2) if offs is None else call("nn.grouped_matmul", x, mat2, offs)
    return made if out_dtype is None else cast(made, out_dtype)


@aten("transformers::grouped_mm_fallback")
def grouped_mm_fallback(input: RelayExpr, weight: RelayExpr, offs: RelayExpr) -> RelayExpr:
    return grouped_mm(input, weight, offs)


@aten("matmul", "linalg_matmul")
def matmul(
    x: RelayExpr, other: RelayExpr | None = None, tensor2: RelayExpr | None = None
) -> RelayExpr:
    second = other if other is not None else tensor2
    assert second is not None
    a, b = dims_of(x), dims_of(second)
    left = reshaped(x, (1, *a)) if len(a) == 1 else x
    right = reshaped(second, (*b, 1)) if len(b) == 1 else second
    made = _products(left, right)
    outer = dims_of(made)[:-2]
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return made if len(a) > 1 and len(b) > 1 else reshaped(made, (*outer, *rows, *columns))


def _products(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """Products of matrices whose outer extents broadcast."""
    *outer_a, rows, inner = dims_of(a)
    *outer_b, _, columns = dims_of(b)
    if not outer_a and not outer_b:
        return call("nn.matmul", a, b)
    if not outer_b:  # one matrix for all: the rows of all are those of one product
        made = call("nn.matmul", reshaped(a, (total((*outer_a, rows)), inner)), b)
        return reshaped(made, (*outer_a, rows, columns))
    outer = broadcast_dims(outer_a, outer_b)
    count = total(outer)
    flat = [
        reshaped(expand(each, (*outer, *dims_of(each)[-2:])), (count, *dims_of(each)[-2:]))
        for each in (a, b)
    ]
    return reshaped(bmm(*flat), (*outer, rows, columns))


@aten("mv")
def mv(x: RelayExpr, vec: RelayExpr) -> RelayExpr:
    return matmul(x, vec)


@aten("dot", "vdot", "inner")
def dot(
    x: RelayExpr, tensor: RelayExpr | None = None, other: RelayExpr | None = None
) -> RelayExpr:
    second = tensor if tensor is not None else other
    assert second is not None
    if not rank_of(x) or not rank_of(second):
        return mul(x, second)
    if rank_of(x) == rank_of(second) == 1:
        return call("sum", call("multiply", x, second))
    count = shape_of(x)[-1]
    rows = [reshaped(e, (math.prod(shape_of(e)[:-1]), count)) for e in (x, second)]
    made = call("nn.dense", *rows)
    return reshaped(made, (*shape_of(x)[:-1], *shape_of(second)[:-1]))


@aten("linalg_vecdot")
def vecdot(x: RelayExpr, y: RelayExpr, dim: int = -1) -> RelayExpr:
    return call("sum", mul(x, y), axis=dim)


@aten("outer", "ger")
def outer(x: RelayExpr, vec2: RelayExpr) -> RelayExpr:
    return mul(call("expand_dims", x, 1), vec2)


@aten("kron")
def kron(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    rank = max(rank_of(x), rank_of(other))
    a, b = ((1,) * (rank - rank_of(e)) + shape_of(e) for e in (x, other))
    left = reshaped(x, [extent for each in a for extent in (each, 1)])
    right = reshaped(other, [extent for each in b for extent in (1, each)])
    return reshaped(mul(left, right), [p * q for p, q in zip(a, b, strict=True)])


def _sums_in(a: RelayExpr) -> str:
    """The type of sums to which something is added before they are rounded."""
    return "float32" if dtype_of(a) in HALVES else dtype_of(a)


def _plus(x: RelayExpr, product: RelayExpr, beta: float, alpha: float) -> RelayExpr:
    """beta * x + alpha * product, in the type of x; the product's may be wider."""
    made = _added(cast(x, dtype_of(product)), product, beta, alpha)
    return cast(made, dtype_of(x))


def _added(x: RelayExpr, product: RelayExpr, beta: float, alpha: float) -> RelayExpr:
    whole = product if alpha == 1 else mul(product, like(alpha, product))
    if beta == 0:
        return whole
    first = x if beta == 1 else mul(x, like(beta, x))
    return add(first, whole)


@aten("addmm")
def addmm(
    x: RelayExpr, mat1: RelayExpr, mat2: RelayExpr, beta: float = 1, alpha: float = 1
) -> RelayExpr:
    product = call("nn.matmul", mat1, mat2, out_dtype=_sums_in(mat1))
    return _plus(x, product, beta, alpha)


@aten("addmv")
@in_float32
def addmv(
    x: RelayExpr, mat: RelayExpr, vec: RelayExpr, beta: float = 1, alpha: float = 1
) -> RelayExpr:
    return _plus(x, matmul(mat, vec), beta, alpha)


@aten("addr")
@in_float32
def addr(
    x: RelayExpr, vec1: RelayExpr, vec2: RelayExpr, beta: float = 1, alpha: float = 1
) -> RelayExpr:
    return _plus(x, outer(vec1, vec2), beta, alpha)


@aten("baddbmm")
def baddbmm(
    x: RelayExpr, batch1: RelayExpr, batch2: RelayExpr, beta: float = 1, alpha: float = 1
) -> RelayExpr:
    product = call(
        "nn.batch_matmul", batch1, batch2, transpose_a=False, transpose_b=False,
        out_dtype=_sums_in(batch1),
    )
    return _plus(x, product, beta, alpha)


@aten("addbmm")
@in_float32
def addbmm(
    x: RelayExpr, batch1: RelayExpr, batch2: RelayExpr, beta: float = 1, alpha: float = 1
) -> RelayExpr:
    return _plus(x, call("sum", bmm(batch1, batch2), axis=0), beta, alpha)


@aten("einsum")
def einsum(
    equation: str, tensors: Sequence[RelayExpr], path: Sequence[int] | None = None
) -> RelayExpr:
    return call("einsum", together(*tensors), equation.replace(" ", ""))


@aten("bilinear")
@in_float32
def bilinear(
    input1: RelayExpr, input2: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None
) -> RelayExpr:
    *outer, width = shape_of(input1)
    units, _, other = shape_of(weight)
    rows = reshaped(input1, (math.prod(outer), width))
    first = linear(rows, reshaped(call("transpose", weight, (0, 2, 1)), (units * other, width)))
    second = reshaped(input2, (math.prod(outer), 1, other))
    made = call("multiply", reshaped(first, (math.prod(outer), units, other)), second)
    made = reshaped(call("sum", made, axis=-1), (*outer, units))
    return made if bias is None else call("add", made, bias)


@aten("_trilinear")
def trilinear(
    i1: RelayExpr, i2: RelayExpr, i3: RelayExpr, expand1: Sequence[int],
    expand2: Sequence[int], expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> RelayExpr:
    """The product of three tensors that lack axes, summed along others."""
    letters = "abcdefgh"[: rank_of(i1) + len(expand1)]
    operands = [
        "".join(each for axis, each in enumerate(letters) if axis not in lacking)
        for lacking in (expand1, expand2, expand3)
    ]
    kept = "".join(each for axis, each in enumerate(letters) if axis not in sumdim)
    return call("einsum", [i1, i2, i3], f"{','.join(operands)}->{kept}")


@aten("chain_matmul")
def chain_matmul(matrices: Sequence[RelayExpr]) -> RelayExpr:
    made = matrices[0]
    for each in matrices[1:]:
        made = mm(made, each)
    return made


@aten("_euclidean_dist")
def euclidean_dist(x1: RelayExpr, x2: RelayExpr) -> RelayExpr:
    return cdist(x1, x2)


@aten("cdist", "_cdist_forward")
def cdist(
    x1: RelayExpr, x2: RelayExpr, p: float = 2.0, compute_mode: int | None = None
) -> RelayExpr:
    """Distances of all pairs of points."""
    difference = call(
        "abs", call("subtract", call("expand_dims", x1, rank_of(x1) - 1),
                    call("expand_dims", x2, rank_of(x2) - 2))
    )
    if p == 0:
        away = cast(call("not_equal", difference, like(0, difference)), dtype_of(difference))
        return call("sum", away, axis=-1)
    if p == math.inf:
        return call("max", difference, axis=-1)
    if p == 1:
        return call("sum", difference, axis=-1)
    if p == 2:
        return call("sqrt", call("sum", call("multiply", difference, difference), axis=-1))
    total = call("sum", call("power", difference, like(p, difference)), axis=-1)
    return call("power", total, like(1 / p, total))


@aten("linalg_det", "det")
def det(A: RelayExpr | None = None, x: RelayExpr | None = None) -> RelayExpr:
    data = A if A is not None else x
    assert data is not None
    return call("det", data)


@aten("trace")
def trace(x: RelayExpr) -> RelayExpr:
    rows, columns = shape_of(x)
    places = places_of((0, min(rows, columns), columns + 1))
    line = call("take", reshaped(x, (rows * columns,)), places)
    return call("sum", line)


