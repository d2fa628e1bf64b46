"""Attention in graphs that spell it out, as exporters write it.

    %1 = nn.batch_matmul(transpose(%q, [0, 2, 1, 3]), transpose(%k, [0, 2, 3, 1]))
    %2 = nn.softmax(add(divide(%1, 8f), %mask))
    nn.batch_matmul(%2, transpose(%v, [0, 2, 1, 3]))
        ->  transpose(nn.masked_attention(%q, %k, %v, %mask, scale=0.125), [0, 2, 1, 3])

Queries, keys and values must lie as they come out of dense layers: (batch, length, heads, width).
For GPUs whatever lies in another order is transposed: that is part of the kernel which makes it,
and one kernel for all of attention saves more. On processors heads that lie one after the other are
taken for a batch, where their scores would not stay in a cache.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.op import BROADCAST, call, is_call_of, record_of
from sterna.schedule.caches import with_caches
from sterna.schedule.choose import choose, deciding
from sterna.schedule.cost import MOVED, arriving, products_per_cycle
from sterna.schedule.kernel import Processor
from sterna.target import Target, is_gpu, processor_of

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs

HEADS_FIRST, WIDTH_FIRST = [0, 2, 1, 3], [0, 2, 3, 1]
# A power of e of a score with less than this added is 0.
NEVER_BELOW = -1e9
# Tiles of fewer lanes take longer than what scores cost that leave the cache.
FEWEST_LANES = 8
# How often kernels wait for scores to cross the memory, of four times that they do.
SCORES_MOVED = 2.5
# What products take longer, of their time, whose rows share the first cache with powers.
PRODUCTS_MORE = 0.05
# How much longer values may become by zeros that fill their last vectors.
MOST_PADDED = 1.25
DTYPES, GPU_DTYPES = ("float32", "float64"), ("float32", "float16", "bfloat16")


def as_attention(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The product of weights and values as one operator, if the weights are a softmax of scores."""
    weights, values = args
    turns = target is not None and is_gpu(target)
    kinds = GPU_DTYPES if turns else DTYPES
    if attrs.transpose_a or not all(_is_static_float(arg, kinds) for arg in args):
        return None
    if not is_call_of(weights, "nn.softmax") or _kind_of(attrs) is not None:
        return None
    assert isinstance(weights, Call)
    if weights.attrs.axis not in (-1, 3):  # type: ignore[union-attr]
        return None
    value = _untransposed(values, WIDTH_FIRST if attrs.transpose_b else HEADS_FIRST, turns)
    if value is None:
        return None if turns else _of_whole_heads(attrs, args, target)
    if not turns and target is not None and not _fills_vectors(attrs, args, target):
        return None
    found = _Scores(weights.args[0], turns)
    if found.query is None or found.key is None:
        return None
    if turns and found.mask is not None and is_causal(found.mask, found.shape, found.fill):
        made = call(
            "nn.attention", found.query, found.key, value, scale=found.scale, causal=True
        )
    elif found.mask is None:
        made = call("nn.attention", found.query, found.key, value, scale=found.scale)
    else:
        made = call("nn.masked_attention", found.query, found.key, value, found.mask,
                    scale=found.scale, fill=found.fill)
    return call("transpose", made, axes=tuple(HEADS_FIRST))


def _fills_vectors(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target
) -> bool:
    """Whether the width of values is of whole vectors, or of halves that are wide enough."""
    kind = tensor_type(args[1])
    lanes = processor_of(target).lanes(kind.dtype)
    width = kind.concrete_shape[2 if attrs.transpose_b else 3]
    return width % min(lanes, FEWEST_LANES) == 0


def _of_whole_heads(
    attrs: "BatchMatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Attention whose heads lie one after the other: each is one of a batch, with one head."""
    weights, values = args
    assert isinstance(weights, Call)
    if target is None or not target.kind.picks_instructions:
        return None
    found = _Scores(weights.args[0], True)
    value = _untransposed(values, WIDTH_FIRST if attrs.transpose_b else HEADS_FIRST, True)
    if found.query is None or found.key is None or found.mask is not None or value is None:
        return None
    query, key, held = (tensor_type(each) for each in (found.query, found.key, value))
    processor = with_caches(processor_of(target))
    if not _pays(query, key, held, processor):
        return None
    (batch, length, heads, _), width = query.concrete_shape, held.concrete_shape[-1]
    lacking = -width % processor.lanes(held.dtype)
    if lacking:  # zeros fill the last vector of each value
        zero = const(np.zeros((), str(held.dtype)))
        value = call("nn.pad", value, zero, pad_width=((0, 0), (0, 0), (0, 0), (0, lacking)))
    made = call("nn.attention", *map(_one_head, (found.query, found.key, value)),
                scale=found.scale)
    whole = call("reshape", made, newshape=(batch, heads, length, width + lacking))
    if not lacking:
        return whole
    return call("strided_slice", whole, axes=(3,), begin=(0,), end=(width,))


def _one_head(expr: RelayExpr) -> RelayExpr:
    """(batch, length, heads, width) as (batch * heads, length, 1, width)."""
    batch, length, heads, width = tensor_type(expr).concrete_shape
    first = call("transpose", expr, axes=tuple(HEADS_FIRST))
    return call("reshape", first, newshape=(batch * heads, length, 1, width))


def _pays(query: TensorType, key: TensorType, value: TensorType, processor: Processor) -> bool:
    """Whether scores that stay in the cache save more than turned keys cost."""
    (batch, queries, heads, width), keys = query.concrete_shape, key.concrete_shape[1]
    lanes, given = processor.lanes(query.dtype), value.concrete_shape[-1]
    mixed = -(-given // lanes) * lanes
    if width % min(lanes, FEWEST_LANES) or mixed > MOST_PADDED * given:
        return False
    scores = batch * heads * queries * keys
    products = scores * (width + mixed) / products_per_cycle(processor)
    padded = 2 * MOVED * batch * heads * (queries + keys) * mixed if mixed > given else 0
    cycles = {
        "product by product": SCORES_MOVED * arriving(scores * query.dtype.bytes, processor),
        "head by head": (
            2 * MOVED * batch * heads * keys * width + padded + PRODUCTS_MORE * products
        ),
    }
    with deciding(f"attention {query!r} {key!r}"):
        return choose("scores", list(cycles), cycles.__getitem__) == "head by head"


def is_causal(mask: RelayExpr, scores: Sequence[int | Expr], fill: float) -> bool:
    """Whether a mask of scores is known and lets each query read the keys up to its own place."""
    shape = [build.int_value(extent) for extent in tensor_type(mask).shape]
    known = [build.int_value(extent) for extent in scores[-2:]]
    if len(shape) < 2 or shape[-2:] != known or any(n != 1 for n in shape[:-2]):
        return False
    if (shape[-2] or 0) < 2:
        return False
    if isinstance(mask, Constant):
        return _is_triangle(to_numpy(mask.data).reshape(shape[-2:]), fill)  # type: ignore[arg-type]
    values = _seen_and_hidden(mask)
    return values is not None and _fits(values[:1], values[1:], fill)


def _fits(seen: Array, hidden: Array, fill: float) -> bool:
    """Whether a mask changes nothing where it shows, and leaves nothing where it hides."""
    if seen.dtype == bool:
        return bool(seen.all() and not hidden.any() and fill <= NEVER_BELOW)
    return bool(not seen.any() and (hidden <= NEVER_BELOW).all())


def _is_triangle(rows: Array, fill: float) -> bool:
    return all(_fits(row[: place + 1], row[place + 1 :], fill) for place, row in enumerate(rows))


def _seen_and_hidden(expr: RelayExpr) -> Array | None:
    """The value of a matrix up to its diagonal and beyond, if it has no others."""
    if isinstance(expr, Constant):
        own = to_numpy(expr.data)
        return np.repeat(own.reshape(-1), 2) if own.size == 1 else None
    record = record_of(expr) if isinstance(expr, Call) else None
    if record is None or not isinstance(expr, Call):
        return None
    given = expr.args[:1] if record.name in _VALUE_PRESERVING else expr.args
    parts = [_seen_and_hidden(arg) for arg in given]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if record.name in ("broadcast_to", "expand_dims"):
        return known[0]
    if record.name == "trilu":
        upper, first = expr.attrs.upper, _number(expr.args[1])  # type: ignore[union-attr]
        if known[0][0] != known[0][1] or first != int(upper):
            return None
        zero = np.zeros_like(known[0])
        return np.where([upper, not upper], zero, known[0])
    if record.pattern > BROADCAST or record.reference is None:
        return None
    made: Array = record.reference(expr.attrs, *known)
    return made if made.shape == (2,) else None


_VALUE_PRESERVING = ("broadcast_to", "expand_dims", "trilu")


class _Scores:
    """Queries times keys, a factor after it, and then a mask: no other order is the same."""

    def __init__(self, expr: RelayExpr, turns: bool) -> None:
        self.turns = turns
        self.scale, self.fill = 1.0, 0.0
        self.mask: RelayExpr | None = None
        self.query: RelayExpr | None = None
        self.key: RelayExpr | None = None
        self.shape = tensor_type(expr).shape
        expr = self._without_mask(expr)
        if tensor_type(expr).shape != self.shape:
            return
        expr = self._without_scale(expr)
        if is_call_of(expr, "nn.batch_matmul"):
            assert isinstance(expr, Call)
            self._operands(expr)

    def _without_mask(self, expr: RelayExpr) -> RelayExpr:
        if is_call_of(expr, "add"):
            assert isinstance(expr, Call)
            for scores, mask in (expr.args, expr.args[::-1]):
                if _is_product(scores) and not _is_product(mask):
                    self.mask = mask
                    return scores
        if is_call_of(expr, "where"):
            assert isinstance(expr, Call)
            condition, yes, no = expr.args
            for scores, other, inverted in ((yes, no, False), (no, yes, True)):
                fill = _number(other)
                if _is_product(scores) and fill is not None:
                    self.fill = fill
                    self.mask = call("logical_not", condition) if inverted else condition
                    return scores
        return expr

    def _without_scale(self, expr: RelayExpr) -> RelayExpr:
        if not isinstance(expr, Call):
            return expr
        if is_call_of(expr, "divide"):
            factor = _number(expr.args[1])
            if factor:
                self.scale = 1.0 / factor
                return expr.args[0]
        if is_call_of(expr, "multiply"):
            for scores, other in (expr.args, expr.args[::-1]):
                factor = _number(other)
                if factor is not None:
                    self.scale = factor
                    return scores
        return expr

    def _operands(self, product: Call) -> None:
        attrs: Any = product.attrs
        if attrs.transpose_a or _kind_of(attrs) is not None:
            return
        query, key = (self._without_factor(arg) for arg in product.args)
        self.query = _untransposed(query, HEADS_FIRST, self.turns)
        self.key = _untransposed(
            key, HEADS_FIRST if attrs.transpose_b else WIDTH_FIRST, self.turns
        )
        if self.query is not None and self.key is not None:
            asked, held = tensor_type(self.query).shape, tensor_type(self.key).shape
            if (asked[0], asked[2]) != (held[0], held[2]):  # one of them is broadcast
                self.query = None

    def _without_factor(self, expr: RelayExpr) -> RelayExpr:
        """What a number scales, which on a GPU the scores are scaled by."""
        shape = tensor_type(expr).shape
        while self.turns and is_call_of(expr, "multiply"):
            assert isinstance(expr, Call)
            found = [
                (factor, whole) for whole, other in (expr.args, expr.args[::-1])
                if (factor := _number(other)) is not None and tensor_type(whole).shape == shape
            ]
            if not found:
                break
            factor, expr = found[0]
            self.scale *= factor
        return expr


def _kind_of(attrs: "BatchMatmulAttrs") -> str | None:
    """The type that a product asks for, if it is not that of its operands."""
    return attrs.out_dtype or None


def _is_product(expr: RelayExpr) -> bool:
    """Whether it is a product of matrices, perhaps with a factor."""
    bare = expr
    if is_call_of(expr, "divide") or is_call_of(expr, "multiply"):
        assert isinstance(expr, Call)
        bare = expr.args[0] if _number(expr.args[1]) is not None else expr.args[1]
    return is_call_of(bare, "nn.batch_matmul")


def _is_static_float(expr: RelayExpr, kinds: tuple[str, ...]) -> bool:
    kind = expr.checked_type
    return (
        isinstance(kind, TensorType)
        and kind.is_static
        and kind.ndim == 4
        and str(kind.dtype) in kinds
    )


def _number(expr: RelayExpr) -> float | None:
    if not isinstance(expr, Constant) or to_numpy(expr.data).size != 1:
        return None
    return float(to_numpy(expr.data).reshape(()))


def _untransposed(expr: RelayExpr, axes: list[int], turns: bool) -> RelayExpr | None:
    """What was transposed, once or several times, so that these are its axes now.

    turns: where nothing was, a transposition makes it.
    """
    order, whole = list(range(4)), expr
    while is_call_of(expr, "transpose"):
        assert isinstance(expr, Call)
        given = expr.attrs.axes or (3, 2, 1, 0)  # type: ignore[union-attr]
        order = [given[place] % 4 for place in order]
        expr = expr.args[0]
        if order == axes:
            return expr
    back = tuple(axes.index(place) for place in range(4))
    return call("transpose", whole, axes=back) if turns else None
