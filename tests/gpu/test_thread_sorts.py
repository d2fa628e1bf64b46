"""Sorts, prefix sums and non-maximum suppression that threads share."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.codegen import nvptx
from sterna.op import block_sort
from sterna.op.tensor import sort
from sterna.relay.op import find
from sterna.relay.reference import value_of_type
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.split_host_device import split_host_device
from tests.gpu.ptxas import assemble, requires_ptxas
from tests.gpu.test_network_kernels import HOPPER, calls_of, kernels_of, lowered
from tests.op.harness import flatten

RNG = np.random.default_rng(0)
LONE = "range(1):  # thread threadIdx.x"


def var(name: str, array: Any) -> relay.Var:
    return relay.var(name, shape=array.shape, dtype=str(array.dtype))


def check(expr: Any, *arrays: Any, target: str = "opencl") -> None:
    """A graph of one operator, whose threads run in any order, gives what its reference does."""
    expr = getattr(expr, "astuple", lambda: expr)()
    (function,) = kernels_of(expr, target).values()
    (call,) = calls_of(function)
    record = find(str(call.op))
    assert record is not None
    wanted = flatten(value_of_type(record, call.attrs, call.checked_type, list(arrays)))
    loops = loop_pipeline.run(lowered(expr, target).function)
    assert LONE not in str(loops)
    outs = [np.zeros_like(want) for want in wanted]
    run_on_device(loops, *arrays, *outs, seed=1)
    for out, want in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(out, want)


def repeated(*shape: int) -> Any:
    """Numbers with ties, NaN, infinities and zeros of both signs."""
    made = RNG.integers(-4, 5, shape).astype("float32")
    made.flat[::7] = np.nan
    made.flat[3::11] = -0.0
    made.flat[5::13] = np.inf
    return made


@pytest.mark.parametrize("ascending", [True, False])
def test_long_rows_are_merged(ascending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONGEST_RANKED", 64)
    data = repeated(1 if ascending else 2, 150).astype("float64")
    check(relay.argsort(var("x", data), axis=1, is_ascend=ascending), data)


@pytest.mark.parametrize("shape, dtype", [((1, 200), "float32"), ((2, 100), "float16")])
def test_blocks_sort_tiles(shape: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer lines are merged, those of narrow numbers fit a tile; the first ones are chosen."""
    monkeypatch.setattr(sort, "LONGEST_RANKED", 64)
    monkeypatch.setattr(block_sort, "TILE_BYTES", 512)
    data = repeated(*shape).astype(dtype)
    is_upwards = dtype == "float32"
    made = relay.argsort(var("x", data), axis=1, is_ascend=is_upwards)
    check(made, data, target=HOPPER)
    check(relay.topk(var("x", data), k=9, axis=1, is_ascend=is_upwards), data, target=HOPPER)


def test_the_first_of_long_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONGEST_RANKED", 64)
    data = repeated(70, 2)
    check(relay.topk(var("x", data), k=7, axis=0, ret_type="values"), data)


def test_what_is_not_zero_and_what_differs() -> None:
    flags = RNG.integers(0, 2, (5, 30)).astype(bool)
    check(relay.op.call("argwhere_padded", var("x", flags)), flags)
    check(relay.op.call("argwhere_padded", var("x", flags)), np.zeros_like(flags))
    numbers = repeated(90)
    for in_order in (True, False):
        check(relay.op.call("unique", var("x", numbers), is_sorted=in_order, return_counts=True),
              numbers)


def boxes_of(*shape: int) -> Any:
    corners = RNG.uniform(0, 4, (*shape, 2)).astype("float32")
    return np.concatenate([corners, corners + RNG.uniform(0.2, 2, corners.shape)], -1).astype(
        "float32")


def rows_of_detections() -> tuple[Any, Any, Any]:
    """Three images: of many boxes, of one, and of none."""
    scores = RNG.integers(0, 9, (3, 40, 1)).astype("float32") / 8
    classes = RNG.integers(-1, 3, (3, 40, 1)).astype("float32")
    rows = np.concatenate([classes, scores, boxes_of(3, 40)], -1)
    rows[0, 5, 1], rows[0, 6, 2] = np.nan, np.nan
    return rows, np.array([40, 1, 0], "int32"), RNG.permutation(120).astype("int32").reshape(3, 40)


@pytest.mark.parametrize("attrs", [
    {"iou_threshold": 0.3}, {"force_suppress": True, "max_output_size": 9, "top_k": 36},
])
def test_boxes_of_images(attrs: dict[str, Any]) -> None:
    given = rows_of_detections()
    names = [var(f"v{i}", array) for i, array in enumerate(given)]
    check(relay.vision.non_max_suppression(*names, **attrs), *given)


def test_boxes_by_class() -> None:
    boxes = boxes_of(2, 40)
    scores = RNG.integers(0, 9, (2, 2, 40)).astype("float32") / 8
    scores[0, 1], scores[1, 0, 3] = 0, np.nan
    limits = [np.array(15), np.array(0.4, "float32"), np.array(0.2, "float32")]
    given = [boxes, scores, *limits]
    names = [var(f"v{i}", array) for i, array in enumerate(given)]
    check(relay.vision.all_class_non_max_suppression(*names), *given)


@requires_ptxas
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tiles_are_sorted_in_registers(dtype: str) -> None:
    made = relay.argsort(relay.var("x", shape=(4, 5000), dtype=dtype), axis=1)
    _, kernels = split_host_device(loop_pipeline.run(lowered(made, HOPPER).function))
    found = assemble(nvptx.generate(kernels, "sm_90a"), "sm_90a")
    assert not found.spilled_bytes and not found.stack_bytes


@requires_ptxas
def test_boxes_are_assembled_without_spills() -> None:
    names = [var(f"v{i}", array) for i, array in enumerate(rows_of_detections())]
    made = relay.vision.non_max_suppression(*names).astuple()
    _, kernels = split_host_device(loop_pipeline.run(lowered(made, HOPPER).function))
    assert not assemble(nvptx.generate(kernels, "sm_90a"), "sm_90a").spilled_bytes


def test_elements_of_a_sparse_product() -> None:
    places, begins = np.array([0, 3, 1, 0, 2], "int32"), np.array([0, 2, 2, 3, 5], "int32")
    values = RNG.integers(-3, 4, 5).astype("float32")
    dense = RNG.integers(-3, 4, (3, 4)).astype("float32")
    sparse = tuple(var(n, a) for n, a in zip("dij", (values, places, begins), strict=True))
    check(relay.nn.sparse_dense(var("x", dense), sparse), dense, values, places, begins)


def test_boxes_find_their_rows() -> None:
    """Two images, whose anchors are dropped in different places."""
    scores = RNG.integers(0, 9, (2, 3, 40)).astype("float32") / 8
    moves = np.zeros((2, 160), "float32")
    anchors = RNG.integers(0, 8, (1, 40, 4)).astype("float32") / 8
    made = relay.vision.multibox_transform_loc(
        var("s", scores), var("m", moves), var("a", anchors), threshold=0.75)
    check(made, scores, moves, anchors)
