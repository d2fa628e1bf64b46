"""Norms of matrices."""

from collections.abc import Sequence

from sterna.frontend.calls import cast, rank_of
from sterna.frontend.torch.convert_linalg import svdvals
from sterna.frontend.torch.convert_reduce import amax, amin, sum_, vector_norm
from sterna.frontend.torch.convert_shape import axis_of, movedim, shape_of, unsqueeze
from sterna.frontend.torch.promotion import in_float32
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr


@aten("linalg_matrix_norm")
@in_float32
def matrix_norm(
    x: RelayExpr, ord: float | str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False,
    dtype: str | None = None,
) -> RelayExpr:
    """Of entries ("fro"), of singular values (2, -2, "nuc"), or of sums of columns or rows."""
    data = cast(x, dtype) if dtype else x
    rows, columns = (axis_of(each, rank_of(x)) for each in dim)
    if 0 in (shape_of(x)[rows], shape_of(x)[columns]):  # of no entries it is 0
        return sum_(data, (rows, columns), keepdim)
    if ord == "fro":
        return vector_norm(data, 2, (rows, columns), keepdim)
    if ord == "nuc" or abs(float(ord)) == 2:
        values = svdvals(movedim(data, (rows, columns), (-2, -1)))
        reduce = sum_ if ord == "nuc" else amax if float(ord) > 0 else amin
        made = reduce(values, -1)
        for axis in sorted((rows, columns)) if keepdim else ():
            made = unsqueeze(made, axis)
        return made
    summed, chosen = (rows, columns) if abs(float(ord)) == 1 else (columns, rows)
    sums = vector_norm(data, 1, summed, True)
    made = (amax if float(ord) > 0 else amin)(sums, (chosen,), True)
    return made if keepdim else sum_(made, (rows, columns))
