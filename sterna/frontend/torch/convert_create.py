"""Tensors made of numbers, and tensors of another element type."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, fields_of, like, rank_of
from sterna.frontend.limits import expect_moderate
from sterna.frontend.torch.complex_pairs import PARTS, as_complex, is_complex, pair
from sterna.frontend.torch.convert_shape import shape_of
from sterna.frontend.torch.extents import Extents, counted, dims_of
from sterna.frontend.torch.promotion import DEFAULT_FLOAT, Operand, as_type, together
from sterna.frontend.torch.table import aten
from sterna.frontend.torch.tensors import known_dtype
from sterna.ir.expr import Expr
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


def filled(shape: Extents, value: Operand, dtype: str) -> RelayExpr:
    """A tensor of one number."""
    if dtype in PARTS and isinstance(value, bool | int | float | complex):
        return pair(*(filled(shape, part, PARTS[dtype]) for part in (value.real, value.imag)))
    kind = known_dtype(dtype, "a tensor")
    return call("full", as_type(value, kind), tuple(shape), dtype=kind)


def _type_of_number(value: Operand) -> str:
    if isinstance(value, RelayExpr):
        return dtype_of(value)
    kinds = {bool: "bool", int: "int64", float: DEFAULT_FLOAT}
    return kinds[type(value)]


@aten("zeros", "_efficientzerotensor", "empty.memory_format", "new_zeros", "new_empty",
      "empty_permuted", "empty_strided", "new_empty_strided")
def zeros(
    size: Extents, x: RelayExpr | None = None, dtype: str | None = None,
    stride: Sequence[int] = (), physical_layout: Sequence[int] = (),
) -> RelayExpr:
    own = DEFAULT_FLOAT if x is None else dtype_of(x)
    return filled(size, 0, dtype or own)


@aten("ones", "new_ones")
def ones(size: Extents, x: RelayExpr | None = None, dtype: str | None = None) -> RelayExpr:
    return filled(size, 1, dtype or (DEFAULT_FLOAT if x is None else dtype_of(x)))


@aten("full", "new_full")
def full(
    size: Extents, fill_value: Operand, x: RelayExpr | None = None,
    dtype: str | None = None,
) -> RelayExpr:
    own = _type_of_number(fill_value) if x is None else dtype_of(x)
    return filled(size, fill_value, dtype or own)


@aten("zeros_like", "empty_like")
def zeros_like(x: RelayExpr, dtype: str | None = None) -> RelayExpr:
    return filled(dims_of(x), 0, dtype or dtype_of(x))


@aten("ones_like")
def ones_like(x: RelayExpr, dtype: str | None = None) -> RelayExpr:
    return filled(dims_of(x), 1, dtype or dtype_of(x))


@aten("full_like")
def full_like(x: RelayExpr, fill_value: Operand, dtype: str | None = None) -> RelayExpr:
    return filled(dims_of(x), fill_value, dtype or dtype_of(x))


@aten("fill")
def fill(x: RelayExpr, value: Operand) -> RelayExpr:
    return filled(dims_of(x), value, dtype_of(x))


@aten("zero")
def zero(x: RelayExpr) -> RelayExpr:
    return filled(dims_of(x), 0, dtype_of(x))


@aten("scalar_tensor", "_make_dep_token_number")
def scalar_tensor(s: Operand, dtype: str | None = None) -> RelayExpr:
    if dtype in PARTS and not isinstance(s, RelayExpr | Expr):
        return filled((), s, dtype)
    return as_type(s, dtype or DEFAULT_FLOAT)


@aten("arange")
def arange(
    end: float | Expr, start: float = 0, step: float = 1, dtype: str | None = None
) -> RelayExpr:
    if isinstance(end, Expr):
        if start != 0 or step != 1:
            raise OpNotImplemented("numbers from another than 0 to an open extent")
        return cast(counted(end), dtype or "int64")
    whole = all(isinstance(number, int) for number in (start, end, step))
    kind = dtype or ("int64" if whole else DEFAULT_FLOAT)
    expect_moderate(max(0, math.ceil((end - start) / step)), "arange")
    count = max(0, math.ceil((end - start) / step))
    return constant(start + np.arange(count) * step, known_dtype(kind, "a tensor"))


@aten("linspace")
def linspace(
    start: Operand, end: Operand, steps: int, dtype: str | None = None
) -> RelayExpr:
    """Numbers from one to another, counted from the nearer end."""
    expect_moderate(steps, "linspace")
    kind = known_dtype(dtype or DEFAULT_FLOAT, "a tensor")
    if isinstance(start, RelayExpr | Expr) or isinstance(end, RelayExpr | Expr):
        first, last = as_type(start, "float64"), as_type(end, "float64")
        fractions = constant(np.linspace(0, 1, steps), "float64")
        offset = call("multiply", fractions, call("subtract", last, first))
        return cast(call("add", first, offset), kind)
    return constant(np.linspace(start, end, steps), kind)


@aten("logspace")
def logspace(
    start: Operand, end: Operand, steps: int, base: float = 10.0, dtype: str | None = None
) -> RelayExpr:
    expect_moderate(steps, "logspace")
    line = linspace(start, end, steps, "float64")
    made = call("power", like(base, line), line)
    return to_type(made, dtype or DEFAULT_FLOAT)


@aten("eye")
def eye(n: int, m: int | None = None, dtype: str | None = None) -> RelayExpr:
    expect_moderate(n * (n if m is None else m), "eye")
    return constant(np.eye(n, m), known_dtype(dtype or DEFAULT_FLOAT, "a tensor"))


@aten("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, dtype: str | None = None) -> RelayExpr:
    expect_moderate(row * col, "tril_indices")
    return constant(np.stack(np.tril_indices(row, offset, col)), dtype or "int64")


@aten("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, dtype: str | None = None) -> RelayExpr:
    expect_moderate(row * col, "triu_indices")
    return constant(np.stack(np.triu_indices(row, offset, col)), dtype or "int64")


@aten("tril")
def tril(x: RelayExpr, diagonal: int = 0) -> RelayExpr:
    return call("trilu", x, diagonal, upper=False)


@aten("triu")
def triu(x: RelayExpr, diagonal: int = 0) -> RelayExpr:
    return call("trilu", x, diagonal, upper=True)


@aten("diag_embed")
def diag_embed(x: RelayExpr, offset: int = 0, dim1: int = -2, dim2: int = -1) -> RelayExpr:
    """A line on a diagonal of matrices of zeros."""
    *outer, count = shape_of(x)
    rank, whole = len(outer) + 2, count + abs(offset)
    line = call("nn.pad", x, ((0, 0),) * len(outer) + ((max(offset, 0), max(-offset, 0)),))
    on_line = constant(np.eye(whole, k=offset), "bool")
    made = call("where", on_line, call("expand_dims", line, rank - 2), like(0, x))
    order = list(range(rank - 2))
    for at, axis in sorted(((dim1 % rank, rank - 2), (dim2 % rank, rank - 1))):
        order.insert(at, axis)
    return call("transpose", made, tuple(order))


@aten("copy")
def copy(x: RelayExpr, src: RelayExpr) -> RelayExpr:
    return call("broadcast_to", cast(src, dtype_of(x)), dims_of(x))


# ---- other element types ----


@aten("to.dtype", "to.dtype_layout", "to.device", "_to_copy", "type_as_dtype",
      "prims::convert_element_type", "complex::to", "complex::_to_copy")
def to_type(
    x: RelayExpr | None = None, dtype: str | None = None, a: RelayExpr | None = None
) -> RelayExpr:
    data = a if x is None else x
    assert data is not None
    if dtype in PARTS:
        return as_complex(data, dtype)
    return data if dtype is None else converted(data, known_dtype(dtype, "a tensor"))


def converted(x: RelayExpr, dtype: str) -> RelayExpr:
    """Elements of another type; of truth values what is not zero is true, of complex ones the real
    part, as PyTorch warns.
    """
    if is_complex(x):
        parts = [converted(part, dtype) for part in fields_of(x)]
        return call("logical_or", *parts) if dtype == "bool" else parts[0]
    if dtype == "bool" and dtype_of(x) != "bool":
        return call("not_equal", x, like(0, x))
    return cast(x, dtype)


@aten("to.other", "type_as", "complex::to.other", "complex::type_as")
def to_other(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    if not is_complex(other):
        return converted(x, dtype_of(other))
    part = dtype_of(fields_of(other)[0])
    return as_complex(x, next(name for name, own in PARTS.items() if own == part))


_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "bfloat16": "bfloat16",
}

for _name, _dtype in _NAMES.items():

    def _named(x: RelayExpr, _dtype: str = _dtype) -> RelayExpr:
        return converted(x, _dtype)

    aten(f"_cast_{_name.capitalize()}")(_named)


@aten("isin")
def isin(
    elements: Operand, test_elements: Operand, assume_unique: bool = False, invert: bool = False
) -> RelayExpr:
    data, wanted = together(elements, test_elements)
    wanted = call("reshape", wanted, (-1,))
    if shape_of(wanted) == (0,):
        return filled(shape_of(data), invert, "bool")
    found = call("any", call("equal", call("expand_dims", data, rank_of(data)), wanted), axis=-1)
    return call("logical_not", found) if invert else found


@aten("tensor", "as_tensor")
def tensor(
    t: Operand | None = None, data: Operand | list[Any] | None = None, dtype: str | None = None
) -> RelayExpr:
    """A tensor of numbers that are known."""
    given = data if t is None else t
    if isinstance(given, RelayExpr):
        return given if dtype is None else converted(given, dtype)
    found = np.asarray(given)
    own = {"f": DEFAULT_FLOAT, "b": "bool"}.get(found.dtype.kind, "int64")
    return constant(found, dtype or own)


# ---- windows of signals: cosines with these weights ----


def _window(name: str, *weights: float) -> None:
    def convert(
        window_length: int, periodic: bool = True, alpha: float | None = None,
        beta: float | None = None, dtype: str | None = None,
    ) -> RelayExpr:
        own = [given if given is not None else known
               for given, known in zip((alpha, beta), weights, strict=False)]
        places = np.arange(window_length) / max(window_length - (not periodic), 1)
        made = np.zeros(window_length)
        for turns, weight in enumerate((*own, *weights[2:])):
            made += (-1) ** turns * weight * np.cos(2 * np.pi * turns * places)
        return constant(made if window_length != 1 else np.ones(1), dtype or "float32")

    aten(name)(convert)


_window("hann_window", 0.5, 0.5)
_window("hamming_window", 0.54, 0.46)
_window("blackman_window", 0.42, 0.5, 0.08)
