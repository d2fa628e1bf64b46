"""Graphs drawn at random: operators' cases joined by reshaping, networks, shapes of all kinds."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sterna import relay
from sterna.ir.types import TensorType, TupleType, flatten_type
from sterna.relay.arrays import from_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import AnyOp, Case, Op, call, records
from tests.op.empty_cases import emptied, fits_type_rule
from tests.op.harness import arrays_of


@dataclass
class Drawn:
    """A function and values for its parameters."""

    function: relay.Function
    values: list[Any]


@dataclass
class _Graph:
    rng: np.random.Generator
    values: dict[Var, Any] = field(default_factory=dict)
    pool: list[RelayExpr] = field(default_factory=list)

    def leaf(self, array: Any, constant: float = 0.5) -> RelayExpr:
        if self.rng.random() < constant:
            return Constant(from_numpy(np.asarray(array, order="C")))
        made = relay.var(f"v{len(self.values)}", shape=array.shape, dtype=str(array.dtype))
        self.values[made] = array
        return made

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def result(self) -> Drawn:
        """The function whose results are what nothing reads."""
        read = {id(part) for e in self.pool for part in _below(e)}
        ends = [e for e in self.pool if id(e) not in read] or self.pool[-1:]
        body = ends[0] if len(ends) == 1 else Tuple(tuple(ends))
        params = tuple(relay.analysis.free_vars(body))
        return Drawn(relay.Function(params, body), [self.values[p] for p in params])


def _below(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    inner: tuple[RelayExpr, ...] = expr.operands()  # type: ignore[attr-defined]
    deeper = [part.operands() for part in inner if isinstance(part, Tuple)]
    return (*inner, *[part for parts in deeper for part in parts])


def draw_cases(seed: int, size: int = 8) -> Drawn:
    """Cases of operators, whose operands are what others gave, brought into shape."""
    graph = _Graph(np.random.default_rng(seed))
    usable = [record for record in records().values() if record.cases]
    for _ in range(size):
        record = graph.pick(usable)
        case = graph.pick(record.cases)
        fixed = [isinstance(given, np.ndarray) for given in case.inputs]
        arrays = arrays_of(case, int(graph.rng.integers(1000)))
        if seed % 5 == 2:
            arrays = _hollow(graph, record, case) or arrays
        args = [
            _operand(graph, array, is_fixed) for array, is_fixed in zip(arrays, fixed, strict=True)
        ]
        attrs = record.attrs(**case.attrs) if record.attrs is not None else None
        _add(graph, Call(Op(record.name), tuple(args), attrs))
    return graph.result()


def _hollow(graph: _Graph, record: AnyOp, case: Case) -> list[Any] | None:
    """Operands of a case one of which has no elements, if there are such."""
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    usable = [made for made in emptied(case) if fits_type_rule(record, attrs, made)]
    return graph.pick(usable) if usable else None


def _operand(graph: _Graph, array: Any, fixed: bool) -> RelayExpr:
    if isinstance(array, list):
        return Tuple(tuple(_operand(graph, part, fixed) for part in array))
    usable = [e for e in graph.pool if _static(e)]
    if fixed or array.ndim == 0 or not usable or graph.rng.random() < 0.3:
        return graph.leaf(array)
    return _adapted(graph.pick(usable), array)


def _static(expr: RelayExpr) -> bool:
    kind = expr.checked_type
    return isinstance(kind, TensorType) and kind.is_static and kind.dtype.bits >= 8


def _adapted(expr: RelayExpr, like: Any) -> RelayExpr:
    """An expression with the elements of another, in the shape and the type of an array."""
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    have, want = int(np.prod(kind.concrete_shape)), like.size
    if kind.concrete_shape != like.shape:
        if have != want:
            expr = call("reshape", expr, newshape=(have,), allowzero=True)
            if have == 0:
                expr = Constant(from_numpy(np.ones(1).astype(like.dtype)))
            if have < want:
                expr = call("tile", expr, reps=(-(-want // max(1, have)),))
            expr = call("strided_slice", expr, begin=(0,), end=(want,))
        expr = call("reshape", expr, newshape=like.shape, allowzero=True)
    if kind.dtype != str(like.dtype):
        expr = call("cast", expr, dtype=str(like.dtype))
    if str(like.dtype).startswith(("float", "bfloat")):
        expr = call("clip", expr, a_min=-3.0, a_max=3.0)
    return expr


def _add(graph: _Graph, made: RelayExpr) -> None:
    kind = made.checked_type
    if isinstance(kind, TupleType):
        graph.pool += [TupleGetItem(made, place) for place in range(len(flatten_type(kind)))]
    else:
        graph.pool.append(made)


# ---- like networks ----


def draw_network(seed: int, size: int = 12) -> Drawn:
    """Convolutions, norms, pools, joins and what stands between them."""
    graph = _Graph(np.random.default_rng(seed))
    nhwc = seed % 3 == 0
    channels = graph.pick((4, 8))
    shape = (1, 6, 6, channels) if nhwc else (1, channels, 6, 6)
    data = np.asarray(graph.rng.standard_normal(shape), "float32")
    graph.pool.append(graph.leaf(data, 0.0))
    for _ in range(size):
        step = graph.pick(_STEPS)
        pictures = [e for e in graph.pool if _picture(e)]
        made = step(graph, graph.pick(pictures), "NHWC" if nhwc else "NCHW")
        if made is not None:
            _add(graph, made)
    return graph.result()


def _picture(expr: RelayExpr) -> bool:
    kind = expr.checked_type
    return isinstance(kind, TensorType) and kind.ndim == 4 and min(kind.concrete_shape) > 0


def _shape(expr: RelayExpr, layout: str) -> dict[str, int]:
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    return dict(zip(layout, kind.concrete_shape, strict=True))


def _weights(graph: _Graph, *shape: int, scale: float = 0.5) -> RelayExpr:
    array = np.asarray(graph.rng.standard_normal(shape) * scale, "float32")
    return graph.leaf(array, 0.85)


def _per_channel(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    channels = _shape(data, layout)["C"]
    return _weights(graph, channels, 1, 1) if layout == "NCHW" else _weights(graph, channels)


def _conv(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    dims = _shape(data, layout)
    kernel = graph.pick((1, 3)) if min(dims["H"], dims["W"]) > 2 else 1
    groups = graph.pick((1, 1, 1, 2, dims["C"]))
    groups = groups if dims["C"] % groups == 0 else 1
    out = graph.pick((4, 8, 12))
    out = out if out % groups == 0 else dims["C"]
    inner = dims["C"] // groups
    shape = (out, inner, kernel, kernel) if layout == "NCHW" else (kernel, kernel, inner, out)
    return call(
        "nn.conv2d", data, _weights(graph, *shape, scale=0.3), padding=kernel // 2, groups=groups,
        strides=graph.pick(((1, 1), (1, 1), (2, 2))), data_layout=layout,
        kernel_layout="OIHW" if layout == "NCHW" else "HWIO",
    )


def _norm(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    channels = _shape(data, layout)["C"]
    parts = [_weights(graph, channels) for _ in range(3)]
    variance = Constant(from_numpy(np.asarray(graph.rng.random(channels) + 0.5, "float32")))
    whole = call("nn.batch_norm", data, *parts, variance, axis=layout.index("C"))
    return TupleGetItem(whole, 0)


def _bias(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    bias = _weights(graph, _shape(data, layout)["C"])
    return call("nn.bias_add", data, bias, axis=layout.index("C"))


def _arithmetic(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    other = _per_channel(graph, data, layout)
    if graph.rng.random() < 0.3:
        other = graph.leaf(np.asarray(graph.pick((0.0, 1.0, 0.5)), "float32"), 0.9)
    operands = (data, other) if graph.rng.random() < 0.7 else (other, data)
    return call(graph.pick(("add", "multiply", "subtract", "maximum")), *operands)


def _residual(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    same = [e for e in graph.pool if e.checked_type == data.checked_type]
    return call(graph.pick(("add", "multiply", "maximum")), data, graph.pick(same))


def _activation(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    if graph.rng.random() < 0.3:
        return call("clip", data, a_min=0.0, a_max=6.0)
    name = graph.pick(("nn.relu", "nn.relu", "sigmoid", "tanh", "exp", "negative"))
    return call(name, call("clip", data, a_min=-2.0, a_max=2.0) if name == "exp" else data)


def _pool(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr | None:
    dims = _shape(data, layout)
    if min(dims["H"], dims["W"]) < 2:
        return None
    name = graph.pick(("nn.max_pool2d", "nn.avg_pool2d"))
    return call(name, data, pool_size=(2, 2), strides=graph.pick(((1, 1), (2, 2))), layout=layout)


def _global_pool(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    return call("nn.global_avg_pool2d", data, layout=layout)


def _join(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    dims, axis = _shape(data, layout), layout.index("C")
    fits = [
        e for e in graph.pool
        if _picture(e) and {**_shape(e, layout), "C": 0} == {**dims, "C": 0}
    ]
    parts = [graph.pick(fits) for _ in range(graph.pick((1, 2, 3)))]
    return call("concatenate", Tuple((data, *parts)), axis=graph.pick((axis, axis - 4)))


def _split(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr | None:
    axis = layout.index("C")
    if _shape(data, layout)["C"] % 2:
        return None
    return call("split", data, indices_or_sections=2, axis=axis)


def _reduce(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    axis = graph.pick(((1,), (2, 3), (-1,), (0, 2), None))
    name = graph.pick(("mean", "max", "sum"))
    return call(name, data, axis=axis, keepdims=bool(graph.pick((0, 1))),
                exclude=bool(graph.pick((0, 0, 1))) and axis is not None)


def _move(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    axes = graph.pick(((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 2, 3)))
    back = tuple(np.argsort(axes).tolist())
    once = call("transpose", data, axes=axes)
    return call("transpose", call("nn.relu", once) if graph.rng.random() < 0.5 else once, axes=back)


def _softmax(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    return call("nn.softmax", data, axis=graph.pick((1, -1, 3)))


def _pad(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    width = {"H": (1, 0), "W": (1, 1)}
    zero = relay.const(0.0)
    return call("nn.pad", data, zero, pad_width=tuple(width.get(a, (0, 0)) for a in layout))


def _classify(graph: _Graph, data: RelayExpr, layout: str) -> RelayExpr:
    flat = call("nn.batch_flatten", data)
    kind = flat.checked_type
    assert isinstance(kind, TensorType)
    made = call("nn.dense", flat, _weights(graph, 3, kind.concrete_shape[1], scale=0.1))
    return call("nn.softmax", call("nn.bias_add", made, _weights(graph, 3)))


_STEPS = (
    _conv, _conv, _conv, _norm, _norm, _bias, _arithmetic, _arithmetic, _residual, _activation,
    _activation, _pool, _global_pool, _join, _split, _reduce, _move, _softmax, _pad, _classify,
)


# ---- shapes and types of all kinds ----

_DIMS = (1, 1, 2, 3, 5, 8, 13, 17)
_TYPES = ("float32", "float32", "float32", "int32", "int8", "uint8", "float16", "bool")


def draw_shapes(seed: int, size: int = 8) -> Drawn:
    """Operators on tensors of no to four dimensions: ones, primes, whole vectors."""
    graph = _Graph(np.random.default_rng(seed))
    for rank in (4, graph.pick((0, 1, 2, 3))):
        shape = tuple(int(graph.pick(_DIMS)) for _ in range(rank))
        graph.pool.append(_tensor(graph, shape, graph.pick(_TYPES), 0.0))
    while size > 0:
        made = graph.pick(_SHAPE_STEPS)(graph, graph.pick(graph.pool[-3:]))
        if made is not None:
            _add(graph, made)
            size -= 1
    return graph.result()


def _tensor(graph: _Graph, shape: Any, dtype: str, constant: float = 0.5) -> RelayExpr:
    numbers = np.asarray(graph.rng.standard_normal(shape) * (1 if "float" in dtype else 9))
    return graph.leaf(np.abs(numbers).astype(dtype), constant)


def _dims(expr: RelayExpr) -> tuple[tuple[int, ...], str]:
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    return kind.concrete_shape, str(kind.dtype)


def _floats(expr: RelayExpr) -> RelayExpr:
    dtype = _dims(expr)[1]
    expr = expr if dtype in ("float32", "float16") else call("cast", expr, dtype="float32")
    return call("clip", expr, a_min=-3.0, a_max=3.0)


def _step_unary(graph: _Graph, data: RelayExpr) -> RelayExpr:
    return call(graph.pick(("exp", "tanh", "sigmoid", "erf", "floor", "nn.relu")), _floats(data))


def _step_binary(graph: _Graph, data: RelayExpr) -> RelayExpr:
    shape, dtype = _dims(data)
    start = int(graph.rng.integers(len(shape) + 1))
    other = _tensor(graph, [graph.pick((1, dim)) for dim in shape[start:]], dtype)
    if dtype == "bool":
        return call(graph.pick(("logical_and", "logical_or")), data, other)
    return call(graph.pick(("add", "multiply", "subtract", "maximum", "less")), data, other)


def _step_where(graph: _Graph, data: RelayExpr) -> RelayExpr:
    shape, dtype = _dims(data)
    return call("where", _tensor(graph, shape[1:], "bool"), data, _tensor(graph, shape, dtype))


def _step_cast(graph: _Graph, data: RelayExpr) -> RelayExpr:
    return call("cast", _floats(call("abs", _floats(data))), dtype=graph.pick(_TYPES))


def _step_reduce(graph: _Graph, data: RelayExpr) -> RelayExpr:
    axis = graph.pick((None, *range(len(_dims(data)[0]))))
    name = graph.pick(("sum", "mean", "max", "argmax", "argmin"))
    return call(name, _floats(data), axis=axis, keepdims=bool(graph.pick((0, 1))))


def _step_move(graph: _Graph, data: RelayExpr) -> RelayExpr:
    shape, _ = _dims(data)
    axes = tuple(graph.rng.permutation(len(shape)).tolist())
    moved = call("transpose", data, axes=axes) if shape else data
    return call("reshape", moved, newshape=(shape[0], -1) if len(shape) > 2 else (-1, 1))


def _step_join(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, dtype = _dims(data)
    if not shape or int(np.prod(shape)) > 4000:
        return None
    return call("concatenate", Tuple((data, _tensor(graph, shape, dtype), data)), axis=-1)


def _step_cut(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, _ = _dims(data)
    if not shape or shape[-1] < 2:
        return None
    if graph.rng.random() < 0.5:
        return call("split", data, indices_or_sections=(1,), axis=len(shape) - 1)
    index = graph.leaf(np.asarray(graph.rng.integers(-1, shape[-1], 3), "int32"))
    return call("take", data, index, axis=len(shape) - 1, mode="wrap")


def _step_pad(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, dtype = _dims(data)
    width = tuple(graph.pick(((0, 0), (1, 0), (0, 2))) for _ in shape)
    value = Constant(from_numpy(np.asarray(1, dtype)))
    return call("nn.pad", data, value, pad_width=width) if shape else None


def _step_rows(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, _ = _dims(data)
    name = graph.pick(("nn.softmax", "nn.log_softmax", "cumsum"))
    axis = int(graph.rng.integers(max(1, len(shape))))
    return call(name, _floats(data), axis=axis) if shape else None


def _step_dense(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, _ = _dims(data)
    if not shape:
        return None
    rows = call("reshape", _floats(data), newshape=(-1, shape[-1]))
    weight = _tensor(graph, (graph.pick((1, 7, 16)), shape[-1]), _dims(rows)[1])
    return call("nn.relu", call("nn.dense", rows, weight))


def _step_conv(graph: _Graph, data: RelayExpr) -> RelayExpr | None:
    shape, _ = _dims(data)
    data = _floats(data)
    if len(shape) != 4:
        return None
    weight = _tensor(graph, (graph.pick((1, 8, 17)), shape[1], 3, 1), _dims(data)[1])
    return call("nn.relu", call("nn.conv2d", data, weight, padding=(1, 0, 1, 0)))


_SHAPE_STEPS = (
    _step_unary, _step_binary, _step_binary, _step_where, _step_cast, _step_reduce, _step_move,
    _step_join, _step_cut, _step_pad, _step_rows, _step_dense, _step_conv, _step_conv,
)
