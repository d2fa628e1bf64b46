"""Operators of transformers in ONNX Runtime's own domain, as its optimiser writes them."""

import math

import numpy as np

from sterna.frontend.calls import (
    call,
    call_unfolded,
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
from sterna.frontend.onnx.checks import on_axis
from sterna.frontend.onnx.convert_contrib import MICROSOFT
from sterna.frontend.onnx.convert_matrix import product, whole_product
from sterna.frontend.onnx.convert_nn import normalised, rms_norm
from sterna.frontend.onnx.convert_qlinear import scaled_sums
from sterna.frontend.onnx.convert_quantize import points_of, scalar_of
from sterna.frontend.onnx.node import Node, converter
from sterna.ir.types import Dim
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# What hides the keys behind a query, which sees itself at the least.
HIDDEN = -math.inf

# ---- norms ----


@converter("SimplifiedLayerNormalization")
def simplified_layer_norm(node: Node) -> RelayExpr:
    return rms_norm(node)


@converter("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_norm(node: Node) -> Result:
    total = _sum(node, 3)
    epsilon = node.attr("epsilon", 1e-5)
    made = call("nn.rms_norm", total, node[2], axis=rank_of(total) - 1, epsilon=epsilon)
    return [made, None, None, total]


@converter("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node) -> Result:
    total = _sum(node, 4)
    last = (rank_of(total) - 1,)
    made = normalised(node, total, node[2], node.get(3), last, node.attr("epsilon", 1e-12))
    return [made, None, None, total]


def _sum(node: Node, bias: int) -> RelayExpr:
    total = call("add", node[0], node[1])
    return call("add", total, node[bias]) if node.has(bias) else total


@converter("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node: Node) -> Result:
    """Words, positions and segments looked up, added and normalised."""
    ids, segments, words, places, kinds = (node.get(i) for i in range(5))
    assert ids is not None and words is not None and places is not None
    batch, length = node.shape()
    total = call("take", words, ids, axis=0)
    if node.has(8):
        total = call("add", total, call("take", places, node[8], axis=0))
    else:
        total = call("add", total, call("strided_slice", places, (0,), (length,), axes=(0,)))
    if kinds is not None and segments is not None:
        total = call("add", total, call("take", kinds, segments, axis=0))
    made = normalised(node, total, node[5], node[6], (2,), node.attr("epsilon", 1e-12))
    if node.has(7):
        counts = call("sum", cast(node[7], "int32"), axis=(1,))
    else:
        counts = call("zeros", (batch,), "int32")
    return [made, counts, total]


# ---- places by turns ----


@converter("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> RelayExpr:
    if node.attr("scale", 1.0) != 1.0:
        raise OpNotImplemented("a scale of the places")
    data, told = node[0], cast(node[1], "int64")
    is_flat = rank_of(data) == 3
    if is_flat:
        (whole,) = node.extents((2,))
        cached = 2 * node.extents_of(node[2], (1,))[0]
        count = node.attr("num_heads", 0)
        if not count and (not cached or whole % cached):
            raise ValueError(f"rows of {whole} numbers are not of heads of {cached}")
        data = _split(data, count or whole // cached)
    if rank_of(told) == 1:  # where the first one stands
        told = call("add", told, numbers_below(extent_of(data, 1 if is_flat else 2)))
        told = call("expand_dims", told, 0)
    width = node.attr("rotary_embedding_dim", 0)
    made = _turned(node, data, told, 2 if is_flat else 1, width, node.attr("interleaved", 0))
    return reshape(made, type_of(node[0]).shape) if is_flat else made


def _turned(
    node: Node, data: RelayExpr, told: RelayExpr, heads: int, width: int, interleaved: int,
    caches: tuple[int, int] = (2, 3),
) -> RelayExpr:
    """Pairs of numbers turned by the angles of their places; heads: the axis of these."""
    (whole,) = node.extents_of(data, (3,))
    width = width or 2 * node.extents_of(node[caches[0]], (1,))[0]
    rest: list[RelayExpr] = []
    if width < whole:
        data, *rest = parts(call("split", data, (width,), axis=3), 2)
    cos, sin = (
        call("expand_dims", call("take", node[cache], told, axis=0), heads) for cache in caches
    )
    if interleaved:
        pairs = reshape(data, (*type_of(data).shape[:3], width // 2, 2))
        a, b = (call("squeeze", p, (4,)) for p in parts(call("split", pairs, 2, axis=4), 2))
    else:
        a, b = parts(call("split", data, 2, axis=3), 2)
    first = call("subtract", call("multiply", a, cos), call("multiply", b, sin))
    second = call("add", call("multiply", b, cos), call("multiply", a, sin))
    if interleaved:
        both = call("stack", [first, second], axis=4)
        made = reshape(both, type_of(data).shape)
    else:
        made = call("concatenate", [first, second], axis=3)
    return call("concatenate", [made, *rest], axis=3) if rest else made


# ---- attention ----


def _split(data: RelayExpr, count: int) -> RelayExpr:
    """(batch, length, heads x width) as (batch, length, heads, width)."""
    batch, length, whole = type_of(data).shape
    if not isinstance(whole, int) or whole % count:
        raise ValueError(f"rows of {whole} numbers are not of {count} heads")
    return reshape(data, (batch, length, count, whole // count))


def _heads_first(data: RelayExpr) -> RelayExpr:
    return call("transpose", data, (0, 2, 1, 3))


def _joined(data: RelayExpr) -> RelayExpr:
    """(batch, heads, length, width) as (batch, length, heads x width)."""
    batch, heads, length, width = type_of(data).shape
    return reshape(_heads_first(data), (batch, length, size_of((heads, width))))


def _attended(
    node: Node, query: RelayExpr, key: RelayExpr, value: RelayExpr, added: list[RelayExpr],
    sink: RelayExpr | None = None,
) -> RelayExpr:
    """Softmax of the scores times the values, heads first; several queries may share a key's head.

    added: what is added to the scores. sink: a score of nothing at all, for each head.
    """
    batch, heads, length, _ = type_of(query).shape
    (width,) = node.extents_of(query, (3,))
    groups, reach = type_of(key).shape[1:3]
    if not isinstance(heads, int) or not isinstance(groups, int) or heads % groups:
        raise ValueError(f"{heads} heads of queries are not a multiple of {groups} heads of keys")
    rows = size_of((heads // groups, length))
    together = reshape(query, (batch, groups, rows, width))
    scores = call("nn.batch_matmul", together, key, transpose_a=False, transpose_b=True)
    scale = node.attr("scale") or 1 / math.sqrt(width)
    scores = call("multiply", scores, like(scale, scores))
    scores = reshape(scores, (batch, heads, length, reach))
    cap = node.attr("softcap", 0.0)
    if cap > 0:
        soft = call("tanh", call("divide", scores, like(cap, scores)))
        scores = call("multiply", soft, like(cap, soft))
    for part in added:
        scores = call("add", scores, cast(part, dtype_of(scores)))
    if sink is None:
        weights = call("nn.softmax", scores, axis=-1)
    else:
        nothing = call("broadcast_to", reshape(sink, (1, heads, 1, 1)), (batch, heads, length, 1))
        every = call("concatenate", [cast(nothing, dtype_of(scores)), scores], axis=3)
        weights = parts(call("split", call("nn.softmax", every, axis=-1), (1,), axis=3), 2)[1]
    shares = reshape(weights, (batch, groups, rows, reach))
    made = call("nn.batch_matmul", shares, value, transpose_a=False, transpose_b=False)
    return reshape(made, (batch, heads, length, type_of(value).shape[3]))


def _hides(seen: RelayExpr, dtype: str, hidden: float) -> RelayExpr:
    """What is added to scores so that keys which are not seen take no part."""
    return call("where", seen, constant(0.0, dtype), constant(hidden, dtype))


def _by_place(
    first: RelayExpr, length: RelayExpr, reach: RelayExpr, dtype: str, hidden: float, window: int
) -> RelayExpr:
    """Keys behind a query are not seen, nor those a window before it; first: its first place."""
    places = call("add", call("expand_dims", numbers_below(length), 1), first)
    distance = call("subtract", places, numbers_below(reach))
    seen = call("greater_equal", distance, constant(0, "int64"))
    if window > 0:
        seen = call("logical_and", seen, call("less", distance, constant(window, "int64")))
    return _hides(seen, dtype, hidden)


def _padding(node: Node, place: int, reach: RelayExpr, dtype: str, hidden: float) -> RelayExpr:
    """A mask of keys: how many there are of each sequence, or a number for each key or score."""
    mask = node[place]
    kind, batch = type_of(mask), type_of(node[0]).shape[0]
    if kind.ndim == 1:
        if isinstance(kind.shape[0], int) and isinstance(batch, int) and kind.shape[0] != batch:
            raise OpNotImplemented(f"a mask of shape {kind.shape} for {batch} sequences")
        count = reshape(cast(mask, "int64"), (-1, 1, 1, 1))
        return _hides(call("less", numbers_below(reach), count), dtype, hidden)
    if kind.ndim > 3:
        raise OpNotImplemented(f"a mask of shape {kind.shape}")
    seen = call("not_equal", mask, like(0, mask))
    for _ in range(4 - kind.ndim):
        seen = call("expand_dims", seen, 1)
    return _hides(seen, dtype, hidden)


@converter("Attention", domain=MICROSOFT)
def attention(node: Node) -> Result:
    """Attention of several heads over itself; queries, keys and values are one product."""
    mixed = product(node, node[0], node[1])
    if node.has(2):
        mixed = call("add", mixed, node[2])
    return _over_itself(node, mixed, 3, 4, 5)


@converter("QAttention", domain=MICROSOFT)
def quantized_attention(node: Node) -> Result:
    """The same, where the product is one of whole numbers."""
    total = whole_product(node, node[0], node[1], points_of(node, 6, 7))
    scale = call("multiply", scalar_of(node[3]), scalar_of(node[4]))
    return _over_itself(node, scaled_sums(total, scale, node.get(2)), 5, 8, 9)


def _over_itself(node: Node, mixed: RelayExpr, mask: int, past: int, bias: int) -> Result:
    """Of a product that holds queries, keys and values; where the other operands stand."""
    if node.attr("past_present_share_buffer", 0) or node.attr("do_rotary", 0):
        raise OpNotImplemented("a past in the place of the present, or places by turns")
    count = node.positive("num_heads")
    (whole,) = node.extents_of(mixed, (2,))
    sizes = node.attr("qkv_hidden_sizes") or [whole // 3] * 3
    if len(sizes) != 3 or sum(sizes) != whole:
        raise ValueError(f"{whole} numbers are not queries, keys and values of {sizes}")
    cuts = tuple(int(cut) for cut in np.cumsum(sizes)[:-1])
    query, key, value = (
        _heads_first(_split(part, count))
        for part in parts(call("split", mixed, cuts, axis=2), 3)
    )
    length: RelayExpr = constant(0, "int64")
    if node.has(past):
        length = extent_of(node[past], 3)
        fields = parts(call("split", node[past], 2, axis=0), 2)
        before = (call("squeeze", field, (0,)) for field in fields)
        key, value = (
            call("concatenate", [own, new], axis=2)
            for own, new in zip(before, (key, value), strict=True)
        )
    made = _attended(node, query, key, value, _scores(node, query, key, length, (mask, bias)))
    present = call("stack", [key, value], axis=0) if sizes[1] == sizes[2] else None
    return [_joined(made), present]


def _scores(
    node: Node, query: RelayExpr, key: RelayExpr, past: RelayExpr, operands: tuple[int, int]
) -> list[RelayExpr]:
    """What is added to scores: by a mask of keys, a bias, and one direction."""
    mask, bias = operands
    own, hidden, added = dtype_of(query), node.attr("mask_filter_value", -10000.0), []
    if node.has(mask):
        added.append(_padding(node, mask, extent_of(key, 2), own, hidden))
    if node.has(bias):
        added.append(node[bias])
    if node.attr("unidirectional", 0):
        lengths = extent_of(query, 2), extent_of(key, 2)
        added.append(_by_place(past, *lengths, own, HIDDEN, 0))
    return added


@converter("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node) -> Result:
    """Queries, keys and values apart, or packed for each head; keys may be there already."""
    if node.has(8) or node.has(9):
        raise OpNotImplemented("a past in the place of the present, or beams")
    count = node.positive("num_heads")
    query, key, value = (_operand(node, place, count) for place in range(3))
    past: RelayExpr = constant(0, "int64")
    if node.has(6):
        past = extent_of(node[6], 2)
        key = call("concatenate", [node[6], key], axis=2)
        value = call("concatenate", [node[7], value], axis=2)
    made = _attended(node, query, key, value, _scores(node, query, key, past, (4, 5)))
    return [_joined(made), key, value]


def _operand(node: Node, place: int, count: int) -> RelayExpr:
    """The queries, keys or values, with their bias, heads first."""
    source, packed = next((i, node[i]) for i in (place, 1, 0) if node.has(i))
    rank = rank_of(packed)
    if rank == 5:  # (batch, length, heads, 3 or 2, width)
        own = place - source
        fields = parts(call("split", packed, 3 if source == 0 else 2, axis=3), 3 - source)
        data = call("squeeze", fields[own], (3,))
    elif rank == 4:
        return packed
    else:
        data = _split(packed, count)
    if node.has(3):
        data = call("add", data, _bias(node, place, data))
    return _heads_first(data)


def _bias(node: Node, place: int, data: RelayExpr) -> RelayExpr:
    """The part of the bias that belongs to the queries, keys or values."""
    heads, width = node.extents_of(data, (2, 3))
    (whole,) = node.extents((0,), 3)
    size = heads * width
    begin = (0, size, whole - size)[place]  # keys are as wide as queries
    part = call("strided_slice", node[3], (begin,), (begin + size,), axes=(0,))
    return reshape(part, (heads, width))


@converter("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node) -> Result:
    """Decoders' attention, whose keys and values join those of the past."""
    for name, plain in (("qk_output", 0), ("kv_cache_bit_width", 0), ("causal", 1),
                        ("sliding_window_cache", 0)):
        if node.attr(name, plain) != plain:
            raise OpNotImplemented(f"{name}={node.attr(name)}")
    if any(node.has(place) for place in range(12, 16)):
        raise OpNotImplemented("quantised keys, or norms of queries and keys")
    heads, groups = node.positive("num_heads"), node.positive("kv_num_heads")
    if node.has(1):
        query, key, value = (
            _split(node[i], count) for i, count in enumerate((heads, groups, groups))
        )
    else:
        (whole,) = node.extents((2,))
        width = whole // (heads + 2 * groups)
        cuts = (heads * width, (heads + groups) * width)
        fields = parts(call("split", node[0], cuts, axis=2), 3)
        query, key, value = (
            _split(part, n) for part, n in zip(fields, (heads, groups, groups), strict=True)
        )
    length = extent_of(query, 1)
    past = _as_told(node, extent_of(node[3], 2) if node.has(3) else constant(0, "int64"), length)
    if node.attr("do_rotary", 0):
        told = cast(node[9], "int64") if node.has(9) else call(
            "expand_dims", call("add", numbers_below(length), past), 0)
        query, key = (
            _turned(node, part, told, 2, 0, node.attr("rotary_interleaved", 0), (7, 8))
            for part in (query, key)
        )
    query, key, value = map(_heads_first, (query, key, value))
    if node.has(3):
        key = call("concatenate", [node[3], key], axis=2)
        value = call("concatenate", [node[4], value], axis=2)
    window = max(0, node.attr("local_window_size", -1))
    added = [_by_place(past, length, extent_of(key, 2), dtype_of(query), HIDDEN, window)]
    if node.has(10):
        added.append(node[10])
    sink = node.get(11)
    if sink is None and node.attr("smooth_softmax", 0) > 0:
        sink = constant(np.zeros(heads, "float32"))
    return [_joined(_attended(node, query, key, value, added, sink)), key, value]


def _as_told(node: Node, past: RelayExpr, length: RelayExpr) -> RelayExpr:
    """The length of the past, checked against the last key of each sequence that is told.

    Prompts may be filled up behind their ends: nothing that is read of them sees that.
    """
    zero, one = constant(0, "int64"), constant(1, "int64")
    end = call("add", past, length)
    least = call("where", call("equal", past, zero), zero, call("subtract", end, one))
    checked = call_unfolded(
        "assert_within", cast(node[5], "int64"), least, end, error="ValueError",
        text=f"{node}: seqlens_k names key {{}} as the last of a sequence, not one before {{}} and "
             "from {} on: sequences have one length, and pasts no room behind their keys",
    )
    return call("add", past, checked)


# ---- weights of few bits ----


@converter("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(node: Node) -> RelayExpr:
    """Weights of 2, 4 or 8 bits, a scale and a zero point for each block of a row."""
    if node.has(4):
        raise OpNotImplemented("an order of the blocks (g_idx)")
    units, depth, block = map(node.positive, ("N", "K", "block_size"))
    bits = _bits(node)
    blocks = -(-depth // block)
    outer = type_of(node[0]).shape[:-1]
    rows = reshape(node[0], (size_of(outer), depth))
    if blocks * block != depth:  # times whatever fills the last block
        rows = call("nn.pad", rows, ((0, 0), (0, blocks * block - depth)))
    scale = cast(reshape(node[2], (units, blocks)), dtype_of(rows))
    zero = cast(_zero_points(node.get(3), bits, (units,), blocks), dtype_of(rows))
    weight = reshape(node[1], (units, blocks * block * bits // 8))
    made = call("nn.blockwise_dense", rows, weight, scale, zero, bits=bits)
    if node.has(5):
        made = call("nn.bias_add", made, node[5], axis=-1)
    return reshape(made, (*outer, units))


def _zero_points(
    given: RelayExpr | None, bits: int, outer: tuple[Dim, ...], blocks: int
) -> RelayExpr:
    """Those of each block, which may lie as the numbers themselves do."""
    if given is None:
        middle = constant(float(1 << (bits - 1)), "float32")
        return call("broadcast_to", middle, (*outer, blocks))
    if dtype_of(given) != "uint8":
        return reshape(given, (*outer, blocks))
    row = -(-blocks * bits // 8) * 8 // bits
    numbers = _unpacked(given, bits, (*outer, row))
    return call("strided_slice", numbers, (0,), (blocks,), axes=(len(outer),))


@converter("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node) -> RelayExpr:
    """Rows that are looked up as they lie, and only then widened."""
    data, places, bits = node[0], cast(on_axis(node, 1, 0), "int64"), _bits(node)
    rank = rank_of(data)
    axis = node.attr("quantize_axis", 1) % rank
    if dtype_of(data) != "uint8" or node.attr("gather_axis", 0) or axis != rank - 1:
        raise OpNotImplemented(f"anything but rows of uint8, of {dtype_of(data)} along {axis}")
    found = [
        None if part is None else call("take", part, places, axis=0, mode="wrap")
        for part in (data, node[2], node.get(3))
    ]
    packed, scales, zero = found
    assert packed is not None and scales is not None
    outer = type_of(packed).shape[:-1]
    block = node.attr("block_size", 128)
    made = _widened(packed, scales, zero, bits, outer, block)
    (columns,) = node.extents((rank - 1,))
    whole = columns * 8 // bits
    last = rank_of(made) - 1
    if type_of(made).shape[-1] == whole:
        return made
    return call("strided_slice", made, (0,), (whole,), axes=(last,))


def _widened(
    data: RelayExpr, scales: RelayExpr, zero: RelayExpr | None, bits: int,
    outer: tuple[Dim, ...], block: int,
) -> RelayExpr:
    """Rows of numbers of few bits times the scales of their blocks, less these' zero points."""
    blocks, own = type_of(scales).shape[-1], dtype_of(scales)
    assert isinstance(blocks, int)
    level = cast(_unpacked(data, bits, (*outer, blocks, block)), own)
    offset = cast(call("expand_dims", _zero_points(zero, bits, outer, blocks), -1), own)
    scale = call("expand_dims", scales, -1)
    made = call("multiply", call("subtract", level, offset), scale)
    return reshape(made, (*outer, blocks * block))


def _bits(node: Node) -> int:
    bits: int = node.attr("bits", 4)
    if bits not in (2, 4, 8):
        raise ValueError(f"numbers have 2, 4 or 8 bits, not {bits}")
    return bits


def _unpacked(data: RelayExpr, bits: int, shape: tuple[Dim, ...]) -> RelayExpr:
    """Numbers without a sign that lie in bytes, the first in the lowest bits."""
    each = 8 // bits
    flat = reshape(data, (-1, 1))
    shifts = constant(np.arange(each, dtype="uint8").reshape(1, -1) * np.uint8(bits))
    numbers = call("right_shift", flat, shifts)
    found = call("bitwise_and", numbers, constant(np.uint8((1 << bits) - 1)))
    return reshape(cast(found, "int32"), shape)
