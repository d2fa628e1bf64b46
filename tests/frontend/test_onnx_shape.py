"""Operators of ONNX that move, pick, order and reduce."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.support import check, run_evaluator

RNG = np.random.default_rng(1)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def ints(*values: int) -> Any:
    return np.array(values, "int64")


def test_shapes() -> None:
    check("Shape", floats(2, 3, 4))
    check("Shape", floats(2, 3, 4), start=1)
    check("Shape", floats(2, 3, 4), start=-2, end=-1)
    check("Size", floats(2, 3, 4))
    check("Reshape", floats(2, 3, 4), ints(0, -1), weights=[1])
    check("Reshape", floats(2, 0, 4), ints(0, 4, 2), weights=[1], allowzero=1)
    check("Flatten", floats(2, 3, 4))
    check("Flatten", floats(2, 3, 4), axis=0)
    check("Flatten", floats(2, 3, 4), axis=-1)
    check("Squeeze", floats(1, 3, 1), ints(0), weights=[1])
    check("Squeeze", floats(1, 3, 1))
    check("Squeeze", floats(1, 3, 1), opset=11, axes=[2])
    check("Unsqueeze", floats(3, 4), ints(-1, 0), weights=[1])
    check("Unsqueeze", floats(3, 4), opset=11, axes=[0, 3])
    check("Expand", floats(3, 1), ints(2, 1, 4), weights=[1])
    check("Tile", floats(3, 2), ints(2, 3), weights=[1])


def test_moves() -> None:
    check("Transpose", floats(2, 3, 4))
    check("Transpose", floats(2, 3, 4), perm=[1, 2, 0])
    check("Concat", floats(2, 3), floats(2, 1), axis=-1)
    check("DepthToSpace", floats(1, 8, 2, 3), blocksize=2)
    check("DepthToSpace", floats(1, 8, 2, 3), blocksize=2, mode="CRD")
    check("SpaceToDepth", floats(1, 2, 4, 6), blocksize=2)
    check("Trilu", floats(3, 4))
    check("Trilu", floats(3, 4), np.int64(-1), weights=[1], upper=0)
    check("ReverseSequence", floats(4, 3), ints(1, 4, 2), time_axis=0, batch_axis=1)
    check("CenterCropPad", floats(5, 4), ints(2, 7), weights=[1], opset=18)


def test_split() -> None:
    check("Split", floats(6, 2), outputs=3)
    check("Split", floats(2, 6), ints(1, 5), weights=[1], outputs=2, axis=1)
    check("Split", floats(2, 6), opset=11, outputs=2, axis=1, split=[2, 4])
    check("Split", floats(7), opset=18, outputs=3, num_outputs=3)


def test_slice() -> None:
    data = floats(5, 6)
    check("Slice", data, opset=9, starts=[1, 0], ends=[3, -1])
    check("Slice", data, ints(1), ints(1000), ints(1), weights=[1, 2, 3])
    check("Slice", data, ints(-1, 5), ints(-1000, 0), ints(0, 1), ints(-1, -2),
          weights=[1, 2, 3, 4])
    check("Slice", data, ints(3), ints(0), ints(-1), ints(-1), weights=[1, 2, 3, 4])
    check("Slice", data, ints(100), ints(-3), ints(-1), ints(-1), weights=[1, 2, 3, 4])
    for begin, end in ((-9, -100), (-9, -4), (-100, -100), (100, -100), (-1, -100)):
        for weights in ([1, 2, 3, 4], [3, 4]):
            check("Slice", data, ints(begin), ints(end), ints(0), ints(-2), weights=weights)
    for begin, end, stride in ((0, 5, 2**63 - 1), (4, -9, -(2**63)), (1, 5, 5), (4, 0, -4)):
        check("Slice", data, ints(begin), ints(end), ints(-2), ints(stride), weights=[1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode: str) -> None:
    check("Pad", floats(3, 4), ints(1, 0, 2, 3), weights=[1], mode=mode)
    check("Pad", floats(3, 4), opset=10, pads=[0, 1, 0, 2], mode=mode)


def test_pad_by_a_value_along_axes_and_backwards() -> None:
    check("Pad", floats(3, 4), ints(1, 2), np.float32(5), ints(1), weights=[1, 2, 3], opset=18)
    check("Pad", floats(3, 4), ints(-1, 0, 1, -2), weights=[1])
    check("Pad", floats(3, 4), ints(1, 2, 1, 2), weights=[1], opset=19, mode="wrap")


def test_picks() -> None:
    data = floats(4, 5)
    check("Gather", data, ints(-1, 2), weights=[1])
    check("Gather", data, np.array([[0, -2], [1, 1]]), axis=1)
    check("GatherElements", data, np.array([[0, -1], [2, 1]]), axis=1)
    check("GatherND", data, np.array([[0, 1], [-1, 2], [3, 4]]))
    check("GatherND", floats(2, 3, 4), np.array([[1], [0]]), batch_dims=1)
    check("ScatterElements", data, np.array([[0, -1], [2, 1]]), floats(2, 2), axis=1)
    check("ScatterElements", data, np.array([[0, 0]]), floats(1, 2), axis=1, opset=18,
          reduction="add")
    check("ScatterND", data, np.array([[0], [2]]), floats(2, 5))
    check("ScatterND", data, np.array([[0, 1], [3, 2]]), floats(2), opset=18, reduction="max")
    check("OneHot", ints(0, 2, -1), np.int64(4), np.array([0, 3], "float32"), weights=[1])
    check("OneHot", ints(0, 2), np.int64(4), np.array([0, 3], "float32"), weights=[1], axis=0)
    check("Compress", data, np.array([True, False, True]), weights=[1], axis=1)


def test_order() -> None:
    data = floats(4, 5)
    check("TopK", data, ints(3), weights=[1], outputs=2)
    check("TopK", data, ints(2), weights=[1], outputs=2, axis=0, largest=0)
    check("TopK", data, ints(0), weights=[1], outputs=2)
    check("ArgMax", data, axis=1)
    check("ArgMin", data, keepdims=0)
    check("ArgMax", RNG.integers(0, 2, (3, 4)).astype("float32"), axis=1, select_last_index=1)
    check("CumSum", data, np.int64(1), weights=[1])
    check("CumSum", data, np.int64(0), weights=[1], exclusive=1, reverse=1)
    check("NonZero", np.array([[1, 0], [2, 3]]), weights=[0])
    check("Range", np.int64(1), np.int64(9), np.int64(3), weights=[0, 1, 2])
    check("Range", np.int64(2**60 + 3), np.int64(2**60), np.int64(-2), weights=[0, 1, 2],
          reference=run_evaluator)  # ONNX Runtime counts by floats
    check("ConstantOfShape", ints(2, 3), weights=[0])
    check("EyeLike", floats(3, 4), k=1)


@pytest.mark.parametrize("kind", [
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
])
def test_reductions(kind: str) -> None:
    data = np.abs(floats(2, 3, 4))
    check(kind, data, opset=11, axes=[-1], keepdims=0)
    check(kind, data, opset=11)
    check(kind, data, ints(0, 2), weights=[1], opset=18)
    check(kind, data, opset=18, keepdims=0)
