"""Schedules of convolutions with channels last: bands, parts of weights, tiles of any width."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.isa.core import Throughput
from sterna.lowering.lower_kernel import LoweredKernel, lower_kernel
from sterna.relay.interpreter import interpret
from sterna.schedule.choose import answering
from sterna.schedule.conv_stages import even_part
from sterna.schedule.kernel import Processor
from sterna.schedule.register_tile import TileSpace
from sterna.schedule.sharing import RowCosts, Share, cut_finer, share_rows
from sterna.tir import pipeline

WIDE, NARROW = Processor(512, 32, threads=2), Processor(128, 32)
# Caches that hold no weights, so that these are read part by part.
PARTS = Processor(512, 32, l1_bytes=256, l2_bytes=512, threads=2)
AVX2 = Processor(256, 16, l1_bytes=2048, l2_bytes=8192, threads=3)
# Products that take their numbers from lanes, with caches that hold weights or none.
NEON = Processor(128, 32, by_element_fma=True, threads=2)
NEON_PARTS = Processor(128, 32, by_element_fma=True, l1_bytes=2048, l2_bytes=512)


def check(body: Any, processor: Processor) -> LoweredKernel:
    """One kernel of everything in an expression gives what the interpreter gives."""
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    lowered = lower_kernel(kernel, "kernel", processor)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(p.checked_type.shape).astype("float32") for p in kernel.params]
    out = tvm.nd.empty(kernel.body.checked_type.shape)
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    want = interpret(kernel, *given)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5 * abs(want).max())
    return lowered


def convolution(
    shape: tuple[int, int, int, int], channels: int, block: int, **attrs: Any
) -> Any:
    """A convolution with packed weights, with a bias and a residual."""
    size = attrs["kernel_size"]
    x = relay.var("x", shape=shape)
    w = relay.var("w", shape=(channels // block, *size, shape[3], block))
    made = relay.nn.conv2d(
        x, w, data_layout="NHWC", kernel_layout=f"OHWI{block}o", channels=channels, **attrs
    )
    bias, residual = relay.var("b", shape=(channels,)), relay.var("r", made.checked_type)
    return relay.nn.relu(relay.add(relay.add(made, bias), residual))


CASES = [
    ((1, 7, 7, 24), 32, 32, {"kernel_size": (3, 3), "padding": 1}),
    ((2, 5, 9, 6), 48, 24, {"kernel_size": (3, 3), "padding": (1, 2), "strides": (2, 1)}),
    ((1, 13, 13, 16), 40, 40, {"kernel_size": (1, 1)}),
    ((3, 11, 6, 9), 24, 24, {"kernel_size": (1, 1), "strides": 2}),
    ((1, 12, 10, 3), 48, 48, {"kernel_size": (5, 3), "padding": (2, 1), "dilation": (1, 2)}),
    ((1, 1, 1, 70), 10, 10, {"kernel_size": (1, 1)}),
]


PROCESSORS = {
    "wide": WIDE, "parts": PARTS, "avx2": AVX2, "neon": NEON, "neon in parts": NEON_PARTS,
}


@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS.keys())
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_direct_convolutions(case: Any, processor: Processor) -> None:
    shape, channels, block, attrs = case
    in_parts = processor in (PARTS, NEON_PARTS)
    with answering({"weights": "parts"} if in_parts else {}):
        lowered = check(convolution(shape, channels, block, **attrs), processor)
    if processor is PARTS:
        assert "channels at a time" in lowered.choices["schedule"]


@pytest.mark.parametrize("processor", [WIDE, NEON], ids=["wide", "neon"])
@pytest.mark.parametrize("shape, columns, attrs", [
    ((1, 9, 13, 96), 32, {"kernel_size": (3, 3), "padding": (1, 2)}),
    ((2, 11, 6, 64), 24,
     {"kernel_size": (3, 2), "padding": (3, 1), "dilation": (3, 1), "strides": (2, 1)}),
])
def test_chunks_of_channels(shape: Any, columns: int, attrs: Any, processor: Processor) -> None:
    with answering({"weights": "chunks"}):
        body = convolution(shape, 2 * columns, columns, **attrs)
        lowered = check(body, replace(processor, l1_bytes=4096, l2_bytes=131072))
    assert re.search(r"at once, \d+ channels at a time", lowered.choices["schedule"])


@pytest.mark.parametrize("dilation, way", [(1, "bands"), (5, "channels at a time")])
def test_rows_that_lie_far_apart_come_in_chunks(dilation: int, way: str) -> None:
    """What a tile reads of five rows stays in the cache beside weights, not of eleven."""
    body = convolution(
        (1, 20, 20, 64), 64, 32, kernel_size=(3, 3), padding=dilation, dilation=dilation
    )
    lowered = check(body, Processor(512, 32, l1_bytes=4096, l2_bytes=196608))
    assert way in lowered.choices["schedule"]


@pytest.mark.parametrize("size, way", [(80, "bands"), (24, "channels at a time")])
def test_a_large_image_is_not_copied_in_chunks(size: int, way: str) -> None:
    """Few channels of each pixel would come from far, for weights that come at the same rate."""
    body = convolution((1, size, size, 512), 32, 32, kernel_size=(3, 3), padding=1, strides=2)
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op
    lowered = lower_kernel(kernel, "kernel", Processor(512, 32, l1_bytes=32768, l2_bytes=1 << 20))
    assert way in lowered.choices["schedule"]


def test_windows_of_one_row_read_again_what_lies_near() -> None:
    """A long row is larger than the second cache, and what a tile reads of it is not."""
    body = convolution(
        (1, 1, 1600, 64), 64, 32, kernel_size=(1, 3), padding=(0, 8), dilation=(1, 8)
    )
    lowered = check(body, Processor(512, 32, l1_bytes=4096, l2_bytes=196608))
    assert "bands" in lowered.choices["schedule"]


@pytest.mark.parametrize("rows, cache, way", [
    (7, 32768, "channels at a time"), (29, 65536, "bands"), (29, 32768, "channels at a time"),
])
def test_weights_come_in_parts_where_the_image_stays_in_the_cache(
    rows: int, cache: int, way: str
) -> None:
    """Or where a block's weights would come again for every tile of a band."""
    body = convolution((1, rows, 7, 24), 128, 32, kernel_size=(3, 3), padding=1)
    lowered = check(body, Processor(512, 32, l1_bytes=4096, l2_bytes=cache))
    assert way in lowered.choices["schedule"]


def test_a_last_part_of_weights_has_loops_of_its_own() -> None:
    """Of 61 channels no part has a divisor: a guard in the innermost loop would stay."""
    body = convolution((1, 7, 7, 61), 32, 32, kernel_size=(3, 3), padding=1)
    processor = Processor(512, 32, l1_bytes=24576, l2_bytes=65536)
    lowered = check(body, processor)
    assert "the weights of 32 channels at a time" in lowered.choices["schedule"]
    assert "likely" not in str(pipeline.run(lowered.function))


def test_weights_of_one_tap_may_come_from_the_second_cache() -> None:
    body = convolution((1, 14, 14, 182), 182 * 4, 56, kernel_size=(1, 1))
    lowered = check(body, Processor(512, 32, l1_bytes=49152, l2_bytes=524288))
    assert "bands" in lowered.choices["schedule"]


def test_parts_of_weights_are_fetched_ahead() -> None:
    """Tiles of two short rows read a part; a line of the next one is fetched in every step."""
    body = convolution((1, 7, 7, 128), 32, 32, kernel_size=(3, 3), padding=1)
    lowered = check(body, Processor(512, 32, l1_bytes=24576, l2_bytes=131072))
    assert "2 rows at once, the weights of 32 channels at a time" in lowered.choices["schedule"]
    loops = str(lowered.function)
    assert loops.count("prefetch_region") == 1
    hint = next(line for line in loops.split("\n") if "prefetch_region" in line)
    assert hint.strip().endswith("(1, 1, 1, 1, 8))")


@pytest.mark.parametrize("window, fetches", [(1, 1), (3, 0)])
def test_the_next_block_of_single_weights_is_fetched(window: int, fetches: int) -> None:
    """A step over windows of one element fetches one line; others would fetch one for each."""
    size = {"kernel_size": (window, window), "padding": window // 2}
    lowered = check(convolution((1, 9, 9, 16), 64, 32, **size), Processor(512, 32))
    assert "bands" in lowered.choices["schedule"]
    hints = [line for line in str(lowered.function).split("\n") if "prefetch_region" in line]
    assert len(hints) == fetches
    assert all("(1, 1, 1, 1, " in hint for hint in hints)


@pytest.mark.parametrize("size, stride, fetched", [
    (12, 1, ["p3", "p1", "p0"]), (8, 1, ["p1"]), (12, 2, ["p1"]),
])
def test_the_next_pixels_of_a_large_image_are_fetched(
    size: int, stride: int, fetched: list[str]
) -> None:
    """Beside the next weights and a tile's residual.

    Unless images are in the cache or some pixels are left out.
    """
    body = convolution((1, size, size, 32), 64, 32, kernel_size=(1, 1), strides=stride)
    lowered = check(body, Processor(512, 32, l2_bytes=32 * 1024))
    assert re.findall(r"prefetch_region\((\w+)", str(lowered.function)) == fetched


def test_pixels_that_would_push_out_weights_are_not_fetched() -> None:
    """Of deep pixels, two tiles take more of the first cache than the core's figure leaves."""
    narrow = replace(NEON, l2_bytes=64 << 10, throughput=Throughput(fetched_pixels=0.75))
    for depth, fetched in ((64, ["p0", "p1"]), (1024, ["p1"])):
        body = convolution((1, 12, 14, depth), 32, 8, kernel_size=(1, 1))
        lowered = check(body, narrow)
        assert sorted(re.findall(r"prefetch_region\((\w+)", str(lowered.function))) == fetched



@pytest.mark.parametrize("size, shared", [(4, "i3.outer"), (12, "i3.outer"), (16, "i0.i1")])
def test_bands_and_blocks_are_one_loop_only_where_all_blocks_are_whole(
    size: int, shared: str
) -> None:
    """The guard of the last block would stay in the innermost loop else, many times slower."""
    x, w = relay.var("x", shape=(1, size, size, 8)), relay.var("w", shape=(1, 1, 8, 61))
    attrs = {"data_layout": "NHWC", "kernel_layout": "HWIO", "channels": 61, "kernel_size": (1, 1)}
    lowered = check(relay.nn.relu(relay.nn.conv2d(x, w, **attrs)), Processor(512, 32, threads=16))
    lines = [line.strip() for line in str(lowered.function).split("\n")]
    (outer,) = [line for line in lines if line.endswith("# parallel")]
    assert outer.startswith(f"for {shared}")
    guards = [line for line in lines if line.startswith("if ")]
    assert guards
    assert not any("%" in guard for guard in guards)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("height, most", [(7, 10), (14, 5), (28, 3), (56, 2), (112, 1), (13, 5)])
def test_threads_end_together(threads: int, height: int, most: int) -> None:
    """Nobody waits for long, where rows and blocks allow it."""
    blocks = 8
    share = share_rows(height, 1, blocks, threads, most, cut_blocks=True)
    pieces = -(-height // share.rows) * share.groups
    longest = -(-pieces // threads) * share.rows / share.groups
    least = max(height / threads, 1 / blocks)
    assert longest <= 1.25 * least
    assert share.rows <= 2 * most


@pytest.mark.parametrize(
    "bands, blocks, threads, groups",
    [(2, 8, 2, 4), (2, 32, 2, 4), (14, 8, 2, 1), (2, 4, 2, 2), (2, 7, 2, 1), (2, 8, 1, 1)],
)
def test_a_thread_that_is_done_finds_work(
    bands: int, blocks: int, threads: int, groups: int
) -> None:
    """Few bands are cut by channels, two blocks at the least; one thread needs no pieces."""
    assert cut_finer(Share(7), bands, blocks, threads) == Share(7, groups)


@pytest.mark.parametrize("processor", [WIDE, NARROW, PARTS, AVX2])
@pytest.mark.parametrize("window, stride, dilation", [
    (3, 1, 1), (3, 2, 1), (5, 2, 1), (3, 1, 2), (9, 2, 1), (13, 1, 1),
])
def test_depthwise_convolutions(
    window: int, stride: int, dilation: int, processor: Processor
) -> None:
    x = relay.var("x", shape=(2, 11, 13, 20))
    w = relay.var("w", shape=(window, window, 20, 1))
    made = relay.nn.conv2d(
        x, w, data_layout="NHWC", kernel_layout="HWOI", groups=20, channels=20,
        kernel_size=window, strides=stride, dilation=dilation, padding=window // 2 * dilation,
    )
    body = relay.clip(relay.add(made, relay.var("b", shape=(20,))), 0.0, 6.0)
    lowered = check(body, processor)
    assert "depthwise" in lowered.choices["schedule"]
    memory = [line for line in str(lowered.function).split("\n") if "allocate" in line]
    assert all('"local"' in line for line in memory)  # no image with a border


@pytest.mark.parametrize("side, stride, share", [
    (14, 1, "7 rows x 14 columns x 48 channels"),
    (14, 2, "4 rows x 7 columns x 48 channels"),
    (7, 1, "1 rows x 7 columns x 16 channels"),
])
def test_a_depthwise_thread_reads_what_it_wrote(side: int, stride: int, share: str) -> None:
    """Rows of an image whose rows are shared out, channels of one whose channels are."""
    x, w = relay.var("x", shape=(1, side, side, 48)), relay.var("w", shape=(3, 3, 48, 1))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", groups=48, channels=48,
                           kernel_size=3, padding=1, strides=stride)
    assert share in check(made, WIDE).choices["schedule"]


@pytest.mark.parametrize("window, l1_bytes, threads, seen", [
    (3, 24576, 1, "3 rows x 18 columns x 32 channels"),
    (3, 4096, 3, "3 rows x 30 columns x 16 channels"),
    (5, 16384, 1, "3 rows x 6 columns x 32 channels"),
])
def test_depthwise_windows_stay_in_the_cache(
    window: int, l1_bytes: int, threads: int, seen: str
) -> None:
    """Some columns of all channels pass by row after row, or whole rows of a line of channels."""
    x, w = relay.var("x", shape=(1, 9, 30, 32)), relay.var("w", shape=(window, window, 32, 1))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", groups=32, channels=32,
                           kernel_size=window, padding=window // 2)
    body = relay.clip(relay.add(made, relay.var("b", shape=(32,))), 0.0, 6.0)
    processor = Processor(128, 32, l1_bytes=l1_bytes, l2_bytes=65536, threads=threads)
    assert seen in check(body, processor).choices["schedule"]


def test_depthwise_stripes_are_tiles_where_functions_follow() -> None:
    """What follows takes longer than what comes, and a window at a border is written out once."""
    x, w = relay.var("x", shape=(1, 9, 32, 32)), relay.var("w", shape=(3, 3, 32, 1))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", groups=32, channels=32,
                           kernel_size=3, padding=1)
    biased = relay.add(made, relay.var("b", shape=(32,)))
    processor = Processor(128, 32, l1_bytes=24576, l2_bytes=65536, threads=1)
    lowered = check(relay.multiply(biased, relay.sigmoid(biased)), processor)
    assert "x 8 columns x 32 channels at a time" in lowered.choices["schedule"]


def test_rows_at_a_border_have_a_body_of_their_own() -> None:
    """Each row is asked once: those between the borders ask about columns alone."""
    x, w = relay.var("x", shape=(1, 16, 56, 32)), relay.var("w", shape=(3, 3, 32, 1))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", groups=32, channels=32,
                           kernel_size=3, padding=1)
    function = check(made, Processor(512, 32, l1_bytes=1 << 16, threads=2)).function
    module = tvm.tir.transform.UnswitchBorder()(tvm.IRModule({"kernel": function}))
    loops = str(tvm.tir.transform.LoopPartition()(module))
    assert "pragma" not in loops and "stays_rolled" in loops
    row, inside, border = [line for line in loops.split("\n") if " if " in line]
    assert "h.inner" in row and "w." not in row
    assert "h.inner" not in inside and "w." in inside
    assert "h.inner" in border and "w." in border


def test_channels_that_are_multiplied() -> None:
    x, w = relay.var("x", shape=(1, 6, 6, 8)), relay.var("w", shape=(3, 3, 8, 2))
    check(relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWOI", groups=8, channels=16,
                          kernel_size=3, padding=1), WIDE)


@pytest.mark.parametrize("size, most, part", [(56, 14, 14), (13, 4, 4), (9, 4, 3), (3, 4, 3)])
def test_parts_divide_where_they_can(size: int, most: int, part: int) -> None:
    assert even_part(size, most) == part


@pytest.mark.parametrize("columns", [16, 24, 32, 40, 48, 64, 96, 144, 160, 240])
@pytest.mark.parametrize("lanes, registers", [(16, 32), (8, 16), (4, 32), (4, 16)])
def test_tiles_fill_registers(columns: int, lanes: int, registers: int) -> None:
    """Accumulators, a row of weights and one number fit, and nothing is left over."""
    for rows in (7, 13, 14, 28, 55, 56, 112):
        tile = TileSpace(rows, columns, lanes, registers).choose()
        vectors = tile.columns // lanes + (tile.columns % lanes).bit_count()
        assert tile.rows * vectors + vectors + 1 <= registers
        assert columns % tile.columns == 0


@pytest.mark.parametrize("width", [24, 40, 48])
def test_what_follows_a_sum_of_any_width_is_vectors(width: int) -> None:
    """A sigmoid names its operand; a name for a vector of no power of two would be slow."""
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(2, 1, 1, 8, width))
    made = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout=f"OHWI{width}o",
                           channels=2 * width, kernel_size=1)
    function = check(relay.multiply(made, relay.sigmoid(made)), WIDE).function
    loops = str(tvm.tir.transform.VectorizeLoop()(tvm.IRModule({"kernel": function})))
    stores = [line for line in loops.split("\n") if "sigmoid" in line]
    assert stores and all(f", {width})" not in line for line in stores)


def test_bands_are_larger_where_weights_come_again_for_each() -> None:
    """A prime number of rows is cut unevenly then."""
    assert share_rows(19, 1, 32, 1, 5, True).rows == 1
    assert share_rows(19, 1, 32, 1, 5, True, RowCosts(shared=0.8)).rows == 5
