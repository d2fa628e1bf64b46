"""Layers drawn at random over the classes of the tables: shapes that no list has."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from layer_list import detection, elements, movement
from layer_list.elements import shape_name
from layer_list.layer import Layer, Make, Variant
from layer_list.operators import Conv, attention, dense, matmul, recurrent

Rng = np.random.Generator
Drawn = tuple[str, Make, str]
"""A name, what makes the layer, and the letters of the variants that it can have."""

# Multiply-adds of a layer, and elements of a tensor: what runs in some milliseconds.
MOST_WORK, MOST_ELEMENTS = 400_000_000, 4_000_000


def _channels(rng: Rng, most: int = 768) -> int:
    """Mostly multiples of 8 or of 32, sometimes any number; small ones as often as large ones."""
    free = int(2 ** rng.uniform(3, np.log2(most)))
    step = int(rng.choice([1, 8, 8, 32]))
    return max(step, free // step * step)


def _pick(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


def _fitting(rng: Rng, draw: Callable[[Rng], Conv]) -> Conv:
    """Drawn again until it is not too much work."""
    while True:
        made = draw(rng)
        elements = prod(made.image) * max(made.inputs, made.outputs)
        small = min(made.image) + 1 >= _window(made)
        if 10_000 < made.multiply_adds <= MOST_WORK and elements <= MOST_ELEMENTS and small:
            return made


def _window(made: Conv) -> int:
    """How far a window reaches, the longest way."""
    windows = made.window if isinstance(made.window, tuple) else (made.window,)
    dilations = made.dilation if isinstance(made.dilation, tuple) else (made.dilation,)
    return max((w - 1) * d for w in windows for d in dilations) + 1


def _conv(draw: Callable[[Rng], Conv], letters: str = "8qf") -> Callable[[Rng], Drawn]:
    def made(rng: Rng) -> Drawn:
        layer = _fitting(rng, draw)
        return layer.name, layer, letters

    return made


def _image(rng: Rng) -> tuple[int, int]:
    size = int(_pick(rng, [7, 8, 10, 13, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 160]))
    return (size, size) if rng.random() < 0.8 else (size, int(rng.integers(4, 100)))


def _dense_conv(rng: Rng) -> Conv:
    window = _pick(rng, [3, 3, 3, 5, 7, (1, 3), (3, 1), (1, 7), 2, 4])
    return Conv(_channels(rng, 512), _channels(rng, 512), _image(rng), window)


def _strided(rng: Rng) -> Conv:
    inputs = _pick(rng, [1, 3, 4, _channels(rng)])
    window = _pick(rng, [3, 3, 4, 5, 7, 8, 11])
    stride = _pick(rng, [2, 2, 2, 3, 4])
    return Conv(inputs, _channels(rng, 512), _image(rng), window, stride, padding=window // 2)


def _patch(rng: Rng) -> Conv:
    size = _pick(rng, [2, 4, 7, 8, 14, 16, 32])
    places = int(rng.integers(4, 29))
    inputs = 3 if size > 4 else _channels(rng, 256)
    return Conv(inputs, _channels(rng), (size * places,) * 2, size, size, padding=0, after="")


def _pointwise(rng: Rng) -> Conv:
    stride = _pick(rng, [1, 1, 1, 2])
    return Conv(_channels(rng, 1024), _channels(rng, 1024), _image(rng), 1, stride)


def _grouped(rng: Rng) -> Conv:
    groups = _pick(rng, [2, 2, 3, 4, 8, 16, 32, 64])
    inner = _pick(rng, [4, 8, 12, 16, 20, 24, 40, 56, 68, 80, 112])
    outer = _pick(rng, [inner, inner, 2 * inner, max(2, inner // 4)])
    return Conv(groups * inner, groups * outer, _image(rng), _pick(rng, [1, 3, 3, 5]),
                _pick(rng, [1, 1, 2]), groups)


def _depthwise(rng: Rng) -> Conv:
    channels = _channels(rng, 1024)
    return Conv(channels, channels, _image(rng), _pick(rng, [3, 3, 5, 7, 9, (1, 5)]),
                _pick(rng, [1, 1, 2]), channels, after="Relu6")


def _dilated(rng: Rng) -> Conv:
    return Conv(_channels(rng, 512), _channels(rng, 512), _image(rng), _pick(rng, [3, 3, 5]), 1,
                dilation=_pick(rng, [2, 3, 4, 6, 8, 12]))


def _head(rng: Rng) -> Conv:
    outputs = _pick(rng, [1, 2, 3, 4, 12, 17, 21, 24, 36, 84, 126, 255, 324, 546])
    return Conv(_channels(rng, 1024), outputs, _image(rng), _pick(rng, [1, 3]), after="")


def _sequence(rng: Rng) -> Conv:
    steps = (int(2 ** rng.uniform(5, 13)),)
    return Conv(_channels(rng, 512), _channels(rng, 512), steps,
                _pick(rng, [1, 2, 3, 5, 7, 11, 25]),
                _pick(rng, [1, 1, 2, 4]))


def _dilated_sequence(rng: Rng) -> Conv:
    steps = (int(2 ** rng.uniform(8, 13)),)
    return Conv(_channels(rng, 256), _channels(rng, 256), steps, _pick(rng, [2, 3, 5]), 1,
                dilation=2 ** int(rng.integers(1, 7)))


def _volume(rng: Rng) -> Conv:
    side = int(_pick(rng, [7, 8, 14, 16, 28, 32]))
    window = _pick(rng, [3, 3, (1, 3, 3), (3, 1, 1), 1, 5])
    return Conv(_channels(rng, 256), _channels(rng, 256),
                (int(_pick(rng, [2, 4, 8, 16])), side, side),
                window, _pick(rng, [1, 1, 2]))


def _transposed(rng: Rng) -> Conv:
    window, stride, padding = _pick(rng, [(2, 2, 0), (4, 2, 1), (3, 2, 1), (8, 4, 2)])
    side = int(_pick(rng, [4, 7, 8, 14, 16, 28, 32]))
    return Conv(_channels(rng, 512), _channels(rng, 256), (side, side), window, stride,
                padding=padding, transposed=True)


def _rows(most: int) -> Callable[[Rng], Drawn]:
    def made(rng: Rng) -> Drawn:
        rows = int(2 ** rng.uniform(0, np.log2(most)))
        inputs, outputs = _channels(rng, 3072), _channels(rng, 3072)
        while rows * inputs * outputs > MOST_WORK:
            rows //= 2
        return f"{rows}x{inputs}x{outputs}", dense(rows, inputs, outputs), "8qf"

    return made


def _matmul(rng: Rng) -> Drawn:
    batch = _pick(rng, [(), (), (4,), (12,), (2, 8)])
    a, b, c = (_channels(rng, 600) for _ in range(3))
    first, second = (*batch, a, b), (*batch, b, c)
    if prod(batch) * a * b * c > MOST_WORK:
        return _matmul(rng)
    return f"{shape_name(first)}_{shape_name(second)}", matmul(first, second), ""


def _attention(rng: Rng) -> Drawn:
    heads, width = int(_pick(rng, [1, 3, 6, 8, 12, 16])), int(_pick(rng, [16, 32, 40, 64, 80, 128]))
    keys = int(2 ** rng.uniform(4, 10))
    queries = _pick(rng, [1, keys, keys, 64])
    if heads * keys * queries * width > MOST_WORK // 2:
        return _attention(rng)
    return f"{heads}x{queries}x{keys}x{width}", attention(heads, queries, keys, width), "8"


def _recurrent(rng: Rng) -> Drawn:
    op, steps = _pick(rng, ["LSTM", "GRU"]), int(rng.integers(1, 60))
    inputs, hidden = _channels(rng, 512), _channels(rng, 512)
    both = bool(rng.random() < 0.3)
    name = f"{op}_{steps}x{inputs}x{hidden}" + ("_both" if both else "")
    return name, recurrent(op, steps, inputs, hidden, both), "8"


def _shape(rng: Rng, rank: int | None = None, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
    """Some extents whose product is not too large."""
    size = int(rng.integers(2, 5)) if rank is None else rank
    while True:
        made = tuple(int(2 ** rng.uniform(0 if at == 0 else 2, 9)) for at in range(size))
        if 500 < prod(made) <= most:
            return made


def _unary(rng: Rng) -> Drawn:
    op = _pick(rng, ["Relu", "Sigmoid", "Tanh", "Erf", "Gelu", "SiLU", "HardSwish", "Exp", "Elu",
                     "LeakyRelu", "Softplus", "Abs", "GeluTanh", "Mish"])
    shape = _shape(rng)
    return f"{op}_{shape_name(shape)}", elements.unary(op, shape), ""


def _binary(rng: Rng) -> Drawn:
    op, shape = _pick(rng, ["Add", "Mul", "Sub", "Div", "Max"]), _shape(rng)
    other = tuple(1 if rng.random() < 0.3 else extent for extent in shape)
    return f"{op}_{shape_name(shape)}_{shape_name(other)}", elements.binary(op, shape, other), ""


def _softmax(rng: Rng) -> Drawn:
    shape = _shape(rng)
    axis = -1 if rng.random() < 0.8 else 1
    return f"{shape_name(shape)}_axis{axis}", elements.along("Softmax", shape, axis), ""


def _norm(rng: Rng) -> Drawn:
    kind = _pick(rng, ["layer", "layer_composed", "rms", "batch", "instance"])
    shape = _shape(rng, 4 if kind in ("batch", "instance") else 2)
    make: Make = {
        "layer": lambda: elements.layer_norm(shape),
        "layer_composed": lambda: elements.layer_norm(shape, True),
        "rms": lambda: elements.rms_norm(shape), "batch": lambda: elements.batch_norm(shape),
        "instance": lambda: elements.instance_norm(shape),
    }[kind]()
    return f"{kind}_{shape_name(shape)}", make, ""


def _pool(rng: Rng) -> Drawn:
    op = _pick(rng, ["MaxPool", "MaxPool", "AveragePool"])
    window, stride = _pick(rng, [(3, 2), (2, 2), (3, 1), (5, 1)])
    shape = (1, _channels(rng), *_image(rng))
    if prod(shape) > MOST_ELEMENTS or min(shape[2:]) < window:
        return _pool(rng)
    name = f"{op}_{shape_name(shape)}_{window}_s{stride}"
    return name, elements.pool(op, shape, window, stride, window // 2), "8q"


def _reduction(rng: Rng) -> Drawn:
    op, shape = _pick(rng, ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"]), _shape(rng)
    axis = int(rng.integers(len(shape)))
    return f"{op}_{shape_name(shape)}_axis{axis}", elements.reduced(op, shape, (axis,)), ""


def _transpose(rng: Rng) -> Drawn:
    shape = _shape(rng)
    order = tuple(int(at) for at in rng.permutation(len(shape)))
    if order == tuple(range(len(shape))):
        return _transpose(rng)
    return f"{shape_name(shape)}_{shape_name(order)}", movement.transposed(shape, order), ""


def _concat(rng: Rng) -> Drawn:
    shape, parts = _shape(rng, most=MOST_ELEMENTS // 4), int(rng.integers(2, 5))
    axis = int(rng.integers(len(shape)))
    name = f"{parts}x{shape_name(shape)}_axis{axis}"
    return name, movement.concatenated(axis, *[shape] * parts), ""


def _top(rng: Rng) -> Drawn:
    rows, size = _pick(rng, [1, 1, 8, 100]), int(2 ** rng.uniform(6, 17))
    count = min(size, int(2 ** rng.uniform(0, 10)))
    if rows * size > MOST_ELEMENTS:
        return _top(rng)
    return f"TopK_{count}of{rows}x{size}", detection.top((rows, size), count), ""


def _gather(rng: Rng) -> Drawn:
    table = (int(2 ** rng.uniform(6, 15)), int(2 ** rng.uniform(2, 8)))
    count = int(2 ** rng.uniform(0, 12))
    name = f"Gather_{shape_name(table)}_{count}"
    return name, detection.gathered(table, (count,)), "f"


def _resize(rng: Rng) -> Drawn:
    shape = (1, _channels(rng, 256), *_image(rng))
    mode = _pick(rng, ["nearest", "linear"])
    if prod(shape) * 4 > MOST_ELEMENTS:
        return _resize(rng)
    return f"{mode}_{shape_name(shape)}", movement.resized(shape, (1, 1, 2, 2), mode=mode), ""


DRAWS: dict[str, Callable[[Rng], Drawn]] = {
    "conv": _conv(_dense_conv), "conv-strided": _conv(_strided), "conv-patch": _conv(_patch),
    "conv-pointwise": _conv(_pointwise), "conv-grouped": _conv(_grouped),
    "conv-depthwise": _conv(_depthwise), "conv-dilated": _conv(_dilated), "conv-head": _conv(_head),
    "conv-1d": _conv(_sequence), "conv-1d-dilated": _conv(_dilated_sequence, "8f"),
    "conv-3d": _conv(_volume, "f"), "conv-transposed": _conv(_transposed, "8f"),
    "dense": _rows(1024), "dense-row": _rows(8), "matmul": _matmul, "attention": _attention,
    "recurrent": _recurrent, "element-wise": _unary, "broadcast": _binary, "softmax": _softmax,
    "norm": _norm, "pool": _pool, "reduction": _reduction, "transpose": _transpose,
    "concat": _concat, "sort": _top, "gather": _gather, "resize": _resize,
}


def sample(count: int, seed: int) -> list[Layer]:
    """So many layers, every class as often; the same seed draws the same ones."""
    rng = np.random.default_rng(seed)
    kinds = list(DRAWS)
    found: dict[str, Layer] = {}
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        name, make, letters = DRAWS[kind](rng)
        letter = "" if not letters or rng.random() < 0.5 else _pick(rng, letters)
        layer = Layer(kind, name, make, Variant.parse(letter))
        found.setdefault(layer.key, layer)
    return list(found.values())
