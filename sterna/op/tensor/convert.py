"""Elements as another type: cast, cast_like, reinterpret."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import elementwise, quiet
from sterna.relay.arrays import Array, float_info, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout_rules import follow
from sterna.relay.op import ELEMWISE, Case, OpRecord, call, is_call_of, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType


@attributes
class CastAttrs(Attrs):
    """Of cast and reinterpret."""

    dtype: DataType


def _infer_cast(attrs: CastAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    for dtype in (kind.dtype, attrs.dtype):
        if dtype.kind in ("handle", "complex") or dtype.lanes != 1:
            raise ValueError(f"a tensor of {kind.dtype} cannot become one of {attrs.dtype}")
    return TensorType(kind.shape, attrs.dtype)


def convert(x: Expr, dtype: DataType) -> Expr:
    """An element as another type; a float beyond an integer's range becomes its nearest end."""
    if x.dtype.is_float and dtype.is_integer:
        return ScalarCall(dtype, "saturate", (x,))
    return build.cast(dtype, x)


def converted(data: Array, dtype: DataType) -> Array:
    """`convert` on arrays."""
    wanted = numpy_dtype(dtype)
    if dtype.is_bool:
        return np.asarray(data != data.dtype.type(0))
    if not dtype.is_integer or not DataType(str(data.dtype)).is_float:
        return data.astype(wanted)
    low, high = int_range(dtype)
    wide = np.trunc(data.astype(np.float64))
    inside = np.where((wide >= low) & (wide < high), wide, 0).astype(numpy_dtype(_wide(dtype)))
    ends = np.where(wide >= high, inside.dtype.type(high), inside)
    return np.where(wide < low, inside.dtype.type(low), ends).astype(wanted)


def _wide(dtype: DataType) -> str:
    """A type of NumPy's own that holds all numbers of an integer type."""
    return "uint64" if dtype.is_uint else "int64"


def _same_type(cast: Call) -> RelayExpr | None:
    """cast(x) to the type that x has -> x"""
    return cast.args[0] if cast.args[0].checked_type == cast.checked_type else None


def _twice(cast: Call) -> RelayExpr | None:
    """cast(cast(x, wide), any) -> cast(x, any)"""
    (data,) = cast.args
    if not (isinstance(data, Call) and is_call_of(data, "cast")):
        return None
    (inner,) = data.args
    if not _keeps_all(tensor_type(inner).dtype, tensor_type(data).dtype):
        return None
    return call("cast", inner, dtype=tensor_type(cast).dtype)


def _keeps_all(narrow: DataType, wide: DataType) -> bool:
    """Whether a type has every number of another, and becomes a third in the same way."""
    if narrow.is_bool or narrow == wide:
        return True
    if narrow.is_float and wide.is_float:
        few, many = float_info(narrow), float_info(wide)
        return bool(
            few.nmant <= many.nmant and few.maxexp <= many.maxexp
            and few.minexp - few.nmant >= many.minexp - many.nmant
        )
    if not (narrow.is_integer and wide.is_integer) or wide.is_bool:
        return False  # integers lose their high bits where floats are held within a range
    return wide.bits > narrow.bits and (narrow.is_uint or not wide.is_uint)


@quiet
def _reference_cast(attrs: CastAttrs, data: Array) -> Array:
    return converted(data, attrs.dtype)


_FLOATS = np.array([-np.inf, -300.7, -1.5, -0.0, 0.4, 127.9, 300.0, 3e9, np.inf, np.nan], "float32")

register(OpRecord(
    "cast",
    inputs=("data",),
    attrs=CastAttrs,
    infer=_infer_cast,
    compute=elementwise("cast", lambda attrs, x: convert(x, attrs.dtype)),
    reference=_reference_cast,
    pattern=ELEMWISE,
    rewrites=[_same_type, _twice],
    cases=[
        Case((_FLOATS,), {"dtype": "int8"}),
        Case((_FLOATS,), {"dtype": "uint8"}),
        Case((_FLOATS,), {"dtype": "int64"}),
        Case((_FLOATS,), {"dtype": "bool"}),
        Case((_FLOATS[1:7],), {"dtype": "bfloat16"}),
        Case((np.array([-129, 128, 255, 2**31 - 1], "int32"),), {"dtype": "int8"}),
        Case((((2, 3), "bool"),), {"dtype": "float16"}),
    ],
    doc="The elements as another type. Floats become integers by dropping their fraction, held "
        "within the type's range, NaN as 0; integers keep their low bits; bool is whether x != 0.",
))


def _infer_like(attrs: None, data: Type, dtype_like: Type) -> TensorType:
    return _infer_cast(CastAttrs(tensor(dtype_like, "dtype_like").dtype), data)


@quiet
def _reference_like(attrs: None, data: Array, like: Array) -> Array:
    return converted(data, DataType(str(like.dtype)))


register(OpRecord(
    "cast_like",
    inputs=("data", "dtype_like"),
    infer=_infer_like,
    reference=_reference_like,
    simplify=lambda attrs, args: call("cast", args[0], dtype=tensor_type(args[1]).dtype),
    pattern=ELEMWISE,
    layout=follow,
    cases=[Case(((2, 3), ((), "int32")))],
    doc="The elements as the type of another tensor's elements.",
))


def _infer_reinterpret(attrs: CastAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    if kind.dtype.bits != attrs.dtype.bits or attrs.dtype.is_bool or kind.dtype.is_bool:
        raise ValueError(
            f"data's elements are {kind.dtype}; their bits cannot be read as {attrs.dtype}"
        )
    return TensorType(kind.shape, attrs.dtype)


register(OpRecord(
    "reinterpret",
    inputs=("data",),
    attrs=CastAttrs,
    infer=_infer_reinterpret,
    compute=elementwise(
        "reinterpret", lambda attrs, x: ScalarCall(attrs.dtype, "reinterpret", (x,))
    ),
    reference=lambda attrs, data: data.view(numpy_dtype(attrs.dtype)),
    pattern=ELEMWISE,
    rewrites=[_same_type],
    cases=[
        Case(((2, 3),), {"dtype": "int32"}),
        Case((np.array([0, 1, 0x3FF0 << 48], "int64"),), {"dtype": "float64"}),
        Case((((4,), "bfloat16"),), {"dtype": "uint16"}),
    ],
    doc="The bits of the elements read as another type of as many bits.",
))
