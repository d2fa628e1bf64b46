"""Rows that lanes have in registers and join by shuffles, as the interpreter runs them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sterna import relay
from sterna.codegen import nvptx
from sterna.schedule.choose import answering
from sterna.schedule.gpu import register_rows, row_writer
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.split_host_device import dynamic_bytes, dynamic_places, split_host_device
from tests.gpu.ptxas import assemble, find_ptxas, requires_ptxas
from tests.gpu.test_network_kernels import lowered, var

Array = Any


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def check(expr: Any, wanted: Any, tolerance: float = 1e-5, answers: Any = None) -> Any:
    """Hold the interpreter against float64; gives what the kernel is called."""
    with answering(answers or {}):
        made = lowered(expr)
    function = made.function
    assert "shuffle" in str(function)
    rng = np.random.default_rng(0)
    kinds = [b for b in function.buffers if b is not None]
    arrays = []
    for buffer in kinds:
        kind = np.dtype(getattr(ml_dtypes, str(buffer.dtype), str(buffer.dtype)))
        arrays.append(rng.standard_normal([int(n) for n in buffer.shape]).astype(kind))
    run_on_device(loop_pipeline.run(function), *arrays, seed=1)
    expected = wanted(*[array.astype("float64") for array in arrays[:-1]])
    np.testing.assert_allclose(
        arrays[-1].astype("float64").reshape(expected.shape), expected, rtol=tolerance,
        atol=tolerance,
    )
    return str(function)


@pytest.mark.parametrize("length", [33, 64, 100, 131, 136, 270])
def test_softmax_of_any_length(length: int) -> None:
    check(relay.nn.softmax(var("x", 3, length)), softmax)


def test_softmax_of_narrow_floats() -> None:
    text = check(relay.nn.softmax(var("x", 2, 5, 72, dtype="bfloat16")), softmax, 1e-2)
    assert "flushed_exp2" in text


def test_long_rows_fill_clusters_of_any_number_of_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_rows, "MOST_HELD", 8)
    answers = {"threads of a row": "8 blocks of 160 threads, vectors of 8"}
    text = check(
        relay.nn.softmax(var("x", 1, 8203, dtype="bfloat16")), softmax, 1e-2, answers)
    assert "fetch_once" in text


@pytest.mark.parametrize("threads", [8, 64])
def test_some_lanes_or_several_warps_share_a_row(threads: int) -> None:
    answers = {"threads of a row": f"{threads} threads, vectors of 4", "rows of a block": "2"}
    check(relay.nn.softmax(var("x", 3, 260)), softmax, answers=answers)


def test_norm_with_a_residual() -> None:
    made = relay.nn.layer_norm(var("x", 3, 96), var("g", 96), var("b", 96))
    check(relay.nn.relu(relay.add(made, var("y", 3, 96))),
          lambda x, g, b, y: np.maximum(norm(x, g, b) + y, 0))


def test_sums_of_rows() -> None:
    check(relay.mean(var("x", 4, 3, 50), axis=2), lambda x: x.mean(-1))
    check(relay.max(var("x", 4, 200, dtype="float16"), axis=1), lambda x: x.max(-1))


@pytest.mark.parametrize("dtype, columns", [("bfloat16", 18), ("bfloat16", 7), ("float32", 6)])
def test_sums_across_rows(dtype: str, columns: int) -> None:
    """Each thread has a word of neighbouring sums."""
    function = lowered(relay.mean(var("x", 2, 100, columns, dtype=dtype), axis=1)).function
    assert ("vectorized" in str(function)) == (columns % 4 == 2 and dtype == "bfloat16")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(0).standard_normal((2, 100, columns)).astype(kind)
    out = np.zeros((2, columns), kind)
    run_on_device(loop_pipeline.run(function), x, out, seed=1)
    np.testing.assert_allclose(
        out.astype("float64"), x.astype("float64").mean(1), rtol=1e-2, atol=1e-5)


def test_rows_of_several_axes() -> None:
    check(relay.nn.instance_norm(var("x", 1, 4, 6, 7), var("g", 4), var("b", 4)),
          lambda x, g, b: norm(
              x.reshape(1, 4, 42), g[:, None], b[:, None]).reshape(1, 4, 6, 7))


@pytest.mark.parametrize("kept", ["512 threads, vectors of 4, in shared memory",
                                  "256 threads, vectors of 4, read again"])
def test_a_row_that_registers_have_no_room_for(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "AT_ONCE", 1)
    text = check(
        relay.nn.softmax(var("x", 1, 2055)), softmax, answers={"threads of a row": kept})
    assert "for part in" in text
    assert ("shared.dyn" in text) == ("shared" in kept)


def test_arrays_that_a_launch_brings_lie_behind_each_other() -> None:
    norm_of_x = relay.nn.layer_norm(var("x", 300, 4104), var("g", 4104), var("b", 4104))
    with answering({"threads of a row": "512 threads, vectors of 4, in shared memory"}):
        made = lowered(relay.add(norm_of_x, var("y", 300, 4104)))
    _, (kernel,) = split_host_device(loop_pipeline.run(made.function))
    first, second = sorted(dynamic_places(kernel).values())
    assert first == 0 and second >= 4104 * 4
    assert dynamic_bytes(kernel) >= second + 4104 * 4
    assert f"+{second}]" in nvptx.generate([kernel], "sm_90a")


def test_powers_are_summed_while_a_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing counts at first, or at all, or one number is beyond all others."""
    monkeypatch.setattr(row_writer, "AT_ONCE", 1)
    with answering({"threads of a row": "256 threads, vectors of 4, read again"}):
        function = lowered(relay.nn.softmax(var("x", 2, 1056))).function
    x = np.random.default_rng(0).standard_normal((2, 1056)).astype("float32")
    x[0, :1030], x[0, 1040], x[1] = -np.inf, 90, -np.inf
    out = np.zeros_like(x)
    run_on_device(loop_pipeline.run(function), x, out, seed=1)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(out, softmax(x.astype("float64")), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kept, rows, length, dtype", [
    (", in shared memory", 5, 259, "float32"), (", in shared memory", 3, 520, "bfloat16"),
    ("", 5, 259, "float32"), ("", 9, 265, "bfloat16"),
])
def test_rows_are_brought_ahead(
    kept: str, rows: int, length: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some blocks take all rows in turns, and the scales of a norm stay with their threads."""
    for name, value in {"AHEAD_LANES": (32,), "BUSY": 1, "PROCESSORS": 1}.items():
        monkeypatch.setattr(register_rows, name, value)
    monkeypatch.setattr(register_rows, "REGISTERS", 2 * 64 * 32)
    monkeypatch.setattr(row_writer, "AT_ONCE", 8)
    lanes, tolerance = (4, 1e-5) if dtype == "float32" else (8, 2e-2)
    answers = {"threads of a row": f"32 threads, vectors of {lanes}{kept}, brought ahead"}
    x, g, b = (var(name, *shape, dtype=dtype) for name, shape in (
        ("x", (rows, length)), ("g", (length,)), ("b", (length,))))
    made, wanted = (relay.nn.softmax(x), softmax) if kept else (relay.nn.layer_norm(x, g, b), norm)
    assert "for turn in" in check(made, wanted, tolerance, answers)


@pytest.mark.parametrize("blocks, threads, length, dtype", [
    (2, 64, 522, "float32"), (4, 64, 1031, "float32"), (4, 64, 1032, "bfloat16"),
    (8, 256, 2080, "float32"),
])
def test_blocks_of_a_cluster_share_rows(
    blocks: int, threads: int, length: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also more warps than a warp has lanes, and rows that begin inside of vectors."""
    monkeypatch.setattr(register_rows, "CLUSTER_LANES", (threads,))
    monkeypatch.setattr(register_rows, "MOST_HELD", 8)
    lanes, tolerance = (4, 1e-5) if dtype == "float32" else (8, 2e-2)
    answers = {"threads of a row": f"{blocks} blocks of {threads} threads, vectors of {lanes}"}
    text = check(relay.nn.softmax(var("x", 2, length, dtype=dtype)), softmax, tolerance, answers)
    assert f"cluster_size({blocks})" in text


def test_rows_that_begin_inside_of_vectors() -> None:
    made = relay.nn.layer_norm(var("x", 3, 133), var("g", 133), var("b", 133))
    assert "first" not in check(made, norm)  # lanes would read scales that are far apart
    narrow = relay.nn.softmax(var("x", 3, 259, dtype="bfloat16"))
    assert "first" in check(narrow, softmax, 1e-2)
    assert "first" in check(
        relay.sum(var("x", 3, 9, 15), axis=(1, 2)), lambda x: x.sum((1, 2)), 1e-4)


def group_norm(x: Array, gamma: Array, beta: Array, groups: int) -> Array:
    rows = norm(x.reshape(len(x), groups, -1), np.float64(1), np.float64(0)).reshape(x.shape)
    return rows * gamma[:, None, None] + beta[:, None, None]


@pytest.mark.parametrize("batch, channels, groups, size", [(2, 6, 3, 5), (1, 4, 2, 7)])
def test_groups_of_channels(batch: int, channels: int, groups: int, size: int) -> None:
    """Their scales change within rows."""
    x, g, b = var("x", batch, channels, 4, size), var("g", channels), var("b", channels)
    made = relay.nn.relu(relay.nn.group_norm(x, g, b, num_groups=groups))
    check(made, lambda x, g, b: np.maximum(group_norm(x, g, b, groups), 0))


@pytest.mark.parametrize("kept", ["", ", in shared memory", ", read again"])
def test_few_long_rows_are_shared_by_clusters(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LONG": 512, "CLUSTER_LANES": (64,)}.items():
        monkeypatch.setattr(register_rows, name, value)
    monkeypatch.setattr(row_writer, "AT_ONCE", 4)
    x, g, b = var("x", 1, 4, 10, 33), var("g", 4), var("b", 4)
    text = check(
        relay.nn.group_norm(x, g, b, num_groups=2), lambda x, g, b: group_norm(x, g, b, 2),
        answers={"threads of a row": f"2 blocks of 64 threads, vectors of 4{kept}"})
    assert "cluster_size(2)" in text
    assert ("p0.shared" in text or text.count('"shared.dyn"') > 1) == ("memory" in kept)


@requires_ptxas
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [768, 4096, 50257])
def test_rows_take_no_memory_of_threads(length: int, dtype: str) -> None:
    made = lowered(relay.nn.softmax(var("x", 4096, length, dtype=dtype)))
    _, kernels = split_host_device(loop_pipeline.run(made.function))
    text = nvptx.generate(kernels, "sm_90a")
    assert find_ptxas() is not None
    found = assemble(text, "sm_90a")
    assert not found.spilled_bytes and not found.stack_bytes


@pytest.mark.parametrize("length, threads", [(20000, 1024), (24576, 256), (65536, 256)])
def test_long_rows_of_narrow_floats(length: int, threads: int) -> None:
    """Clusters have those that fill their threads, all threads of a block others of that length."""
    text = str(lowered(relay.nn.softmax(var("x", 4096, length, dtype="bfloat16"))).function)
    assert f"in range({threads}):  # thread threadIdx.x" in text
    assert ("cluster_size(" in text) == (threads < 1024)
