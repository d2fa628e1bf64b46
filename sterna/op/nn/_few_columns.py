"""Products with fewer columns than a vector has lanes, of matrices that only the run knows.

    nn.matmul(%a, %b), %b of 10 columns  ->  strided_slice(nn.matmul(%a, nn.pad(%b to 16)), 10)

Vectors have a power of two of lanes: ten columns are eight and two, each of which takes as long as
sixteen. With columns of zeros they are one vector.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.op.nn._narrow_floats import is_known
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import call, is_call_of
from sterna.target import Target, processor_of

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs, MatmulAttrs

# Vectors of fewer lanes are used up to the last but one; fewer rows or steps take no time to speak
# of, beside those that fill up columns.
LEAST_LANES, LEAST_ROWS, LEAST_STEPS = 8, 32, 16


def with_whole_columns(
    name: str, attrs: "MatmulAttrs | BatchMatmulAttrs", args: tuple[RelayExpr, ...],
    target: Target | None,
) -> RelayExpr | None:
    """The product with its columns filled up to a vector, and then without those."""
    if target is None or not target.kind.picks_instructions or is_known(args[1]):
        return None
    kinds = [tensor_type(arg) for arg in args]
    if any(str(kind.dtype) != "float32" or not kind.is_static or kind.ndim < 2 for kind in kinds):
        return None
    turned = attrs.transpose_a or attrs.transpose_b or is_call_of(args[1], "transpose")
    if turned or str(attrs.out_dtype) not in ("", "float32"):
        return None  # keys of attention are transposed: that has a kernel of its own
    (*_, rows, depth), (*outer, _, columns) = (kind.concrete_shape for kind in kinds)
    rows = rows if outer else math.prod(kinds[0].concrete_shape[:-1])
    lanes = processor_of(target).lanes(kinds[0].dtype)
    wide = 1 << (columns - 1).bit_length()
    if lanes < LEAST_LANES or not columns < wide <= lanes:
        return None
    if rows < LEAST_ROWS or depth < LEAST_STEPS:
        return None
    axis = kinds[1].ndim - 1
    border = ((0, 0),) * axis + ((0, wide - columns),)
    whole = call("nn.pad", args[1], const(np.float32(0)), pad_width=border)
    own = {**dict(attrs.items()), **({"units": None} if "units" in attrs.FIELDS else {})}
    made = call(name, args[0], whole, **own)
    last = tensor_type(made).ndim - 1
    return call("strided_slice", made, begin=(0,), end=(columns,), axes=(last,))
