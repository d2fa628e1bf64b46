"""Schedules of kernels: whatever the shapes and the machine, the numbers are the references'."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.interpreter import interpret
from sterna.schedule.default import vectors_beside
from sterna.schedule.implementation import best_candidate
from sterna.schedule.kernel import Processor
from sterna.schedule.packed import contraction_of_call
from sterna.schedule.register_tile import TileSpace

BLOCKED = "blocked_gemm(weights=OI16o)"
PROCESSORS = [
    Processor(128, 16), Processor(256, 16), Processor(512, 32), Processor(32, 8),
    Processor(128, 32, by_element_fma=True),
]


def check(body: Any, processor: Processor, target: str = "llvm") -> None:
    """One kernel of everything in an expression gives what the interpreter gives."""
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    kernel = main.body.op
    assert main.body.args == main.params, "it should be one kernel"
    loops = lower_kernel(kernel, "kernel", processor).function
    rng = np.random.default_rng(0)
    types = [param.checked_type for param in kernel.params]
    given = [(rng.integers(0, 100, kind.shape) if "int" in kind.dtype
              else rng.standard_normal(kind.shape)).astype(kind.dtype) for kind in types]
    out = tvm.nd.empty(kernel.body.checked_type.shape, kernel.body.checked_type.dtype)
    tvm.build(loops, target=target)["kernel"](*map(tvm.nd.array, given), out)
    want = interpret(kernel, *given)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4 * abs(want).max())


@pytest.mark.parametrize("seed", range(24))
def test_convolutions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, channels, out = (int(rng.integers(low, high)) for low, high in ((5, 20), (1, 9), (1, 40)))
    window, stride = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2]))
    options = {"strides": stride, "padding": int(rng.integers(0, window)), "kernel_size": window}
    if seed % 3 == 0:
        x = relay.var("x", shape=(1, channels, size, size + 1))
        w = relay.var("w", shape=(out, channels, window, window))
        body = relay.nn.conv2d(x, w, channels=out, **options)
        bias = relay.var("b", shape=(out, 1, 1))
    elif seed % 3 == 1:
        block = int(rng.choice([1, 4, 8, 16]))
        x = relay.var("x", shape=(2, size, size, channels))
        w = relay.var("w", shape=(2, window, window, channels, block))
        body = relay.nn.conv2d(
            x, w, data_layout="NHWC", kernel_layout=f"OHWI{block}o", channels=2 * block, **options
        )
        bias = relay.var("b", shape=(2 * block,))
    else:
        x = relay.var("x", shape=(1, size, size, 4 * channels))
        w = relay.var("w", shape=(window, window, 4 * channels, 1))
        body = relay.nn.conv2d(
            x, w, data_layout="NHWC", kernel_layout="HWOI", groups=4 * channels, **options
        )
        bias = relay.var("b", shape=(4 * channels,))
    check(relay.nn.relu(relay.add(body, bias)), PROCESSORS[seed % 5])


@pytest.mark.parametrize("seed", range(12))
def test_products(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rows, depth, columns = (int(n) for n in rng.integers(1, 40, 3))
    if seed % 2:
        x, w = relay.var("x", shape=(rows, depth)), relay.var("w", shape=(columns, depth))
        body = relay.nn.dense(x, w)
    else:
        x = relay.var("x", shape=(3, rows, depth))
        body = relay.nn.batch_matmul(x, relay.var("w", shape=(3, columns, depth)))
    check(relay.add(body, relay.var("b", shape=(columns,))), PROCESSORS[seed % 5])


@pytest.mark.parametrize(
    ("shape", "threads", "bare"),
    [((1, 61), 1, False), ((2, 24), 2, False), ((70,), 3, False), ((1, 61), 2, True)],
)
def test_long_sums_in_blocks(shape: tuple[int, ...], threads: int, bare: bool) -> None:
    processor = Processor(256, 16, l2_bytes=128 * 1024, threads=threads)
    x, w = relay.var("x", shape=(*shape, 1024)), relay.var("w", shape=(12, 1024, 16))
    body = relay.nn.dense(x, w, units=192, implementation=BLOCKED)
    if not bare:
        body = relay.add(relay.nn.relu(body), relay.var("r", shape=(*shape, 192)))
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    choices = lower_kernel(main.body.op, "kernel", processor).choices
    assert 12 // int(choices["blocks"].split()[-3]) % threads == 0, "a piece for each thread"
    check(body, processor)
    check(body, replace(processor, vector_bits=128, vector_registers=32, by_element_fma=True))


def test_many_rows_in_blocks() -> None:
    processor = Processor(256, 16, l2_bytes=512 * 1024, threads=2)
    x, w = relay.var("x", shape=(2, 480, 256)), relay.var("w", shape=(6, 256, 16))
    body = relay.nn.dense(x, w, units=96, implementation=BLOCKED)
    body = relay.add(body, relay.var("b", shape=(96,)))
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    choices = lower_kernel(main.body.op, "kernel", processor).choices
    assert choices["blocks"] == "240 rows, 128 deep, 3 tiles wide"
    check(body, processor)


def test_short_sums_are_not_cut() -> None:
    x, w = relay.var("x", shape=(64, 512)), np.zeros((192, 1, 1, 512), "float32")
    call = relay.nn.dense(x, relay.const(w.reshape(192, 512)))
    made = contraction_of_call(call)
    assert made is not None
    for l2_bytes, cut in ((128 * 1024, True), (512 * 1024, False)):
        processor = Processor(256, 16, l2_bytes=l2_bytes)
        found = best_candidate(made, w, processor)
        assert found.plan.name == ("blocked_gemm" if cut else "direct")


def test_rows_whole_pages_apart_make_lower_tiles() -> None:
    for depth, rows in ((1023, 14), (1024, 8)):
        x, w = relay.var("x", shape=(112, depth)), relay.var("w", shape=(2, depth, 32))
        body = relay.nn.dense(x, w, units=64, implementation="direct(weights=OI32o)")
        main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
        processor = Processor(512, 32, l2_bytes=1 << 21)
        assert lower_kernel(main.body.op, "kernel", processor).choices["tile"] == f"{rows} x 32"


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda p: str(p.vector_bits))
@pytest.mark.parametrize("shape", [(3, 64), (2, 3, 7), (5, 1000), (1,), (4, 33, 2)])
def test_rows(shape: tuple[int, ...], processor: Processor) -> None:
    x = relay.var("x", shape=shape)
    check(relay.exp(relay.nn.softmax(x)), processor)
    check(relay.sum(relay.exp(x), axis=-1), processor)
    check(relay.max(x, axis=0), processor)


@pytest.mark.parametrize("seed", range(12))
def test_elements(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    shape = tuple(int(n) for n in rng.integers(1, 60, int(rng.integers(1, 4))))
    x = relay.var("x", shape=shape)
    other = relay.var("y", shape=tuple(n if rng.integers(0, 2) else 1 for n in shape))
    body = relay.add(relay.nn.relu(x), relay.multiply(other, relay.const(2.0)))
    check(relay.transpose(body) if seed % 3 == 0 else body, PROCESSORS[seed % 5])


def test_the_cost_model_fills_registers() -> None:
    tile = TileSpace(56, 64, 16, 32).choose()
    assert tile.rows * tile.columns >= 12 * 32
    for rows in (1, 7, 49, 56):
        for columns in (1, 3, 16, 40, 1000):
            for lanes, registers in ((1, 8), (4, 16), (8, 16), (16, 32)):
                tile = TileSpace(rows, columns, lanes, registers).choose()
                vectors = -(-tile.columns // lanes)
                assert tile.rows * vectors + vectors + 1 <= max(registers, 4)
                assert 1 <= tile.columns <= max(columns, 1)


def test_a_row_alone_has_sums_side_by_side() -> None:
    assert TileSpace(1, 1000, 8, 16).choose().columns == 40
    assert TileSpace(1, 1024, 16, 32).choose().columns == 64


@pytest.mark.parametrize("rows, vectors, threads, beside", [
    (1, 2, 1, 2), (1, 2, 2, 1), (1, 9, 2, 3), (1, 6, 1, 6), (1, 15, 1, 5), (1, 72, 2, 4),
    (100, 7, 4, 7), (1, 11, 1, 1),
])
def test_vectors_are_reduced_beside_each_other(
    rows: int, vectors: int, threads: int, beside: int
) -> None:
    """So many that none waits for the one before it, and no thread for another."""
    assert vectors_beside(rows, vectors, threads) == beside


@pytest.mark.parametrize("rows, columns, fetches", [(64, 256, 2), (8, 4096, 0), (4, 256, 0)])
def test_the_next_row_is_fetched(rows: int, columns: int, fetches: int) -> None:
    """Not where rows are long enough to be seen coming, nor where one thread does them all."""
    x, y = relay.var("x", shape=(rows, columns)), relay.var("y", shape=(rows, columns))
    weights = [relay.var(name, shape=(columns,)) for name in "gb"]
    body = relay.multiply(relay.nn.layer_norm(x, *weights), y)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    lowered = lower_kernel(kernel, "kernel", Processor(512, 32, threads=2))
    assert str(lowered.function).count("prefetch_region") == fetches
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(p.checked_type.shape).astype("float32") for p in kernel.params]
    out = tvm.nd.empty((rows, columns))
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    np.testing.assert_allclose(out.numpy(), interpret(kernel, *given), rtol=1e-4, atol=1e-4)


def test_images_of_channels_are_convolved_one_after_the_other() -> None:
    """Stripes of all channels would be read before the next stripe of the first."""
    x, w = relay.var("x", shape=(1, 16, 6, 112)), relay.var("w", shape=(16, 1, 3, 3))
    body = relay.nn.conv2d(x, w, padding=1, groups=16)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    processor = Processor(128, 32, by_element_fma=True)
    loops = str(lower_kernel(kernel, "kernel", processor).function).split("parallel")[-1]
    assert loops.index("for w.outer") < loops.index("local = allocate")
    assert "w.outer" not in loops[: loops.index("for w.outer")]
    check(body, processor)


def test_borders_along_rows_stay_in_their_loop() -> None:
    """What a vector reads is asked once for a row, not for each vector of all rows."""
    x, y = relay.var("x", shape=(3, 19, 360)), relay.var("y", shape=(3, 19, 120))
    body = relay.concatenate([x, y], 2)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    processor = Processor(128, 32)
    loops = str(lower_kernel(kernel, "kernel", processor).function)
    assert "range(57):  # parallel" in loops
    check(body, processor)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_borders_of_channels_are_rows(mode: str) -> None:
    """Where a row comes from is found once for it; threads that have few rows share parts."""
    x = relay.var("x", shape=(2, 7, 33, 40))
    body = relay.nn.pad(x, pad_width=((0, 0), (2, 3), (0, 0), (0, 0)), pad_mode=mode)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    for threads, whole in ((1, True), (2, True), (16, False)):
        processor = Processor(128, 32, threads=threads)
        loops = str(lower_kernel(kernel, "kernel", processor).function)
        assert ("range(24):  # parallel" in loops and "range(330)" in loops) == whole, threads
        check(body, processor)


@pytest.mark.parametrize(("shape", "threads"), [
    ((4, 20, 103, 67), 1), ((4, 20, 103, 67), 2), ((20, 103, 67), 1), ((20, 103, 67), 2),
])
def test_odd_rows_are_added_up_by_vectors(shape: tuple[int, ...], threads: int) -> None:
    x = relay.var("x", shape=shape)
    check(relay.sum(x, len(shape) - 3), Processor(128, 32, threads=threads))
    body = relay.sum(relay.var("x", shape=(4, 20, 103, 67)), 1)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    loops = str(lower_kernel(kernel, "kernel", Processor(128, 32, threads=threads)).function)
    assert "range(4):  # parallel" in loops


@pytest.mark.parametrize("width", [94, 57, 30])
def test_pixels_beyond_the_last_whole_tile_are_one_too(width: int) -> None:
    x, w = relay.var("x", shape=(1, 12, 6, width)), relay.var("w", shape=(4, 12, 3, 3))
    body = relay.nn.conv2d(x, w, kernel_size=(3, 3), padding=1)
    check(body, PROCESSORS[2])
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    tile = lower_kernel(main.body.op, "kernel", PROCESSORS[2]).choices["tile"]
    assert int(str(tile).split(" x ")[1]) >= 16
