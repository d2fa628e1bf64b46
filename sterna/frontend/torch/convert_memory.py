"""Elements by their places in memory, as strides tell them."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, constant, dtype_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_shape import cat, places_of, ravel, shape_of, slice_
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr


@aten("as_strided", "as_strided_copy")
def as_strided(
    x: RelayExpr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> RelayExpr:
    """Elements of a tensor that lies in order, by their places in memory."""
    lines = [(0, extent, step) for extent, step in zip(size, stride, strict=True)]
    places = call("add", places_of(*lines), constant(storage_offset or 0, "int64"))
    return call("take", ravel(x), places)


@aten("resize")
def resize(x: RelayExpr, size: Sequence[int]) -> RelayExpr:
    """The first elements in another shape; what there is more of is not told, here zeros."""
    have, wanted = math.prod(shape_of(x)), math.prod(size)
    flat = ravel(x)
    if wanted > have:
        flat = cat([flat, call("zeros", (wanted - have,), dtype_of(x))], 0)
    return reshaped(slice_(flat, 0, 0, wanted), size)


@aten("as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    src: RelayExpr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None,
    x: RelayExpr | None = None, input: RelayExpr | None = None,
) -> RelayExpr:
    """A tensor that lies in order, with other elements at places of its memory."""
    data = x if x is not None else input
    assert data is not None
    lines = [(0, extent, step) for extent, step in zip(size, stride, strict=True)]
    places = call("add", places_of(*lines), constant(storage_offset or 0, "int64"))
    made = call("scatter_elements", ravel(data), ravel(places), ravel(src), axis=0)
    return reshaped(made, shape_of(data))
