"""Attention in graphs that spell it out, as exporters write it.

    %1 = nn.batch_matmul(transpose(%q, [0, 2, 1, 3]), transpose(%k, [0, 2, 3, 1]))
    %2 = nn.softmax(add(divide(%1, 8f), %mask))
    nn.batch_matmul(%2, transpose(%v, [0, 2, 1, 3]))
        ->  transpose(nn.masked_attention(%q, %k, %v, %mask, scale=0.125), [0, 2, 1, 3])

Queries, keys and values must lie as they come out of dense layers: (batch, length, heads, width).
For GPUs whatever lies in another order is transposed: that is part of the kernel which makes it,
and one kernel for all of attention saves more. On processors heads that lie one after the other,
also those of three dimensions, (batch * heads, length, width), are taken for a batch, where that
takes less time than scores which leave the registers and come back.
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
# Of three dimensions: as they lie, and transposed.
IN_ORDER, TRANSPOSED = [0, 1, 2], [0, 2, 1]
# A power of e of a score with less than this added is 0.
NEVER_BELOW = -1e9
# Tiles of fewer lanes take longer than what scores cost that leave the cache.
FEWEST_LANES = 8
# How often scores cross the memory between kernels, and what storing and loading one takes besides.
SCORES_MOVED, STORED = 4, 0.5
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
    if tensor_type(weights).shape[:-2] != tensor_type(values).shape[:-2]:  # one is broadcast
        return None
    if not is_call_of(weights, "nn.softmax") or _kind_of(attrs) is not None:
        return None
    assert isinstance(weights, Call)
    rank = tensor_type(weights).ndim
    if weights.attrs.axis not in (-1, rank - 1):  # type: ignore[union-attr]
        return None
    if rank == 3:
        return None if turns else _of_whole_heads(attrs, args, target)
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
    rank = tensor_type(values).ndim
    plain, transposed = (IN_ORDER, TRANSPOSED) if rank == 3 else (HEADS_FIRST, WIDTH_FIRST)
    value = _untransposed(values, transposed if attrs.transpose_b else plain, True)
    if found.query is None or found.key is None or found.mask is not None or value is None:
        return None
    processor = with_caches(processor_of(target))
    query, key, held = (_in_order(each) for each in (found.query, found.key, value))
    if not _pays(tensor_type(query), tensor_type(key), tensor_type(held), processor):
        return None
    width, dtype = tensor_type(held).concrete_shape[-1], tensor_type(held).dtype
    lacking = -width % processor.lanes(dtype)
    if lacking:  # zeros fill the last vector of each value
        zero = const(np.zeros((), str(dtype)))
        held = call("nn.pad", held, zero, pad_width=((0, 0), (0, 0), (0, lacking)))
    made = call("nn.attention", *map(_one_head, (query, key, held)), scale=found.scale)
    around = tensor_type(weights).concrete_shape[:-1]
    whole = call("reshape", made, newshape=(*around, width + lacking))
    if not lacking:
        return whole
    return call("strided_slice", whole, axes=(rank - 1,), begin=(0,), end=(width,))


def _in_order(expr: RelayExpr) -> RelayExpr:
    """(batch, length, heads, width) as (batch * heads, length, width)."""
    if tensor_type(expr).ndim == 3:
        return expr
    batch, length, heads, width = tensor_type(expr).concrete_shape
    first = call("transpose", expr, axes=tuple(HEADS_FIRST))
    return call("reshape", first, newshape=(batch * heads, length, width))


def _one_head(expr: RelayExpr) -> RelayExpr:
    """(batch, length, width) as (batch, length, 1, width)."""
    batch, length, width = tensor_type(expr).concrete_shape
    return call("reshape", expr, newshape=(batch, length, 1, width))


def _pays(query: TensorType, key: TensorType, value: TensorType, processor: Processor) -> bool:
    """Whether scores that stay in the cache save more than turned keys cost."""
    (batch, queries, width), keys = query.concrete_shape, key.concrete_shape[1]
    lanes, given = processor.lanes(query.dtype), value.concrete_shape[-1]
    mixed = -(-given // lanes) * lanes
    if width % min(lanes, FEWEST_LANES) or mixed > MOST_PADDED * given:
        return False
    scores = batch * queries * keys
    products = scores * (width + mixed) / products_per_cycle(processor)
    padded = MOVED * batch * (queries + keys) * mixed if mixed > given else 0
    cycles = {
        "product by product": (
            SCORES_MOVED * arriving(scores * query.dtype.bytes, processor) + STORED * scores
        ),
        "head by head": MOVED * batch * keys * width + padded + PRODUCTS_MORE * products,
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
        if any(tensor_type(arg).shape[:-2] != self.shape[:-2] for arg in (query, key)):
            return  # one of them is broadcast
        plain, transposed = (
            (IN_ORDER, TRANSPOSED) if len(self.shape) == 3 else (HEADS_FIRST, WIDTH_FIRST)
        )
        self.query = _untransposed(query, plain, self.turns)
        self.key = _untransposed(key, plain if attrs.transpose_b else transposed, self.turns)

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
        and kind.ndim in (3, 4)
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
    order, whole = list(range(len(axes))), expr
    if order == axes:
        return expr
    while is_call_of(expr, "transpose"):
        assert isinstance(expr, Call)
        given = expr.attrs.axes or range(len(axes))[::-1]  # type: ignore[union-attr]
        order = [given[place] % len(axes) for place in order]
        expr = expr.args[0]
        if order == axes:
            return expr
    back = tuple(axes.index(place) for place in range(len(axes)))
    return call("transpose", whole, axes=back) if turns else None
