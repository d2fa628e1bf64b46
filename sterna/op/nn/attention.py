"""nn.attention, nn.masked_attention: every query reads the values of the keys that it resembles.

Scores of a few queries at a time: their softmax and the sum of values follow while the scores are
in the cache. Keys are turned once for each head, so that neighbours are read as vectors.
"""

import math
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import quiet
from sterna.op.nn._attention_pattern import is_causal
from sterna.op.nn._wide_attention import by_products
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call, register
from sterna.schedule.attention import (
    AttentionStages,
    describe_attention,
    schedule_attention,
)
from sterna.schedule.exponential import quick_exp
from sterna.schedule.products import wide, widened
from sterna.support.dtype import DataType
from sterna.target import Target, is_gpu
from sterna.te import Tensor, compute, exp, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import max as te_max
from sterna.te import sum as te_sum
from sterna.te.operation import read_broadcast

# Keys are counted up to a multiple of this, so that vectors of them are whole.
KEYS_TOGETHER = 16
NEVER = -math.inf


@attributes
class AttentionAttrs(Attrs):
    """Of nn.attention."""

    scale: float = 1.0
    causal: bool = False
    """Whether a query reads only the keys up to its own place."""


@attributes
class MaskedAttentionAttrs(AttentionAttrs):
    """Of nn.masked_attention."""

    fill: float = -math.inf
    """The score where a mask of truth values says no."""


def _infer(
    attrs: AttentionAttrs, query: Type, key: Type, value: Type, mask: Type | None = None
) -> TensorType:
    names = ("query", "key", "value")
    q, k, v = kinds = [tensor(t, n, 4) for t, n in zip((query, key, value), names, strict=True)]
    of_kind(q, "query", "float")
    same_dtype(kinds, names)
    for have, want, what in (
        (k.shape[0], q.shape[0], "the batch of key"), (v.shape[0], q.shape[0], "value's batch"),
        (k.shape[2], q.shape[2], "the heads of key"), (v.shape[2], q.shape[2], "value's heads"),
        (k.shape[3], q.shape[3], "the width of key"), (v.shape[1], k.shape[1], "value's length"),
    ):
        expect_dim(have, want, what)
    if mask is not None:
        scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        given = of_kind(at_least(mask, "mask", 0), "mask", "float", "bool")
        if given.dtype != "bool":
            same_dtype([q, given], ["query", "mask"])
        if given.ndim > 4:
            raise ValueError(f"mask has at most the 4 dimensions of the scores, not {given.ndim}")
        for extent, whole in zip(given.shape, scores[4 - given.ndim :], strict=True):
            if extent != 1:
                expect_dim(extent, whole, "an extent of mask, unless it is 1,")
    return TensorType((q.shape[0], q.shape[1], q.shape[2], v.shape[3]), q.dtype)


def _compute(
    attrs: AttentionAttrs, out: TensorType, query: Tensor, key: Tensor, value: Tensor, *mask: Tensor
) -> Tensor:
    batch, queries, heads, width = query.shape
    keys = key.shape[1]
    padded = (keys + KEYS_TOGETHER - 1) // KEYS_TOGETHER * KEYS_TOGETHER
    known = build.int_value(keys)
    is_whole = known is not None and known % KEYS_TOGETHER == 0
    zero, one = build.const(0.0, out.dtype), build.const(1.0, out.dtype)
    never = build.const(-math.inf, out.dtype)

    def transpose(b: Expr, h: Expr, c: Expr, j: Expr) -> Any:
        return key(b, j, h, c) if is_whole else if_then_else(j < keys, key(b, j, h, c), zero)

    transposed = compute((batch, heads, width, padded), transpose, name="T_attention_keys")
    c = reduce_axis((0, width), "c")
    scores = compute(
        (batch, heads, queries, padded),
        lambda b, h, i, j: te_sum(query(b, i, h, c) * transposed(b, h, c, j), axis=c),
        name="T_attention_scores",
    )

    def score(b: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        made = scores(b, h, i, j)
        if attrs.scale != 1.0:
            made = made * build.const(attrs.scale, out.dtype)
        for given in mask:
            place = j if is_whole else build.minimum(j, keys - 1)
            said = read_broadcast(given, (b, h, i, place), (batch, heads, queries, keys))
            if given.dtype == "bool":
                assert isinstance(attrs, MaskedAttentionAttrs)
                made = if_then_else(said, made, build.const(attrs.fill, out.dtype))
            else:
                made = made + said
        if attrs.causal:
            return build.select(all_of(j <= i, j < keys), made, never)
        return made if is_whole else build.select(j < keys, made, never)

    power_of = quick_exp if out.dtype == "float32" else exp  # of numbers that are not above 0
    every, again = reduce_axis((0, padded), "j"), reduce_axis((0, padded), "j")
    largest = compute(
        (batch, heads, queries), lambda b, h, i: te_max(score(b, h, i, every.var), axis=every),
        name="T_attention_largest",
    )
    power = compute(
        (batch, heads, queries, padded),
        lambda b, h, i, j: power_of(score(b, h, i, j) - largest(b, h, i)),
        name="T_attention_exp",
    )
    total = compute(
        (batch, heads, queries), lambda b, h, i: te_sum(power(b, h, i, again), axis=again),
        name="T_attention_expsum",
    )
    held = value if is_whole or known is None else compute(
        (batch, padded, heads, out.shape[3]),
        lambda b, j, h, d: if_then_else(j < keys, value(b, j, h, d), zero),
        name="T_attention_held",
    )
    j = reduce_axis((0, held.shape[1]), "j")
    mixed = compute(
        out.shape,
        lambda b, i, h, d: te_sum(power(b, h, i, j) * held(b, j, h, d), axis=j),
        name="T_attention_values",
    )
    made: Tensor = compute(
        out.shape,
        lambda b, i, h, d: mixed(b, i, h, d) / (one if known == 0 else total(b, h, i)),
        name="T_attention",
    )
    fill = attrs.fill if isinstance(attrs, MaskedAttentionAttrs) else NEVER
    return describe_attention(made, AttentionStages(
        transposed, scores, largest, power, total, held, mixed, (query, key, value, *mask),
        attrs.scale, fill, attrs.causal,
    ))


@quiet
def _reference(
    attrs: AttentionAttrs, query: Array, key: Array, value: Array, *mask: Array
) -> Array:
    q, k, v = (widened(x, str(query.dtype)) for x in (query, key, value))
    scores = np.einsum("bihc,bjhc->bhij", q, k) * attrs.scale
    for one in mask:
        assert isinstance(attrs, MaskedAttentionAttrs)
        scores = np.where(one, scores, attrs.fill) if one.dtype == bool else scores + one
    if attrs.causal:
        scores = np.where(np.tri(*scores.shape[2:]).astype(bool), scores, -np.inf)
    power = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    weights = power / power.sum(axis=-1, keepdims=True)
    made: Array = np.einsum("bhij,bjhd->bihd", weights, v)
    return made.astype(query.dtype)


def _macs(
    attrs: AttentionAttrs, out: TensorType, q: TensorType, k: TensorType, *others: TensorType
) -> int:
    batch, queries, heads, width = q.concrete_shape
    return batch * heads * queries * k.concrete_shape[1] * (width + out.concrete_shape[-1])


def _stays_wide(attrs: AttentionAttrs, narrow: DataType) -> bool:
    """Processors keep scores in the type of the operands; GPUs have them in float32."""
    target = Target.current(allow_none=True)
    return target is None or not is_gpu(target)


def _in_float32(
    name: str, attrs: AttentionAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Of narrow floats: rounded once, as a processor's scores and sums would lose most of them."""
    own = tensor_type(args[0]).dtype
    if target is None or is_gpu(target) or wide(own) == own:
        return None
    operands = [
        call("cast", arg, dtype=str(wide(own))) if tensor_type(arg).dtype == own else arg
        for arg in args
    ]
    made = call(name, *operands, **dict(attrs.items()))
    return call("cast", made, dtype=str(own))


def _of_known_masks(
    attrs: MaskedAttentionAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Without a mask that hides later keys and nothing else: none is read, and GPUs leave out the
    tiles of those keys."""
    *operands, mask = args
    query, key = (tensor_type(each).shape for each in operands[:2])
    scores = (query[0], query[2], query[1], key[1])
    if target is not None and is_causal(mask, scores, attrs.fill):
        return call("nn.attention", *operands, scale=attrs.scale, causal=True)
    made = by_products(args, target, attrs.scale, attrs.fill)
    return made or _in_float32("nn.masked_attention", attrs, args, target)


def _without_masks(
    attrs: AttentionAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Of wide queries or values on GPUs, and of narrow floats on processors."""
    made = None if attrs.causal else by_products(args, target, attrs.scale)
    return made or _in_float32("nn.attention", attrs, args, target)


_SHAPES = ((2, 5, 3, 4), (2, 7, 3, 4), (2, 7, 3, 6))
_WIDE = ((1, 19, 2, 32), (1, 32, 2, 32), (1, 32, 2, 64))
_SEEN = np.tri(5, 7, 2).astype(bool)

_COMMON: dict[str, Any] = {
    "compute": _compute, "reference": _reference, "macs": _macs, "pattern": OPAQUE,
    "schedules": {"cpu": schedule_attention}, "mixed_precision": "always",
    "contraction": ContractionRules(
        stays_wide=_stays_wide, reads_moved=3, gives_moved=True
    ),
}

register(OpRecord(
    "nn.attention",
    inputs=("query", "key", "value"),
    attrs=AttentionAttrs,
    infer=_infer,
    legalize=_without_masks,
    cases=[
        Case(_SHAPES, {"scale": 0.5}), Case(_WIDE, {"scale": 0.125}),
        Case(_SHAPES, {"causal": True}), Case(_WIDE, {"scale": 0.125, "causal": True}),
    ],
    doc="softmax(scale * query times key) times value, for each head; operands are of shape "
        "(batch, length, heads, width).",
    **_COMMON,
))

register(OpRecord(
    "nn.masked_attention",
    inputs=("query", "key", "value", "mask"),
    attrs=MaskedAttentionAttrs,
    infer=_infer,
    legalize=_of_known_masks,
    cases=[
        Case((*_SHAPES, (2, 1, 1, 7)), {"scale": 0.5}),
        Case((*_SHAPES, _SEEN), {"fill": -1e9}),
        Case((*_WIDE, (2, 19, 1)), {"scale": 0.125}),
    ],
    doc="nn.attention of scores to which a mask is added, or, if it is of truth values, that are "
        "fill where it says no. The mask broadcasts to (batch, heads, queries, keys).",
    **_COMMON,
))
