"""Kernels with Tensor Cores, copies that run beside threads, and roles of warps, as the
interpreter runs them: what a GPU would be needed for otherwise."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from sterna import relay
from sterna.schedule.choose import answering
from sterna.schedule.gpu import product_tiles, tensor_cores
from sterna.schedule.gpu.ring import Ring
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from tests.gpu.test_network_kernels import HOPPER, lowered, var
from tests.gpu.test_tensor_cores import conv, dense, finished, groups, rounded

Array = npt.NDArray[Any]
AMPERE = "cuda -arch=sm_80"


def check(
    expr: relay.Expr, wanted: Callable[..., Array], words: tuple[str, ...], target: str = HOPPER,
    tolerance: float = 2e-2, seed: int = 0,
) -> None:
    """Hold the interpreter against float64."""
    function = lowered(expr, target).function
    for word in words:
        assert f"{word}(" in str(function)
    random = np.random.default_rng(3)
    arrays: list[Array] = []
    for buffer in function.buffers:
        assert buffer is not None
        kind = np.dtype(getattr(ml_dtypes, str(buffer.dtype), str(buffer.dtype)))
        shape = [int(n) for n in buffer.shape]
        drawn = random.integers(-4, 5, shape) if kind.kind == "i" else random.standard_normal(shape)
        arrays.append(drawn.astype(kind))
    run_on_device(loop_pipeline.run(function), *arrays, seed=seed)
    expected = wanted(*[array.astype("float64") for array in arrays[:-1]])
    np.testing.assert_allclose(
        arrays[-1].astype("float64").reshape(expected.shape), expected, rtol=tolerance,
        atol=tolerance * np.abs(expected).max(),
    )


def product(x: Array, w: Array) -> Array:
    return np.asarray(x @ w.T)


def after(x: Array, w: Array, b: Array, r: Array) -> Array:
    return np.asarray(np.maximum(x @ w.T + b + r, 0))


def windows(x: Array, w: Array, stride: int = 1, out: str = "hwio") -> Array:
    """A convolution of 3 x 3 with a border of one."""
    weight = w if out == "hwio" else w.transpose(1, 2, 3, 0)
    wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    size = (x.shape[1] - 1) // stride + 1
    made = np.zeros((x.shape[0], size, size, weight.shape[-1]))
    for row in range(3):
        for column in range(3):
            part = wide[:, row::stride, column::stride][:, :size, :size]
            made += part @ weight[row, column]
    return made


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8"])
def test_a_tile_by_wgmma_and_tma(kind: str) -> None:
    words = ("wgmma", "tma_load", "mbarrier_wait")
    check(dense(40, 48, 160, kind), product, words, tolerance=0 if kind == "int8" else 2e-2)


@pytest.mark.parametrize("kind, gpu, word", [
    ("bfloat16", HOPPER, "wgmma"), ("float16", AMPERE, "mma"), ("int8", HOPPER, "wgmma"),
    ("float32", HOPPER, "multiply_quads"),
])
def test_rows_and_columns_of_any_length(kind: str, gpu: str, word: str) -> None:
    check(dense(21, 35, 77, kind), product, (word,), gpu, tolerance=0 if kind == "int8" else 2e-2)


def test_operands_of_any_length_as_they_lie() -> None:
    x, w = var("x", 33, 21, dtype="bfloat16"), var("w", 33, 35, dtype="bfloat16")
    made = relay.nn.matmul(x, w, transpose_a=True)
    check(made, lambda x, w: np.asarray(x.T @ w), ("wgmma",))
    x, w = var("x", 3, 21, 33, dtype="bfloat16"), var("w", 3, 33, 35, dtype="bfloat16")
    check(relay.nn.batch_matmul(x, w, transpose_b=False), lambda x, w: np.asarray(x @ w),
          ("wgmma",))


@pytest.mark.parametrize("batch", [(1, 1), (3, 1)])
def test_one_matrix_of_a_batch(batch: tuple[int, int]) -> None:
    x = var("x", batch[0], 21, 40, dtype="bfloat16")
    w = var("w", batch[1], 24, 40, dtype="bfloat16")
    check(relay.nn.batch_matmul(x, w), lambda x, w: np.asarray(x @ w.transpose(0, 2, 1)),
          ("wgmma",))


def test_what_follows_is_computed_on_the_sums() -> None:
    check(finished(dense(40, 24, 72), (40, 24)), after, ("wgmma",))


def test_blocks_of_a_cluster_add_up_parts() -> None:
    check(finished(dense(6, 64, 1088), (6, 64)), after, ("wgmma", "cluster_wait", "send_quad"))


def test_single_rows_are_turned() -> None:
    check(finished(dense(6, 64, 256), (6, 64)), after, ("wgmma", "stmatrix"))


def test_few_rows_of_many_products_go_to_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_cores, "LEAST_OF_FEW_ROWS", 1)  # so that the test is short
    check(dense(3, 40, 72, "float32"), product, ("multiply_quads",), tolerance=1e-4)


def test_windows_are_copied_as_columns() -> None:
    words = ("wgmma", "tma_load_im2col")
    check(conv("bfloat16", "OHWI", 5, 64, 2), lambda x, w: windows(x, w, 2, "ohwi"), words)


@pytest.mark.parametrize("kind, window, gpu, word", [
    ("bfloat16", 3, HOPPER, "wgmma"), ("bfloat16", 1, AMPERE, "mma"),
    ("float32", 1, HOPPER, "multiply_quads"),
])
def test_tiles_read_the_channels_of_their_group(
    kind: str, window: int, gpu: str, word: str
) -> None:
    def wanted(x: Array, w: Array) -> Array:
        both = zip(np.split(x, 2, axis=-1), np.split(w, 2), strict=True)
        return np.concatenate([
            windows(one, weight, 1, "ohwi") if window == 3 else one @ weight[:, 0, 0].T
            for one, weight in both
        ], axis=-1)

    channels, size = (32, 4) if kind == "float32" else (64, 3)
    check(groups(kind, 2, channels, channels, size, window), wanted, (word,), gpu)


@pytest.mark.parametrize("ring, word", [
    (Ring(64, 16, 3, turned=True, wide=True), "keep_words"),
    (Ring(64, 64, 3, wide=True), "wgmma_registers"),
])
def test_data_is_rounded_on_its_way(
    ring: Ring, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    check(rounded(14, 64, 160), product, (word,))


@pytest.mark.parametrize("rows, depth", [(20, 64), (20, 20), (64, 32)])
def test_lanes_multiply_floats(rows: int, depth: int) -> None:
    """Sums of several blocks, of a part of one, and whole tiles of one."""
    expr = finished(dense(rows, 64, depth, "float32"), (rows, 64), "float32")
    check(expr, after, ("multiply_quads", "mbarrier_wait"), tolerance=1e-5)


def test_lanes_have_tiles_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warps begin inside of eight rows; parts of sums are no whole quads."""
    ring = Ring(40, 64, 3, split=2)
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    expr = finished(dense(38, 32, 64, "float32"), (38, 32), "float32")
    check(expr, after, ("multiply_quads",), tolerance=1e-5)


@pytest.mark.parametrize("depth", [24, 64])
def test_lanes_multiply_columns_side_by_side(depth: int) -> None:
    data, weight = var("x", 64, depth), var("w", depth, 64)
    expr = relay.nn.bias_add(relay.nn.matmul(data, weight), var("b", 64), axis=-1)
    check(expr, lambda x, w, b: x @ w + b, ("multiply_quads",), tolerance=1e-5)


def test_warps_of_other_gpus_multiply_by_themselves() -> None:
    check(dense(20, 24, 64), product, ("mma", "ldmatrix", "copy_in"), AMPERE)


@pytest.mark.parametrize("channels, ring", [
    (32, Ring(64, 96, 3, pitch=64, taps=3)),
    (24, Ring(64, 128, 3, split=3, pitch=64, taps=3)),
    (16, Ring(64, 64, 1, pitch=32, taps=9)),
    (32, Ring(128, 96, 3, resident=1, pitch=64, taps=3)),
])
def test_taps_of_few_channels_share_a_stage(
    channels: int, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    words = ("wgmma", "tma_load_im2col")
    check(conv("bfloat16", "OHWI", 5, channels), lambda x, w: windows(x, w, 1, "ohwi"), words)


@pytest.mark.parametrize("ring", [
    Ring(64, 96, 2), Ring(64, 96, 2, wide=True), Ring(128, 96, 3, resident=1), Ring(64, 128, 3, 3),
    Ring(128, 208, 3, resident=1), Ring(128, 144, 3, resident=2, together=2),
])
def test_tiles_of_columns_that_are_no_powers_of_two(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the last column of a tile the next tile's begin, also where blocks share one."""
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    make, columns = rounded if ring.wide else dense, 136 if ring.split > 1 else 208
    check(make(20 if ring.split > 1 else 70, columns, 128), product, ("tma_load",))


@pytest.mark.parametrize("tile, columns", [(96, 196), (144, 144), (144, 288), (208, 204)])
def test_results_of_float32_that_are_stored_by_odd_counts(
    tile: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 128 bytes, of fewer where a tile's are no multiple, and such as have an end."""
    ring = Ring(128, tile, 3, resident=1)
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    expr = relay.cast(dense(20, columns, 64), "float32")
    check(expr, lambda x, w: product(x, w), ("tma_store",))


@pytest.mark.parametrize("channels, size, ring", [
    (32, 5, Ring(128, 128, 3, resident=1, pitch=64, taps=3, kept=3)),
    (32, 5, Ring(128, 128, 3, resident=1, pitch=64, kept=9)),
    (16, 13, Ring(128, 144, 3, resident=2, pitch=32, taps=9, kept=1)),
    (64, 5, Ring(128, 128, 3, resident=1, kept=9)),
])
def test_weights_of_windows_stay_in_shared_memory(
    channels: int, size: int, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    words = ("wgmma", "tma_load_im2col", "tma_store")
    expr = conv("bfloat16", "OHWI", size, channels)
    check(expr, lambda x, w: windows(x, w, 1, "ohwi"), words)


def test_columns_stay_for_all_tiles_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(128, 96, 3, resident=1, kept=3)
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    check(finished(dense(250, 72, 136), (250, 72)), after, ("wgmma", "tma_store"))


@pytest.mark.parametrize("columns", [144, 134])
def test_anexternal_kernel_adds_up_parts(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last part has blocks behind the end of the sum; what follows comes with the sums."""
    ring = Ring(128, 128, 3, apart=3)
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    expr = finished(dense(70, columns, 584), (70, columns))
    check(expr, after, ("wgmma", "store_pair"))


@pytest.mark.parametrize("resident", [1, 2])
def test_blocks_that_stay_make_one_tile_after_the_other(
    resident: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(128, 64, 3, resident=resident)
    monkeypatch.setattr(product_tiles, "choose", lambda name, offered, cost: ring)
    check(dense(250, 56, 64), product, ("wgmma", "tma_store"))


def test_rows_that_lie_along_no_sum_are_brought_whole() -> None:
    """A turned tile has fewer columns than a box of such rows."""
    x, w = (var(n, 8, 65, s, dtype="float16") for n, s in (("x", 64), ("w", 96)))
    made = lowered(relay.nn.batch_matmul(x, w, transpose_a=True, transpose_b=False))
    loads = [line for line in str(made.function).splitlines() if "tma_load(" in line]
    assert all(any(f"{name}[" in line for line in loads) for name in ("p0", "p1"))


def attention(length: int, width: int) -> relay.Expr:
    """Causal attention of one head."""
    q, k, v = (var(name, 1, 1, length, width, dtype="bfloat16") for name in "qkv")
    scores = relay.nn.batch_matmul(q, k, transpose_b=True)
    never = relay.const(np.array(-np.inf).astype(ml_dtypes.bfloat16))
    seen = relay.where(relay.const(np.tri(length, dtype=bool)), scores, never)
    made: relay.Expr = relay.nn.batch_matmul(relay.nn.softmax(seen), v, transpose_b=False)
    return made


def by_attention(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(power / power.sum(-1, keepdims=True) @ v)


def test_attention_keeps_its_weights_in_registers() -> None:
    check(attention(72, 64), by_attention, ("wgmma_registers", "wgmma"))


def decoding(how: str, kind: str = "bfloat16", *mask: relay.Expr) -> relay.Expr:
    """Three queries of four heads, two of which have the same keys."""
    q = var("q", 1, 3, 4, 40, dtype=kind)
    parts = [var(name, 1, 120, 2, width, dtype=kind) for name, width in (("k", 40), ("v", 24))]
    if how == "repeat":
        both = [relay.repeat(part, 2, axis=2) for part in parts]
    else:
        both = []
        for part, width in zip(parts, (40, 24), strict=True):
            wide = relay.reshape(part, (1, 120, 2, 1, width))
            wide = relay.broadcast_to(wide, (1, 120, 2, 2, width))
            both.append(relay.reshape(wide, (1, 120, 4, width)))
    attend = relay.nn.masked_attention if mask else relay.nn.attention
    made: relay.Expr = attend(q, *both, *mask, scale=0.2)
    return made


def by_decoding(k: Array, v: Array, q: Array, mask: Array | float = 0.0) -> Array:
    k, v = (np.repeat(each, 2, axis=2) for each in (k, v))
    scores = 0.2 * np.einsum("bihc,bjhc->bhij", q, k) + mask
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("bhij,bjhd->bihd", power / power.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("how, parts, mask", [
    ("repeat", 1, [var("m", 4, 3, 120, dtype="bfloat16")]), ("broadcast", 2, []),
])
def test_few_queries_read_shared_keys_once(
    how: str, parts: int, mask: list[relay.Expr]
) -> None:
    with answering({"parts of keys": f"4 warps, {parts} parts"}):
        check(decoding(how, "bfloat16", *mask), by_decoding, ("mma", "fetch_once"), AMPERE)


def test_tiles_read_shared_heads_where_they_lie() -> None:
    with answering({"attention of few queries": "tiles"}):
        check(decoding("repeat"), by_decoding, ("wgmma_registers",))


def test_threads_read_shared_heads_where_they_lie() -> None:
    assert "T_repeat" not in str(lowered(decoding("repeat", "float32"), "opencl").function)
