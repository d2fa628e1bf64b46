"""Grouped products on devices whose kernels of products know no groups: one product for each.

    where(row < ends[0], data times weight[0], where(row < ends[1], data times weight[1], ... 0))

Every group multiplies all rows. Tensor Cores do that sooner than threads of their own sum each
element, as long as groups are few.
"""

import math

import numpy as np

from sterna.ir import build
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import call
from sterna.schedule.choose import choose, deciding

KINDS = ("bfloat16", "float16", "float32")
MOST_GROUPS = 64
# By measurement on an H200: products a microsecond of threads that sum elements by themselves, and
# of any kernel of products; the microseconds of one more kernel.
ALONE_RATE, RATE, LAUNCH = 2e5, 2e7, 4.0


def one_by_one(data: RelayExpr, weight: RelayExpr, ends: RelayExpr) -> RelayExpr | None:
    """The product of each group by itself; None where elements by themselves take less time."""
    rows, matrices = tensor_type(data), tensor_type(weight)
    extents = [build.int_value(n) for n in (rows.shape[0], *matrices.shape)]
    known = [n for n in extents if n is not None]
    if len(known) < len(extents) or str(rows.dtype) not in KINDS:
        return None
    count, groups, depth, columns = known
    macs = count * depth * columns
    if groups > MOST_GROUPS or not math.prod(known):
        return None
    times = {"each element": macs / ALONE_RATE, "each group": groups * (LAUNCH + macs / RATE)}
    with deciding(f"grouped product {rows!r} {matrices!r}"):
        if choose("what is computed by itself", list(times), times.__getitem__) == "each element":
            return None
    place = const(np.arange(count, dtype="int64")[:, None])
    made: RelayExpr = const(np.zeros((1, 1), numpy_dtype(rows.dtype)))
    for group in reversed(range(groups)):  # a row is of the first group that ends behind it
        matrix = call("squeeze", _part(weight, group), axis=(0,))
        own = call("nn.dense", data, call("transpose", matrix, axes=(1, 0)), units=columns)
        end = call("cast", call("expand_dims", _part(ends, group), axis=1), dtype="int64")
        made = call("where", call("less", place, end), own, made)
    return made


def _part(expr: RelayExpr, group: int) -> RelayExpr:
    return call("strided_slice", expr, begin=(group,), end=(group + 1,), axes=(0,))
