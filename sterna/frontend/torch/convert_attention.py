"""Attention as one operator."""

import math

from sterna.frontend.calls import call, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_activations import gelu
from sterna.frontend.torch.convert_layers import layer_norm
from sterna.frontend.torch.convert_matrix import linear
from sterna.frontend.torch.convert_shape import broadcast_dims, expand, extent_of
from sterna.frontend.torch.extents import Extent, dims_of, total
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("scaled_dot_product_attention")
def attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, attn_mask: RelayExpr | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, *, has_empty_rows: bool = True,
) -> RelayExpr:
    """(..., heads, length, width): nn.attention has heads behind the length.

    has_empty_rows: whether queries that may see no key are to be looked for.
    """
    if dropout_p:
        raise OpNotImplemented(
            "attention that drops weights at random; call eval() of the model before its export"
        )
    *outer, length, _ = dims_of(query)
    width = extent_of(query, -1)
    if enable_gqa:
        heads = extent_of(query, -3)
        key, value = (
            call("repeat", part, heads // extent_of(part, -3), axis=rank_of(part) - 3)
            for part in (key, value)
        )
    whole = broadcast_dims(outer, dims_of(key)[:-2], dims_of(value)[:-2])
    if attn_mask is not None and rank_of(attn_mask) > 2:
        whole = broadcast_dims(whole, dims_of(attn_mask)[:-2])
    query, key, value = (_folded(part, whole) for part in (query, key, value))
    factor = 1 / math.sqrt(width) if scale is None else scale
    if attn_mask is None:
        made = call("nn.attention", query, key, value, scale=factor, causal=is_causal)
    else:
        mask = _fitting(attn_mask, whole)
        made = call("nn.masked_attention", query, key, value, mask, scale=factor)
        made = _without_rows(made, attn_mask, whole) if has_empty_rows else made
    made = call("transpose", made, (0, 2, 1, 3))
    return reshaped(made, (*whole, length, dims_of(value)[-1]))


def _folded(part: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """(batch, length, heads, width)"""
    length, width = dims_of(part)[-2:]
    heads = outer[-1] if outer else 1
    wide = expand(part, (*outer, length, width))
    flat = reshaped(wide, (total(outer[:-1]), heads, length, width))
    return call("transpose", flat, (0, 2, 1, 3))


def _fitting(mask: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """A mask of at most four dimensions."""
    if rank_of(mask) <= 2:
        return mask
    *given, length, width = dims_of(mask)
    own: tuple[Extent, ...] = (*[1] * (len(outer) - len(given)), *given)
    folded = own[:-1]
    if len(folded) > 1 and any(extent != 1 for extent in folded):  # several batch axes become one
        mask, folded = expand(mask, (*outer[:-1], own[-1], length, width)), outer[:-1]
    return reshaped(mask, (total(folded), own[-1], length, width))


def _without_rows(made: RelayExpr, mask: RelayExpr, outer: tuple[Extent, ...]) -> RelayExpr:
    """Queries that may see no key at all get zeros."""
    whole = _fitting(mask, outer)
    if dtype_of(mask) == "bool":
        seen = call("any", whole, axis=-1, keepdims=True)
    else:
        most = call("max", whole, axis=-1, keepdims=True)
        seen = call("not_equal", most, like(-math.inf, most))
    if rank_of(seen) > 2:
        seen = call("transpose", seen, (0, 2, 1, 3))
    else:
        seen = call("expand_dims", seen, 1)
    return call("where", seen, made, like(0, made))


def _added(
    mask: RelayExpr, kind: int | None, batch: Extent, length: Extent, dtype: str
) -> RelayExpr:
    """What is added to products; of a mask of floats PyTorch asks here only what is not 0.

    Queries that see no key get no number, as there.
    """
    if kind == 1:
        mask = reshaped(mask, (batch, 1, 1, length))
    elif kind not in (0, 2):
        raise OpNotImplemented(f"a mask of kind {kind}; PyTorch has 0, 1 and 2")
    hidden = mask if dtype_of(mask) == "bool" else call("not_equal", mask, like(0, mask))
    return call("where", hidden, constant(-math.inf, dtype), constant(0, dtype))


@aten("_transformer_encoder_layer_fwd")
def encoder_layer(
    src: RelayExpr, embed_dim: int, num_heads: int, qkv_weight: RelayExpr, qkv_bias: RelayExpr,
    proj_weight: RelayExpr, proj_bias: RelayExpr, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: RelayExpr, norm_bias_1: RelayExpr, norm_weight_2: RelayExpr,
    norm_bias_2: RelayExpr, ffn_weight_1: RelayExpr, ffn_bias_1: RelayExpr,
    ffn_weight_2: RelayExpr, ffn_bias_2: RelayExpr, mask: RelayExpr | None = None,
    mask_type: int | None = None,
) -> RelayExpr:
    """A layer of an encoder as PyTorch runs it in one call: attention and two linear layers.

    A mask says where nobody looks. Kind 0 is one of queries and keys, 1 of keys by sample, 2 of
    all, with both in it.
    """
    batch, length, _ = dims_of(src)
    added = None if mask is None else _added(mask, mask_type, batch, length, dtype_of(src))

    def attend(x: RelayExpr) -> RelayExpr:
        wide = (batch, length, 3, num_heads, embed_dim // num_heads)
        three = call(
            "transpose", reshaped(linear(x, qkv_weight, qkv_bias), wide), (2, 0, 3, 1, 4)
        )
        query, key, value = (
            call("take", three, constant(part, "int32"), axis=0) for part in range(3)
        )
        attended = attention(query, key, value, added, has_empty_rows=False)
        joined = call("transpose", attended, (0, 2, 1, 3))
        return linear(reshaped(joined, (batch, length, embed_dim)), proj_weight, proj_bias)

    def transform(x: RelayExpr) -> RelayExpr:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        inner = gelu(inner) if use_gelu else call("nn.relu", inner)
        return linear(inner, ffn_weight_2, ffn_bias_2)

    norms = ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    made = src
    for part, (weight, bias) in zip((attend, transform), norms, strict=True):
        if norm_first:
            made = call("add", made, part(layer_norm(made, (embed_dim,), weight, bias, eps)[0]))
        else:
            made = layer_norm(call("add", made, part(made)), (embed_dim,), weight, bias, eps)[0]
    return made
