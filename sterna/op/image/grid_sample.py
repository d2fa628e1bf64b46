"""image.grid_sample: images read at places that another tensor says; image.affine_grid makes such.

A grid (N, 2, H, W) says x and y of every place of the result, (N, 3, D, H, W) x, y and z, (N, 1, W)
x alone, from -1 to 1 across the image: between the centres of its outermost elements
(align_corners) or between its edges.
"""

import itertools
from typing import Any

import numpy as np

from sterna.ir.build import as_expr, const, maximum, minimum, select
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type, has_no_elements
from sterna.op.checks import expect_dim, not_empty, of_kind, tensor
from sterna.op.elementwise import Numbers, quiet
from sterna.op.interpolation import method_of, weights_of
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.schedule.kernel import TABLE
from sterna.schedule.products import wide, widened
from sterna.te import Tensor, abs, compute, floor, nearbyint
from sterna.te import all as all_of

# The cubic kernel of this operator, which is not the one of resizes.
CUBIC_ALPHA = -0.75
PADDINGS = ("zeros", "border", "reflection")
LAYOUTS = {"NCW": 1, "NCHW": 2, "NCDHW": 3}


@attributes
class GridSampleAttrs(Attrs):
    """Of image.grid_sample."""

    method: str = "bilinear"
    layout: str = "NCHW"
    padding_mode: str = "zeros"
    align_corners: bool = True

    def normalize(self) -> None:
        method = "nearest_neighbor" if self.method == "nearest" else self.method
        self.method = method_of(method)
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {', '.join(LAYOUTS)}, not {self.layout!r}")
        if self.padding_mode not in PADDINGS:
            raise ValueError(
                f"padding_mode is one of {', '.join(PADDINGS)}, not {self.padding_mode!r}"
            )


def _infer(attrs: GridSampleAttrs, data: Type, grid: Type) -> TensorType:
    rank = LAYOUTS[attrs.layout]
    x = of_kind(tensor(data, "data", rank + 2), "data", "float")
    places = of_kind(tensor(grid, "grid", rank + 2), "grid", "float")
    expect_dim(places.shape[0], x.shape[0], "grid's batch")
    expect_dim(places.shape[1], rank, "grid's number of coordinates")
    made = TensorType((*x.shape[:2], *places.shape[2:]), x.dtype)
    if not has_no_elements(made):
        not_empty(x, "data", range(2, rank + 2), "grid points to its elements")
    return made


def _unnormalized(at: Numbers, size: Numbers, corners: bool) -> Numbers:
    """A coordinate between -1 and 1 as a place among elements."""
    if corners:
        return (at + 1.0) * 0.5 * (size - 1.0)
    return ((at + 1.0) * size - 1.0) * 0.5


def _compute(attrs: GridSampleAttrs, out: TensorType, data: Tensor, grid: Tensor) -> Tensor:
    rank, dtype = LAYOUTS[attrs.layout], wide(out.dtype)
    sizes = [as_expr(extent) for extent in data.shape[2:]]
    zero, one = const(0, dtype), const(1, dtype)

    def folded(at: Expr, size: Expr) -> Expr:
        """A place held within the elements as padding_mode says."""
        last = size.astype(dtype) - one
        if attrs.padding_mode == "reflection":
            low = zero if attrs.align_corners else const(-0.5, dtype)
            span = last if attrs.align_corners else last + one
            safe = maximum(span, one)
            distance = abs(at - low)
            reflections = floor(distance / safe)
            rest = distance - reflections * safe
            is_even = (reflections - floor(reflections * 0.5) * 2.0).equal(zero)
            bounced = select(is_even, rest + low, safe - rest + low)
            at = select(span > zero, bounced, zero)
        return minimum(maximum(at, zero), last)  # in this order NaN becomes a place as well

    def near(at: Expr, size: Expr) -> tuple[Expr, Expr]:
        """The element at a whole place, and whether there is one."""
        if attrs.padding_mode != "zeros":
            return folded(at, size).astype("int32"), const(True)
        inside = all_of(at >= zero, at <= size.astype(dtype) - one)
        return select(inside, at, zero).astype("int32"), inside

    def taps(at: Expr, size: Expr) -> list[tuple[Expr, Expr, Any]]:
        """The elements that one coordinate reads, with whether they exist and their weights."""
        if attrs.padding_mode != "zeros" and attrs.method != "cubic":
            at = folded(at, size)
        if attrs.method == "nearest_neighbor":
            return [(*near(nearbyint(at), size), None)]
        below = floor(at)
        weights = weights_of(attrs.method, at - below, CUBIC_ALPHA)
        start = 1 - len(weights) // 2
        return [
            (*near(below + const(float(start + i), dtype), size), weight)
            for i, weight in enumerate(weights)
        ]

    def position(axis: int) -> Tensor:
        def element(n: Expr, *at: Expr) -> Any:
            given = grid(n, rank - 1 - axis, *at).astype(dtype)
            return _unnormalized(given, sizes[axis].astype(dtype), attrs.align_corners)

        made: Tensor = compute((out.shape[0], *out.shape[2:]), element, name=f"T_grid_{axis}")
        return made

    shape = (out.shape[0], *out.shape[2:])

    def read_along(axis: int) -> list[tuple[Tensor, Tensor | None]]:
        """For one coordinate of every place: the elements that it reads, and their weights.

        They serve all channels. An element that does not exist is -1.
        """
        at = position(axis)
        count = len(taps(zero, sizes[axis]))

        def index(n: Expr, *i: Expr, tap: int) -> Any:
            where, exists, _ = taps(at(n, *i), sizes[axis])[tap]
            return select(exists, where, const(-1, "int32"))

        def weight(n: Expr, *i: Expr, tap: int) -> Any:
            return taps(at(n, *i), sizes[axis])[tap][2]

        def table(element: Any, name: str, tap: int) -> Tensor:
            made: Tensor = compute(
                shape, lambda *i: element(*i, tap=tap),
                name=f"T_grid_{name}_{axis}_{tap}",
                tag=TABLE,
            )
            return made

        is_weighted = attrs.method != "nearest_neighbor"
        return [
            (table(index, "index", tap), table(weight, "weight", tap) if is_weighted else None)
            for tap in range(count)
        ]

    found = [read_along(axis) for axis in range(rank)]

    def element(n: Expr, c: Expr, *at: Expr) -> Any:
        total: Any = None
        for chosen in itertools.product(*found):
            where = [index(n, *at) for index, _ in chosen]
            value: Any = data(n, c, *where).astype(dtype)
            if attrs.padding_mode == "zeros":
                inside = all_of(*[index >= 0 for index in where])
                held = [maximum(index, const(0, "int32")) for index in where]
                value = select(inside, data(n, c, *held).astype(dtype), zero)
            for _, weight in chosen:
                value = value if weight is None else value * weight(n, *at)
            total = value if total is None else total + value
        return total.astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_grid_sample")
    return made


def _folded_array(attrs: GridSampleAttrs, at: Array, size: int) -> Array:
    if attrs.padding_mode == "reflection":
        low, high = (0.0, size - 1.0) if attrs.align_corners else (-0.5, size - 0.5)
        span = high - low
        if span > 0:
            rest = np.mod(at - low, 2 * span)
            at = np.where(rest > span, 2 * span - rest, rest) + low
        else:
            at = np.zeros_like(at)
    return np.clip(np.where(np.isnan(at), 0, at), 0, size - 1)


def _array_taps(attrs: GridSampleAttrs, at: Array, size: int) -> list[tuple[Array, Array, Array]]:
    """For one coordinate: the elements that are read, whether they exist, and their weights."""
    if attrs.padding_mode != "zeros" and attrs.method != "cubic":
        at = _folded_array(attrs, at, size)
    if attrs.method == "nearest_neighbor":
        found = [(np.rint(at), np.ones_like(at))]
    else:
        below = np.floor(at)
        weights = weights_of(attrs.method, at - below, CUBIC_ALPHA)
        found = [(below + i + 1 - len(weights) // 2, w) for i, w in enumerate(weights)]
    made = []
    for place, weight in found:
        exists = (place >= 0) & (place < size)
        if attrs.padding_mode != "zeros":
            place, exists = _folded_array(attrs, place, size), np.ones_like(exists)
        held = np.clip(np.nan_to_num(place), 0, size - 1)
        made.append((held.astype("int64"), exists, weight))
    return made


@quiet
def _reference(attrs: GridSampleAttrs, data: Array, grid: Array) -> Array:
    rank = LAYOUTS[attrs.layout]
    x, places = widened(data, str(data.dtype)), widened(grid, str(data.dtype))
    taps = []
    for axis in range(rank):
        size = data.shape[2 + axis]
        at = _unnormalized(places[:, rank - 1 - axis], places.dtype.type(size),
                           attrs.align_corners)
        taps.append(_array_taps(attrs, at, size))
    batch = np.arange(data.shape[0]).reshape(-1, *[1] * rank)
    total: Any = None
    for chosen in itertools.product(*taps):
        picked = np.moveaxis(x, 1, -1)[(batch, *[place for place, _, _ in chosen])]
        exists = np.logical_and.reduce([there for _, there, _ in chosen])
        picked = np.where(exists[..., None], picked, 0)
        for _, _, weight in chosen:
            picked = picked * weight[..., None]
        total = picked if total is None else total + picked  # -0 alone stays what it is
    made: Array = np.moveaxis(total, -1, 1).astype(data.dtype)
    return made


_GRID = (np.random.default_rng(3).uniform(-1.7, 1.7, (2, 2, 3, 5))).astype("float32")
_MANY = (np.random.default_rng(5).uniform(-1.2, 1.2, (2, 2, 7, 5))).astype("float32")
_DEEP = (np.random.default_rng(4).uniform(-1.5, 1.5, (1, 3, 2, 3, 2))).astype("float32")

register(OpRecord(
    "image.grid_sample",
    inputs=("data", "grid"),
    attrs=GridSampleAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case(((2, 3, 4, 6), _GRID), tolerance=1e-4),
        Case(((2, 1, 4, 6), _GRID), {"padding_mode": "border", "align_corners": False}, 1e-4),
        Case(((2, 1, 4, 6), _GRID), {"padding_mode": "reflection", "method": "bicubic"}, 1e-4),
        Case(((2, 1, 1, 6), _GRID), {"padding_mode": "reflection", "align_corners": False}, 1e-4),
        Case(((2, 2, 4, 6), _GRID), {"method": "bicubic", "align_corners": False}, 1e-4),
        Case(((2, 2, 4, 6), _GRID), {"method": "nearest"}),
        Case(((2, 11, 4, 6), _MANY), {"align_corners": False}, 1e-4),
        Case(((1, 2, 3, 4, 2), _DEEP), {"layout": "NCDHW", "align_corners": False}, 1e-4),
        Case(((1, 2, 3, 4, 2), _DEEP),
             {"layout": "NCDHW", "method": "nearest", "padding_mode": "border"}),
        Case(((1, 1, 3, 4, 2), _DEEP), {"layout": "NCDHW", "method": "cubic"}, 1e-4),
        Case(((2, 2, 6), _GRID[:, :1, 0]), {"layout": "NCW", "padding_mode": "reflection"}, 1e-4),
    ],
    doc="Images read at the places of a grid: the nearest elements, or between two or four along "
        "each axis; outside lie zeros, the elements at the border, or the image mirrored.",
))


# ---- affine_grid ----


@attributes
class AffineGridAttrs(Attrs):
    """Of image.affine_grid."""

    target_shape: tuple[int, ...]
    align_corners: bool = True

    def normalize(self) -> None:
        if len(self.target_shape) not in (2, 3):
            raise ValueError(f"target_shape is 2 or 3 extents, not {self.target_shape}")


def _infer_affine(attrs: AffineGridAttrs, data: Type) -> TensorType:
    rank = len(attrs.target_shape)
    kind = of_kind(tensor(data, "data", 3), "data", "float")
    expect_dim(kind.shape[1], rank, "data's number of rows")
    expect_dim(kind.shape[2], rank + 1, "data's number of columns")
    return TensorType((kind.shape[0], rank, *attrs.target_shape), kind.dtype)


def _coordinate(place: Numbers, size: int, corners: bool) -> Numbers:
    """Where a place lies between -1 and 1."""
    if corners:
        return place * (2.0 / (size - 1)) - 1.0 if size > 1 else place * 0.0 - 1.0
    return (place * 2.0 + 1.0) * (1.0 / size) - 1.0


def _compute_affine(attrs: AffineGridAttrs, out: TensorType, data: Tensor) -> Tensor:
    dtype, rank = wide(out.dtype), len(attrs.target_shape)

    def element(n: Expr, row: Expr, *at: Expr) -> Any:
        total = data(n, row, rank).astype(dtype)
        for column in range(rank):
            axis = rank - 1 - column
            where = _coordinate(at[axis].astype(dtype), attrs.target_shape[axis],
                                attrs.align_corners)
            total = total + data(n, row, column).astype(dtype) * where
        return total.astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_affine_grid")
    return made


def _reference_affine(attrs: AffineGridAttrs, data: Array) -> Array:
    lines = [
        _coordinate(np.arange(size, dtype="float64"), size, attrs.align_corners)
        for size in attrs.target_shape
    ]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(attrs.target_shape)])
    made: Array = np.einsum("nij,j...->ni...", data.astype("float64"), places)
    return made.astype(data.dtype)


register(OpRecord(
    "image.affine_grid",
    inputs=("data",),
    attrs=AffineGridAttrs,
    infer=_infer_affine,
    compute=_compute_affine,
    reference=_reference_affine,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case(((2, 2, 3),), {"target_shape": (4, 5)}),
        Case(((1, 3, 4),), {"target_shape": (2, 1, 3), "align_corners": False}),
        Case((((1, 2, 3), "float16"),), {"target_shape": (1, 3)}, 1e-2),
    ],
    doc="The grid that shows an image moved, turned and sheared by a matrix of 2 by 3 numbers; "
        "a volume by one of 3 by 4.",
))
