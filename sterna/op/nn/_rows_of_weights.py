"""Products on GPUs by matrices whose rows are as long as the sums, as Tensor Cores read them there.

    nn.matmul(%a, %b)  ->  nn.dense(%a, transpose(%b))

Constants are turned when a model is compiled. Others take a kernel of their own, which costs less
than a product without Tensor Cores as soon as there are some rows. The lanes that multiply float32
read columns side by side as they lie.
"""

from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.op.nn._narrow_floats import is_known
from sterna.relay.expr import RelayExpr
from sterna.relay.op import call
from sterna.target import Target, is_gpu

if TYPE_CHECKING:
    from sterna.op.nn.dense import MatmulAttrs

KINDS = ("bfloat16", "float16")
# Rows from which on a matrix that only the run knows is turned for them.
LEAST_ROWS = 64


def by_rows(
    attrs: "MatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A product by a matrix of floats; None where it stays as it is."""
    if target is None or not is_gpu(target) or attrs.transpose_a:
        return None
    data, weight = (tensor_type(arg) for arg in args)
    if not data.is_static or not weight.is_static or data.ndim < 2:
        return None
    if str(data.dtype) not in KINDS or data.dtype != weight.dtype:
        return None
    turned = args[1]
    if not attrs.transpose_b:
        if not is_known(turned) and data.concrete_shape[-2] < LEAST_ROWS:
            return None
        turned = call("transpose", turned, axes=(1, 0))
    units = tensor_type(turned).concrete_shape[0]
    return call("nn.dense", args[0], turned, units=units, out_dtype=attrs.out_dtype)
