"""What networks seldom hold: other types and ranks, odd axes, and operators beside the usual."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from layer_list.elements import shape_name
from layer_list.layer import Graph, Layer, Make, layers_of
from onnx import TensorProto

from sterna.relay.arrays import Array

LAYERS: list[Layer] = []
_shape: tuple[int, ...]
_order: tuple[int, ...]
_shapes: tuple[tuple[int, ...], ...]


def _add(kind: str, name: str, make: Make) -> None:
    LAYERS.extend(layers_of(kind, name, make))


def numbers(graph: Graph, shape: Sequence[int], dtype: str) -> Array:
    """Small ones, none of them zero, so that each may be a divisor."""
    if dtype == "bool":
        return graph.rng.random(shape) < 0.5
    if np.issubdtype(np.dtype(dtype), np.floating):
        return (graph.rng.random(shape) + 0.25).astype(dtype)
    return graph.rng.integers(1, 7, shape).astype(dtype)


def of(op: str, *inputs: tuple[Sequence[int], str], **attributes: Any) -> Make:
    """An operator on inputs of these shapes and types."""
    return lambda graph: graph.node(
        op, *[graph.feed(numbers(graph, *each)) for each in inputs], **attributes
    )


def along_axes(op: str, shape: Sequence[int], axes: Sequence[int], dtype: str = "float32") -> Make:
    """A reduction whose axes are an input."""
    return lambda graph: graph.node(
        op, graph.feed(numbers(graph, shape, dtype)), graph.constant(axes, "int64"), keepdims=0
    )


# ---- types ----

PLANE = (1, 64, 56, 56)
for _op, _dtype in (
    ("Add", "int32"), ("Add", "int64"), ("Add", "uint8"), ("Add", "float16"), ("Add", "float64"),
    ("Mul", "int64"), ("Mul", "int8"), ("Mul", "float16"), ("Div", "int32"), ("Div", "int64"),
    ("Div", "float16"), ("Mod", "int32"), ("Mod", "int64"), ("Pow", "float32"), ("Max", "int64"),
    ("Min", "uint8"), ("Less", "float32"), ("Greater", "int64"), ("Equal", "int64"),
    ("Equal", "int32"), ("And", "bool"), ("Xor", "bool"), ("BitwiseAnd", "int32"),
    ("BitShift", "uint32"),
):
    _extra: dict[str, Any] = {"direction": "LEFT"} if _op == "BitShift" else {}
    _add("types", f"{_op}_{_dtype}", of(_op, (PLANE, _dtype), (PLANE, _dtype), **_extra))
for _op, _dtype in (
    ("Relu", "float16"), ("Relu", "float64"), ("Sigmoid", "float16"), ("Exp", "float64"),
    ("Abs", "int64"), ("Neg", "int32"), ("Not", "bool"), ("Sqrt", "float16"), ("Tanh", "float64"),
    ("Sign", "int64"), ("IsNaN", "float32"), ("Softmax", "float16"),
):
    _add("types", f"{_op}_{_dtype}", of(_op, (PLANE, _dtype)))
for _from, _to in (
    ("float32", "uint8"), ("uint8", "float32"), ("int64", "int32"), ("int32", "float32"),
    ("int64", "float32"), ("float32", "bool"), ("bool", "float32"), ("float16", "float32"),
    ("bool", "int64"), ("float64", "float32"), ("float32", "int8"),
):
    _add("types", f"Cast_{_from}_{_to}",
         of("Cast", (PLANE, _from), to=getattr(TensorProto, {
             "float32": "FLOAT", "float16": "FLOAT16", "float64": "DOUBLE",
         }.get(_to, _to.upper()))))
for _dtype in ("int64", "uint8", "float16"):
    _add("types", f"Where_{_dtype}", of("Where", (PLANE, "bool"), (PLANE, _dtype), (PLANE, _dtype)))
    _add("types", f"Transpose_{_dtype}", of("Transpose", (PLANE, _dtype), perm=(0, 2, 3, 1)))
    _add("types", f"Concat_{_dtype}", of("Concat", (PLANE, _dtype), (PLANE, _dtype), axis=1))
for _dtype in ("int32", "float64", "float16"):
    _add("types", f"MatMul_{_dtype}", of("MatMul", ((128, 256), _dtype), ((256, 128), _dtype)))
_add("types", "Where_rows",
     of("Where", ((64, 1), "bool"), ((64, 3136), "float32"), ((), "float32")))
_add("types", "MaxPool_uint8", of("MaxPool", (PLANE, "uint8"), kernel_shape=(3, 3), strides=(2, 2),
                                  pads=(1, 1, 1, 1)))

# ---- reductions along any axes ----

for _op, _shape, _axes in (
    ("ReduceSum", (64, 56, 56), (0,)), ("ReduceMean", (370, 64, 20), (0,)),
    ("ReduceMax", (256, 4096), (0,)), ("ReduceSum", (8, 64, 28, 28), (0, 2, 3)),
    ("ReduceMean", (16, 32, 5, 7, 11), (1, 3)), ("ReduceMax", (100, 3, 1000), (1,)),
    ("ReduceSum", (1000000,), (0,)), ("ReduceSum", (100000, 3), (1,)),
    ("ReduceSum", (100000, 3), (0,)), ("ReduceProd", (1000, 1000), (1,)),
    ("ReduceLogSumExp", (1000, 100), (1,)), ("ReduceL1", (64, 56, 56), (1,)),
    ("ReduceLogSumExp", (100, 1000), (0,)),
):
    _add("reduction", f"{_op}_{shape_name(_shape)}_of{shape_name(_axes)}",
         along_axes(_op, _shape, _axes))
for _op, _dtype in (
    ("ReduceSum", "int64"), ("ReduceMax", "int32"), ("ReduceMin", "uint8"), ("ReduceMean", "int32"),
    ("ReduceSum", "float16"), ("ReduceSum", "float64"),
):
    _add("reduction", f"{_op}_{_dtype}", along_axes(_op, (64, 56, 56), (2,), _dtype))
    _add("reduction", f"{_op}_{_dtype}_first", along_axes(_op, (64, 56, 56), (0,), _dtype))
for _op, _shape, _axis in (
    ("ArgMax", (1, 19, 128, 256), 1), ("ArgMax", (1000, 1000), 1), ("ArgMin", (1000, 1000), 0),
    ("ArgMax", (1, 100000), 1), ("ArgMax", (10000, 7), 1),
):
    _add("reduction", f"{_op}_{shape_name(_shape)}_axis{_axis}",
         of(_op, (_shape, "float32"), axis=_axis))
_add("reduction", "ArgMax_int64", of("ArgMax", ((1000, 1000), "int64"), axis=1))


def cumulative(shape: Sequence[int], axis: int, dtype: str, **attributes: Any) -> Make:
    """Running sums of a type."""
    return lambda graph: graph.node(
        "CumSum", graph.feed(numbers(graph, shape, dtype)), graph.constant(axis, "int64"),
        **attributes
    )


_add("scan", "CumSum_int64_512x512", cumulative((512, 512), 1, "int64"))
_add("scan", "CumSum_reverse_32x64x128", cumulative((32, 64, 128), 1, "float32", reverse=1))
_add("scan", "CumSum_exclusive_1000x100", cumulative((1000, 100), 1, "float32", exclusive=1))
_add("scan", "CumProd_like_LogCumSum_1000x100", lambda graph: graph.node(
    "Exp", graph.node("CumSum", graph.node("Log", graph.feed(numbers(graph, (1000, 100),
                                                                      "float32"))),
                      graph.constant(1, "int64"))))

# ---- softmax, norms and pooling along odd axes ----

for _shape, _axis in (((64, 56, 56), 0), ((8, 21, 64, 64), 1), ((100000, 2), 1), ((1, 5, 99999), 1),
                      ((1, 100000), 1), ((3, 7, 11, 13, 17), 2)):
    _add("softmax", f"Softmax_{shape_name(_shape)}_of{_axis}",
         of("Softmax", (_shape, "float32"), axis=_axis))
_add("softmax", "LogSoftmax_64x100x50_of1", of("LogSoftmax", ((64, 100, 50), "float32"), axis=1))


def layer_norm(shape: Sequence[int], axis: int) -> Make:
    """Over all axes from one on."""
    return lambda graph: graph.node(
        "LayerNormalization", graph.data(*shape), graph.weights(*shape[axis:]),
        graph.weights(*shape[axis:]), axis=axis
    )


_add("norm", "layer_8x16x32x32_from1", layer_norm((8, 16, 32, 32), 1))
_add("norm", "layer_197x769", layer_norm((197, 769), 1))
_add("norm", "layer_50000x8", layer_norm((50000, 8), 1))


def instance_norm(shape: Sequence[int]) -> Make:
    """Of any rank."""
    return lambda graph: graph.node("InstanceNormalization", graph.data(*shape),
                                    graph.weights(shape[1]), graph.weights(shape[1]), epsilon=1e-5)


_add("norm", "instance_2x64x3000", instance_norm((2, 64, 3000)))
_add("norm", "instance_1x32x16x32x32", instance_norm((1, 32, 16, 32, 32)))
_add("norm", "lrn_1x96x27x27_of3", lambda graph: graph.node("LRN", graph.data(1, 96, 27, 27),
                                                            size=3))
_add("norm", "lp_64x1000", of("LpNormalization", ((64, 1000), "float32"), axis=1, p=1))
for _op, _shape, _window, _stride in (
    ("MaxPool", (1, 32, 16, 28, 28), (2, 2, 2), (2, 2, 2)), ("MaxPool", (1, 64, 4000), (4,), (4,)),
    ("AveragePool", (1, 64, 4000), (5,), (1,)), ("AveragePool", (1, 32, 8, 28, 28), (2, 7, 7),
                                                  (1, 1, 1)),
    ("LpPool", PLANE, (3, 3), (2, 2)), ("MaxPool", (1, 3, 224, 224), (7, 7), (7, 7)),
):
    _add("pool", f"{_op}_{shape_name(_shape)}_by{shape_name(_window)}_s{_stride[0]}",
         of(_op, (_shape, "float32"), kernel_shape=_window, strides=_stride))
_add("pool", "MaxPool_indices_1x64x56x56", lambda graph: graph.nodes_with(
    2, "MaxPool", graph.data(*PLANE), kernel_shape=(2, 2), strides=(2, 2)))

# ---- data movement ----


def with_constants(op: str, shape: Sequence[int], *lists: Sequence[int], dtype: str = "float32",
                   **attributes: Any) -> Make:
    """An operator on an input and lists of integers that are constants."""
    return lambda graph: graph.node(
        op, graph.feed(numbers(graph, shape, dtype)),
        *[graph.constant(each, "int64") for each in lists], **attributes
    )


for _name, _make in (
    ("Slice_reverse_64x3136", with_constants("Slice", (64, 3136), [-1], [-99999], [1], [-1])),
    ("Slice_reverse_rows_3136x64", with_constants("Slice", (3136, 64), [-1], [-99999], [0], [-1])),
    ("Slice_step3_64x3136", with_constants("Slice", (64, 3136), [1], [3136], [1], [3])),
    ("Slice_step2_both_64x112x112",
     with_constants("Slice", (64, 112, 112), [0, 1], [112, 112], [1, 2], [2, 2])),
    ("Slice_columns_10000x85", with_constants("Slice", (10000, 85), [4], [5], [1])),
    ("Pad_odd_13x17x19", with_constants("Pad", (13, 17, 19), [0, 3, 2, 5, 0, 1])),
    ("Pad_crop_64x56x56", with_constants("Pad", (64, 56, 56), [0, -2, -2, 0, -2, -2])),
    ("Pad_edge_64x57x57", with_constants("Pad", (64, 57, 57), [0, 1, 1, 0, 1, 1], mode="edge")),
    ("Pad_wrap_64x57x57", with_constants("Pad", (64, 57, 57), [0, 4, 4, 0, 4, 4], mode="wrap")),
    ("Pad_uint8_3x480x640", with_constants("Pad", (3, 480, 640), [0, 8, 8, 0, 8, 8],
                                           dtype="uint8")),
    ("Tile_3x5x7x2x3", with_constants("Tile", (3, 5, 7), [20, 30, 40])),
    ("Tile_last_1000x1x64", with_constants("Tile", (1000, 1), [1, 640])),
    ("Expand_1x64x1x1", with_constants("Expand", (1, 64, 1, 1), [4, 64, 56, 56])),
    ("Expand_first_1x3136x64", with_constants("Expand", (1, 50000), [16, 50000])),
    ("Expand_int64_512x1", with_constants("Expand", (512, 1), [512, 512], dtype="int64")),
):
    _add("movement", _name, _make)
for _shape, _order in (
    ((2, 3, 4, 5, 6, 7, 8), (6, 4, 2, 0, 5, 3, 1)), ((1000, 1001), (1, 0)), ((50000, 3), (1, 0)),
    ((3, 50000), (1, 0)), ((7, 13, 17, 19, 23), (0, 2, 1, 4, 3)), ((64, 2, 3, 512), (2, 1, 0, 3)),
    ((100, 100, 100), (2, 0, 1)),
):
    _add("movement", f"Transpose_{shape_name(_shape)}_to{shape_name(_order)}",
         of("Transpose", (_shape, "float32"), perm=_order))
for _shapes, _axis in ((((10000, 3), (10000, 1), (10000, 80)), 1), (((999, 7, 5),) * 9, 1),
                       (((1000, 1),) * 16, 1), (((64, 100, 3),) * 2, 2)):
    _add("movement", f"Concat_{len(_shapes)}x{shape_name(_shapes[0])}_axis{_axis}",
         of("Concat", *[(shape, "float32") for shape in _shapes], axis=_axis))


def gathered(op: str, table: Sequence[int], places: Sequence[int], high: int, dtype: str,
             **attributes: Any) -> Make:
    """Elements of a table of any type."""
    return lambda graph: graph.node(
        op, graph.feed(numbers(graph, table, dtype)), graph.indices(high, *places), **attributes
    )


for _name, _make in (
    ("Gather_int64_5000x30", gathered("Gather", (5000, 30), (4000,), 5000, "int64", axis=0)),
    ("Gather_last_1000x500_of100", gathered("Gather", (1000, 500), (100,), 500, "float32", axis=1)),
    ("Gather_scalars_100000", gathered("Gather", (100000,), (50000,), 100000, "float32", axis=0)),
    ("GatherElements_rows_500x1000",
     gathered("GatherElements", (500, 1000), (500, 1000), 1000, "float32", axis=1)),
    ("GatherND_batch", gathered("GatherND", (16, 200, 64), (16, 100, 1), 200, "float32",
                                batch_dims=1)),
    ("ReverseSequence_64x32x128", lambda graph: graph.node(
        "ReverseSequence", graph.data(64, 32, 128), graph.indices(64, 32), time_axis=0,
        batch_axis=1)),
    ("EyeLike_1000", of("EyeLike", ((1000, 1000), "float32"))),
):
    _add("gather", _name, _make)

# ---- contractions that are spelt in other ways ----

for _equation, _shapes in (
    ("bhwc,hkc->bhwk", ((2, 14, 14, 64), (14, 14, 64))),
    ("ij,jk,kl->il", ((64, 128), (128, 96), (96, 64))),
    ("bij->bji", ((64, 100, 100),)), ("bii->bi", ((64, 100, 100),)), ("ij->", ((500, 500),)),
    ("i,j->ij", ((1000,), (1000,))), ("bhqd,bhkd->bhqk", ((1, 12, 128, 64),) * 2),
    ("ijk,ilm,njm->nlk", ((16, 24, 32), (16, 20, 28), (12, 24, 28))),
):
    _add("einsum", _equation.replace(",", "_").replace("->", "_to_"),
         of("Einsum", *[(shape, "float32") for shape in _shapes], equation=_equation))
for _name, _a, _b in (
    ("vector", (1024,), (1024, 512)), ("to_vector", (512, 1024), (1024,)),
    ("rank5", (2, 3, 4, 32, 48), (2, 3, 4, 48, 40)), ("outer", (700, 1), (1, 300)),
    ("shared_left", (64, 64), (32, 64, 100)), ("narrow", (1000, 64), (64, 3)),
    ("tiny", (5000, 4, 4), (5000, 4, 4)), ("tiny3", (20000, 3, 3), (20000, 3, 1)),
):
    _add("matmul", f"{_name}_{shape_name(_a)}_{shape_name(_b)}",
         of("MatMul", (_a, "float32"), (_b, "float32")))
_add("matmul", "turned_Gemm_300x200x100",
     of("Gemm", ((200, 300), "float32"), ((100, 200), "float32"), ((100,), "float32"), transA=1,
        transB=1, alpha=0.5))


def transposed_in_groups(channels: int, groups: int, size: int, window: int) -> Make:
    """A transposed convolution in groups, of stride 2."""
    return lambda graph: graph.node(
        "ConvTranspose", graph.data(1, channels, size, size),
        graph.weights(channels, 2 * channels // groups, window, window, fan_in=channels),
        group=groups, strides=(2, 2), pads=(1, 1, 1, 1)
    )


_add("conv-transposed", "groups4_4x4_64_128_28", transposed_in_groups(64, 4, 28, 4))
_add("conv-transposed", "groups64_3x3_64_128_28", transposed_in_groups(64, 64, 28, 3))


def upsampled(shape: Sequence[int], sizes: Sequence[int], mode: str, **attributes: Any) -> Make:
    """To a size, by any mode."""
    def make(graph: Graph) -> str:
        return graph.node("Resize", graph.data(*shape), "", "", graph.constant(sizes, "int64"),
                          mode=mode, **attributes)

    return make


for _mode, _extra in (
    ("cubic", {}), ("linear", {"coordinate_transformation_mode": "align_corners"}),
    ("nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    ("linear", {"antialias": 1}),
):
    for _shape, _sizes in (
        ((1, 32, 40, 40), (1, 32, 100, 100)), ((1, 3, 480, 640), (1, 3, 224, 224)),
    ):
        _suffix = "".join(f"_{value}" for value in _extra.values())
        _add("resize", f"{_mode}{_suffix}_{shape_name(_shape)}_to{_sizes[-1]}",
             upsampled(_shape, _sizes, _mode, **_extra))
_add("resize", "linear_1x64x1000_to1500", upsampled((1, 64, 1000), (1, 64, 1500), "linear"))
_add("resize", "linear_3d_1x16x8x28x28",
     upsampled((1, 16, 8, 28, 28), (1, 16, 16, 56, 56), "linear"))


def grid(shape: Sequence[int], mode: str, padding: str) -> Make:
    """Samples at places that are computed."""
    def make(graph: Graph) -> str:
        places = graph.feed(graph.rng.random((shape[0], 64, 64, 2), dtype="float32") * 2.2 - 1.1)
        return graph.node("GridSample", graph.data(*shape), places, mode=mode, padding_mode=padding)

    return make


for _mode, _padding in (("nearest", "zeros"), ("cubic", "border"), ("linear", "reflection")):
    _add("resize", f"GridSample_{_mode}_{_padding}", grid((1, 32, 64, 64), _mode, _padding))
