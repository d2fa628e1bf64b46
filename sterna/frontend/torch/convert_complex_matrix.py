"""Vectors and matrices of complex numbers: products, norms and systems of equations."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product as combinations
from typing import Any

from sterna.frontend.calls import call, fields_of, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.complex_pairs import both_parts, is_complex, pair
from sterna.frontend.torch.convert_complex import conj, mul, product_of, size_of, sums_of
from sterna.frontend.torch.convert_linalg import full_solve, unit_matrix
from sterna.frontend.torch.convert_reduce import Dims, vector_norm
from sterna.frontend.torch.convert_shape import axis_of, cat, ravel, shape_of, slice_, turned
from sterna.frontend.torch.table import aten, converter_of
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


def _of_parts(name: str, x: RelayExpr, other: RelayExpr) -> RelayExpr:
    """A product of two operands from those of their parts."""
    plain = converter_of(f"aten.{name}")
    assert plain is not None
    return product_of(both_parts(x), both_parts(other), lambda p, q: plain(p, q))


def _product(name: str, second: str) -> Callable[..., RelayExpr]:
    def convert(**given: Any) -> RelayExpr:
        return _of_parts(name, given["x"], given[second])

    return convert


for _name, _second in (
    ("mm", "mat2"), ("bmm", "mat2"), ("mv", "vec"), ("dot", "tensor"), ("matmul", "other"),
    ("outer", "vec2"), ("ger", "vec2"), ("kron", "other"),
):
    aten(f"complex::{_name}")(_product(_name, _second))


@aten("complex::vdot")
def vdot(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    return _of_parts("dot", conj(x), other)


@aten("complex::linear")
def linear(input: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None) -> RelayExpr:
    made = _of_parts("linear", input, weight)
    return made if bias is None else sums_of("add")(made, bias)


def _sum(name: str, first: str, second: str) -> Callable[..., RelayExpr]:
    """beta times a tensor plus alpha times a product."""

    def convert(beta: Any = 1, alpha: Any = 1, **given: Any) -> RelayExpr:
        made = _of_parts(name, given[first], given[second])
        made = made if alpha == 1 else mul(made, alpha)
        if beta == 0:
            return made
        added = given["x"]
        return sums_of("add")(added if beta == 1 else mul(added, beta), made)

    return convert


aten("complex::addmm")(_sum("mm", "mat1", "mat2"))
aten("complex::addmv")(_sum("mv", "x", "vec"))
aten("complex::baddbmm")(_sum("bmm", "batch1", "batch2"))


@aten("complex::addcmul")
def addcmul(x: RelayExpr, tensor1: RelayExpr, tensor2: RelayExpr, value: Any = 1) -> RelayExpr:
    made = mul(tensor1, tensor2)
    return sums_of("add")(x, made if value == 1 else mul(made, value))


@aten("complex::einsum")
def einsum(
    equation: str, tensors: Sequence[RelayExpr], path: Sequence[int] | None = None
) -> RelayExpr:
    """The sum over all choices of a part of each operand: an i for each imaginary one."""
    sums: list[list[RelayExpr]] = [[], [], [], []]
    for chosen in combinations((0, 1), repeat=len(tensors)):
        if any(part and not is_complex(each) for part, each in zip(chosen, tensors, strict=True)):
            continue
        parts = [both_parts(each)[part] for part, each in zip(chosen, tensors, strict=True)]
        sums[sum(chosen) % 4].append(call("einsum", parts, equation.replace(" ", "")))
    ones, turns, minus, back = sums
    return pair(_less(ones, minus), _less(turns, back))


def _less(added: Sequence[RelayExpr], taken: Sequence[RelayExpr]) -> RelayExpr:
    made = reduce(lambda a, b: call("add", a, b), added)
    return reduce(lambda a, b: call("subtract", a, b), taken, made)


@aten("complex::mH", "complex::matrix_H", "complex::adjoint")
def adjoint(x: RelayExpr) -> RelayExpr:
    return conj(pair(*map(turned, fields_of(x))))


@aten("complex::linalg_vector_norm")
def complex_norm(
    x: RelayExpr, ord: float = 2, dim: Dims = None, keepdim: bool = False,
    dtype: str | None = None,
) -> RelayExpr:
    if dtype is not None:
        raise OpNotImplemented("a norm of complex numbers in another type")
    return vector_norm(size_of(x), ord, dim, keepdim)


@aten("complex::norm", "complex::frobenius_norm")
def old_norm(
    x: RelayExpr, p: float | None = 2, dim: Dims = None, keepdim: bool = False
) -> RelayExpr:
    return vector_norm(size_of(x), 2 if p is None else p, dim, keepdim)


@aten("complex::prod")
def prod(x: RelayExpr, dim: int | None = None, keepdim: bool = False) -> RelayExpr:
    """Halves are multiplied by each other until one element is left."""
    parts = fields_of(x)
    if dim is None:
        parts, dim = [ravel(part) for part in parts], 0
    axis = axis_of(dim, rank_of(parts[0]))
    count = shape_of(parts[0])[axis]
    if not count:
        raise OpNotImplemented("a product of no complex numbers")
    made = pair(*parts)
    while count > 1:
        half = count // 2
        first, second, rest = (
            pair(*(slice_(part, axis, begin, end) for part in fields_of(made)))
            for begin, end in ((0, half), (half, 2 * half), (2 * half, count))
        )
        made = mul(first, second)
        if count % 2:
            made = pair(*(
                cat(list(each), axis) for each in zip(fields_of(made), fields_of(rest), strict=True)
            ))
        count = half + count % 2
    if keepdim:
        return made
    shape = shape_of(parts[0])
    return pair(*(
        reshaped(part, (*shape[:axis], *shape[axis + 1 :])) for part in fields_of(made)
    ))


# ---- systems of equations: those of both parts below each other, with real numbers ----


def _doubled(matrix: RelayExpr) -> RelayExpr:
    """[[a, -b], [b, a]], which multiplies parts that lie below each other."""
    a, b = both_parts(matrix)
    rows = [cat([a, call("negative", b)], -1), cat([b, a], -1)]
    return cat(rows, -2)


@aten("complex::linalg_solve_ex")
def solve_ex(
    A: RelayExpr, B: RelayExpr, left: bool = True, check_errors: bool = False
) -> list[RelayExpr]:
    if not left:
        raise OpNotImplemented("complex operands on the left of a matrix that is solved for")
    right = both_parts(B)
    size = shape_of(both_parts(A)[0])[-1]
    is_vector = rank_of(right[0]) == 1
    if not is_vector and rank_of(right[0]) != rank_of(both_parts(A)[0]):
        raise OpNotImplemented("complex right sides of other dimensions than their matrix")
    rows = cat([call("expand_dims", part, 1) if is_vector else part for part in right], -2)
    made, _, _, info = full_solve(_doubled(A), rows)
    found = [slice_(made, rank_of(made) - 2, begin, begin + size) for begin in (0, size)]
    if is_vector:
        found = [reshaped(part, (size,)) for part in found]
    return [pair(*found), info]


@aten("complex::linalg_solve")
def solve(A: RelayExpr, B: RelayExpr, left: bool = True) -> RelayExpr:
    return solve_ex(A, B, left)[0]


@aten("complex::linalg_inv_ex")
def inv_ex(A: RelayExpr, check_errors: bool = False) -> list[RelayExpr]:
    a = both_parts(A)[0]
    one = unit_matrix(a, shape_of(a)[-1])
    return solve_ex(A, pair(one, call("zeros_like", one)))


@aten("complex::linalg_inv", "complex::inverse")
def inv(A: RelayExpr | None = None, x: RelayExpr | None = None) -> RelayExpr:
    data = A if A is not None else x
    assert data is not None
    return inv_ex(data)[0]
