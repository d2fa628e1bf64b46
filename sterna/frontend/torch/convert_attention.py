"""Attention as one operator."""

import math

import numpy as np

from sterna.frontend.calls import call, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_shape import broadcast_dims, expand, extent_of, unsqueeze
from sterna.frontend.torch.extents import Extent, counted, dims_of, total
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("scaled_dot_product_attention")
def attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, attn_mask: RelayExpr | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> RelayExpr:
    """(..., heads, length, width): nn.attention has heads behind the length."""
    if dropout_p:
        raise OpNotImplemented(
            "attention that drops weights at random; call eval() of the model before its export"
        )
    *outer, length, _ = dims_of(query)
    width, reach = extent_of(query, -1), dims_of(key)[-2]
    if enable_gqa:
        heads = extent_of(query, -3)
        key, value = (
            call("repeat", part, heads // extent_of(part, -3), axis=rank_of(part) - 3)
            for part in (key, value)
        )
    whole = broadcast_dims(outer, dims_of(key)[:-2], dims_of(value)[:-2])
    mask = _mask(attn_mask, is_causal, length, reach)
    if mask is not None and rank_of(mask) > 2:
        whole = broadcast_dims(whole, dims_of(mask)[:-2])
    query, key, value = (_folded(part, whole) for part in (query, key, value))
    factor = 1 / math.sqrt(width) if scale is None else scale
    if mask is None:
        made = call("nn.attention", query, key, value, scale=factor)
    else:
        made = call("nn.masked_attention", query, key, value, _fitting(mask, whole), scale=factor)
        made = _without_rows(made, mask, whole)
    made = call("transpose", made, (0, 2, 1, 3))
    return reshaped(made, (*whole, length, dims_of(value)[-1]))


def _folded(part: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """(batch, length, heads, width)"""
    length, width = dims_of(part)[-2:]
    heads = outer[-1] if outer else 1
    wide = expand(part, (*outer, length, width))
    flat = reshaped(wide, (total(outer[:-1]), heads, length, width))
    return call("transpose", flat, (0, 2, 1, 3))


def _mask(
    given: RelayExpr | None, is_causal: bool, length: Extent, reach: Extent
) -> RelayExpr | None:
    if given is not None or not is_causal:
        return given
    if isinstance(length, int) and isinstance(reach, int):
        return constant(np.tril(np.ones((length, reach), bool)))
    return call("greater_equal", unsqueeze(counted(length), 1), counted(reach))


def _fitting(mask: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """A mask of at most four dimensions."""
    if rank_of(mask) <= 2:
        return mask
    wide = expand(mask, (*outer, *dims_of(mask)[-2:]))
    return reshaped(wide, (total(outer[:-1]), outer[-1], *dims_of(mask)[-2:]))


def _without_rows(made: RelayExpr, mask: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """Queries that may see no key at all get zeros."""
    if dtype_of(mask) != "bool":
        return made
    seen = call("any", _fitting(mask, outer), axis=-1, keepdims=True)
    if rank_of(seen) > 2:
        seen = call("transpose", seen, (0, 2, 1, 3))
    else:
        seen = call("expand_dims", seen, 1)
    return call("where", seen, made, like(0, made))
