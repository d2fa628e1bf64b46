"""Attention: over keys and values, or by a state that every step updates."""

import math

from sterna.frontend.calls import (
    call,
    cast,
    constant,
    dtype_of,
    extent_of,
    like,
    numbers_below,
    parts,
    rank_of,
    reshape,
    size_of,
    type_of,
)
from sterna.frontend.node import Result
from sterna.frontend.onnx.convert_nn import HALVES, softmax_of
from sterna.frontend.onnx.node import Node, converter
from sterna.frontend.onnx.tensors import element_type
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import same_dim
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, RelayExpr

# What the fourth result of Attention is.
_RAW, _CAPPED, _MASKED, _WEIGHTS = range(4)


@converter("Attention", since=23)
def attention(node: Node) -> Result:
    """As the standard's body: scores of 16 bits are, and queries and keys are scaled before."""
    flat = rank_of(node[0]) == 3
    query = _split(node, 0, "q_num_heads") if flat else node[0]
    key, value = (_split(node, i, "kv_num_heads") if flat else node[i] for i in (1, 2))
    past = extent_of(node[4], 2) if node.has(4) else constant(0, "int64")
    if node.has(4) != node.has(5):
        raise ValueError("past_key and past_value come together")
    if node.has(4):
        key = call("concatenate", [node[4], key], axis=2)
        value = call("concatenate", [node[5], value], axis=2)
    heads, width = node.extents_of(query, (1, 3))
    (groups,) = node.extents_of(key, (1,))
    batch, _, length, _ = type_of(query).shape
    reach = type_of(key).shape[2]
    if heads % groups:
        raise ValueError(f"{heads} heads of queries are not a multiple of {groups} heads of keys")

    own, given = dtype_of(query), node.attr("scale")
    scale = 1 / math.sqrt(width) if given is None else given
    rows = size_of((heads // groups, length))
    together = reshape(query, (batch, groups, rows, width))
    is_narrow = own in HALVES
    operands = [together, key]
    if is_narrow:
        operands = [call("multiply", each, like(math.sqrt(scale), each)) for each in operands]
    raw = call("nn.batch_matmul", *operands, transpose_a=False, transpose_b=True)
    raw = reshape(raw, (batch, heads, length, reach))
    if not is_narrow:
        raw = call("multiply", raw, like(scale, raw))
    capped = _capped(raw, node.attr("softcap", 0.0))
    masked, reached = _masked(node, capped, past)
    weights = softmax_of(cast(masked, _precision(node, own)), -1)
    if reached is not None:
        weights = call("where", reached, weights, like(0, weights))

    inner = own if dtype_of(value) == own else "float32"
    shares = reshape(cast(weights, inner), (batch, groups, rows, reach))
    made = call("nn.batch_matmul", shares, cast(value, inner), transpose_a=False, transpose_b=False)
    (across,) = node.extents_of(value, (3,))
    made = cast(reshape(made, (batch, heads, length, across)), own)
    if flat:
        made = reshape(call("transpose", made, (0, 2, 1, 3)), (batch, length, heads * across))
    shown = {_RAW: raw, _CAPPED: capped, _MASKED: masked, _WEIGHTS: weights}
    mode = node.attr("qk_matmul_output_mode", _RAW)
    if mode not in shown:
        raise ValueError(f"qk_matmul_output_mode is 0, 1, 2 or 3, not {mode}")
    return [made, key, value, cast(shown[mode], own)]


def _precision(node: Node, own: str) -> str:
    """The type in which softmax is computed: that of the queries unless it is said."""
    code = node.attr("softmax_precision")
    return own if code is None else element_type(code, "softmax_precision")


def _split(node: Node, place: int, name: str) -> RelayExpr:
    """(batch, length, heads x width) as (batch, heads, length, width)."""
    count = node.attr(name)
    if count is None:
        raise ValueError(f"operands of three dimensions need the attribute {name}")
    return _heads(node, place, count)


def _heads(node: Node, place: int, count: int) -> RelayExpr:
    batch, length, _ = node.dims(place)
    (whole,) = node.extents((2,), place)
    if whole % count:
        raise ValueError(f"operand {place} of {whole} numbers in a row is not of {count} heads")
    heads = reshape(node[place], (batch, length, count, whole // count))
    return call("transpose", heads, (0, 2, 1, 3))


def _capped(scores: RelayExpr, cap: float) -> RelayExpr:
    if not cap:
        return scores
    soft = call("tanh", call("divide", scores, like(cap, scores)))
    return call("multiply", soft, like(cap, soft))


def _masked(node: Node, scores: RelayExpr, past: RelayExpr) -> tuple[RelayExpr, RelayExpr | None]:
    """Scores with the mask, and which queries reach a key at all; None if all do."""
    seen = _visible(node, extent_of(scores, 2), extent_of(scores, 3), past)
    mask = _mask(node, scores)
    reached = list(seen)
    if mask is not None:
        if dtype_of(mask) == "bool":
            seen.append(mask)
            reached.append(mask)
        else:
            added = cast(mask, dtype_of(scores))
            scores = call("add", scores, added)
            reached.append(call("greater", added, like(-math.inf, added)))
    if not reached:
        return scores, None
    for part in seen:
        scores = call("where", part, scores, like(-math.inf, scores))
    whole = reached[0]
    for part in reached[1:]:
        whole = call("logical_and", whole, part)
    some = call("any", whole, axis=-1, keepdims=True)
    return scores, None if _holds(some) else some


def _visible(
    node: Node, length: RelayExpr, reach: RelayExpr, past: RelayExpr
) -> list[RelayExpr]:
    """Which keys each query may see by its place, for all alike or for every batch."""
    left, right = node.attr("left_window_size", -1), node.attr("right_window_size", -1)
    if left < -1 or right < -1:
        raise ValueError(f"windows reach -1 or more keys, not {left} and {right}")
    right = 0 if node.attr("is_causal", 0) else right
    places, keys = call("expand_dims", numbers_below(length), 1), numbers_below(reach)
    if not node.has(6):
        first = call("add", places, past)
        near = _window(first, keys, left, right)
        return [part for part in near if not _holds(part)]
    if node.has(4):
        raise ValueError("nonpad_kv_seqlen is not for operands that have a past")
    count = reshape(cast(node[6], "int64"), (-1, 1, 1, 1))
    first = call("add", call("subtract", count, length), places)
    return [call("less", keys, count), *_window(first, keys, left, right)]


def _window(first: RelayExpr, keys: RelayExpr, left: int, right: int) -> list[RelayExpr]:
    """Whether keys lie no further than so much before a query, and behind it."""
    seen: list[RelayExpr] = []
    if left >= 0:
        distance = call("subtract", first, keys)
        seen.append(call("less_equal", distance, constant(left, "int64")))
    if right >= 0:
        distance = call("subtract", first, keys)
        seen.append(call("greater_equal", distance, constant(-right, "int64")))
    return seen


def _holds(condition: RelayExpr) -> bool:
    """Whether it is known that a condition holds everywhere."""
    return isinstance(condition, Constant) and bool(to_numpy(condition.data).all())


def _mask(node: Node, scores: RelayExpr) -> RelayExpr | None:
    """The mask, for keys that it does not mention such that they are not seen."""
    if not node.has(3):
        return None
    mask, have, reach = node[3], node.dims(3)[-1], type_of(scores).shape[-1]
    if same_dim(have, reach) and not isinstance(reach, AnyDim):
        return mask
    hidden = constant(False) if dtype_of(mask) == "bool" else like(-math.inf, mask)
    if isinstance(have, int) and isinstance(reach, int):
        width = [(0, 0)] * (rank_of(mask) - 1) + [(0, max(0, reach - have))]
        return call("nn.pad", mask, tuple(width), hidden)
    keys = numbers_below(extent_of(scores, 3))
    given = call("take", mask, keys, axis=rank_of(mask) - 1, mode="clip")
    return call("where", call("less", keys, extent_of(mask, rank_of(mask) - 1)), given, hidden)


@converter("LinearAttention")
def linear_attention(node: Node) -> list[RelayExpr]:
    """Heads lie side by side in the last dimension; decay and beta may have one number per head."""
    queries, keys = node.attr("q_num_heads"), node.attr("kv_num_heads")
    query = _heads(node, 0, queries)
    (width,) = node.extents_of(query, (3,))
    decay = _heads(node, 4, keys) if node.has(4) else None
    beta = _heads(node, 5, node.extents((2,), 5)[0]) if node.has(5) else None
    made = call(
        "nn.linear_attention", query, _heads(node, 1, keys), _heads(node, 2, keys), node.get(3),
        decay, beta, update_rule=node.attr("update_rule", "gated_delta"),
        scale=node.attr("scale", 0.0) or 1 / math.sqrt(width),
    )
    result, state = parts(made, 2)
    batch, length, _ = node.dims()
    heads, across = node.extents_of(result, (1, 3))
    turned = call("transpose", result, (0, 2, 1, 3))
    return [reshape(turned, (batch, length, heads * across)), state]
