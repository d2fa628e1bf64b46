"""Elements held between two numbers."""

import math
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.elementwise import elementwise
from sterna.op.integer_rules import clipped
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import ELEMWISE, Case, OpRecord, call, is_call_of, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType


@attributes
class ClipAttrs(Attrs):
    """Of clip."""

    a_min: int | float
    a_max: int | float


def _infer(attrs: ClipAttrs, a: Type) -> TensorType:
    kind = of_kind(tensor(a, "a"), "a", "float", "int", "uint")
    _bounds(attrs, kind.dtype)
    return kind


def _bounds(attrs: ClipAttrs, dtype: DataType) -> tuple[Any, Any]:
    """The bounds as numbers of the type: whole and within its range for integers."""
    if dtype.is_float:
        return float(attrs.a_min), float(attrs.a_max)
    least, most = int_range(dtype)
    whole = []
    for name, bound in (("a_min", attrs.a_min), ("a_max", attrs.a_max)):
        if math.isfinite(bound) and bound != int(bound):
            raise ValueError(f"{name} of a tensor of {dtype} is a whole number, not {bound}")
        whole.append(least if bound < least else most if bound > most else int(bound))
    return whole[0], whole[1]


def _clip(attrs: ClipAttrs, x: Expr) -> Expr:
    low, high = (build.const(bound, x.dtype) for bound in _bounds(attrs, x.dtype))
    # Min and Max give their second operand if it is NaN, so that NaN stays NaN.
    return build.minimum(high, build.maximum(low, x))


def _reference(attrs: ClipAttrs, a: Array) -> Array:
    low, high = _bounds(attrs, DataType(str(a.dtype)))
    wide = a.astype(np.float64) if DataType(str(a.dtype)).is_float else a.astype(object)
    return np.asarray(np.minimum(np.maximum(wide, low), high)).astype(a.dtype)


def _twice(clip: Call) -> RelayExpr | None:
    """clip(clip(x, a, b), c, d) -> clip(x, max(a, c), min(b, d)), if these ranges meet"""
    (data,) = clip.args
    if not is_call_of(data, "clip"):
        return None
    assert isinstance(data, Call)
    inner: Any = data.attrs
    outer: Any = clip.attrs
    low, high = max(inner.a_min, outer.a_min), min(inner.a_max, outer.a_max)
    if not low <= high:
        return None
    return call("clip", data.args[0], a_min=low, a_max=high)


def _after_relu(clip: Call) -> RelayExpr | None:
    """clip(relu(x), a, b) -> clip(x, max(a, 0), b), if b is not below 0"""
    (data,) = clip.args
    attrs: Any = clip.attrs
    if not is_call_of(data, "nn.relu") or not attrs.a_max >= 0:
        return None
    assert isinstance(data, Call)
    return call("clip", data.args[0], a_min=max(attrs.a_min, 0), a_max=attrs.a_max)


_SPECIAL = np.array([-np.inf, -9.0, -0.0, 2.5, 6.0, 7.0, np.inf, np.nan], "float32")

register(OpRecord(
    "clip",
    inputs=("a",),
    attrs=ClipAttrs,
    infer=_infer,
    compute=elementwise("clip", _clip),
    reference=_reference,
    pattern=ELEMWISE,
    rewrites=[_twice, _after_relu],
    integer=clipped,
    cases=[
        Case((_SPECIAL,), {"a_min": 0.0, "a_max": 6.0}),
        Case((_SPECIAL,), {"a_min": -np.inf, "a_max": 6.0}),
        Case((((2, 3), "bfloat16"),), {"a_min": -0.5, "a_max": 0.5}),
        Case((((7,), "int8"),), {"a_min": -3, "a_max": 1000}),
        Case((np.array([0, 2**64 - 1, 2**63], "uint64"),), {"a_min": -1, "a_max": 2**64 - 2}),
    ],
    doc="Every element held between a_min and a_max; NaN stays NaN.",
))
