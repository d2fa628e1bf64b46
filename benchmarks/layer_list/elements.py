"""Element-wise operators, softmax, normalisation, pooling and reductions."""

from collections.abc import Sequence
from typing import Any

from layer_list.layer import Graph, Layer, Make, layers_of
from layer_list.operators import Extents, activation, extents, told

LAYERS: list[Layer] = []
_shape: tuple[int, ...]
_a: tuple[int, ...]
_b: tuple[int, ...]


def _add(kind: str, name: str, make: Make, variants: str = "") -> None:
    LAYERS.extend(layers_of(kind, name, make, variants))


def shape_name(shape: Sequence[int]) -> str:
    """1x64x56x56"""
    return "x".join(map(str, shape))


# ---- one input ----


def unary(op: str, shape: Sequence[int], low: float | None = None) -> Make:
    """An operator of one input; numbers are made to lie above low by a first operator if asked."""
    def make(graph: Graph) -> str:
        if low is not None:
            x = graph.feed(graph.rng.random(shape, dtype="float32") + low)
        else:
            x = graph.data(graph.variant.batch * shape[0], *shape[1:])
        y = activation(op)(graph, x)
        return graph.result(y)

    return make


for _op, _shape, _more in (
    ("Relu", (1, 64, 112, 112), "8 q"), ("Relu6", (1, 96, 112, 112), ""),
    ("LeakyRelu", (1, 64, 104, 104), "q"),
    ("Sigmoid", (1, 255, 40, 40), "q"), ("Sigmoid", (1, 96, 1, 1), ""),
    ("Tanh", (1, 3, 256, 256), "8"),
    ("Tanh", (128, 3072), ""), ("Erf", (128, 3072), ""), ("Gelu", (128, 3072), "8"),
    ("Gelu", (197, 768), ""),
    ("GeluTanh", (128, 3072), ""), ("SiLU", (1, 32, 160, 160), "q"),
    ("SiLU", (1, 128, 40, 40), "8"),
    ("HardSwish", (1, 16, 112, 112), ""), ("HardSwishClip", (1, 240, 28, 28), ""),
    ("HardSigmoid", (1, 72, 28, 28), ""), ("Mish", (1, 64, 104, 104), ""),
    ("MishTanh", (1, 64, 52, 52), ""),
    ("Elu", (1, 64, 56, 56), ""), ("Selu", (64, 1024), ""), ("Softplus", (16, 8192), ""),
    ("Exp", (1, 4, 8400), ""), ("Exp", (1000, 1000), ""), ("Abs", (1, 64, 56, 56), ""),
    ("Neg", (12, 512, 64), ""), ("Floor", (1, 64, 56, 56), ""), ("Round", (1, 64, 56, 56), ""),
    ("Sin", (1, 4096, 63), ""), ("Cos", (512, 64), ""), ("Softsign", (64, 1024), ""),
    ("Sign", (64, 1024), ""),
    ("Relu", (256,), ""), ("Relu", (16, 1024, 1024), ""),
):
    _add("element-wise", f"{_op}_{shape_name(_shape)}", unary(_op, _shape), _more)
for _op, _shape in (("Log", (1000, 1000)), ("Sqrt", (64, 4096)), ("Reciprocal", (64, 4096))):
    _add("element-wise", f"{_op}_{shape_name(_shape)}", unary(_op, _shape, 0.5))


# ---- two inputs ----


def binary(op: str, a: Sequence[int], b: Sequence[int], constant: bool = False) -> Make:
    """An operator of two inputs, which may have other shapes, or of an input and a constant."""
    def make(graph: Graph) -> str:
        x = graph.data(*a)
        y = graph.constant(graph.rng.random(b) + 0.5) if constant else graph.data(*b)
        made = graph.node(op, x, y)
        return made if op in ("Greater", "Equal", "Less") else graph.result(made)

    return make


_IMAGE = (1, 256, 56, 56)
for _op, _a, _b, _more in (
    ("Add", _IMAGE, _IMAGE, "q"), ("Add", (1, 512, 28, 28), (1, 512, 28, 28), ""),
    ("Add", (1, 24, 56, 56), (1, 24, 56, 56), "q"), ("Mul", _IMAGE, _IMAGE, ""),
    ("Mul", (1, 672, 14, 14), (1, 672, 1, 1), "q"), ("Mul", _IMAGE, (1, 1, 56, 56), ""),
    ("Add", (1, 128, 768), (1, 128, 768), ""), ("Add", (8, 128, 768), (1, 128, 768), ""),
    ("Add", (1, 12, 128, 128), (1, 1, 1, 128), ""), ("Add", (64, 3, 49, 49), (1, 3, 49, 49), ""),
    ("Sub", (1000, 1000), (1000, 1), ""), ("Div", (1000, 1000), (1000, 1), ""),
    ("Max", _IMAGE, _IMAGE, ""),
    ("Min", (1000, 1000), (1000, 1000), ""), ("Div", _IMAGE, _IMAGE, ""),
    ("Greater", (1, 80, 8400), (1,), ""),
    ("Equal", (1000, 1000), (1000, 1000), ""), ("Add", (1, 1024, 1024), (1, 1, 1024), ""),
    ("PRelu", (1, 64, 56, 56), (64, 1, 1), ""), ("Sub", (100, 1, 4), (1, 1000, 4), ""),
):
    _add("element-wise", f"{_op}_{shape_name(_a)}_{shape_name(_b)}", binary(_op, _a, _b), _more)
for _op, _a, _b in (
    ("Mul", (1, 3, 640, 640), (1, 3, 1, 1)), ("Add", (197, 768), (768,)), ("Pow", (1000, 1000), ()),
    ("Div", (1, 8, 256, 256), ()), ("Mul", (3136, 96), (96,)),
):
    _add("element-wise", f"{_op}_{shape_name(_a)}_constant", binary(_op, _a, _b, True))


def _where(graph: Graph) -> str:
    mask = graph.feed(graph.rng.random((1, 1, 256, 256)) < 0.5)
    return graph.node("Where", mask, graph.data(1, 12, 256, 256), graph.constant(-1e9))


def _normalised_image(graph: Graph) -> str:
    pixels = graph.feed(graph.rng.integers(0, 256, (1, 480, 640, 3), dtype="uint8"))
    x = graph.node("Transpose", graph.node("Cast", pixels, to=1), perm=(0, 3, 1, 2))
    mean = graph.constant([[[[120.0]], [[115.0]], [[100.0]]]])
    scale = graph.constant([[[[58.0]], [[57.0]], [[57.5]]]])
    return graph.node("Div", graph.node("Sub", x, mean), scale)


def cast(to: int, shape: Sequence[int]) -> Make:
    """Floats as numbers of another type."""
    return lambda graph: graph.node("Cast", graph.data(*shape), to=to)


def _rotary(graph: Graph) -> str:
    """Rotary positions of queries."""
    x = graph.data(1, 12, 256, 64)
    cosine, sine = (graph.data(1, 1, 256, 64) for _ in range(2))
    low, high = graph.nodes_with(2, "Split", x, axis=-1, num_outputs=2)
    turned = graph.node("Concat", graph.node("Neg", high), low, axis=-1)
    return graph.node("Add", graph.node("Mul", x, cosine), graph.node("Mul", turned, sine))


_add("element-wise", "Where_mask_12x256x256", _where)
_add("element-wise", "normalise_image_480x640", _normalised_image)
_add("element-wise", "Cast_int64_1000x1000", cast(7, (1000, 1000)))
_add("element-wise", "Cast_half_1000x1000", cast(10, (1000, 1000)))
_add("element-wise", "rotary_12x256x64", _rotary)


# ---- quantising ----


def _quantise(graph: Graph) -> str:
    return graph.steps(graph.data(1, 64, 112, 112), 0.02)


def _dequantise(graph: Graph) -> str:
    return graph.floats(graph.feed(graph.rng.integers(0, 256, (1, 64, 112, 112), dtype="uint8")),
                        0.02, 128)


def _dynamic(graph: Graph) -> list[str]:
    return graph.nodes_with(3, "DynamicQuantizeLinear", graph.data(128, 768))


_add("quantise", "QuantizeLinear_1x64x112x112", _quantise)
_add("quantise", "DequantizeLinear_1x64x112x112", _dequantise)
_add("quantise", "DynamicQuantizeLinear_128x768", _dynamic)

# ---- softmax ----


def along(op: str, shape: Sequence[int], axis: int = -1, **attributes: Any) -> Make:
    """An operator along an axis."""
    def make(graph: Graph) -> str:
        x = graph.data(shape[0] * graph.variant.batch, *shape[1:])
        return graph.result(graph.node(op, x, axis=axis, **attributes))

    return make


for _op, _shape, _axis, _more in (
    ("Softmax", (1, 1000), -1, "8"), ("Softmax", (12, 128, 128), -1, "8"),
    ("Softmax", (12, 512, 512), -1, ""),
    ("Softmax", (12, 197, 197), -1, ""), ("Softmax", (192, 49, 49), -1, ""),
    ("Softmax", (6, 1500, 1500), -1, ""),
    ("Softmax", (1, 50257), -1, ""), ("Softmax", (128, 30522), -1, ""),
    ("Softmax", (8732, 21), -1, ""),
    ("Softmax", (1, 21, 65, 65), 1, "8"), ("Softmax", (1, 4, 16, 8400), 2, ""),
    ("Softmax", (16, 10), -1, ""),
    ("LogSoftmax", (50, 96), -1, ""), ("LogSoftmax", (1, 32128), -1, ""),
    ("Softmax", (12, 1, 1024), -1, ""),
    ("Softmax", (1000, 512), -1, ""), ("Hardmax", (64, 1000), -1, ""),
):
    _add("softmax", f"{_op}_{shape_name(_shape)}_axis{_axis}", along(_op, _shape, _axis), _more)


# ---- normalisation ----


def layer_norm(shape: Sequence[int], composed: bool = False) -> Make:
    """Over the last axis, as one operator or as older exporters write it."""
    def make(graph: Graph) -> str:
        x = graph.data(shape[0] * graph.variant.batch, *shape[1:])
        scale, shift = graph.weights(shape[-1]), graph.weights(shape[-1])
        if not composed:
            return graph.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
        last = graph.constant([-1], "int64")
        apart = graph.node("Sub", x, graph.node("ReduceMean", x, last))
        squares = graph.node("ReduceMean", graph.node("Pow", apart, graph.constant(2.0)), last)
        deviation = graph.node("Sqrt", graph.node("Add", squares, graph.constant(1e-5)))
        scaled = graph.node("Mul", graph.node("Div", apart, deviation), scale)
        return graph.node("Add", scaled, shift)

    return make


def rms_norm(shape: Sequence[int]) -> Make:
    """By the root of the mean of squares."""
    def make(graph: Graph) -> str:
        x = graph.data(*shape)
        squares = graph.node("Mul", x, x)
        mean = graph.node("ReduceMean", squares, graph.constant([-1], "int64"))
        root = graph.node("Sqrt", graph.node("Add", mean, graph.constant(1e-6)))
        return graph.node("Mul", graph.node("Div", x, root), graph.weights(shape[-1]))

    return make


def group_norm(shape: Sequence[int], groups: int) -> Make:
    """As exporters write it: InstanceNormalization of a reshaped image."""
    def make(graph: Graph) -> str:
        x = graph.data(*shape)
        inner = graph.node("Reshape", x, graph.constant([shape[0], groups, -1], "int64"))
        ones, zeros = graph.constant([1.0] * groups), graph.constant([0.0] * groups)
        y = graph.node("InstanceNormalization", inner, ones, zeros)
        y = graph.node("Reshape", y, graph.constant(shape, "int64"))
        scale, shift = (graph.constant(graph.rng.random((shape[1], 1, 1))) for _ in range(2))
        return graph.node("Add", graph.node("Mul", y, scale), shift)

    return make


def batch_norm(shape: Sequence[int], after: str = "Relu") -> Make:
    """By constants, with an activation behind it."""
    def make(graph: Graph) -> str:
        x = graph.data(shape[0] * graph.variant.batch, *shape[1:])
        some = [graph.constant(graph.rng.random(shape[1]) + 0.5) for _ in range(4)]
        return activation(after)(graph, graph.node("BatchNormalization", x, *some))

    return make


def instance_norm(shape: Sequence[int]) -> Make:
    """Each channel of each image by itself."""
    def make(graph: Graph) -> str:
        some = [graph.constant(graph.rng.random(shape[1])) for _ in range(2)]
        return graph.node("InstanceNormalization", graph.data(*shape), *some)

    return make


for _shape in ((128, 768), (197, 192), (3136, 96), (1500, 384), (1, 1024), (512, 1024), (49, 768),
               (256, 64)):
    _add("norm", f"layer_{shape_name(_shape)}", layer_norm(_shape), "8" if _shape[0] < 200 else "")
for _shape in ((128, 768), (784, 192), (1, 768), (64, 384)):
    _add("norm", f"layer_composed_{shape_name(_shape)}", layer_norm(_shape, True), "8")
for _shape in ((1, 2048), (16, 2048), (128, 576), (256, 896)):
    _add("norm", f"rms_{shape_name(_shape)}", rms_norm(_shape))
for _shape, _groups in (
    ((1, 320, 64, 64), 32), ((1, 1280, 8, 8), 32), ((1, 512, 100), 512), ((1, 128, 128, 128), 32),
):
    _add("norm", f"group{_groups}_{shape_name(_shape)}", group_norm(_shape, _groups))
for _shape in ((1, 64, 56, 56), (1, 1024, 14, 14), (1, 256, 56, 56), (1, 512, 400)):
    _add("norm", f"batch_{shape_name(_shape)}", batch_norm(_shape), "8" if _shape[2] < 20 else "")
for _shape in ((1, 64, 128, 128), (1, 256, 64, 64), (1, 32, 32, 32, 32), (8, 512, 8, 8)):
    _add("norm", f"instance_{shape_name(_shape)}", instance_norm(_shape))
_add("norm", "lrn_1x64x55x55", lambda graph: graph.node("LRN", graph.data(1, 64, 55, 55), size=5))
_add("norm", "l2_8x512",
     lambda graph: graph.node("LpNormalization", graph.data(8, 512), axis=-1, p=2))


# ---- pooling ----


def pool(op: str, shape: Sequence[int], window: Extents, stride: Extents, padding: int = 0,
         **attributes: Any) -> Make:
    """The largest or the mean of each window."""
    rank = len(shape) - 2

    def make(graph: Graph) -> str:
        x = graph.data(shape[0] * graph.variant.batch, *shape[1:])
        y = graph.node(
            op, x, kernel_shape=extents(window, rank), strides=extents(stride, rank),
            pads=[padding] * (2 * rank), **attributes,
        )
        return graph.result(y)

    return make


for _op, _shape, _window, _stride, _padding, _more in (
    ("MaxPool", (1, 64, 112, 112), 3, 2, 1, "q 8"), ("MaxPool", (1, 64, 55, 55), 3, 2, 0, ""),
    ("MaxPool", (1, 64, 224, 224), 2, 2, 0, "q"), ("MaxPool", (1, 512, 14, 14), 2, 2, 0, "8"),
    ("MaxPool", (1, 192, 35, 35), 3, 1, 1, ""), ("MaxPool", (1, 256, 20, 20), 5, 1, 2, "q"),
    ("MaxPool", (1, 512, 13, 13), 9, 1, 4, ""), ("MaxPool", (1, 512, 13, 13), 13, 1, 6, ""),
    ("MaxPool", (1, 64, 8, 28, 28), (1, 3, 3), (1, 2, 2), 0, ""),
    ("MaxPool", (1, 64, 8, 28, 28), 2, 2, 0, ""),
    ("MaxPool", (1, 128, 2000), 4, 4, 0, "8"), ("MaxPool", (1, 256, 8, 25), (2, 1), (2, 1), 0, ""),
    ("AveragePool", (1, 128, 56, 56), 2, 2, 0, "8 q"),
    ("AveragePool", (1, 192, 35, 35), 3, 1, 1, ""),
    ("AveragePool", (1, 64, 56, 56), 3, 1, 1, ""), ("AveragePool", (1, 1024, 7, 7), 7, 1, 0, ""),
    ("AveragePool", (1, 256, 4000), 25, 25, 0, ""), ("AveragePool", (1, 64, 28, 28), 3, 2, 1, ""),
):
    _add("pool", f"{_op}_{shape_name(_shape)}_{told(_window)}_s{told(_stride)}",
         pool(_op, _shape, _window, _stride, _padding), _more)


def whole(op: str, shape: Sequence[int]) -> Make:
    """One number per channel."""
    return lambda graph: graph.result(
        graph.node(op, graph.data(shape[0] * graph.variant.batch, *shape[1:]))
    )


for _op, _shape, _more in (
    ("GlobalAveragePool", (1, 512, 7, 7), "8 q"), ("GlobalAveragePool", (1, 1280, 7, 7), "8"),
    ("GlobalAveragePool", (1, 96, 112, 112), ""), ("GlobalAveragePool", (1, 2048, 7, 7), "q"),
    ("GlobalMaxPool", (1, 256, 28, 28), ""), ("GlobalAveragePool", (1, 512, 4, 14, 14), ""),
):
    _add("pool", f"{_op}_{shape_name(_shape)}", whole(_op, _shape), _more)

# ---- reductions ----


def reduced(op: str, shape: Sequence[int], axes: Sequence[int], keep: int = 1) -> Make:
    """A reduction over some axes."""
    return lambda graph: graph.node(
        op, graph.data(*shape), graph.constant(axes, "int64"), keepdims=keep
    )


for _op, _shape, _axes in (
    ("ReduceMean", (128, 768), (1,)), ("ReduceMean", (1, 96, 112, 112), (2, 3)),
    ("ReduceMean", (1, 197, 768), (1,)),
    ("ReduceSum", (1000, 1000), (0,)), ("ReduceSum", (1000, 1000), (1,)),
    ("ReduceSum", (64, 26, 64), (1,)),
    ("ReduceSum", (1, 16, 8400), (1,)), ("ReduceMax", (1, 80, 8400), (1,)),
    ("ReduceMax", (8400, 80), (1,)),
    ("ReduceMax", (1, 1024, 1024), (2,)), ("ReduceL2", (64, 512), (1,)),
    ("ReduceMin", (100, 1000), (0,)),
    ("ReduceProd", (1000, 4), (1,)), ("ReduceLogSumExp", (64, 1000), (1,)),
    ("ReduceSum", (1, 64, 56, 56), (0, 1, 2, 3)),
    ("ReduceMean", (1, 56, 56, 256), (1, 2)), ("ReduceSumSquare", (512, 512), (1,)),
    ("ReduceL1", (512, 512), (0,)),
):
    _add("reduction", f"{_op}_{shape_name(_shape)}_axes{told(tuple(_axes))}",
         reduced(_op, _shape, _axes))
for _op, _shape, _axis in (
    ("ArgMax", (1, 21, 128, 128), 1), ("ArgMax", (8, 50257), 1), ("ArgMax", (1, 1000), 1),
    ("ArgMin", (1000, 256), 1),
    ("ArgMax", (50, 96), 1), ("ArgMax", (8400, 80), 1),
):
    _add("reduction", f"{_op}_{shape_name(_shape)}_axis{_axis}", along(_op, _shape, _axis))
