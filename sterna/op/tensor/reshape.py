"""The same elements in another shape: reshape and its relatives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.checks import tensor
from sterna.op.dynamic import (
    DimsLike,
    length_of,
    open_dims,
    tensor_type,
    to_static,
    told_by_shape,
    unknown_shape,
)
from sterna.op.indexing import as_dims, dims_of, same_row, taken_from
from sterna.op.integer_rules import carried
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Call, RelayExpr, RelayExprLike, Tuple, const
from sterna.relay.op import INJECTIVE, Case, Op, OpRecord, call, record_of, register
from sterna.relay.requirements import EqualDims, require
from sterna.te import Tensor


@attributes
class ReshapeAttrs(Attrs):
    """Of reshape."""

    newshape: tuple[Dim, ...]
    allowzero: bool = False


@attributes
class DynReshapeAttrs(Attrs):
    """Of dyn.reshape."""

    allowzero: bool = False


def regrouped(name: str) -> Any:
    """The computation of operators that keep the order of the elements."""

    def compute_it(attrs: object, out: TensorType, data: Tensor, *_: Tensor) -> Tensor:
        shape, source = as_dims(out.shape), dims_of(data)
        return taken_from(data, shape, lambda i: same_row(i, shape, source), f"T_{name}")

    return compute_it


# ---- what the numbers of newshape mean ----

COPY, INFER, COPY_REST, MERGE, SPLIT = 0, -1, -2, -3, -4


class _Target:
    """A new shape in the making; copied dimensions do not count when one is inferred."""

    def __init__(self, source: Sequence[Dim]) -> None:
        self.source = list(source)
        self.place = 0
        self.shape: list[Dim] = []
        self.inferred: int | None = None
        self.copied: set[int] = set()
        """Places of the new shape whose dimensions are those of the source."""
        self.used: set[int] = set()
        """The places of the source that they are copied from."""

    def take(self, what: str) -> Dim:
        if self.place >= len(self.source):
            raise ValueError(
                f"newshape has {what} for dimension {self.place} of data, whose shape is "
                f"{show_shape(tuple(self.source))}"
            )
        self.place += 1
        return self.source[self.place - 1]

    def copy(self) -> None:
        dim = self.take("0")
        self.copied.add(len(self.shape))
        self.used.add(self.place - 1)
        self.shape.append(dim)

    def infer(self) -> None:
        if self.inferred is not None:
            raise ValueError("newshape has more than one -1")
        self.inferred = len(self.shape)
        self.shape.append(AnyDim())

    def finish(self) -> tuple[Dim, ...]:
        if self.inferred is not None:
            rest = [dim for i, dim in enumerate(self.source) if i not in self.used]
            others = [
                dim
                for i, dim in enumerate(self.shape)
                if i not in self.copied and i != self.inferred
            ]
            self.shape[self.inferred] = _quotient(rest, others, self.source)
        return tuple(self.shape)


def _quotient(rest: Sequence[Dim], others: Sequence[Dim], source: Sequence[Dim]) -> Any:
    if any(isinstance(dim, AnyDim) for dim in (*rest, *others)):
        return AnyDim()
    size, divisor = product(rest), product(others)
    if type(size) is not int or type(divisor) is not int:
        return size // divisor
    if divisor == 0:
        raise ValueError("-1 in newshape cannot be found beside a dimension of 0")
    if size % divisor:
        raise ValueError(
            f"{size} elements of shape {show_shape(tuple(source))} cannot be put into rows of "
            f"{divisor}"
        )
    return size // divisor


def product(dims: Sequence[Dim]) -> Any:
    """The product of dimensions that are numbers or expressions."""
    known = math.prod(dim for dim in dims if type(dim) is int)
    result: Any = known
    for dim in dims:
        if type(dim) is not int:
            result = dim * result
    return result


def _merged(a: Dim, b: Dim) -> Dim:
    unknown = isinstance(a, AnyDim) or isinstance(b, AnyDim)
    merged: Dim = AnyDim() if unknown else product([a, b])
    return merged


def _split(dim: Dim, first: Dim, second: Dim) -> tuple[Dim, Dim]:
    if first == INFER and second == INFER:
        raise ValueError("newshape has -4 with two -1 after it")
    if INFER in (first, second):
        known = second if first == INFER else first
        other = AnyDim() if isinstance(dim, AnyDim) else _quotient([dim], [known], [dim])
        return (other, known) if first == INFER else (known, other)
    if type(dim) is int and type(first) is int and type(second) is int and dim != first * second:
        raise ValueError(f"newshape splits the dimension {dim} into {first} and {second}")
    return first, second


def resolve(newshape: Sequence[Dim], source: Sequence[Dim], allowzero: bool) -> tuple[Dim, ...]:
    """The shape that newshape means for data of some shape."""
    target = _Target(source)
    numbers = list(newshape)
    while numbers:
        number = numbers.pop(0)
        if isinstance(number, Expr) or number > 0 or (number == COPY and allowzero):
            target.place += 1
            target.shape.append(number)
        elif number == COPY:
            target.copy()
        elif number == INFER:
            target.place += 1
            target.infer()
        elif number == COPY_REST:
            while target.place < len(source):
                target.copy()
        elif number == MERGE:
            target.shape.append(_merged(target.take("-3"), target.take("-3")))
        elif number == SPLIT:
            if len(numbers) < 2:
                raise ValueError("newshape has -4 without two numbers after it")
            target.shape += _split(target.take("-4"), numbers.pop(0), numbers.pop(0))
        else:
            raise ValueError(f"newshape has {number}; below 0 it may hold -1, -2, -3 and -4")
    return _checked(target.finish(), source)


def _checked(shape: tuple[Dim, ...], source: Sequence[Dim]) -> tuple[Dim, ...]:
    have, want = product(source), product(shape)
    if type(have) is int and type(want) is int and have != want:
        raise ValueError(
            f"data of shape {show_shape(tuple(source))} has {have} elements; shape "
            f"{show_shape(shape)} has {want}"
        )
    if isinstance(have, Expr) or isinstance(want, Expr):
        require(EqualDims(have, want, (), "the elements of a tensor in another shape"))
    return shape


# ---- reshape ----


def _infer(attrs: ReshapeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    return TensorType(resolve(attrs.newshape, kind.shape, attrs.allowzero), kind.dtype)


def _reshape(data: RelayExprLike, newshape: DimsLike, allowzero: bool = False) -> Any:
    """The same elements in another shape.

    In newshape 0 copies the dimension of data at that place (unless allowzero), -1 is found from
    the rest, -2 copies all that are left, -3 merges two, -4 splits one into the next two numbers.
    """
    dims = open_dims(newshape)
    if dims is None:
        return make("dyn.reshape", data, newshape, allowzero=allowzero)
    return make("reshape", data, newshape=dims, allowzero=allowzero)


def _reference(attrs: ReshapeAttrs, data: Array) -> Array:
    shape = resolve(attrs.newshape, data.shape, attrs.allowzero)
    return data.reshape(shape)  # type: ignore[arg-type]


def same_shape(view: Call) -> RelayExpr | None:
    """reshape(x) to the shape of x -> x, and so for every view"""
    return view.args[0] if view.args[0].checked_type == view.checked_type else None


def there_and_back(view: Call) -> RelayExpr | None:
    """squeeze(expand_dims(x)) of the shape of x -> x, and so for all views"""
    inner = viewed_by(view.args[0])
    return inner if inner is not None and inner.checked_type == view.checked_type else None


def viewed_twice(view: Call) -> RelayExpr | None:
    """reshape(reshape(x)) -> reshape(x), and so for all views"""
    inner, kind = viewed_by(view.args[0]), tensor_type(view)
    if inner is None or not kind.is_static:
        return None
    return call("reshape", inner, newshape=kind.shape, allowzero=True)


def viewed_by(expr: RelayExpr) -> RelayExpr | None:
    """What a view is a view of; None if it is none."""
    record = record_of(expr)
    if record is None or not record.is_view:
        return None
    assert isinstance(expr, Call)
    return expr.args[0]


register(OpRecord(
    "reshape",
    inputs=("data",),
    attrs=ReshapeAttrs,
    infer=_infer,
    compute=regrouped("reshape"),
    reference=_reference,
    rewrites=[same_shape, there_and_back, viewed_twice],
    builder=_reshape,
    integer=carried("reshape"),
    pattern=INJECTIVE,
    is_view=True,
    cases=[
        Case(((2, 3, 4),), {"newshape": (4, 0, 2)}),
        Case(((2, 3, 4),), {"newshape": (6, 1, -1)}),
        Case(((2, 3, 4),), {"newshape": (2, -4, -1, 3, -2)}),
        Case((((2, 3, 4, 5), "int8"),), {"newshape": (-3, -3)}),
        Case(((0, 3),), {"newshape": (3, 0, 2), "allowzero": True}),
        Case(((1, 1),), {"newshape": ()}),
        Case(((),), {"newshape": (1, 1)}),
    ],
    doc=_reshape.__doc__ or "",
))


def _infer_dyn(attrs: DynReshapeAttrs, data: Type, newshape: Type) -> TensorType:
    rank = length_of(newshape, "newshape")
    return TensorType(unknown_shape(rank), tensor(data, "data").dtype)


def _resolved(attrs: DynReshapeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """The numbers that newshape means, where 0 copies an extent and -1 is found from the rest."""
    data, newshape = args
    if told_by_shape(newshape) is None:
        return None
    rank, count = tensor_type(data).ndim, length_of(newshape.checked_type, "newshape")
    zero, one = const(0, "int64"), const(1, "int64")
    numbers = call("cast", newshape, dtype="int64")
    source = call("shape_of", data, dtype="int64")
    if not attrs.allowzero and count and rank:
        own = call("strided_slice", source, begin=(0,), end=(min(rank, count),))
        if count > rank:
            own = call("concatenate", Tuple((own, const(np.zeros(count - rank, np.int64)))), axis=0)
        numbers = call("where", call("equal", numbers, zero), own, numbers)
    is_found = call("equal", numbers, const(INFER, "int64"))
    rest = call("prod", call("where", is_found, one, numbers))
    found = call("floor_divide", call("prod", source), call("maximum", rest, one))
    shape = told_by_shape(call("where", is_found, found, numbers))
    return shape and Call(Op("dyn.reshape"), (data, shape), DynReshapeAttrs(allowzero=True))


register(OpRecord(
    "dyn.reshape",
    inputs=("data", "newshape"),
    attrs=DynReshapeAttrs,
    infer=_infer_dyn,
    compute=regrouped("reshape"),
    reference=lambda attrs, data, newshape: data.reshape(
        resolve(newshape.tolist(), data.shape, attrs.allowzero)),
    to_static=to_static("reshape", "newshape", open_dims),
    measured=_resolved,
    pattern=INJECTIVE,
    is_view=True,
    cases=[Case(((2, 3, 4), np.array([0, -1]))), Case(((1,), np.zeros(0, "int32")))],
    doc="reshape to a shape that is computed.",
))


# ---- special values from the right, shapes of other tensors ----


def _resolve_reverse(newshape: Sequence[Dim], source: Sequence[Dim]) -> tuple[Dim, ...]:
    if SPLIT in newshape:
        raise ValueError("reverse_reshape has no -4")
    return resolve(newshape[::-1], source[::-1], False)[::-1]


def _infer_reverse(attrs: ReshapeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    return TensorType(_resolve_reverse(attrs.newshape, kind.shape), kind.dtype)


register(OpRecord(
    "reverse_reshape",
    inputs=("data",),
    attrs=ReshapeAttrs,
    infer=_infer_reverse,
    compute=regrouped("reverse_reshape"),
    reference=lambda attrs, data: data.reshape(_resolve_reverse(attrs.newshape, data.shape)),
    builder=lambda data, newshape: make("reverse_reshape", data, newshape=newshape),
    pattern=INJECTIVE,
    is_view=True,
    rewrites=[same_shape, there_and_back, viewed_twice],
    cases=[
        Case(((5, 8, 4),), {"newshape": (-1, 0)}),
        Case(((2, 3, 4),), {"newshape": (-3, 0)}),
    ],
    doc="reshape whose special numbers are read from the last one to the first.",
))


@attributes
class ReshapeLikeAttrs(Attrs):
    """Of reshape_like."""

    lhs_begin: int = 0
    lhs_end: int | None = None
    rhs_begin: int = 0
    rhs_end: int | None = None


def _shape_like(
    attrs: ReshapeLikeAttrs, shape: Sequence[Dim], like: Sequence[Dim]
) -> tuple[Dim, ...]:
    lhs = slice(attrs.lhs_begin, attrs.lhs_end).indices(len(shape))
    rhs = slice(attrs.rhs_begin, attrs.rhs_end)
    made = (*shape[: lhs[0]], *like[rhs], *shape[max(lhs[0], lhs[1]) :])
    if any(isinstance(dim, AnyDim) for dim in (*made, *shape)):
        return made
    return _checked(made, shape)


def _infer_like(attrs: ReshapeLikeAttrs, data: Type, shape_like: Type) -> TensorType:
    kind, like = tensor(data, "data"), tensor(shape_like, "shape_like")
    return TensorType(_shape_like(attrs, kind.shape, like.shape), kind.dtype)


def _static_like(attrs: ReshapeLikeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    kind = _infer_like(attrs, tensor_type(args[0]), tensor_type(args[1]))
    if not kind.is_static:
        return None
    return call("reshape", args[0], newshape=kind.shape, allowzero=True)


register(OpRecord(
    "reshape_like",
    inputs=("data", "shape_like"),
    attrs=ReshapeLikeAttrs,
    infer=_infer_like,
    compute=regrouped("reshape_like"),
    reference=lambda attrs, data, like: data.reshape(_shape_like(attrs, data.shape, like.shape)),
    simplify=_static_like,
    pattern=INJECTIVE,
    is_view=True,
    cases=[
        Case(((2, 6), (3, 4))),
        Case(((2, 3, 4), (9, 6, 7)), {"lhs_end": 2, "rhs_begin": 1, "rhs_end": 2}),
    ],
    doc="data in the shape of another tensor; lhs_begin to lhs_end are the dimensions that are "
        "replaced, rhs_begin to rhs_end those that replace them.",
))
