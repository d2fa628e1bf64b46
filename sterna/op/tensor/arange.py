"""Numbers at equal distances."""

import math
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import FLOAT32, Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import known, open_dims, tensor_type, to_static, told_by_shape
from sterna.op.tensor.convert import convert
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register
from sterna.relay.symbolic_values import is_extent
from sterna.relay.symbols import simplified_dim
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute


@attributes
class ArangeAttrs(Attrs):
    """Of arange."""

    start: int | float | Expr
    stop: int | float | Expr
    step: int | float | Expr
    dtype: DataType = DataType("float32")


@attributes
class DynArangeAttrs(Attrs):
    """Of dyn.arange."""

    dtype: DataType = DataType("float32")


def _open_length(start: Any, stop: Any, step: Any) -> Dim:
    """How many numbers lie between extents."""
    if not isinstance(step, int):
        raise ValueError("the step of numbers up to an extent must be known")
    if step == 0:
        raise ValueError("step is not 0")
    span = stop - start if step > 0 else start - stop
    if is_extent(span):
        return simplified_dim((span + (abs(step) - 1)) // abs(step))
    return simplified_dim(build.maximum((span + (abs(step) - 1)) // abs(step), 0))


def _length(start: int | float, stop: int | float, step: int | float) -> int:
    if step == 0:
        raise ValueError("step is not 0")
    if not all(math.isfinite(number) for number in (start, stop, step)):
        raise ValueError(f"start, stop and step are finite, as {start}, {stop}, {step} are not")
    if all(isinstance(number, int) for number in (start, stop, step)):
        return max(0, -int((start - stop) // step))
    return max(0, math.ceil((stop - start) / step))


def _infer(attrs: ArangeAttrs) -> TensorType:
    given: Any = (attrs.start, attrs.stop, attrs.step)
    is_open = any(isinstance(number, Expr) for number in given)
    return TensorType(((_open_length if is_open else _length)(*given),), attrs.dtype)


def _counting(dtype: DataType) -> DataType:
    """Narrow floats are counted in float32, so that the rounding of a step does not add up."""
    return FLOAT32 if dtype.is_float and dtype.bits < 32 else dtype


def _steps(start: Expr, step: Expr, out: TensorType) -> Tensor:
    kind = _counting(out.dtype)
    first, each = convert(start, kind), convert(step, kind)
    made: Tensor = compute(
        out.shape,
        lambda i: build.cast(out.dtype, first + build.cast(kind, i) * each),
        name="T_arange",
    )
    return made


def _compute(attrs: ArangeAttrs, out: TensorType) -> Tensor:
    return _steps(_constant(attrs.start, out), _constant(attrs.step, out), out)


def _constant(number: int | float | Expr, out: TensorType) -> Expr:
    if isinstance(number, Expr):
        return number
    whole = isinstance(number, int) and out.dtype.is_integer
    return build.const(number, out.dtype if whole else "float64")


def _numbers(start: float, stop: float, step: float, dtype: DataType) -> Array:
    length = _length(start, stop, step)
    if dtype.is_integer:
        kind = np.uint64 if dtype.is_uint else np.int64
        return (kind(int(start)) + np.arange(length, dtype=kind) * kind(int(step))).astype(
            numpy_dtype(dtype))
    return (start + np.arange(length, dtype=np.float64) * step).astype(numpy_dtype(dtype))


def _arange(
    start: RelayExprLike, stop: RelayExprLike | None = None, step: RelayExprLike | None = None,
    dtype: str = "float32",
) -> Any:
    """The numbers from start to before stop, by steps of 1 or of step."""
    if stop is None:
        start, stop = 0, start
    given = [start, stop, 1 if step is None else step]
    numbers = [_scalar(value) for value in given]
    if None not in numbers:
        first, last, each = numbers
        return make("arange", start=first, stop=last, step=each, dtype=dtype)
    exprs = [value if isinstance(value, RelayExpr) else const(value, dtype) for value in given]
    return make("dyn.arange", *exprs, dtype=dtype)


def _scalar(value: Any) -> Any:
    """A number, or an extent of an operand's shape that it is computed from."""
    found = known(value)
    if found is None:
        found = open_dims(value)
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


register(OpRecord(
    "arange",
    inputs=(),
    attrs=ArangeAttrs,
    infer=_infer,
    compute=_compute,
    reference=lambda attrs: _numbers(
        attrs.start, attrs.stop, attrs.step, attrs.dtype),
    builder=_arange,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case((), {"start": 1, "stop": 6.0, "step": 1.5}),
        Case((), {"start": 5, "stop": -4, "step": -3, "dtype": "int64"}),
        Case((), {"start": 3, "stop": 1, "step": 1, "dtype": "int8"}),
        Case((), {"start": 0.0, "stop": 1.0, "step": 0.1, "dtype": "float16"}, tolerance=1e-3),
    ],
    doc=_arange.__doc__ or "",
))


def _infer_dyn(attrs: DynArangeAttrs, start: Type, stop: Type, step: Type) -> TensorType:
    for name, kind in (("start", start), ("stop", stop), ("step", step)):
        of_kind(tensor(kind, name, 0), name, "float", "int", "uint")
    return TensorType((AnyDim(),), attrs.dtype)


def _counted(attrs: DynArangeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """How many numbers there are is an extent; they are counted, and moved to where they lie."""
    start, _, step = args
    is_float = any(tensor_type(arg).dtype.is_float for arg in args)
    if is_float:
        wide = [call("cast", arg, dtype="float64") for arg in args]
        steps = call("ceil", call("divide", call("subtract", wide[1], wide[0]), wide[2]))
    else:
        wide = [call("cast", arg, dtype="int64") for arg in args]
        back = call("floor_divide", call("subtract", wide[0], wide[1]), wide[2])
        steps = call("negative", back)
    none = const(0, "float64" if is_float else "int64")
    many = call("cast", call("maximum", steps, none), dtype="int64")
    extent = told_by_shape(call("reshape", many, newshape=(1,)))
    if extent is None:
        return None
    kind = _counting(attrs.dtype)
    numbers = call("dyn.arange", const(0, "int64"), call("squeeze", extent, axis=(0,)),
                   const(1, "int64"), dtype="int64")
    moved = call("multiply", call("cast", numbers, dtype=kind), call("cast", step, dtype=kind))
    return call("cast", call("add", call("cast", start, dtype=kind), moved), dtype=attrs.dtype)


register(OpRecord(
    "dyn.arange",
    inputs=("start", "stop", "step"),
    attrs=DynArangeAttrs,
    infer=_infer_dyn,
    compute=lambda attrs, out, start, stop, step: _steps(start(), step(), out),
    reference=lambda attrs, start, stop, step: _numbers(
        start.item(), stop.item(), step.item(), attrs.dtype),
    to_static=to_static("arange", ["start", "stop", "step"], _scalar),
    measured=_counted,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case((np.array(1.0, "float32"), np.array(4.2, "float32"), np.array(0.5, "float32"))),
        Case((np.array(5), np.array(-5), np.array(-2)), {"dtype": "int64"}),
    ],
    doc="arange of numbers that are computed.",
))
