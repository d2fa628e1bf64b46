"""Products with a matrix that was transposed before: the product reads it as it lies.

    nn.batch_matmul(%a, transpose(%b, [0, 1, 3, 2]), transpose_b=False)
        ->  nn.batch_matmul(%a, %b, transpose_b=True)

A query of a decoder reads each key once: writing the keys in another order first takes longer than
the product. Where rows are many, panels are packed from either order.
"""

from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import call, is_call_of
from sterna.target import Target, is_gpu

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs


def as_it_lies(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The product with the second operand before its last two axes changed places."""
    data, turned = args
    if target is None or is_gpu(target) or attrs.implementation:
        return None
    if not is_call_of(turned, "transpose"):
        return None
    assert isinstance(turned, Call)
    rank = tensor_type(turned).ndim
    given = turned.attrs.axes or tuple(reversed(range(rank)))  # type: ignore[union-attr]
    *outer, before, last = range(rank)
    if [axis % rank for axis in given] != [*outer, last, before]:
        return None
    own = {**dict(attrs.items()), "transpose_b": not attrs.transpose_b}
    return call("nn.batch_matmul", data, turned.args[0], **own)
