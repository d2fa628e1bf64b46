"""Sums of products in chunks: a short one in the operands' type, the chunks' sums in a wider one.

A sum of n float16 rounds n times by at most 2**-11 of what it has reached. With random signs that
grows like the root of n: over 64 products it is a few times what storing the result rounds by, over
thousands it would be a hundred times as much.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from sterna.ir.expr import Expr
from sterna.ir.types import Dim
from sterna.schedule.contraction import Contraction
from sterna.schedule.products import wide
from sterna.schedule.sum_of_products import CHANNEL, DIRECT, describe_sum
from sterna.support.dtype import DataType
from sterna.te import IterVar, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Longer chunks round too often, shorter ones spend too much on adding their sums.
MOST, LEAST = 64, 16

Places = Sequence[Expr]
Product = Callable[[Places, Places, DataType], tuple[Any, Any]]


def chunk_of(sizes: Sequence[int]) -> int:
    """How many products make a chunk, of a sum over so many channels and the window; 0: none suit.

    They are all of them, those of a row of the window, or those of some channels.
    """
    parts = [n for n in range(MOST, LEAST - 1, -1) if sizes[0] and sizes[0] % n == 0]
    fitting = [n for n in (math.prod(sizes), sizes[0] * sizes[-1], *parts) if 0 < n <= MOST]
    return fitting[0] if fitting else 0


def whole_chunk(sizes: Sequence[int]) -> int:
    """The same where all products are in one chunk or none is."""
    return math.prod(sizes) if 0 < math.prod(sizes) <= MOST else 0


def expect_chunk(chunk: int, sizes: Sequence[Dim]) -> None:
    """Raise ValueError unless a sum falls into such chunks, or is given none."""
    known = [size for size in sizes if isinstance(size, int)]
    if chunk and (len(known) < len(sizes) or _axes_of_chunk(chunk, known) is None):
        raise ValueError(
            f"chunk is 0, a divisor of {sizes[0]}, which are summed, or all products of a row of "
            f"the window or of the whole window, not {chunk}"
        )


def _axes_of_chunk(chunk: int, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The axes that lie in a chunk as a whole; none if a part of the channels does."""
    if chunk == math.prod(sizes):
        return tuple(range(len(sizes)))
    if len(sizes) > 1 and chunk == sizes[0] * sizes[-1]:
        return (0, len(sizes) - 1)
    return () if chunk > 0 and sizes[0] % chunk == 0 else None


def sum_products(
    shape: Sequence[Dim], axes: dict[str, Dim], chunk: int, product: Product, dtype: DataType,
    name: str, names: list[str] | None = None, roles: Sequence[str] = (CHANNEL,),
    contraction: Contraction | None = None, implementation: str = DIRECT,
) -> Tensor:
    """The sum of what product gives at places of the result and of the axes, channels first.

    It is given the type to compute in, and also says where there is anything to add. roles: what
    the axes chunk over.
    """
    whole = [reduce_axis((0, extent), axis) for axis, extent in axes.items()]
    within = () if not chunk else _axes_of_chunk(chunk, list(axes.values()))  # type: ignore[arg-type]
    assert within is not None

    def summed(axes: list[IterVar], places: Places, indices: Places, kind: DataType) -> Any:
        value, where = product(indices, places, kind)
        return te_sum(value, axis=axes, where=where)

    if not chunk or len(within) == len(whole):
        kind = dtype if chunk else wide(dtype)
        made: Tensor = compute(
            shape, lambda *i: summed(whole, [axis.var for axis in whole], i, kind), name=name,
            varargs_names=names,
        )
        return describe_sum(made, roles, contraction, implementation=implementation)
    channel, *window = whole
    if within:  # a row of the window: its own loop and that of the channels are inside
        inner, outer = [channel, window[-1]], window[:-1]
        inner_roles, outer_roles = [roles[0], roles[-1]], roles[1:-1]
    else:
        channels, letter = axes[channel.var.name], channel.var.name
        inner = [reduce_axis((0, chunk), letter)]
        outer = [reduce_axis((0, channels // chunk), f"{letter}o"), *window]
        inner_roles, outer_roles = [CHANNEL], [CHANNEL, *roles[1:]]

    def chunk_at(*i: Any) -> Any:
        place, indices = list(i[: len(outer)]), i[len(outer) :]
        if within:
            places = [channel.var, *place, window[-1].var]
        else:
            places = [place[0] * chunk + inner[0].var, *place[1:]]
        return summed(inner, places, indices, dtype)

    letters = [f"{axis.var.name}_" for axis in outer]
    chunks = compute(
        [*[axis.dom.extent for axis in outer if axis.dom is not None], *shape], chunk_at,
        name=f"{name}_chunks",
        varargs_names=[*letters, *(names or [f"i{place}" for place in range(len(shape))])],
    )
    total: Tensor = compute(
        shape,
        lambda *i: te_sum(chunks(*[a.var for a in outer], *i).astype(wide(dtype)), axis=outer),
        name=name, varargs_names=names,
    )
    return describe_sum(total, inner_roles, contraction, outer_roles, implementation)
