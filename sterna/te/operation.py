"""What users write: placeholder, compute, reductions, variables."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike, Var
from sterna.ir.structural import structural_equal
from sterna.support.dtype import DataType
from sterna.support.float_format import format_of, is_small_float
from sterna.te.tag import tag_in_scope
from sterna.te.tensor import (
    COMM_REDUCE,
    DATA_PAR,
    OPAQUE,
    THREAD_INDEX,
    CommReducer,
    ComputeOp,
    IterVar,
    PlaceholderOp,
    ProducerLoad,
    Range,
    Reduce,
    Tensor,
)

Shape = Sequence[ExprLike] | ExprLike


def as_shape(shape: Shape) -> list[Expr]:
    """The extents that a user wrote, as expressions."""
    extents = list(shape) if isinstance(shape, tuple | list) else [shape]
    converted = [build.as_expr(extent) for extent in extents]
    for extent in converted:
        if not extent.dtype.is_integer:
            raise TypeError(f"a shape is made of integers, not of {extent.dtype}")
        if (number := build.int_value(extent)) is not None and number < 0:
            raise ValueError(f"a shape cannot have the negative extent {number}")
    return converted


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A variable."""
    return Var(name, DataType(dtype))


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """A variable that is at least 0, such as an extent."""
    return Var(name, DataType(dtype), True)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """A constant."""
    return build.const(value, dtype)


def placeholder(shape: Shape, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor."""
    return PlaceholderOp(name, as_shape(shape), DataType(dtype or "float32")).output(0)


def _domain(dom: Range | Sequence[ExprLike], name: str) -> Range:
    if isinstance(dom, Range):
        return dom
    if len(dom) != 2:
        raise TypeError(f"the range of {name} is a pair of begin and end, not {dom!r}")
    begin, end = build.match_types(dom[0], dom[1])
    return Range.from_min_extent(begin, build.sub(end, begin))


def reduce_axis(
    dom: Range | Sequence[ExprLike], name: str = "rv", thread_tag: str = ""
) -> IterVar:
    """An axis to reduce over, from begin to end."""
    return IterVar(_domain(dom, name), name, COMM_REDUCE, thread_tag)


def thread_axis(
    dom: Any = None, tag: str = "", name: str = ""
) -> IterVar:
    """An axis that is one of a GPU's thread indices."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise ValueError("tag must be given as Positional or keyword argument")
    if dom is not None:
        pair = dom if isinstance(dom, tuple | list | Range) else (0, dom)
        dom = _domain(pair, tag)
    return IterVar(dom, name or tag, THREAD_INDEX, tag)


def compute(
    shape: Shape,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """A tensor whose elements are an expression of their indices; several if it gives a tuple."""
    extents = as_shape(shape)
    names = _argument_names(fcompute, len(extents), name, varargs_names)
    axes = [
        IterVar(Range.from_min_extent(build.const(0, extent.dtype), extent), axis_name, DATA_PAR)
        for axis_name, extent in zip(names, extents, strict=True)
    ]
    result = fcompute(*[axis.var for axis in axes])
    several = isinstance(result, tuple | list)
    body = [_body_expr(item, name) for item in (result if several else [result])]
    op = ComputeOp(name, axes, body, tag_in_scope(tag), attrs)
    return tuple(op.outputs) if several else op.output(0)


def _body_expr(item: Any, name: str) -> Expr:
    if isinstance(item, Tensor) and item.ndim == 0:
        return item()
    try:
        return build.as_expr(item)
    except TypeError as error:
        raise TypeError(f"compute {name}: {error}") from None


def _argument_names(
    function: Callable[..., Any], ndim: int, name: str, varargs_names: Sequence[str] | None
) -> list[str]:
    parameters = list(inspect.signature(function).parameters.values())
    kinds = inspect.Parameter
    positional = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    plain = [p for p in parameters if p.kind in positional]
    if any(p.kind in (kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD) for p in parameters):
        raise ValueError(f"compute {name}: the function must take positional arguments only")
    if any(p.default is not kinds.empty for p in plain):
        raise ValueError(f"compute {name}: the function's arguments must have no defaults")
    names = [p.name for p in plain]
    if any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        rest = ndim - len(names)
        more = list(varargs_names) if varargs_names else [f"i{k}" for k in range(rest)]
        if len(more) != rest:
            raise RuntimeError(f"compute {name}: {rest} names are needed in varargs_names")
        names += more
    if len(names) != ndim:
        raise ValueError(
            f"fcompute do not match dimension, ndim={ndim}, but compute {name}'s function takes "
            f"{len(names)} arguments"
        )
    return names


# ---- reductions ----


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reduction by a commutative function and its neutral element."""

    def make(dtypes: Sequence[DataType]) -> CommReducer:
        several = len(dtypes) > 1
        left = tuple(Var(f"x{i}" if several else "x", t) for i, t in enumerate(dtypes))
        right = tuple(Var(f"y{i}" if several else "y", t) for i, t in enumerate(dtypes))
        if several:
            result, identity = fcombine(left, right), fidentity(*dtypes)
        else:
            result, identity = (fcombine(left[0], right[0]),), (fidentity(dtypes[0]),)
        like = [Var("like", t) for t in dtypes]
        return CommReducer(
            left,
            right,
            tuple(build.cast(t, r) for t, r in zip(dtypes, result, strict=True)),
            tuple(build.as_expr(i, k) for i, k in zip(identity, like, strict=True)),
        )

    def reduction(
        expr: Any, axis: Any, where: ExprLike | None = None, init: Any = None, *args: Any
    ) -> Any:
        axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
        for item in axes:
            if not isinstance(item, IterVar) or item.iter_type not in (COMM_REDUCE, OPAQUE):
                raise TypeError(f"{name} reduces over axes made by reduce_axis, not over {item!r}")
        several = isinstance(expr, tuple | list)
        source = tuple(build.as_expr(e) for e in (expr if several else [expr]))
        condition = build.const(True) if where is None else build.as_expr(where)
        start: tuple[Expr, ...] = ()
        if init is not None:
            given = init if isinstance(init, tuple | list) else [init]
            start = tuple(
                build.cast(s.dtype, build.as_expr(i, s)) for i, s in zip(given, source, strict=True)
            )
        combiner = make([s.dtype for s in source])
        made = tuple(
            Reduce(combiner, source, axes, condition, i, start) for i in range(len(source))
        )
        return made if several else made[0]

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = f"The {name} of an expression over one or more reduce axes."
    return reduction


def min_value(dtype: str) -> Expr:
    """The smallest number of a type; minus infinity for floats is not it."""
    kind = DataType(dtype)
    if kind == "float8_e8m0fnu":  # it has no sign
        return build.const(format_of(kind).decode(0), kind)
    if kind.is_float:
        return build.const(-_largest_float(kind), kind)
    if kind.is_uint or kind.is_bool:
        return build.const(0, kind)
    return build.const(-(1 << (kind.bits - 1)), kind)


def max_value(dtype: str) -> Expr:
    """The largest finite number of a type."""
    kind = DataType(dtype)
    if kind.is_float:
        return build.const(_largest_float(kind), kind)
    if kind.is_bool:
        return build.const(True, kind)
    return build.const((1 << (kind.bits - (0 if kind.is_uint else 1))) - 1, kind)


def _largest_float(kind: DataType) -> float:
    if is_small_float(kind):
        return format_of(kind).maximum
    return 3.4028234663852886e38 if kind.bits == 32 else 1.7976931348623157e308


def _infinity(sign: int) -> Callable[[DataType], Expr]:
    """Infinity, or the number next to it in types that have none."""

    def identity(kind: DataType) -> Expr:
        if kind.is_float and math.isinf(build.round_float(math.inf, kind)):
            return build.const(math.inf * sign, kind)
        return max_value(kind) if sign > 0 else min_value(kind)

    return identity


sum = comm_reducer(lambda x, y: x + y, lambda t: build.const(0, t), name="sum")
prod = comm_reducer(lambda x, y: x * y, lambda t: build.const(1, t), name="prod")
_min_reduction = comm_reducer(build.minimum, _infinity(1), name="min")
_max_reduction = comm_reducer(build.maximum, _infinity(-1), name="max")


def min(expr: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The minimum over reduce axes, or of two expressions."""
    if isinstance(axis, IterVar | tuple | list):
        return _min_reduction(expr, axis, where, init)
    return build.minimum(expr, axis)


def max(expr: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The maximum over reduce axes, or of two expressions."""
    if isinstance(axis, IterVar | tuple | list):
        return _max_reduction(expr, axis, where, init)
    return build.maximum(expr, axis)


# ---- operators on whole tensors ----


def _elementwise(function: Callable[[Any, Any], Expr], left: Any, right: Any, name: str) -> Any:
    if not isinstance(left, Tensor):
        left, right = right, left
        swapped = True
    else:
        swapped = False
    if not isinstance(right, Tensor):
        scalar = build.as_expr(right, Var("like", left.dtype))
        return compute(
            left.shape,
            lambda *i: function(scalar, left(*i)) if swapped else function(left(*i), scalar),
            name=name,
        )
    shape = broadcast_shape(left.shape, right.shape)
    return compute(
        shape,
        lambda *i: function(read_broadcast(left, i, shape), read_broadcast(right, i, shape)),
        name=name,
    )


def read_broadcast(
    tensor: Tensor, indices: Sequence[Any], shape: Sequence[Any]
) -> Expr:
    """The element that broadcasting pairs with these indices, of a result of that shape."""
    first = len(indices) - tensor.ndim
    picked = map(_broadcast_index, indices[first:], tensor.shape, shape[first:])
    return ProducerLoad(tensor, tuple(picked))


def _broadcast_index(index: Any, extent: Expr, wanted: Any) -> Expr:
    """An index within an extent that may be 1; only the run tells of some."""
    if build.is_const(extent, 1):
        return build.const(0)
    if build.int_value(extent) is not None or structural_equal(extent, build.as_expr(wanted)):
        return build.as_expr(index)
    return build.select(build.equal(extent, 1), 0, build.as_expr(index))


def broadcast_shape(a: Sequence[Expr], b: Sequence[Expr]) -> list[Expr]:
    """The shape of two tensors combined element by element."""
    longer, shorter = (list(a), list(b)) if len(a) >= len(b) else (list(b), list(a))
    padded = [build.const(1)] * (len(longer) - len(shorter)) + shorter
    shape = []
    for x, y in zip(longer, padded, strict=True):
        p, q = build.int_value(x), build.int_value(y)
        if p != q and 1 not in (p, q) and None not in (p, q):
            raise ValueError(f"shapes {list(a)} and {list(b)} cannot be combined")
        shape.append(y if p == 1 or (p is None and q not in (None, 1)) else x)
    return shape


def _tensor_operator(
    function: Callable[[Any, Any], Expr], name: str, swapped: bool
) -> Callable[[Tensor, Any], Any]:
    if swapped:
        return lambda self, other: _elementwise(function, other, self, name)
    return lambda self, other: _elementwise(function, self, other, name)


for _name, _function in {
    "add": build.add, "sub": build.sub, "mul": build.mul, "truediv": build.div,
    "floordiv": build.floordiv, "mod": build.floormod,
}.items():
    setattr(Tensor, f"__{_name}__", _tensor_operator(_function, f"T_{_name}", False))
    setattr(Tensor, f"__r{_name}__", _tensor_operator(_function, f"T_{_name}", True))
setattr(Tensor, "__neg__", lambda self: _elementwise(build.mul, self, -1, "T_neg"))  # noqa: B010
