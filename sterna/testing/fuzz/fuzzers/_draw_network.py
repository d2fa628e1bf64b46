"""Networks drawn at random, as models of ONNX: pictures, rows, reductions, integers, joins."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


@dataclass(frozen=True, slots=True)
class Network:
    """A model and values for its inputs."""

    model: onnx.ModelProto
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A result so far."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(slots=True)
class Draft:
    """A graph that grows."""

    rng: random.Random
    numbers: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    pool: list[Tensor] = field(default_factory=list)
    count: int = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def weight(self, array: Any) -> str:
        name = self.fresh("w")
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def normal(self, *shape: int, scale: float = 0.5) -> str:
        return self.weight((self.numbers.standard_normal(shape) * scale).astype("float32"))

    def whole(self, *values: int) -> str:
        return self.weight(np.array(values, "int64"))

    def take(self, rank: int | None = None, dtype: str = "float32") -> Tensor | None:
        """A result to go on from, of a rank."""
        fits = [t for t in self.pool if t.dtype == dtype and rank in (None, len(t.shape))]
        return self.rng.choice(fits[-4:]) if fits else None

    def add(
        self, op: str, inputs: list[str], shape: tuple[int, ...], dtype: str = "float32",
        **attributes: Any,
    ) -> None:
        """A node with one result."""
        name = self.fresh(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.pool.append(Tensor(name, shape, dtype))


def draw_network(rng: random.Random) -> Network:
    """A network of a few nodes, all of whose ends are outputs."""
    draft = Draft(rng, np.random.default_rng(rng.getrandbits(16)))
    for _ in range(rng.choice((1, 1, 2))):
        rank = rng.choice((4, 4, 2, 3))
        shape = tuple(rng.choice((1, 2, 3, 4, 5, 7, 8, 16)) for _ in range(rank))
        if rank == 4:
            shape = (rng.choice((1, 1, 2)), rng.choice((1, 3, 4, 8)), *shape[2:])
        name = draft.fresh("x")
        draft.inputs[name] = draft.numbers.standard_normal(shape).astype("float32")
        draft.pool.append(Tensor(name, shape))
    wanted = rng.randint(1, 8)
    for _ in range(4 * wanted):
        if len(draft.nodes) >= wanted:
            break
        rng.choice(STEPS)(draft)
    if not draft.nodes:
        _activation(draft)
    return _finish(draft)


def _finish(draft: Draft) -> Network:
    read = {name for node in draft.nodes for name in node.input}
    made = {name for node in draft.nodes for name in node.output}
    ends = [t for t in draft.pool if t.name in made and t.name not in read]
    used = {name: array for name, array in draft.inputs.items() if name in read}
    graph = helper.make_graph(
        draft.nodes, "drawn",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in used.items()],
        [helper.make_tensor_value_info(t.name, _CODES[t.dtype], t.shape) for t in ends],
        draft.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return Network(model, used)


_CODES = {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32,
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "bool": TensorProto.BOOL,
}


# ---- pictures ----


def _conv(draft: Draft) -> None:
    data, rng = draft.take(4), draft.rng
    if data is None:
        return
    n, c, h, w = data.shape
    groups = rng.choice([g for g in (1, 1, c, 2) if c % g == 0])
    out = groups * rng.choice((1, 2, 3, 4, 8))
    window = (rng.choice((1, 2, 3)), rng.choice((1, 3, 5)))
    strides, dilations = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2, 3))), (1, rng.choice((1, 2)))
    pads = [rng.choice((0, 1, 2)) for _ in range(4)]
    spans = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    rows = (h + pads[0] + pads[2] - spans[0]) // strides[0] + 1
    columns = (w + pads[1] + pads[3] - spans[1]) // strides[1] + 1
    if rows < 1 or columns < 1:
        return
    operands = [data.name, draft.normal(out, c // groups, *window, scale=0.4)]
    if rng.random() < 0.6:
        operands.append(draft.normal(out))
    draft.add("Conv", operands, (n, out, rows, columns), group=groups, strides=strides, pads=pads,
              dilations=dilations)


def _transposed(draft: Draft) -> None:
    data, rng = draft.take(4), draft.rng
    if data is None or max(data.shape) > 32:
        return
    n, c, h, w = data.shape
    out, window, stride = rng.choice((1, 2, 4)), rng.choice((1, 2, 3)), rng.choice((1, 2))
    operands = [data.name, draft.normal(c, out, window, window, scale=0.3)]
    shape = (n, out, (h - 1) * stride + window, (w - 1) * stride + window)
    draft.add("ConvTranspose", operands, shape, strides=[stride, stride])


def _pool(draft: Draft) -> None:
    data, rng = draft.take(4), draft.rng
    if data is None:
        return
    n, c, h, w = data.shape
    window, stride = rng.choice((1, 2, 3)), rng.choice((1, 2))
    pads = [rng.choice((0, 1)) if window > 1 else 0 for _ in range(4)]
    rows = (h + pads[0] + pads[2] - window) // stride + 1
    columns = (w + pads[1] + pads[3] - window) // stride + 1
    if rows < 1 or columns < 1:
        return
    op = rng.choice(("MaxPool", "AveragePool"))
    counted: dict[str, Any] = {}
    if op == "AveragePool":
        counted = {"count_include_pad": rng.randint(0, 1)}
    draft.add(op, [data.name], (n, c, rows, columns), kernel_shape=[window, window], pads=pads,
              strides=[stride, stride], **counted)


def _global_pool(draft: Draft) -> None:
    data = draft.take(4)
    if data is not None:
        op = draft.rng.choice(("GlobalAveragePool", "GlobalMaxPool"))
        draft.add(op, [data.name], (*data.shape[:2], 1, 1))


def _batch_norm(draft: Draft) -> None:
    data = draft.take(4)
    if data is not None:
        channels = data.shape[1]
        variance = draft.weight((draft.numbers.random(channels) + 0.5).astype("float32"))
        operands = [data.name, *(draft.normal(channels) for _ in range(3)), variance]
        draft.add("BatchNormalization", operands, data.shape)


def _instance_norm(draft: Draft) -> None:
    data = draft.take(4)
    if data is not None and data.shape[2] * data.shape[3] > 3:
        channels = data.shape[1]
        operands = [data.name, draft.normal(channels), draft.normal(channels)]
        draft.add("InstanceNormalization", operands, data.shape)


def _resize(draft: Draft) -> None:
    data, rng = draft.take(4), draft.rng
    if data is None or max(data.shape) > 24:
        return
    n, c, h, w = data.shape
    mode = rng.choice(("nearest", "linear"))
    place = rng.choice(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    rows, columns = rng.randint(1, 2 * h), rng.randint(1, 2 * w)
    sizes = draft.whole(n, c, rows, columns)
    rounding = {"nearest_mode": rng.choice(("floor", "round_prefer_floor", "ceil"))}
    draft.add("Resize", [data.name, "", "", sizes], (n, c, rows, columns), mode=mode,
              coordinate_transformation_mode=place, **(rounding if mode == "nearest" else {}))


def _shuffle(draft: Draft) -> None:
    data = draft.take(4)
    if data is None:
        return
    n, c, h, w = data.shape
    if h % 2 == 0 and w % 2 == 0 and draft.rng.random() < 0.5:
        draft.add("SpaceToDepth", [data.name], (n, 4 * c, h // 2, w // 2), blocksize=2)
    elif c % 4 == 0:
        mode = draft.rng.choice(("DCR", "CRD"))
        draft.add("DepthToSpace", [data.name], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)


# ---- any shape ----

_UNARY = (
    "Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "Softplus", "Softsign", "Sin", "Cos", "Floor",
    "Ceil", "Round", "Sign", "Exp", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Selu", "Mish",
    "Identity", "Atan", "Celu",
)


def _activation(draft: Draft) -> None:
    data = draft.take()
    assert data is not None
    op = draft.rng.choice(_UNARY)
    name = data.name
    if op == "Exp":
        draft.add("Clip", [name, draft.weight(np.float32(-3)), draft.weight(np.float32(3))],
                  data.shape)
        name = draft.pool[-1].name
    draft.add(op, [name], data.shape)


def _arithmetic(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    start = rng.randint(0, len(data.shape))
    shape = [rng.choice((1, d)) for d in data.shape[start:]]
    same = [t for t in draft.pool if t.shape == data.shape and t.dtype == "float32"]
    other = rng.choice(same).name if rng.random() < 0.4 else draft.normal(*shape)
    operands = [data.name, other] if rng.random() < 0.7 else [other, data.name]
    draft.add(rng.choice(("Add", "Mul", "Sub", "Max", "Min")), operands, data.shape)


def _compare(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    other = draft.normal(*data.shape)
    draft.add(rng.choice(("Greater", "Less", "GreaterOrEqual")), [data.name, other], data.shape,
              "bool")
    draft.add("Where", [draft.pool[-1].name, data.name, draft.normal(*data.shape[-1:])], data.shape)


def _reduce(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    rank, keep = len(data.shape), rng.randint(0, 1)
    if not rank:
        return
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    op = rng.choice(("Mean", "Sum", "Max", "Min", "L2", "L1", "SumSquare", "LogSumExp"))
    kept = tuple(1 if i in axes else d for i, d in enumerate(data.shape) if keep or i not in axes)
    draft.add(f"Reduce{op}", [data.name, draft.whole(*axes)], kept, keepdims=keep)


def _arg_reduce(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis, keep = rng.randrange(len(data.shape)), rng.randint(0, 1)
    shape = [*data.shape[:axis], *([1] if keep else []), *data.shape[axis + 1 :]]
    draft.add(rng.choice(("ArgMax", "ArgMin")), [data.name], tuple(shape), "int64", axis=axis,
              keepdims=keep)


def _softmax(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if data.shape:
        op, rank = rng.choice(("Softmax", "LogSoftmax")), len(data.shape)
        draft.add(op, [data.name], data.shape, axis=rng.randrange(-rank, rank))


def _layer_norm(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis = rng.randrange(len(data.shape))
    tail = data.shape[axis:]
    if int(np.prod(tail)) > 3:
        draft.add("LayerNormalization", [data.name, draft.normal(*tail), draft.normal(*tail)],
                  data.shape, axis=axis)


def _transpose(draft: Draft) -> None:
    data = draft.take()
    assert data is not None
    order = draft.rng.sample(range(len(data.shape)), len(data.shape))
    if order:
        draft.add("Transpose", [data.name], tuple(data.shape[i] for i in order), perm=order)


def _reshape(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    size, shape = int(np.prod(data.shape)), []
    for _ in range(rng.randint(0, 3)):
        shape.append(rng.choice([d for d in range(1, size + 1) if size % d == 0][:12]))
        size //= shape[-1]
    shape.append(size)
    draft.add("Reshape", [data.name, draft.whole(*shape)], tuple(shape))


def _concat(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis = rng.randrange(len(data.shape))
    fits = [t for t in draft.pool if t.dtype == "float32" and len(t.shape) == len(data.shape)
            and all(a == b for i, (a, b) in enumerate(zip(t.shape, data.shape, strict=True))
                    if i != axis)]
    parts = [data, *(rng.choice(fits) for _ in range(rng.randint(1, 2)))]
    shape = list(data.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    if shape[axis] <= 64:
        draft.add("Concat", [part.name for part in parts], tuple(shape), axis=axis)


def _slice(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis = rng.randrange(len(data.shape))
    size, step = data.shape[axis], rng.choice((1, 1, 2, -1, -2))
    first, last = rng.randrange(size), rng.randint(0, size)
    begin, end = (first, last) if step > 0 else (first, last - size - 1)
    length = len(range(size)[slice(begin, None if end == -size - 1 else end, step)])
    if length:
        shape = (*data.shape[:axis], length, *data.shape[axis + 1 :])
        places = [draft.whole(each) for each in (begin, end, axis, step)]
        draft.add("Slice", [data.name, *places], shape)


def _split(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    axes = [i for i, d in enumerate(data.shape) if d > 1]
    if not axes:
        return
    axis = rng.choice(axes)
    first = rng.randint(1, data.shape[axis] - 1)
    names = [draft.fresh("split"), draft.fresh("split")]
    sizes = (first, data.shape[axis] - first)
    draft.nodes.append(
        helper.make_node("Split", [data.name, draft.whole(*sizes)], names, axis=axis)
    )
    for name, size in zip(names, sizes, strict=True):
        draft.pool.append(Tensor(name, (*data.shape[:axis], size, *data.shape[axis + 1 :])))


def _pad(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    mode = rng.choice(("constant", "constant", "edge", "reflect"))
    most = [min(2, d - 1) if mode == "reflect" else 2 for d in data.shape]
    before, after = ([rng.randint(0, m) for m in most] for _ in range(2))
    shape = tuple(a + d + b for a, d, b in zip(before, data.shape, after, strict=True))
    value = [draft.weight(np.float32(0.5))] if mode == "constant" else []
    draft.add("Pad", [data.name, draft.whole(*before, *after), *value], shape, mode=mode)


def _gather(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis = rng.randrange(len(data.shape))
    places = [rng.randrange(-data.shape[axis], data.shape[axis]) for _ in range(rng.randint(1, 4))]
    shape = (*data.shape[:axis], len(places), *data.shape[axis + 1 :])
    draft.add("Gather", [data.name, draft.whole(*places)], shape, axis=axis)


def _expand(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    shape = tuple(rng.choice((2, 3)) if d == 1 else d for d in data.shape)
    if len(shape) < 4:
        shape = (rng.choice((1, 2)), *shape)
    draft.add("Expand", [data.name, draft.whole(*shape)], shape)


def _cumsum(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if data.shape:
        axis = draft.weight(np.array(rng.randrange(len(data.shape)), "int64"))
        draft.add("CumSum", [data.name, axis], data.shape, reverse=rng.randint(0, 1),
                  exclusive=rng.randint(0, 1))


def _integers(draft: Draft) -> None:
    """There and back again by integers."""
    data, rng = draft.take(), draft.rng
    assert data is not None
    kind = rng.choice(("int32", "int64", "int8"))
    draft.add("Clip", [data.name, draft.weight(np.float32(-100)), draft.weight(np.float32(100))],
              data.shape)
    draft.add("Cast", [draft.pool[-1].name], data.shape, kind, to=_CODES[kind])
    if kind != "int8":
        factor = draft.weight(draft.numbers.integers(1, 9, data.shape[-1:]).astype(kind))
        op = rng.choice(("Add", "Mul", "Sub", "Div"))
        draft.add(op, [draft.pool[-1].name, factor], data.shape, kind)
    draft.add("Cast", [draft.pool[-1].name], data.shape, to=TensorProto.FLOAT)


# ---- products ----


def _matmul(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if len(data.shape) < 2:
        return
    columns = rng.choice((1, 3, 8, 17))
    draft.add("MatMul", [data.name, draft.normal(data.shape[-1], columns, scale=0.3)],
              (*data.shape[:-1], columns))


def _product_of_both(draft: Draft) -> None:
    """Of what was computed with its transpose, as attention has it."""
    data = draft.take()
    assert data is not None
    rank = len(data.shape)
    if rank < 2:
        return
    order = [*range(rank - 2), rank - 1, rank - 2]
    draft.add("Transpose", [data.name], tuple(data.shape[i] for i in order), perm=order)
    shape = (*data.shape[:-1], data.shape[-2])
    draft.add("MatMul", [data.name, draft.pool[-1].name], shape)


def _gemm(draft: Draft) -> None:
    data, rng = draft.take(), draft.rng
    assert data is not None
    if not data.shape:
        return
    axis = rng.randint(0, len(data.shape))
    rows, inner = int(np.prod(data.shape[:axis])), int(np.prod(data.shape[axis:]))
    if inner > 600:
        return
    draft.add("Flatten", [data.name], (rows, inner), axis=axis)
    columns, turned = rng.choice((1, 4, 10)), rng.randint(0, 1)
    weight = draft.normal(*((columns, inner) if turned else (inner, columns)), scale=0.2)
    bias = draft.normal(*rng.choice(((columns,), (1, columns), (1,))))
    draft.add("Gemm", [draft.pool[-1].name, weight, bias], (rows, columns), transB=turned,
              alpha=rng.choice((1.0, 0.5)), beta=rng.choice((1.0, 2.0)))


STEPS: tuple[Callable[[Draft], None], ...] = (
    _activation, _activation, _activation, _conv, _conv, _conv, _conv, _arithmetic, _arithmetic,
    _pool, _batch_norm, _gemm, _matmul, _transposed, _global_pool, _instance_norm, _resize,
    _shuffle, _compare, _reduce, _reduce, _arg_reduce, _softmax, _layer_norm, _transpose, _reshape,
    _concat, _slice, _split, _pad, _gather, _expand, _cumsum, _integers, _product_of_both,
)
