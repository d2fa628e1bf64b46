"""Interpolation (nearest, linear, cubic): a tensor read between its elements, axis by axis.

Every place of the result reads one element (nearest_neighbor), two (linear) or four (cubic), each
with a weight; what lies outside is the element at the edge. Places are computed in float64, in an
order that keeps halves exact, so that all targets choose the same elements.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.build import as_expr, cast, const, logical_or, maximum, minimum, select
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.op.elementwise import Numbers, quiet
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array
from sterna.schedule.kernel import ROWS, TABLE
from sterna.schedule.products import FLOAT32, wide
from sterna.support.dtype import DataType
from sterna.te import Tensor, ceil, compute, floor, if_then_else, round

METHODS = ("nearest_neighbor", "linear", "cubic")
COORDINATES = (
    "half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "pytorch_half_pixel",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)

# Names for a method by the number of axes.
ALIASES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}

# Rows are mixed as a whole unless they have so many times as many elements as are made of them.
MOST_UNREAD = 4

# Keys' kernel with this parameter reproduces quadratics.
CUBIC_ALPHA = -0.5

# What all places of a result read with one of their weights; None: only this, as it is.
Tap = tuple[Array, Array | None]

FLOAT64, INT32 = DataType("float64"), DataType("int32")


def method_of(name: str) -> str:
    """One of METHODS by its name or an alias."""
    method = ALIASES.get(name, name)
    if method not in METHODS:
        raise ValueError(f"method is one of {', '.join([*METHODS, *ALIASES])}, not {name!r}")
    return method


def coordinates_of(mode: str) -> str:
    """One of COORDINATES."""
    if mode not in COORDINATES:
        raise ValueError(
            f"coordinate_transformation_mode is one of {', '.join(COORDINATES)}, not {mode!r}"
        )
    return mode


def _half_away(x: float) -> int:
    return math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5)


# Which element is nearest: of an expression, and of a number.
_NEAREST: dict[str, tuple[Callable[[Any], Any], Callable[[float], int]]] = {
    "round": (round, _half_away),
    "floor": (floor, math.floor),
    "ceil": (ceil, math.ceil),
    "round_prefer_floor": (lambda x: ceil(x - 0.5), lambda x: math.ceil(x - 0.5)),
    "round_prefer_ceil": (lambda x: floor(x + 0.5), lambda x: math.floor(x + 0.5)),
}
ROUNDINGS = tuple(_NEAREST)


def _is_known(value: object, number: int) -> bool:
    return isinstance(value, int | float) and value == number


@dataclass(frozen=True, slots=True)
class Scaling:
    """One axis of `size` elements stretched to `result` of them."""

    size: Any
    result: Any
    method: str
    coordinates: str
    rounding: str = ""
    """Which element is nearest; by default the first of two, or the last one not behind a place."""
    alpha: float = CUBIC_ALPHA
    exclude: bool = False
    """Elements outside have no weight; those inside divide it among themselves."""
    region: tuple[float, float] = (0.0, 1.0)
    """The part that tf_crop_and_resize shows, in parts of the axis."""
    factor: float | None = None
    """The result per size where it is not the ratio of both, which are whole."""

    def source(self, place: Any, number: Callable[[Any], Any]) -> Any:
        """Where a place of the result lies among the elements; number makes fractions."""
        mode, size, result = self.coordinates, number(self.size), number(self.result)
        if mode in ("align_corners", "tf_crop_and_resize"):
            exact = self.result if self.factor is None else self.size * self.factor
            first, last = (self.region if mode == "tf_crop_and_resize" else (0.0, 1.0))
            if _is_known(self.result, 1) and _is_known(exact, 1):
                middle = 0.5 * (first + last) if mode == "tf_crop_and_resize" else 0.0
                return (size - number(1.0)) * number(middle)
            steps = number(exact) - number(1.0)
            if not isinstance(exact, int | float):
                steps = maximum(steps, number(1.0))
            moved = number(place) * (size - number(1.0)) * number(last - first) / steps
            return moved + number(first) * (size - number(1.0)) if first else moved
        if mode == "pytorch_half_pixel" and _is_known(self.result, 1):
            return number(0.0)
        centred = number(place) if mode == "asymmetric" else number(place) + number(0.5)
        at = centred * size / result if self.factor is None else centred / number(self.factor)
        if mode in ("asymmetric", "tf_half_pixel_for_nn"):
            return at
        if mode == "half_pixel_symmetric" and self.factor is not None:
            used = result / (number(self.factor) * size)
            at = at + size / number(2.0) * (number(1.0) - used)
        at = at - number(0.5)
        if mode == "pytorch_half_pixel" and not isinstance(self.result, int):
            return select(as_expr(self.result) > 1, at, number(0.0))
        return at

    def _rounding(self) -> str:
        if self.rounding:
            return self.rounding
        return "floor" if self.coordinates == "asymmetric" else "round_prefer_floor"

    def reads(self, place: Expr, dtype: DataType) -> list[tuple[Expr, Any]]:
        """The elements that a place of the result reads, with their weights."""

        def number(value: float | Expr) -> Expr:
            return const(value, FLOAT64) if isinstance(value, float) else cast(FLOAT64, value)

        at = self.source(place, number)
        last = as_expr(self.size) - 1

        def inside(index: Expr) -> Expr:
            return minimum(maximum(index, 0), last)

        if self.method == "nearest_neighbor":
            nearest = _NEAREST[self._rounding()][0](at).astype(INT32)
            return [(inside(nearest), None)]
        below = floor(at)
        weights = [w.astype(dtype) for w in weights_of(self.method, at - below, self.alpha)]
        first = below.astype(INT32) - (len(weights) // 2 - 1)
        if self.method == "cubic" and self.exclude:
            zero = const(0, dtype)
            weights = [
                select(logical_or(first + i < 0, first + i > last), zero, weight)
                for i, weight in enumerate(weights)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [weight / total for weight in weights]
        return [(inside(first + i), weight) for i, weight in enumerate(weights)]

    def is_outside(self, place: Expr) -> Expr:
        """Whether a place of a region lies beyond the elements."""

        def number(value: float | Expr) -> Expr:
            return const(value, FLOAT64) if isinstance(value, float) else cast(FLOAT64, value)

        at = self.source(place, number)
        return logical_or(at < number(0.0), at > number(as_expr(self.size) - 1))

    def taps(self) -> list[Tap]:
        """`reads` of all places: per tap the elements, and their weights."""
        at = np.array([self.source(place, float) for place in range(self.result)])
        if self.method == "nearest_neighbor":
            nearest = np.array([_NEAREST[self._rounding()][1](place) for place in at], "int64")
            return [(np.clip(nearest, 0, self.size - 1), None)]
        below = np.floor(at)
        weights = weights_of(self.method, at - below, self.alpha)
        first = below.astype("int64") - (len(weights) // 2 - 1)
        if self.method == "cubic" and self.exclude:
            for i, weight in enumerate(weights):
                weights[i] = np.where((first + i < 0) | (first + i >= self.size), 0, weight)
            total = sum(weights)
            weights = [weight / total for weight in weights]
        return [(np.clip(first + i, 0, self.size - 1), w) for i, w in enumerate(weights)]

    def repeats(self) -> int | None:
        """How often each element stands in the result, in order, if that is all there is to it."""
        times, rest = divmod(self.result, max(1, self.size))
        if rest or self.method != "nearest_neighbor":
            return None
        places = self.taps()[0][0]
        return times if np.array_equal(places, np.arange(self.result) // max(1, times)) else None

    def outside(self) -> Array:
        """`is_outside` of all places."""
        at = np.array([self.source(place, float) for place in range(self.result)])
        return np.asarray((at < 0) | (at > self.size - 1))


def weights_of(method: str, t: Numbers, alpha: float = CUBIC_ALPHA) -> list[Numbers]:
    """The weights of the elements around a place that lies t behind the one before it."""
    if method == "linear":
        return [1.0 - t, t]
    before, after = cubic(alpha, t)[0], cubic(alpha, 1.0 - t)[0]
    return [cubic(alpha, 1.0 + t)[1], before, after, cubic(alpha, 2.0 - t)[1]]


def cubic(a: float, x: Numbers) -> tuple[Numbers, Numbers]:
    """Keys' kernel at a distance: what it is up to 1, and what it is from 1 to 2."""
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return inner, ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a


# ---- along several axes ----


def stretched(
    data: Tensor, out: TensorType, axes: Mapping[int, Scaling], name: str, names: Sequence[str],
    beyond: float = 0.0,
) -> Tensor:
    """A tensor stretched along axes: per axis stages of places and weights, then the sums.

    Rows are mixed before what lies in them: as vectors, since their elements lie side by side.
    """
    dtype = wide(data.dtype) if data.dtype.is_float else FLOAT32
    tables = {axis: _tables(scaling, dtype, f"{name}_{names[axis]}")
              for axis, scaling in axes.items()}
    last = data.ndim - 1
    inner = dict(tables)
    read = data
    if last in axes and len(axes) > 1 and _mixes_rows_first(axes[last]):
        inner, outer = {last: tables[last]}, {a: t for a, t in tables.items() if a != last}
        read = compute((*out.shape[:-1], data.shape[last]),
                       lambda *indices: _mix(data, outer, dtype, indices),
                       name=f"{name}_rows", varargs_names=list(names), tag=ROWS)
    cropped = [axis for axis, s in axes.items() if s.coordinates == "tf_crop_and_resize"]

    def element(*indices: Expr) -> Any:
        value = _mix(read, inner, dtype, indices)
        value = convert(value if out.dtype.is_float else round(value), out.dtype)
        for axis in cropped:
            other = convert(const(beyond, FLOAT32), out.dtype)
            value = if_then_else(axes[axis].is_outside(indices[axis]), other, value)
        return value

    made: Tensor = compute(out.shape, element, name=name, varargs_names=list(names))
    return made


Tables = Mapping[int, Sequence[tuple[Tensor, Tensor | None]]]


def _mixes_rows_first(scaling: Scaling) -> bool:
    """Whether elements have weights, and few of a row stay unread."""
    known = isinstance(scaling.size, int) and isinstance(scaling.result, int)
    few = known and scaling.size > MOST_UNREAD * scaling.result
    return known and scaling.method != "nearest_neighbor" and not few


def _mix(data: Tensor, tables: Tables, dtype: DataType, indices: Sequence[Expr]) -> Any:
    """The sum of the elements that a place reads, each with its weight; without any, the one."""
    reads: list[tuple[list[Any], Any]] = [(list(indices), None)]
    for axis, found in tables.items():
        own = indices[axis]
        reads = [
            ([*where[:axis], place(own), *where[axis + 1 :]], _times(weight, factor, own))
            for where, weight in reads
            for place, factor in found
        ]
    if reads[0][1] is None:
        return data(*reads[0][0])
    value: Any = const(0, dtype)
    for where, weight in reads:
        value = value + data(*where).astype(dtype) * weight
    return value


def _tables(scaling: Scaling, dtype: DataType, name: str) -> list[tuple[Tensor, Tensor | None]]:
    count = len(scaling.reads(const(0), dtype))
    known = isinstance(scaling.size, int) and isinstance(scaling.result, int)
    repeats = scaling.repeats() if known else None

    def stage(tap: int, part: int, what: str) -> Tensor:
        def element(i: Expr) -> Any:
            return i // repeats if repeats else scaling.reads(i, dtype)[tap][part]

        made: Tensor = compute((scaling.result,), element, name=f"{name}_{what}{tap}",
                               tag=TABLE if known and not repeats else "")
        return made

    return [
        (stage(tap, 0, "place"), None if count == 1 else stage(tap, 1, "weight"))
        for tap in range(count)
    ]


def _times(weight: Expr | None, factor: Tensor | None, place: Expr) -> Expr | None:
    if factor is None:
        return weight
    return factor(place) if weight is None else weight * factor(place)


@quiet
def mixed(data: Array, axis: int, taps: Sequence[Tap]) -> Array:
    """The sums of what taps read along an axis: of Inf and NaN, too, no more than they read."""
    shape = [-1 if place == axis else 1 for place in range(data.ndim)]
    total: Any = 0.0
    for places, weights in taps:
        read: Array = np.take(data, places, axis)
        if weights is None:
            return read
        total = total + read * weights.reshape(shape)
    return np.asarray(total)


def stretched_array(
    data: Array, axes: Mapping[int, Scaling], dtype: DataType, beyond: float = 0.0
) -> Array:
    """`stretched` of an array, in float64."""
    made: Array = data.astype("float64")
    for axis, scaling in axes.items():
        made = mixed(made, axis, scaling.taps())
    if not dtype.is_float:
        made = np.trunc(made + np.copysign(0.5, made))
    for axis, scaling in axes.items():
        if scaling.coordinates == "tf_crop_and_resize":
            shape = [-1 if place == axis else 1 for place in range(made.ndim)]
            made = np.where(scaling.outside().reshape(shape), beyond, made)
    return converted(made, dtype)
