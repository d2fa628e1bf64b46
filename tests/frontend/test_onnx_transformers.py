"""Transformers' operators of ONNX Runtime's own domain, beside ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import sterna
from sterna.relay.arrays import Array
from tests.frontend.support import bare_model, check, compare, run_imported, run_reference

RNG = np.random.default_rng(7)
MASK = np.array([[1, 1, 0], [1, 1, 1]], "int32")


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def own(kind: str, *inputs: Any, **more: Any) -> None:
    check(kind, *inputs, **{"domain": "com.microsoft", "tolerance": 1e-4, **more})


def test_norms() -> None:
    data, skip = floats(2, 3, 8), floats(2, 3, 8)
    own("SkipLayerNormalization", data, skip, floats(8), floats(8), floats(8))
    own("SimplifiedLayerNormalization", data, floats(8), domain="", epsilon=1e-3)
    own("SkipSimplifiedLayerNormalization", data, skip, floats(8), epsilon=1e-3)
    own("SkipSimplifiedLayerNormalization", data, skip, floats(8), floats(8))
    ids = RNG.integers(0, 9, (2, 3)).astype("int32")
    own("EmbedLayerNormalization", ids, ids % 2, floats(9, 8), floats(5, 8), floats(2, 8),
        floats(8), floats(8), MASK, outputs=2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_places_by_turns(interleaved: int) -> None:
    places = np.array([[4, 0, 2], [1, 1, 5]])
    caches = floats(6, 4), floats(6, 4)
    for told in (places, np.array([2])):
        own("RotaryEmbedding", floats(2, 3, 16), told, *caches, interleaved=interleaved)
        own("RotaryEmbedding", floats(2, 2, 3, 8), told, *caches, interleaved=interleaved)
    own("RotaryEmbedding", floats(2, 3, 24), places, *caches, interleaved=interleaved,
        num_heads=2, rotary_embedding_dim=8)


def test_attention_over_itself() -> None:
    data, weight, bias = floats(2, 3, 8), floats(8, 24), floats(24)
    own("Attention", data, weight, bias, num_heads=2)
    own("Attention", data, weight, bias, MASK, num_heads=2)
    own("Attention", data, weight, bias, np.array([2, 3], "int32"), num_heads=2)
    own("Attention", data, weight, bias, None, None, floats(2, 2, 3, 3), num_heads=2, scale=0.3)
    past = floats(2, 2, 2, 4, 4)
    own("Attention", data, weight, bias, None, past, num_heads=2, unidirectional=1, outputs=2)
    own("Attention", data, floats(8, 22), floats(22), num_heads=2, qkv_hidden_sizes=[8, 8, 6])


def test_attention_of_whole_numbers() -> None:
    data = RNG.integers(0, 256, (2, 3, 8)).astype("uint8")
    weight, bias = RNG.integers(-128, 128, (8, 24)).astype("int8"), floats(24)
    scales = np.float32(0.02), np.float32(0.01)
    own("QAttention", data, weight, bias, *scales, None, np.uint8(120), np.int8(0), num_heads=2,
        weights=(1, 2))
    mask = np.concatenate([np.ones((2, 4), "int32"), MASK], axis=1)
    own("QAttention", data, weight, bias, *scales, mask, np.uint8(120), np.int8(3),
        floats(2, 2, 2, 4, 4), num_heads=2, unidirectional=1, outputs=2, weights=(1, 2))


def test_heads_apart() -> None:
    query, key, value = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 12)
    own("MultiHeadAttention", query, key, value, num_heads=2)
    own("MultiHeadAttention", query, key, value, floats(28), num_heads=2, unidirectional=0)
    seen = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], "int32")
    own("MultiHeadAttention", query, key, value, None, seen, num_heads=2)
    own("MultiHeadAttention", query, key, value, None, None, floats(1, 2, 3, 5), num_heads=2)
    own("MultiHeadAttention", query, floats(2, 2, 5, 4), floats(2, 2, 5, 4), num_heads=2)
    past = floats(2, 2, 4, 4), floats(2, 2, 4, 4)
    own("MultiHeadAttention", query, floats(2, 3, 8), floats(2, 3, 8), floats(24), None, None,
        *past, num_heads=2, unidirectional=1, outputs=3)


def test_fields_packed_for_each_head() -> None:
    """ONNX Runtime has these on GPUs alone: the same operands apart, on the CPU."""
    fields = [floats(2, 3, 8) for _ in range(3)]
    apart = [field.reshape(2, 3, 2, 4) for field in fields]
    bias = floats(24)

    def model(*operands: Array) -> tuple[ModelProto, dict[str, Array]]:
        feeds = {f"x{place}": array for place, array in enumerate(operands)}
        names = [*feeds, *[""] * (3 - len(feeds)), "bias"]
        node = helper.make_node(
            "MultiHeadAttention", names, ["y"], domain="com.microsoft", num_heads=2)
        return bare_model([node], feeds, {"bias": bias}, ["y"], 17), feeds

    want = run_reference(*model(*fields))
    for packed in ([np.stack(apart, 3)], [fields[0], np.stack(apart[1:], 3)]):
        compare(run_imported(*model(*packed)), want)


def told(past: int, length: int) -> tuple[Array, Array]:
    """How many keys each sequence has, less one, and the longest."""
    return np.full(2, past + length - 1, "int32"), np.array(past + length, "int32")


@pytest.mark.parametrize(("past", "length"), [(0, 5), (4, 1)])
def test_decoders(past: int, length: int) -> None:
    fields = floats(2, length, 64), floats(2, length, 32), floats(2, length, 32)
    before = floats(2, 2, past, 16), floats(2, 2, past, 16)
    ends, caches = told(past, length), (floats(9, 8), floats(9, 8))
    heads = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3}
    own("GroupQueryAttention", *fields, *before, *ends, **heads)
    packed = np.concatenate(fields, axis=2)
    own("GroupQueryAttention", packed, None, None, *before, *ends, *caches, **heads, do_rotary=1)
    own("GroupQueryAttention", *fields, *before, *ends, *caches, **heads, do_rotary=1,
        rotary_interleaved=1, local_window_size=2)
    own("GroupQueryAttention", *fields, *before, *ends, **heads, softcap=3.0, smooth_softmax=1)
    bias = floats(2, 4, length, past + length)
    own("GroupQueryAttention", *fields, *before, *ends, None, None, None, bias, **heads, scale=0.2)
    own("GroupQueryAttention", *fields, *before, *ends, None, None, None, None, floats(4), **heads)


def test_pasts_of_several_lengths_are_an_error_of_the_run() -> None:
    fields = {f"x{i}": floats(2, 1, 16) for i in range(3)}
    past = {f"x{i}": floats(2, 1, 4, 16) for i in (3, 4)}
    feeds = {**fields, **past, "x5": np.array([4, 2], "int32"), "x6": np.array(5, "int32")}
    node = helper.make_node(
        "GroupQueryAttention", [*feeds], ["y", "k", "v"], name="first", domain="com.microsoft",
        num_heads=1, kv_num_heads=1)
    model = sterna.compile(bare_model([node], feeds, {}, ["y", "k", "v"], 17))
    with pytest.raises(ValueError, match=r"'first'.*key 2 as the last.* before 5 and\s+from 4 on"):
        model(**feeds)
    feeds["x5"][:] = 4
    assert model(**feeds)[1].shape == (2, 1, 5, 16)


def test_a_decoder_with_open_lengths() -> None:
    """A prompt and a step of one model, whose past grows."""
    feeds = {"x": floats(2, 5, 32), "k": floats(2, 1, 0, 16), "v": floats(2, 1, 0, 16),
             "ends": np.full(2, 4, "int32"), "total": np.array(5, "int32")}
    weights = {"w": floats(32, 64), "cos": floats(9, 8), "sin": floats(9, 8)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["fields"]),
        helper.make_node(
            "GroupQueryAttention", ["fields", "", "", "k", "v", "ends", "total", "cos", "sin"],
            ["y", "keys", "values"], domain="com.microsoft", num_heads=2, kv_num_heads=1,
            do_rotary=1),
    ]
    model = bare_model(nodes, feeds, weights, ["y", "keys", "values"], 17)
    opened = {"x": ("batch", "length"), "k": ("batch", None, "past"), "v": ("batch", None, "past"),
              "ends": ("batch",)}
    for value in model.graph.input:
        for place, name in enumerate(opened.get(value.name, ())):
            if name:
                value.type.tensor_type.shape.dim[place].dim_param = name
    compiled = sterna.compile(model)
    for _ in range(3):
        want = run_reference(model, feeds)
        made = compiled(**feeds)
        compare(list(made), want, 1e-4)
        past = want[1].shape[2]
        feeds = {"x": floats(2, 1, 32), "k": want[1], "v": want[2],
                 "ends": np.full(2, past, "int32"), "total": np.array(past + 1, "int32")}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("depth", [32, 72])
def test_weights_of_few_bits(bits: int, depth: int) -> None:
    units, block = 6, 32
    blocks = -(-depth // block)
    weight = RNG.integers(0, 256, (units, blocks, block * bits // 8)).astype("uint8")
    scales = floats(units, blocks)
    sizes = {"N": units, "K": depth, "bits": bits, "block_size": block, "tolerance": 1e-3}
    zeros = RNG.integers(0, 256, (units, -(-blocks * bits // 8))).astype("uint8")
    data = floats(2, 3, depth)
    own("MatMulNBits", data, weight, scales, weights=(1, 2), **sizes)
    own("MatMulNBits", data, weight, scales, zeros, weights=(1, 2, 3), **sizes)
    own("MatMulNBits", data, weight, scales, zeros, None, floats(units), weights=(1, 2, 3, 5),
        **sizes)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_few_bits(bits: int) -> None:
    table = RNG.integers(0, 256, (9, 64 * bits // 8)).astype("uint8")
    zeros = RNG.integers(0, 256, (9, 4 * bits // 8)).astype("uint8")
    places = np.array([[8, 0, 3], [1, 1, 5]])
    sizes = {"bits": bits, "block_size": 16, "quantize_axis": 1, "opset": 21}
    own("GatherBlockQuantized", table, places, floats(9, 4), weights=(0, 2), **sizes)
    own("GatherBlockQuantized", table, places, floats(9, 4), zeros, weights=(0, 2, 3), **sizes)


@pytest.mark.parametrize(("kind", "operands", "attrs", "message"), [
    ("MultiHeadAttention", [(1, 3, 8)] * 3, {}, "needs the attribute num_heads"),
    ("MultiHeadAttention", [(1, 3, 8)] * 3, {"num_heads": 0}, "above 0, not 0"),
    ("MatMulNBits", [(2, 32)], {"N": 4, "K": 32, "block_size": 0}, "block_size, a number above 0"),
    ("MatMulNBits", [(2, 32)], {"N": 4, "K": 32, "block_size": 32, "bits": 3}, "8 bits, not 3"),
    ("Attention", [(1, 2, 4), (4, 12)], {"num_heads": 2, "qkv_hidden_sizes": [4, 4]},
     "12 numbers are not queries"),
])
def test_attributes_that_make_no_sense(
    kind: str, operands: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    feeds = {f"x{place}": floats(*shape) for place, shape in enumerate(operands)}
    node = helper.make_node(
        kind, [*feeds], ["y"], name="first", domain="com.microsoft", **attrs)
    with pytest.raises(ValueError, match=f"'first'.*{message}"):
        run_imported(bare_model([node], feeds, {}, ["y"], 17), feeds)
