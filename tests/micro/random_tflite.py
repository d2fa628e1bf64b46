"""Random networks of bytes as TensorFlow Lite has them, by seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.frontend.tflite_models import Graph, Op, T, model

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 10, 12, 16, 17, 20, 24, 32)
ACTIVATIONS = (0, 0, 1, 2, 3)  # none, RELU, RELU_N1_TO_1, RELU6
SAME, VALID = 0, 1
# TFLite Micro's functions overflow where scales are next to nothing.
SMALLEST = 2.0**-17


@dataclass
class Drawn:
    """A network under construction: its tensors, its operators, and which tensors are read."""

    rng: np.random.Generator
    tensors: list[T]
    operators: list[Op]
    read: set[int]

    def pick(self, numbers: Sequence[Any]) -> Any:
        """One of some."""
        return numbers[int(self.rng.integers(len(numbers)))]

    def add(self, tensor: T) -> int:
        """A new tensor's place."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def result(self, shape: Sequence[int], scale: Any, zero: Any, dtype: str = "int8") -> int:
        """A new tensor that an operator writes."""
        return self.add(T(tuple(int(n) for n in shape), dtype, None, scale=scale, zero=zero))

    def numbers(self, *numbers: int) -> int:
        """A constant of whole numbers, for places and extents."""
        return self.fixed(np.array(numbers, np.int32))

    def fixed(self, array: Any, **more: Any) -> int:
        """A constant."""
        return self.add(T(array.shape, str(array.dtype), array, **more))

    def apply(self, kind: str, inputs: Sequence[int], outputs: Sequence[int],
              options: Any = None) -> int:
        """Add an operator; gives the place of its first result."""
        self.operators.append(Op(kind, inputs, outputs, options))
        self.read |= set(inputs)
        return outputs[0]

    def scale(self, low: float = 0.003, high: float = 0.3) -> float:
        """A scale, evenly among logarithms."""
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def zero(self) -> int:
        """A zero point, its ends among them."""
        return int(self.pick([-128, 0, 127, *self.rng.integers(-128, 128, 4)]))

    def bytes(self, *shape: int) -> Any:
        """Weights: of all sizes, mostly zeros, or small."""
        made = self.rng.integers(-127, 128, shape)
        match int(self.rng.integers(6)):
            case 0:
                made = made * (self.rng.random(shape) < 0.2)
            case 1:
                made = made // 32
            case _:
                pass
        return made.astype(np.int8)

    def biases(self, outputs: int, spread: float, scales: Any) -> int:
        """Biases as large as what they are added to, or none."""
        if self.rng.random() < 0.15:
            return -1
        made = self.rng.normal(size=outputs) * spread * self.pick([0.3, 1, 4])
        return self.fixed(made.round().clip(-2**31 + 1, 2**31 - 1).astype(np.int32),
                          scale=scales, zero=0)


def layer(made: Drawn, at: int) -> int | None:
    """A convolution of images, or a dense layer of rows."""
    x = made.tensors[at]
    if len(x.shape) != 4:
        return dense(made, at)
    if made.rng.random() < 0.35:
        return depthwise(made, at)
    inputs = x.shape[3]
    rows, columns = int(made.pick([1, 1, 1, 2, 3, 3, 5])), int(made.pick([1, 1, 1, 2, 3, 3, 5]))
    if made.rng.random() < 0.3:
        rows = columns = 1
    outputs = int(made.pick(CHANNELS))
    frame = window(made, x, rows, columns)
    if frame is None:
        return None
    shape, options = frame
    weight = made.bytes(outputs, rows, columns, inputs)
    return contraction(made, "CONV_2D", at, weight, 0, (1, *shape, outputs),
                       ("Conv2DOptions", options))


def depthwise(made: Drawn, at: int) -> int | None:
    """A convolution of each channel by itself."""
    x = made.tensors[at]
    rows, columns = int(made.pick([1, 2, 3, 3, 3, 5])), int(made.pick([1, 2, 3, 3, 3, 5]))
    times = int(made.pick([1, 1, 1, 1, 2, 3]))
    frame = window(made, x, rows, columns)
    if frame is None:
        return None
    shape, options = frame
    weight = made.bytes(1, rows, columns, x.shape[3] * times)
    options = {**options, "depthMultiplier": times}
    return contraction(made, "DEPTHWISE_CONV_2D", at, weight, 3,
                       (1, *shape, x.shape[3] * times), ("DepthwiseConv2DOptions", options))


def dense(made: Drawn, at: int) -> int:
    """A dense layer, with or without a scale for each output."""
    x = made.tensors[at]
    weight = made.bytes(int(made.pick(CHANNELS)), x.shape[-1])
    keeps = bool(made.rng.random() < 0.5)
    rows = x.shape[:-1] if keeps else (int(np.prod(x.shape[:-1])),)
    return contraction(made, "FULLY_CONNECTED", at, weight, 0, (*rows, len(weight)),
                       ("FullyConnectedOptions", {"keepNumDims": keeps}))


def window(made: Drawn, x: T, rows: int, columns: int) -> Any:
    """The extents of what windows make of an image, and their options."""
    steps = [int(made.pick([1, 1, 1, 2, 3])) for _ in range(2)]
    apart = [int(made.pick([1, 1, 1, 1, 2])) for _ in range(2)]
    if steps != [1, 1]:
        apart = [1, 1]
    padding = int(made.pick([SAME, SAME, VALID]))
    shape = []
    for size, taps, step, dilation in zip(x.shape[1:3], (rows, columns), steps, apart, strict=True):
        reach = (taps - 1) * dilation + 1
        count = -(-size // step) if padding == SAME else (size - reach) // step + 1
        if count < 1:
            return None
        shape.append(count)
    return shape, {
        "padding": padding, "strideH": steps[0], "strideW": steps[1], "dilationHFactor": apart[0],
        "dilationWFactor": apart[1], "fusedActivationFunction": int(made.pick(ACTIVATIONS)),
    }


def contraction(made: Drawn, kind: str, at: int, weight: Any, axis: int, shape: Sequence[int],
                options: Any) -> int:
    """A layer whose results fill the range of bytes."""
    x = made.tensors[at]
    outputs = weight.shape[axis]
    has_channels = bool(made.rng.random() < 0.7)
    spread = 73 * max(float(np.sqrt((weight.astype(float) ** 2).sum() / outputs)), 1)
    apart = np.exp(made.rng.normal(size=outputs) * made.pick([0.1, 0.4, 1.5]))
    scales = (apart if has_channels else np.ones(1)) * made.scale(1e-4, 1e-2)
    weights = made.fixed(weight, scale=scales.astype(np.float32), zero=0, axis=axis)
    sums = x.scale * scales.astype(np.float32)
    bias = made.biases(outputs, spread, sums.astype(np.float32))
    out = float(np.float32(spread * float(np.median(sums)) / made.rng.uniform(20, 150)))
    out = max(out, SMALLEST)
    return made.apply(kind, [at, weights, bias], [made.result(shape, out, made.zero())], options)


def pool(made: Drawn, at: int) -> int | None:
    """A mean or a largest number of windows."""
    x = made.tensors[at]
    if len(x.shape) != 4:
        return None
    rows, columns = int(made.pick([1, 2, 2, 3])), int(made.pick([1, 2, 2, 3]))
    if made.rng.random() < 0.2:
        rows, columns = x.shape[1:3]
    frame = window(made, x, rows, columns)
    if frame is None or frame[1]["dilationHFactor"] * frame[1]["dilationWFactor"] > 1:
        return None
    options = {key: value for key, value in frame[1].items() if "dilation" not in key}
    options |= {"filterHeight": rows, "filterWidth": columns}
    out = made.result((1, *frame[0], x.shape[3]), x.scale, x.zero)
    return made.apply(made.pick(["AVERAGE_POOL_2D", "MAX_POOL_2D"]), [at], [out],
                      ("Pool2DOptions", options))


def of_two(made: Drawn, at: int) -> int | None:
    """A function of two tensors: of one shape, or one of them repeated."""
    x = made.tensors[at]
    kind = made.pick(["ADD", "ADD", "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM",
                      "SQUARED_DIFFERENCE"])
    same = [place for place, one in enumerate(made.tensors)
            if one.shape == x.shape and one.dtype == "int8" and one.data is None]
    if kind in ("MAXIMUM", "MINIMUM"):
        same = [place for place in same if (made.tensors[place].scale, made.tensors[place].zero)
                == (x.scale, x.zero)]
    if made.rng.random() < 0.7 and same:
        other = int(made.pick(same))
    else:
        shape = [n if made.rng.random() < 0.6 else 1 for n in x.shape]
        own = (x.scale, x.zero) if kind in ("MAXIMUM", "MINIMUM") else (made.scale(), made.zero())
        data = made.rng.integers(-128, 128, shape).astype(np.int8)
        other = made.fixed(data, scale=own[0], zero=own[1])
    y = made.tensors[other]
    spread = {"MUL": 60 * x.scale * y.scale, "SQUARED_DIFFERENCE": 60 * (x.scale + y.scale) ** 2}
    scale = float(np.float32(spread.get(kind, max(x.scale, y.scale)) * made.rng.uniform(0.5, 2.5)))
    own = (x.scale, x.zero) if kind in ("MAXIMUM", "MINIMUM") else (scale, made.zero())
    pair = [at, other] if made.rng.random() < 0.5 or kind == "SQUARED_DIFFERENCE" else [other, at]
    table = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}.get(
        kind, "SquaredDifferenceOptions" if kind[0] == "S" else "MaximumMinimumOptions")
    options = {"fusedActivationFunction": int(made.pick(ACTIVATIONS))} if len(kind) == 3 else {}
    return made.apply(kind, pair, [made.result(x.shape, *own)], (table, options))


def of_one(made: Drawn, at: int) -> int:
    """A function of one tensor."""
    x = made.tensors[at]
    kind = made.pick(["RELU", "LEAKY_RELU", "LOGISTIC", "TANH", "HARD_SWISH", "ABS", "QUANTIZE",
                      "SOFTMAX", "PRELU"])
    scale, zero = float(np.float32(x.scale * made.rng.uniform(0.4, 1.6))), made.zero()
    if kind in ("LOGISTIC", "SOFTMAX"):
        scale, zero = 1 / 256, -128
    if kind == "TANH":
        scale, zero = 1 / 128, 0
    options = {
        "LEAKY_RELU": ("LeakyReluOptions", {"alpha": float(made.rng.uniform(0.01, 1.2))}),
        "HARD_SWISH": ("HardSwishOptions", {}), "ABS": ("AbsOptions", {}),
        "QUANTIZE": ("QuantizeOptions", {}), "SOFTMAX": ("SoftmaxOptions", {"beta": 1.0}),
    }.get(kind)
    inputs = [at]
    if kind == "PRELU":
        slopes = made.rng.integers(-127, 128, (1,) * (len(x.shape) - 1) + (x.shape[-1],))
        inputs.append(made.fixed(slopes.astype(np.int8), scale=made.scale(1e-3, 1e-2), zero=0))
    return made.apply(kind, inputs, [made.result(x.shape, scale, zero)], options)


def moved(made: Drawn, at: int) -> int | None:
    """The same numbers in other places."""
    x = made.tensors[at]
    own, rank = (x.scale, x.zero), len(x.shape)
    match int(made.rng.integers(9)):
        case 0:
            pads = made.rng.integers(0, 3, (rank, 2))
            pads[0] = 0
            shape = [n + int(pair.sum()) for n, pair in zip(x.shape, pads, strict=True)]
            return made.apply("PAD", [at, made.fixed(pads.astype(np.int32))],
                              [made.result(shape, *own)], ("PadOptions", {}))
        case 1 if rank == 4:
            order = (0, *(1 + made.rng.permutation(3)))
            shape = [x.shape[n] for n in order]
            return made.apply("TRANSPOSE", [at, made.numbers(*order)], [made.result(shape, *own)],
                              ("TransposeOptions", {}))
        case 2:
            starts = [int(made.rng.integers(0, n)) for n in x.shape]
            ends = [int(made.rng.integers(s + 1, n + 1))
                    for s, n in zip(starts, x.shape, strict=True)]
            steps = [int(made.pick([1, 1, 2])) for _ in x.shape]
            shape = [len(range(*each)) for each in zip(starts, ends, steps, strict=True)]
            return made.apply(
                "STRIDED_SLICE",
                [at, made.numbers(*starts), made.numbers(*ends), made.numbers(*steps)],
                [made.result(shape, *own)], ("StridedSliceOptions", {}))
        case 3:
            shape = [1, int(np.prod(x.shape))]
            if shape[1] > 600:
                return None
            return made.apply("RESHAPE", [at, made.numbers(*shape)], [made.result(shape, *own)],
                              ("ReshapeOptions", {"newShape": shape}))
        case 4 if rank == 4 and x.shape[1] * x.shape[2] < 150:
            sizes = [int(n * made.pick([1, 2, 2, 3])) for n in x.shape[1:3]]
            kind = made.pick(["RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"])
            table = {"RESIZE_BILINEAR": "ResizeBilinearOptions"}.get(
                kind, "ResizeNearestNeighborOptions")
            half = bool(made.rng.random() < 0.5)
            options = {"halfPixelCenters": half}
            return made.apply(kind, [at, made.numbers(*sizes)],
                              [made.result((1, *sizes, x.shape[3]), *own)], (table, options))
        case 5:
            axis = int(made.rng.integers(1, rank))
            same = [place for place, one in enumerate(made.tensors)
                    if one.data is None and one.dtype == "int8" and len(one.shape) == rank
                    and (one.scale, one.zero) == own
                    and all(n == m for i, (n, m) in enumerate(
                        zip(one.shape, x.shape, strict=True)) if i != axis)]
            parts = [at, *(int(made.pick(same)) for _ in range(int(made.rng.integers(1, 3))))]
            shape = list(x.shape)
            shape[axis] = sum(made.tensors[place].shape[axis] for place in parts)
            return made.apply("CONCATENATION", parts, [made.result(shape, *own)],
                              ("ConcatenationOptions", {"axis": axis}))
        case 6:
            axis = int(made.rng.integers(1, rank))
            count = next((n for n in (2, 3, 5) if x.shape[axis] % n == 0), 1)
            shape = list(x.shape)
            shape[axis] //= count
            results = [made.result(shape, *own) for _ in range(count)]
            made.apply("SPLIT", [made.fixed(np.array(axis, np.int32)), at], results,
                       ("SplitOptions", {"numSplits": count}))
            return int(made.pick(results))
        case 7 if rank == 4:
            axes = [1, 2] if made.rng.random() < 0.7 else [3]
            kind = made.pick(["MEAN", "MEAN", "SUM", "REDUCE_MAX"])
            shape = [1 if n in axes else size for n, size in enumerate(x.shape)]
            scale = float(np.float32(x.scale * made.rng.uniform(0.3, 1.5)))
            if kind == "SUM":
                scale *= 4
            result = own if kind == "REDUCE_MAX" else (scale, made.zero())
            return made.apply(kind, [at, made.numbers(*axes)], [made.result(shape, *result)],
                              ("ReducerOptions", {"keepDims": True}))
        case 8 if rank == 4 and x.shape[1] % 2 == 0 and x.shape[2] % 2 == 0:
            shape = [1, x.shape[1] // 2, x.shape[2] // 2, x.shape[3] * 4]
            return made.apply("SPACE_TO_DEPTH", [at], [made.result(shape, *own)],
                              ("SpaceToDepthOptions", {"blockSize": 2}))
        case _:
            return None


def transposed(made: Drawn, at: int) -> int | None:
    """A transposed convolution."""
    x = made.tensors[at]
    if len(x.shape) != 4 or x.shape[1] * x.shape[2] > 150:
        return None
    taps, step = int(made.pick([1, 2, 3, 4])), int(made.pick([1, 2, 2]))
    outputs = int(made.pick(CHANNELS))
    weight = made.bytes(outputs, taps, taps, x.shape[3])
    padding = int(made.pick([SAME, VALID]))
    sizes = [n * step if padding == SAME else (n - 1) * step + taps for n in x.shape[1:3]]
    shape = (1, *sizes, outputs)
    scales = (np.exp(made.rng.normal(size=outputs) * 0.4) * made.scale(1e-4, 1e-2))
    spread = 73 * max(float(np.sqrt((weight.astype(float) ** 2).sum() / outputs)), 1) / step
    weights = made.fixed(weight, scale=scales.astype(np.float32), zero=0, axis=0)
    out = float(np.float32(spread * x.scale * float(np.median(scales)) / 60))
    return made.apply(
        "TRANSPOSE_CONV", [made.numbers(*shape), weights, at],
        [made.result(shape, out, made.zero())],
        ("TransposeConvOptions", {"padding": padding, "strideH": step, "strideW": step}))


STEPS: list[Callable[[Drawn, int], int | None]] = [
    layer, layer, layer, layer, pool, of_two, of_two, of_one, moved, moved, transposed]
MOST = 40_000  # elements of a tensor


def random_network(seed: int, length: int = 8) -> tuple[bytes, Any]:
    """The file of a network, and what it is given."""
    rng = np.random.default_rng(seed)
    made = Drawn(rng, [], [], set())
    shape = (1, *(int(n) for n in rng.integers(1, 25, 2)), int(made.pick(CHANNELS)))
    if rng.random() < 0.15:
        shape = (1, int(rng.integers(1, 300)))
    first = made.result(shape, made.scale(), made.zero())
    last: int = first
    while len(made.operators) < length:
        live = [place for place, one in enumerate(made.tensors)
                if one.data is None and one.dtype == "int8"]
        at = last if rng.random() < 0.75 else int(made.pick(live))
        step = made.pick(STEPS)
        place = step(made, at)
        if place is not None:
            last = place
            if np.prod(made.tensors[last].shape) > MOST:
                break
    written = [place for op in made.operators for place in op.outputs]
    outputs = [place for place in written if place not in made.read]
    data = model(Graph(made.tensors, made.operators, [first], outputs))
    x = rng.integers(-128, 128, shape)
    if rng.random() < 0.2:
        x = np.where(rng.random(shape) < 0.5, made.pick([-128, 127]), x)
    return data, x.astype(np.int8)
