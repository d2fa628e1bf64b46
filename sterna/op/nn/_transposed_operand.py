"""Products with a matrix that was transposed before: the product reads it as it lies.

    nn.batch_matmul(%a, transpose(%b, [0, 1, 3, 2]), transpose_b=False)
        ->  nn.batch_matmul(%a, %b, transpose_b=True)
    nn.dense(%a, transpose(%b, [1, 0]))  ->  nn.matmul(%a, %b)

A query of a decoder reads each key once: writing the keys in another order first takes longer than
the product. Where rows are many, panels are packed from either order. Of columns that only a run
counts no panels are packed: for more than one row they lie side by side before the product,

    nn.batch_matmul(%a, %b, transpose_b=True)
        ->  nn.batch_matmul(%a, transpose(%b, [0, 1, 3, 2]), transpose_b=False)
"""

from typing import TYPE_CHECKING

from sterna.ir import build
from sterna.op.dynamic import tensor_type
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import call, is_call_of
from sterna.target import Target, is_gpu

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs, DenseAttrs


def as_it_lies(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The product with the second operand before its last two axes changed places."""
    data, turned = args
    if target is None or is_gpu(target) or attrs.implementation:
        return None
    if _has_open_columns(attrs, data, turned):
        return _side_by_side(attrs, data, turned)
    if not isinstance(turned, Call) or not swaps_last(turned):
        return None
    own = {**dict(attrs.items()), "transpose_b": not attrs.transpose_b}
    return call("nn.batch_matmul", data, turned.args[0], **own)


def weight_as_it_lies(
    attrs: "DenseAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A dense layer with weights before their axes changed places, which only the run knows."""
    data, turned = args[:2]
    if target is None or is_gpu(target) or attrs.implementation:
        return None
    if not isinstance(turned, Call) or not swaps_last(turned):
        return None
    if not tensor_type(turned).dtype.is_float:
        return None
    return call(
        "nn.matmul", data, turned.args[0], units=attrs.units, out_dtype=attrs.out_dtype)


def swaps_last(turned: Call) -> bool:
    """Whether it is a matrix, or many, whose rows and columns changed places."""
    if not is_call_of(turned, "transpose") or tensor_type(turned).ndim < 2:
        return False
    rank = tensor_type(turned).ndim
    given = turned.attrs.axes or tuple(reversed(range(rank)))  # type: ignore[union-attr]
    *outer, before, last = range(rank)
    return [axis % rank for axis in given] == [*outer, last, before]


def _has_open_columns(attrs: "BatchMatmulAttrs", data: RelayExpr, second: RelayExpr) -> bool:
    """Whether only a run counts the columns, of rows that are not known to be one."""
    columns = tensor_type(second).shape[-2 if attrs.transpose_b else -1]
    rows = tensor_type(data).shape[-1 if attrs.transpose_a else -2]
    return not isinstance(columns, int) and build.int_value(rows) != 1


def _side_by_side(
    attrs: "BatchMatmulAttrs", data: RelayExpr, second: RelayExpr
) -> RelayExpr | None:
    """The product with columns as neighbours in memory; None if they are."""
    if not attrs.transpose_b:
        return None
    *outer, before, last = range(tensor_type(second).ndim)
    if isinstance(second, Call) and swaps_last(second):
        made = second.args[0]
    else:
        made = call("transpose", second, axes=(*outer, last, before))
    return call("nn.batch_matmul", data, made, **{**dict(attrs.items()), "transpose_b": False})
