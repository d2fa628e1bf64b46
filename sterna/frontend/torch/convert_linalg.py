"""Linear algebra: factorisations, systems of equations, eigenvalues and singular values."""

import math
from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_matrix import matmul
from sterna.frontend.torch.convert_shape import broadcast_shape, cat, expand, shape_of, slice_
from sterna.frontend.torch.promotion import Operand, as_type, in_float32
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# The least of what float32 and float64 tell apart from 1.
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def transposed(x: RelayExpr) -> RelayExpr:
    """The matrices in the last two dimensions with rows as columns."""
    rank = rank_of(x)
    return call("transpose", x, (*range(rank - 2), rank - 1, rank - 2))


def unit_matrix(x: RelayExpr, size: int) -> RelayExpr:
    """Unit matrices, as many as x has matrices."""
    return expand(_wide_unit(x, size, size), (*shape_of(x)[:-2], size, size))


def triangle(x: RelayExpr, upper: bool, offset: int = 0) -> RelayExpr:
    """One triangle of matrices; the other one becomes zeros."""
    rows, columns = shape_of(x)[-2:]
    keeps = np.ones((rows, columns), bool)
    mask = np.triu(keeps, offset) if upper else np.tril(keeps, offset)
    return call("where", constant(mask), x, like(0, x))


def _together(a: RelayExpr, b: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """Matrices with the same outer extents."""
    outer = broadcast_shape(shape_of(a)[:-2], shape_of(b)[:-2])
    return (
        expand(a, (*outer, *shape_of(a)[-2:])), expand(b, (*outer, *shape_of(b)[-2:]))
    )


def solved_triangle(a: RelayExpr, b: RelayExpr, upper: bool, unit: bool = False) -> RelayExpr:
    """x with a x = b."""
    return call("linalg.solve_triangular", *_together(a, b), upper=upper, unit=unit)


# ---- Cholesky ----


@aten("linalg_cholesky", "cholesky")
def cholesky(x: RelayExpr, upper: bool = False) -> RelayExpr:
    return cholesky_ex(x, upper)[0]


@aten("linalg_cholesky_ex")
def cholesky_ex(
    x: RelayExpr, upper: bool = False, check_errors: bool = False
) -> list[RelayExpr]:
    made, info = parts(call("linalg.cholesky", transposed(x) if upper else x), 2)
    return [transposed(made) if upper else made, info]


@aten("cholesky_solve")
def cholesky_solve(x: RelayExpr, input2: RelayExpr, upper: bool = False) -> RelayExpr:
    factor = transposed(input2) if upper else input2
    return solved_triangle(transposed(factor), solved_triangle(factor, x, False), True)


@aten("cholesky_inverse")
def cholesky_inverse(x: RelayExpr, upper: bool = False) -> RelayExpr:
    return cholesky_solve(unit_matrix(x, shape_of(x)[-1]), x, upper)


# ---- LU ----


@aten("linalg_lu_factor_ex", "linalg_lu_factor")
def lu_factor(
    A: RelayExpr, pivot: bool = True, check_errors: bool = False
) -> list[RelayExpr]:
    if not pivot:
        raise OpNotImplemented("LU without pivots")
    return parts(call("linalg.lu_factor", A), 3)


@aten("_lu_with_info")
def lu_with_info(
    x: RelayExpr, pivot: bool = True, check_errors: bool = True
) -> list[RelayExpr]:
    return lu_factor(x, pivot)


@aten("lu_unpack")
def lu_unpack(
    LU_data: RelayExpr, LU_pivots: RelayExpr, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[RelayExpr]:
    rows, columns = shape_of(LU_data)[-2:]
    count = min(rows, columns)
    nothing = call("zeros", (0,), dtype_of(LU_data))
    made = [nothing, nothing, nothing]
    if unpack_pivots:
        order = call("linalg.pivoted_rows", LU_pivots, rows=rows)
        hot = call("equal", call("expand_dims", order, rank_of(order) - 1),
                   constant(np.arange(rows).reshape(rows, 1), "int32"))
        made[0] = cast(hot, dtype_of(LU_data))
    if unpack_data:
        lower = triangle(slice_(LU_data, -1, 0, count), upper=False, offset=-1)
        made[1] = call("add", lower, _wide_unit(LU_data, rows, count))
        made[2] = triangle(slice_(LU_data, -2, 0, count), upper=True)
    return made


def _wide_unit(x: RelayExpr, rows: int, columns: int) -> RelayExpr:
    return constant(np.eye(rows, columns), dtype_of(x))


@aten("linalg_lu")
def lu(A: RelayExpr, pivot: bool = True) -> list[RelayExpr]:
    made, pivots, _ = lu_factor(A, pivot)
    return lu_unpack(made, pivots)


def _in_order(x: RelayExpr, order: RelayExpr) -> RelayExpr:
    """The rows of matrices in an order."""
    places = expand(call("expand_dims", cast(order, "int64"), rank_of(order)), shape_of(x))
    return call("gather", x, rank_of(x) - 2, places)


@aten("linalg_lu_solve")
def lu_solve(
    LU: RelayExpr, pivots: RelayExpr, B: RelayExpr, left: bool = True, adjoint: bool = False
) -> RelayExpr:
    if not left:  # x A = b is A^T x^T = b^T
        return transposed(lu_solve(LU, pivots, transposed(B), True, not adjoint))
    both, given = _together(LU, B)
    size = shape_of(LU)[-1]
    outer = shape_of(both)[:-2]
    order = call("linalg.pivoted_rows", pivots, rows=size)
    order = expand(order, (*outer, size))
    if not adjoint:
        made = solved_triangle(both, _in_order(given, order), False, unit=True)
        return solved_triangle(both, made, True)
    turned = transposed(both)
    made = solved_triangle(turned, given, False)
    made = solved_triangle(turned, made, True, unit=True)
    back = call("argsort", order, axis=-1, dtype="int64")
    return _in_order(made, back)


@aten("lu_solve")
def old_lu_solve(x: RelayExpr, LU_data: RelayExpr, LU_pivots: RelayExpr) -> RelayExpr:
    return lu_solve(LU_data, LU_pivots, x)


# ---- systems of equations ----


def _is_vector(a: RelayExpr, b: RelayExpr) -> bool:
    """Whether b is one right side for each matrix, by PyTorch's rule."""
    is_batch = rank_of(a) - 1 == rank_of(b) and shape_of(a)[:-1] == shape_of(b)
    return rank_of(b) == 1 or is_batch


@aten("_linalg_solve_ex")
def full_solve(
    A: RelayExpr, B: RelayExpr, left: bool = True, check_errors: bool = False
) -> list[RelayExpr]:
    is_vector = _is_vector(A, B)
    right = call("expand_dims", B, rank_of(B)) if is_vector else B
    made, pivots, info = lu_factor(A)
    result = lu_solve(made, pivots, right, left or is_vector)
    if is_vector:
        result = reshaped(result, shape_of(result)[:-1])
    return [result, made, pivots, info]


@aten("linalg_solve")
def solve(A: RelayExpr, B: RelayExpr, left: bool = True) -> RelayExpr:
    return full_solve(A, B, left)[0]


@aten("linalg_solve_ex")
def solve_ex(
    A: RelayExpr, B: RelayExpr, left: bool = True, check_errors: bool = False
) -> list[RelayExpr]:
    result, _, _, info = full_solve(A, B, left)
    return [result, info]


@aten("linalg_inv_ex")
def inv_ex(A: RelayExpr, check_errors: bool = False) -> list[RelayExpr]:
    made, pivots, info = lu_factor(A)
    return [lu_solve(made, pivots, unit_matrix(A, shape_of(A)[-1])), info]


@aten("linalg_inv", "inverse")
def inv(A: RelayExpr | None = None, x: RelayExpr | None = None) -> RelayExpr:
    data = A if A is not None else x
    assert data is not None
    return inv_ex(data)[0]


@aten("linalg_solve_triangular")
def solve_triangular(
    x: RelayExpr, B: RelayExpr, upper: bool, left: bool = True, unitriangular: bool = False
) -> RelayExpr:
    if left:
        return solved_triangle(x, B, upper, unitriangular)
    return transposed(solved_triangle(transposed(x), transposed(B), not upper, unitriangular))


@aten("triangular_solve")
def old_triangular_solve(
    x: RelayExpr, A: RelayExpr, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> list[RelayExpr]:
    b, a = _together(x, A)
    matrix = transposed(a) if transpose else a
    return [solved_triangle(matrix, b, upper != transpose, unitriangular), a]


@aten("linalg_tensorinv")
def tensorinv(x: RelayExpr, ind: int = 2) -> RelayExpr:
    shape = shape_of(x)
    size = math.prod(shape[:ind])
    made = inv(reshaped(x, (size, size)))
    return reshaped(made, (*shape[ind:], *shape[:ind]))


@aten("linalg_tensorsolve")
def tensorsolve(
    x: RelayExpr, other: RelayExpr, dims: Sequence[int] | None = None
) -> RelayExpr:
    rank = rank_of(x)
    moved = [each % rank for each in dims or ()]
    data = call("transpose", x, (*(e for e in range(rank) if e not in moved), *moved))
    rest = shape_of(data)[rank_of(other):]
    size = math.prod(shape_of(other))
    made = solve(reshaped(data, (size, math.prod(rest))), reshaped(other, (size,)))
    return reshaped(made, rest)


# ---- determinants ----


def _diagonal_of_u(
    A: RelayExpr, is_row_major: bool
) -> tuple[RelayExpr, RelayExpr, RelayExpr, RelayExpr]:
    """U's diagonal, -1 for each exchange of rows, both factors in one matrix, and the pivots."""
    made, pivots, _ = lu_factor(transposed(A) if is_row_major else A)
    size = shape_of(A)[-1]
    unit = unit_matrix(A, size)
    line = call("sum", call("multiply", made, unit), axis=-1)
    order = constant(np.arange(1, size + 1), "int32")
    moved = cast(call("not_equal", pivots, order), dtype_of(A))
    odd = call("subtract", like(1, A), call("multiply", like(2, A), moved))
    return line, odd, made, pivots


@aten("_linalg_det")
def full_det(A: RelayExpr, is_row_major: bool = False) -> list[RelayExpr]:
    """The determinant, with the factors that its gradient is computed from."""
    line, odd, made, pivots = _diagonal_of_u(A, is_row_major)
    return [call("prod", call("multiply", line, odd), axis=-1), made, pivots]


@aten("_linalg_slogdet")
def full_slogdet(A: RelayExpr, is_row_major: bool = False) -> list[RelayExpr]:
    """The sign and the logarithm of the determinant: of U's diagonal and of the exchanges."""
    line, odd, made, pivots = _diagonal_of_u(A, is_row_major)
    signs = call("multiply", call("sign", line), odd)
    logs = call("log", call("abs", line))
    return [call("prod", signs, axis=-1), call("sum", logs, axis=-1), made, pivots]


@aten("linalg_slogdet")
def slogdet(A: RelayExpr) -> list[RelayExpr]:
    return full_slogdet(A)[:2]


@aten("slogdet")
def old_slogdet(x: RelayExpr) -> list[RelayExpr]:
    return full_slogdet(x)[:2]


@aten("logdet")
def logdet(x: RelayExpr) -> RelayExpr:
    sign, size = full_slogdet(x)[:2]
    return call("where", call("less", sign, like(0, sign)), like(math.nan, size), size)


@aten("linalg_matrix_power", "matrix_power")
def matrix_power(x: RelayExpr, n: int) -> RelayExpr:
    """By repeated squaring; of the inverse if the power is negative."""
    if not n:
        return unit_matrix(x, shape_of(x)[-1])
    base, left = (inv(x), -n) if n < 0 else (x, n)
    made: RelayExpr | None = None
    while left:
        if left % 2:
            made = base if made is None else matmul(made, base)
        left //= 2
        base = matmul(base, base) if left else base
    assert made is not None
    return made


@aten("linalg_matrix_exp", "matrix_exp")
@in_float32
def matrix_exp(x: RelayExpr) -> RelayExpr:
    return call("linalg.matrix_exp", x)


# ---- QR ----


def _reflected(made: RelayExpr, tau: RelayExpr, columns: int) -> RelayExpr:
    """The first columns of Q: reflections with no effect stand for those that are missing."""
    have = shape_of(made)[-1]
    if have < columns:
        more = call("zeros", (*shape_of(made)[:-1], columns - have), dtype_of(made))
        made = cat([made, more], -1)
    return call("linalg.householder_product", slice_(made, -1, 0, columns), tau)


@aten("linalg_qr")
def qr(A: RelayExpr, mode: str = "reduced") -> list[RelayExpr]:
    rows, columns = shape_of(A)[-2:]
    count = rows if mode == "complete" else min(rows, columns)
    made, tau = parts(call("linalg.householder_qr", A), 2)
    upper = triangle(made, upper=True)
    if mode == "r":
        return [call("zeros", (0,), dtype_of(A)), slice_(upper, -2, 0, min(rows, columns))]
    return [_reflected(made, tau, count), slice_(upper, -2, 0, count)]


@aten("qr")
def old_qr(x: RelayExpr, some: bool = True) -> list[RelayExpr]:
    return qr(x, "reduced" if some else "complete")


@aten("geqrf")
def geqrf(x: RelayExpr) -> list[RelayExpr]:
    return parts(call("linalg.householder_qr", x), 2)


@aten("linalg_householder_product")
def householder_product(input: RelayExpr, tau: RelayExpr) -> RelayExpr:
    return call("linalg.householder_product", input, tau)


@aten("orgqr")
def orgqr(x: RelayExpr, input2: RelayExpr) -> RelayExpr:
    return householder_product(x, input2)


@aten("ormqr")
def ormqr(
    x: RelayExpr, input2: RelayExpr, input3: RelayExpr, left: bool = True,
    transpose: bool = False,
) -> RelayExpr:
    whole = _reflected(x, input2, shape_of(x)[-2])
    factor = transposed(whole) if transpose else whole
    return matmul(factor, input3) if left else matmul(input3, factor)


# ---- eigenvalues and singular values ----


@aten("linalg_eigh", "_linalg_eigh")
def eigh(
    x: RelayExpr | None = None, UPLO: str = "L", A: RelayExpr | None = None,
    compute_v: bool = True,
) -> list[RelayExpr]:
    data = A if A is not None else x
    assert data is not None
    return parts(call("linalg.eigh", transposed(data) if UPLO.upper() == "U" else data), 2)


@aten("linalg_eigvalsh")
def eigvalsh(x: RelayExpr, UPLO: str = "L") -> RelayExpr:
    return eigh(x, UPLO)[0]


@aten("_linalg_svd")
def inner_svd(
    A: RelayExpr, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> list[RelayExpr]:
    """What PyTorch's linalg_svd calls, which has another default."""
    return svd(A, full_matrices, compute_uv, driver)


@aten("linalg_svd")
def svd(
    A: RelayExpr, full_matrices: bool = True, compute_uv: bool = True, driver: str | None = None
) -> list[RelayExpr]:
    """U and S of U S, whose columns Householder's reflections make unit vectors of."""
    rows, columns = shape_of(A)[-2:]
    if rows < columns:
        left, values, right = svd(transposed(A), full_matrices)
        return [transposed(right), values, transposed(left)]
    scaled, values, vectors = parts(call("linalg.svd", A), 3)
    made, tau = parts(call("linalg.householder_qr", scaled), 2)
    whole = _reflected(made, tau, rows if full_matrices else columns)
    line = call("sum", call("multiply", slice_(made, -2, 0, columns),
                            unit_matrix(A, columns)), axis=-1)
    signs = call("where", call("less", line, like(0, line)), like(-1, line), like(1, line))
    signs = call("expand_dims", signs, rank_of(signs) - 1)
    first = call("multiply", slice_(whole, -1, 0, columns), signs)
    if full_matrices and rows > columns:
        first = cat([first, slice_(whole, -1, columns, rows)], -1)
    return [first, values, transposed(vectors)]


@aten("linalg_svdvals")
def svdvals(A: RelayExpr, driver: str | None = None) -> RelayExpr:
    rows, columns = shape_of(A)[-2:]
    return parts(call("linalg.svd", A if rows >= columns else transposed(A)), 3)[1]


@aten("svd")
def old_svd(x: RelayExpr, some: bool = True, compute_uv: bool = True) -> list[RelayExpr]:
    left, values, right = svd(x, not some)
    if compute_uv:
        return [left, values, transposed(right)]
    rows, columns = shape_of(x)[-2:]
    outer = shape_of(x)[:-2]
    return [
        call("zeros", (*outer, rows, rows), dtype_of(x)), values,
        call("zeros", (*outer, columns, columns), dtype_of(x)),
    ]


def _threshold(
    values: RelayExpr, size: int, atol: Operand | None, rtol: Operand | None
) -> RelayExpr:
    """What singular values count as zero below, for each matrix."""
    given = 0.0 if rtol is None and atol is not None else (
        size * EPSILON[dtype_of(values)] if rtol is None else rtol
    )
    largest = call("max", values, axis=-1, keepdims=True)
    relative = call("multiply", largest, _column(given, values))
    return call("maximum", relative, _column(0.0 if atol is None else atol, values))


def _column(value: Operand, like_this: RelayExpr) -> RelayExpr:
    if isinstance(value, int | float):
        return like(value, like_this)
    made = as_type(value, dtype_of(like_this))
    return call("expand_dims", made, rank_of(made))


@aten("linalg_pinv", "pinverse")
def pinv(
    x: RelayExpr, rcond: Operand | None = None, hermitian: bool = False,
    atol: Operand | None = None, rtol: Operand | None = None,
) -> RelayExpr:
    """V / S U^T, where what is below the tolerance stays away."""
    rows, columns = shape_of(x)[-2:]
    if not rows or not columns:
        return call("zeros", (*shape_of(x)[:-2], columns, rows), dtype_of(x))
    if hermitian:
        values, right = eigh(x)
        left, sizes = right, call("abs", values)
    else:
        left, values, turned = svd(x, False)
        right, sizes = transposed(turned), values
    bound = _threshold(sizes, max(rows, columns), atol, rtol if rcond is None else rcond)
    keeps = call("greater", sizes, bound)
    safe = call("where", keeps, values, like(1, values))
    inverse = call("where", keeps, call("divide", like(1, values), safe), like(0, values))
    scaled = call("multiply", right, call("expand_dims", inverse, rank_of(inverse) - 1))
    return matmul(scaled, transposed(left))


@aten("linalg_matrix_rank")
def matrix_rank(
    x: RelayExpr | None = None, input: RelayExpr | None = None, tol: Operand | None = None,
    atol: Operand | None = None, rtol: Operand | None = None, hermitian: bool = False,
) -> RelayExpr:
    data = x if x is not None else input
    assert data is not None
    rows, columns = shape_of(data)[-2:]
    if not rows or not columns:
        return call("zeros", shape_of(data)[:-2], "int64")
    values = call("abs", eigvalsh(data)) if hermitian else svdvals(data)
    absolute, relative = (atol, rtol) if tol is None else (tol, 0.0)
    bound = _threshold(values, max(rows, columns), absolute, relative)
    return call("sum", cast(call("greater", values, bound), "int64"), axis=-1)
