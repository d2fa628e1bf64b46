"""Operators of floats and of plain numbers compute what LiteRT computes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from sterna.relay.arrays import Array
from tests.frontend.tflite_models import T, constant, one_operator, run_imported, run_litert

_RNG = np.random.default_rng(0)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return _RNG.uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -5, high: int = 9, dtype: str = "int32") -> Array:
    return _RNG.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> Array:
    return _RNG.integers(0, 2, shape).astype(bool)


def axes(*numbers: int) -> T:
    return constant(np.array(numbers, "int32"))


Options = tuple[str, Mapping[str, Any]] | None
# operator, operands (arrays are inputs), shapes and types of the results, options
Case = tuple[str, Sequence[Any], Sequence[tuple[Sequence[int], str]], Options]

X = floats(2, 3, 4)
IMAGE = floats(1, 7, 8, 4)
F = "float32"


def _unary(kind: str, x: Array = X, options: Options = None) -> Case:
    return kind, [x], [(x.shape, str(x.dtype))], options


def _binary(kind: str, a: Array, b: Array, dtype: str = "", options: Options = None) -> Case:
    return kind, [a, b], [(np.broadcast_shapes(a.shape, b.shape), dtype or str(a.dtype))], options


def _window(kind: str, out: Sequence[int], **more: Any) -> Case:
    given = {"strideW": 2, "strideH": 1, "filterWidth": 3, "filterHeight": 2, **more}
    return kind, [IMAGE], [(out, F)], ("Pool2DOptions", given)


def _suppression(form: int, most: int) -> Case:
    """Boxes whose corners come in either order; of equal scores LiteRT takes any first."""
    rng = np.random.default_rng(most)
    low = rng.integers(0, 6, (20, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 6, (20, 2))], 1).astype(F)
    boxes[::2] = boxes[::2, [2, 3, 0, 1]]
    limits = [constant(np.array(n, F)) for n in (0.25, 0.3, 0.0)][: form - 2]
    results = [((most,), "int32"), *[((most,), F)] * (form - 4), ((), "int32")]
    scores = (rng.permutation(20) / 20).astype(F)
    return (f"NON_MAX_SUPPRESSION_V{form}",
            [boxes, scores, constant(np.array(most, "int32")), *limits], results, None)


POSITIVE = floats(2, 3, low=0.1)
CASES: list[Case] = [
    *(_unary(kind) for kind in (
        "ABS", "CEIL", "COS", "EXP", "FLOOR", "NEG", "ROUND", "SIN", "TANH", "LOGISTIC", "SQUARE",
        "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "HARD_SWISH", "SIGN",
    )),
    *(_unary(kind, POSITIVE) for kind in ("LOG", "SQRT", "RSQRT")),
    _unary("GELU", X, ("GeluOptions", {"approximate": False})),
    _unary("GELU", X, ("GeluOptions", {"approximate": True})),
    _unary("LEAKY_RELU", X, ("LeakyReluOptions", {"alpha": 0.3})),
    _unary("LOGICAL_NOT", bools(2, 3)),
    _unary("SOFTMAX", X, ("SoftmaxOptions", {"beta": 1.0})),
    _unary("SOFTMAX", X, ("SoftmaxOptions", {"beta": 0.5})),
    _unary("LOG_SOFTMAX", X, ("LogSoftmaxOptions", {})),
    _unary("L2_NORMALIZATION", X, ("L2NormOptions", {})),
    _unary("LOCAL_RESPONSE_NORMALIZATION", IMAGE, (
        "LocalResponseNormalizationOptions", {"radius": 1, "bias": 1.5, "alpha": 0.4, "beta": 0.7},
    )),
    *(_binary(kind, X, floats(3, 1), options=(name, {"fusedActivationFunction": act}))
      for kind, name, act in (
          ("ADD", "AddOptions", 0), ("ADD", "AddOptions", 1), ("SUB", "SubOptions", 3),
          ("MUL", "MulOptions", 2), ("DIV", "DivOptions", 0))),
    _binary("ADD", ints(2, 3), ints(3), options=("AddOptions", {})),
    _binary("DIV", ints(2, 3), ints(2, 3, low=1), options=("DivOptions", {})),
    _binary("FLOOR_DIV", ints(2, 3), ints(2, 3, low=1), options=("FloorDivOptions", {})),
    _binary("FLOOR_MOD", ints(2, 3), ints(2, 3, low=1), options=("FloorModOptions", {})),
    _binary("FLOOR_MOD", X, floats(2, 3, 4, low=0.5), options=("FloorModOptions", {})),
    _binary("MAXIMUM", X, floats(4), options=("MaximumMinimumOptions", {})),
    _binary("MINIMUM", X, floats(4), options=("MaximumMinimumOptions", {})),
    _binary("POW", POSITIVE, floats(2, 3), options=("PowOptions", {})),
    _binary("SQUARED_DIFFERENCE", X, floats(4), options=("SquaredDifferenceOptions", {})),
    _binary("ATAN2", floats(3, 4), floats(3, 4), options=("ATan2Options", {})),
    _binary("LOGICAL_OR", bools(4), bools(4)), _binary("LOGICAL_AND", bools(4), bools(4)),
    _binary("BITWISE_XOR", ints(4), ints(4), options=("BitwiseXorOptions", {})),
    _binary("RIGHT_SHIFT", ints(4), ints(4, low=0, high=3), options=("RightShiftOptions", {})),
    *(_binary(kind, ints(4, high=0), ints(3, 1, high=0), "bool", (name, {})) for kind, name in (
        ("LESS", "LessOptions"), ("GREATER", "GreaterOptions"),
        ("GREATER_EQUAL", "GreaterEqualOptions"), ("LESS_EQUAL", "LessEqualOptions"),
        ("EQUAL", "EqualOptions"), ("NOT_EQUAL", "NotEqualOptions"))),
    ("ADD_N", [X, X, floats(2, 3, 4)], [((2, 3, 4), F)], ("AddNOptions", {})),
    ("PRELU", [IMAGE, constant(floats(1, 1, 4))], [(IMAGE.shape, F)], None),
    ("SELECT", [bools(2), X[:, 0], floats(2, 4)], [((2, 4), F)], ("SelectOptions", {})),
    ("SELECT_V2", [bools(3, 1), X, floats(4)], [((2, 3, 4), F)], ("SelectV2Options", {})),
    # shapes
    ("RESHAPE", [X, axes(4, -1)], [((4, 6), F)], ("ReshapeOptions", {"newShape": [4, -1]})),
    ("SQUEEZE", [floats(1, 3, 1)], [((3, 1), F)], ("SqueezeOptions", {"squeezeDims": [0]})),
    ("EXPAND_DIMS", [X, axes(-2)], [((2, 3, 1, 4), F)], ("ExpandDimsOptions", {})),
    ("TRANSPOSE", [X, axes(2, 0, 1)], [((4, 2, 3), F)], ("TransposeOptions", {})),
    ("CONCATENATION", [X, floats(2, 1, 4)], [((2, 4, 4), F)],
     ("ConcatenationOptions", {"axis": -2})),
    ("PACK", [X, X], [((2, 3, 2, 4), F)], ("PackOptions", {"axis": 2, "valuesCount": 2})),
    ("UNPACK", [X], [((2, 4), F)] * 3, ("UnpackOptions", {"axis": 1, "num": 3})),
    ("SPLIT", [axes(2), X], [((2, 3, 2), F)] * 2, ("SplitOptions", {"numSplits": 2})),
    ("SPLIT_V", [X, axes(1, -1), axes(1)], [((2, 1, 4), F), ((2, 2, 4), F)],
     ("SplitVOptions", {"numSplits": 2})),
    ("SLICE", [X, axes(0, 1, 1), axes(2, -1, 2)], [((2, 2, 2), F)], ("SliceOptions", {})),
    ("STRIDED_SLICE", [X, axes(0, -1, 3), axes(2, -4, 0), axes(1, -1, -2)],
     [((2, 3, 2), F)], ("StridedSliceOptions", {"endMask": 2})),
    ("STRIDED_SLICE", [X, axes(0, 1), axes(0, 3), axes(1, 1)], [((2, 4), F)],
     ("StridedSliceOptions", {"shrinkAxisMask": 1})),
    ("STRIDED_SLICE", [X, axes(0, 0, 1), axes(0, 0, 3), axes(1, 1, 1)], [((1, 2, 3, 2), F)],
     ("StridedSliceOptions", {"newAxisMask": 1, "ellipsisMask": 2})),
    ("PAD", [X, constant(np.array([[0, 1], [2, 0], [1, 1]], "int32"))], [((3, 5, 6), F)],
     ("PadOptions", {})),
    ("PADV2", [X, constant(np.array([[0, 1], [2, 0], [1, 1]], "int32")), constant(np.float32(7))],
     [((3, 5, 6), F)], ("PadV2Options", {})),
    ("MIRROR_PAD", [X, constant(np.array([[0, 0], [1, 2], [2, 0]], "int32"))], [((2, 6, 6), F)],
     ("MirrorPadOptions", {"mode": 0})),
    ("MIRROR_PAD", [X, constant(np.array([[0, 0], [1, 2], [2, 0]], "int32"))], [((2, 6, 6), F)],
     ("MirrorPadOptions", {"mode": 1})),
    ("SPACE_TO_BATCH_ND", [floats(1, 3, 4, 2), axes(2, 2),
                           constant(np.array([[0, 1], [2, 0]], "int32"))],
     [((4, 2, 3, 2), F)], ("SpaceToBatchNDOptions", {})),
    ("BATCH_TO_SPACE_ND", [floats(4, 2, 3, 2), axes(2, 2),
                           constant(np.array([[0, 1], [1, 0]], "int32"))],
     [((1, 3, 5, 2), F)], ("BatchToSpaceNDOptions", {})),
    ("DEPTH_TO_SPACE", [floats(1, 2, 3, 8)], [((1, 4, 6, 2), F)],
     ("DepthToSpaceOptions", {"blockSize": 2})),
    ("SPACE_TO_DEPTH", [floats(1, 4, 6, 2)], [((1, 2, 3, 8), F)],
     ("SpaceToDepthOptions", {"blockSize": 2})),
    ("TILE", [X, axes(1, 2, 1)], [((2, 6, 4), F)], ("TileOptions", {})),
    ("BROADCAST_TO", [floats(3, 1), axes(2, 3, 4)], [((2, 3, 4), F)], ("BroadcastToOptions", {})),
    ("REVERSE_V2", [X, axes(1)], [((2, 3, 4), F)], ("ReverseV2Options", {})),
    ("REVERSE_SEQUENCE", [X, axes(2, 3)], [((2, 3, 4), F)],
     ("ReverseSequenceOptions", {"seqDim": 1, "batchDim": 0})),
    ("SHAPE", [X], [((3,), "int32")], ("ShapeOptions", {"outType": 2})),
    ("RANK", [X], [((), "int32")], ("RankOptions", {})),
    ("FILL", [axes(2, 3), floats()], [((2, 3), F)], ("FillOptions", {})),
    ("ZEROS_LIKE", [X], [((2, 3, 4), F)], ("ZerosLikeOptions", {})),
    ("RANGE", [constant(np.int32(1)), constant(np.int32(9)), constant(np.int32(3))],
     [((3,), "int32")], ("RangeOptions", {})),
    ("CAST", [X], [((2, 3, 4), "int32")], ("CastOptions", {"inDataType": 0, "outDataType": 2})),
    ("CAST", [ints(2, 3)], [((2, 3), "bool")],
     ("CastOptions", {"inDataType": 2, "outDataType": 6})),
    # reductions
    *((kind, [X, axes(0, 2)], [((3,), F)], ("ReducerOptions", {})) for kind in (
        "SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")),
    ("MEAN", [X, axes(-1)], [((2, 3, 1), F)], ("ReducerOptions", {"keepDims": True})),
    ("REDUCE_ANY", [bools(2, 3), axes(1)], [((2,), "bool")], ("ReducerOptions", {})),
    ("REDUCE_ALL", [bools(2, 3), axes(1)], [((2,), "bool")], ("ReducerOptions", {})),
    ("ARG_MAX", [X, axes(1)], [((2, 4), "int64")], ("ArgMaxOptions", {"outputType": 4})),
    ("ARG_MIN", [X, axes(2)], [((2, 3), "int32")], ("ArgMinOptions", {"outputType": 2})),
    ("TOPK_V2", [X, constant(np.int32(2))], [((2, 3, 2), F), ((2, 3, 2), "int32")],
     ("TopKV2Options", {})),
    ("CUMSUM", [X, axes(1)], [((2, 3, 4), F)], ("CumsumOptions", {"exclusive": True})),
    ("CUMSUM", [X, axes(1)], [((2, 3, 4), F)], ("CumsumOptions", {"reverse": True})),
    # indices
    ("GATHER", [X, constant(np.array([[2, 0]], "int32"))], [((2, 1, 2, 4), F)],
     ("GatherOptions", {"axis": 1})),
    ("GATHER_ND", [X, constant(np.array([[[1, 2], [0, 0]]], "int32"))], [((1, 2, 4), F)],
     ("GatherNdOptions", {})),
    ("EMBEDDING_LOOKUP", [axes(2, 0), constant(floats(3, 4))], [((2, 4), F)], None),
    ("SCATTER_ND", [constant(np.array([[1], [3], [1]], "int32")), floats(3, 2), axes(4, 2)],
     [((4, 2), F)], ("ScatterNdOptions", {})),
    ("ONE_HOT", [axes(1, 2, 0), constant(np.int32(4)), constant(np.float32(3)),
                 constant(np.float32(-1))], [((3, 4), F)], ("OneHotOptions", {"axis": -1})),
    ("MATRIX_DIAG", [floats(2, 3)], [((2, 3, 3), F)], ("MatrixDiagOptions", {})),
    ("MATRIX_SET_DIAG", [floats(2, 3, 3), floats(2, 3)], [((2, 3, 3), F)],
     ("MatrixSetDiagOptions", {})),
    ("SEGMENT_SUM", [floats(4, 2), axes(0, 0, 1, 2)], [((3, 2), F)], ("SegmentSumOptions", {})),
    *((f"UNSORTED_SEGMENT_{kind.upper()}", [floats(4, 2), axes(2, 0, 2, 0), constant(np.int32(3))],
       [((3, 2), F)], (f"UnsortedSegment{kind}Options", {}))
      for kind in ("Sum", "Prod", "Max", "Min")),
    ("DYNAMIC_UPDATE_SLICE", [X, floats(1, 2, 2), axes(1, 2, 1)], [((2, 3, 4), F)],
     ("DynamicUpdateSliceOptions", {})),
    ("BUCKETIZE", [X], [((2, 3, 4), "int32")], ("BucketizeOptions", {"boundaries": [-1.0, 0.5]})),
    # layers
    ("CONV_2D", [IMAGE, constant(floats(5, 3, 2, 4)), constant(floats(5))], [((1, 7, 4, 5), F)],
     ("Conv2DOptions", {"strideW": 2, "strideH": 1, "padding": 0, "dilationHFactor": 2})),
    ("CONV_2D", [IMAGE, constant(floats(6, 3, 3, 2)), constant(floats(6))], [((1, 5, 6, 6), F)],
     ("Conv2DOptions", {"strideW": 1, "strideH": 1, "padding": 1, "fusedActivationFunction": 1})),
    ("DEPTHWISE_CONV_2D", [IMAGE, constant(floats(1, 3, 3, 8)), constant(floats(8))],
     [((1, 4, 4, 8), F)], ("DepthwiseConv2DOptions",
                           {"strideW": 2, "strideH": 2, "depthMultiplier": 2, "padding": 0})),
    ("TRANSPOSE_CONV", [axes(1, 14, 16, 3), constant(floats(3, 3, 3, 4)), IMAGE],
     [((1, 14, 16, 3), F)], ("TransposeConvOptions", {"strideW": 2, "strideH": 2, "padding": 0})),
    ("TRANSPOSE_CONV", [axes(1, 15, 17, 3), constant(floats(3, 3, 3, 4)), IMAGE],
     [((1, 15, 17, 3), F)], ("TransposeConvOptions", {"strideW": 2, "strideH": 2, "padding": 1})),
    ("CONV_3D", [floats(1, 4, 5, 6, 2), constant(floats(2, 3, 3, 2, 3)), constant(floats(3))],
     [((1, 2, 5, 6, 3), F)],
     ("Conv3DOptions", {"strideD": 2, "strideH": 1, "strideW": 1, "padding": 0})),
    ("FULLY_CONNECTED", [floats(3, 4), constant(floats(5, 4)), constant(floats(5))], [((3, 5), F)],
     ("FullyConnectedOptions", {"fusedActivationFunction": 1})),
    ("FULLY_CONNECTED", [floats(2, 3, 4), constant(floats(5, 4)), None], [((2, 3, 5), F)],
     ("FullyConnectedOptions", {"keepNumDims": True})),
    ("BATCH_MATMUL", [floats(2, 1, 3, 4), floats(5, 4, 2)], [((2, 5, 3, 2), F)],
     ("BatchMatMulOptions", {})),
    ("BATCH_MATMUL", [floats(2, 4, 3), floats(2, 5, 4)], [((2, 3, 5), F)],
     ("BatchMatMulOptions", {"adjX": True, "adjY": True})),
    _window("MAX_POOL_2D", (1, 7, 4, 4), padding=0),
    _window("AVERAGE_POOL_2D", (1, 7, 4, 4), padding=0, fusedActivationFunction=1),
    _window("AVERAGE_POOL_2D", (1, 6, 3, 4), padding=1),
    _window("L2_POOL_2D", (1, 6, 3, 4), padding=1),
    *(("RESIZE_BILINEAR", [IMAGE, axes(11, 5)], [((1, 11, 5, 4), F)], ("ResizeBilinearOptions", o))
      for o in ({}, {"alignCorners": True}, {"halfPixelCenters": True})),
    *(("RESIZE_NEAREST_NEIGHBOR", [IMAGE, axes(11, 5)], [((1, 11, 5, 4), F)],
       ("ResizeNearestNeighborOptions", o))
      for o in ({}, {"alignCorners": True}, {"halfPixelCenters": True})),
    *(_binary(f"STABLEHLO_{kind}", floats(3, 4), floats(3, 4))
      for kind in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")),
    *(("CONV_3D_TRANSPOSE",
       [axes(1, *out, 3), constant(floats(2, 3, 3, 3, 2)), floats(1, 3, 4, 5, 2), *bias],
       [((1, *out, 3), F)],
       ("Conv3DOptions", {"strideD": 2, "strideH": 2, "strideW": 2, "padding": padding}))
      for out, padding, bias in (((6, 8, 10), 0, [constant(floats(3))]), ((6, 9, 11), 1, []))),
    _suppression(4, 5), _suppression(5, 5), _suppression(5, 30),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}_{case[0]}" for i, case in enumerate(CASES)])
def test_an_operator_computes_what_litert_does(case: Case) -> None:
    kind, operands, results, options = case
    arrays = [one for one in operands if isinstance(one, np.ndarray)]
    tensors = [
        T(one.shape, str(one.dtype)) if isinstance(one, np.ndarray) else one for one in operands
    ]
    data = one_operator(kind, tensors, [T(shape, dtype) for shape, dtype in results], options)
    wanted = run_litert(data, *arrays)
    for mine, theirs in zip(run_imported(data, *arrays), wanted, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["SOFTMAX", "GELU", "FULLY_CONNECTED", "AVERAGE_POOL_2D"])
def test_floats_of_16_bits(kind: str) -> None:
    """LiteRT rounds each step to float16, the importer the result alone."""
    x = floats(1, 4, 6, 5).astype("float16")
    more: list[T] = []
    out: Sequence[int] = x.shape
    options: Options = None
    if kind == "SOFTMAX":
        options = ("SoftmaxOptions", {"beta": 1.0})
    elif kind == "AVERAGE_POOL_2D":
        options = ("Pool2DOptions", {
            "strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2, "padding": 0})
    elif kind == "FULLY_CONNECTED":
        options, out = ("FullyConnectedOptions", {}), (24, 3)
        more = [constant(floats(3, 5).astype("float16")), constant(floats(3).astype("float16"))]
    data = one_operator(kind, [T(x.shape, "float16"), *more], [T(out, "float16")], options)
    (mine,), (theirs,) = run_imported(data, x), run_litert(data, x)
    assert mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=1e-2)


def test_whole_numbers_that_need_no_scale() -> None:
    x = ints(1, 7, 8, 4, low=-128, high=128, dtype="int8")
    for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        data = one_operator(kind, [T(x.shape, "int8")], [T((1, 6, 7, 4), "int8")], (
            "Pool2DOptions", {"strideW": 1, "strideH": 1, "filterWidth": 2, "filterHeight": 2,
                              "padding": 1}))
        np.testing.assert_array_equal(run_imported(data, x)[0], run_litert(data, x)[0])
    truths = bools(3)
    data = one_operator("SCATTER_ND", [
        constant(np.array([[1], [3], [1]], "int32")), T((3,), "bool"), axes(5),
    ], [T((5,), "bool")], ("ScatterNdOptions", {}))
    np.testing.assert_array_equal(run_imported(data, truths)[0], run_litert(data, truths)[0])


def test_boxes_of_detectors() -> None:
    """What lies behind the last box LiteRT leaves as it was in memory."""
    count, most = 60, 10
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, whole in (("max_detections", most), ("max_classes_per_detection", 1),
                            ("num_classes", 5)):
            builder.Int(name, whole)
        for name, number in (("nms_score_threshold", 0.9), ("nms_iou_threshold", 0.5),
                             ("y_scale", 10.0), ("x_scale", 10.0), ("h_scale", 5.0),
                             ("w_scale", 5.0)):
            builder.Float(name, number)
        builder.Bool("use_regular_nms", False)
    anchors = np.concatenate([floats(count, 2, low=0), floats(count, 2, low=0.1, high=0.5)], 1)
    boxes, scores = floats(1, count, 4), floats(1, count, 6, low=0, high=1)
    data = one_operator(
        "TFLite_Detection_PostProcess", [T(boxes.shape), T(scores.shape), constant(anchors)],
        [T((1, most, 4)), T((1, most)), T((1, most)), T((1,))],
        custom_options=bytes(builder.Finish()),
    )
    mine, theirs = run_imported(data, boxes, scores), run_litert(data, boxes, scores)
    found = int(theirs[3][0])
    assert found == int(mine[3][0]) > 1
    for own, wanted in zip(mine[:3], theirs[:3], strict=True):
        np.testing.assert_allclose(own[:, :found], wanted[:, :found], rtol=1e-5, atol=1e-6)
