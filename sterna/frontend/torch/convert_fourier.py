"""Fourier transforms."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, fields_of, like, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.complex_pairs import both_parts, pair, stacked
from sterna.frontend.torch.convert_shape import axis_of, cat, shape_of
from sterna.frontend.torch.convert_shape import slice_ as sliced
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr


def _scale(norm: str | None, size: int, is_inverse: bool) -> float:
    """What results are multiplied by: the whole 1 / n lies on one side, or its root on both."""
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if (norm == "forward") != is_inverse else 1.0


def _fitted(x: RelayExpr, at: int, size: int) -> RelayExpr:
    """An axis cut, or filled up with zeros."""
    have = shape_of(x)[at]
    if have > size:
        return sliced(x, at, 0, size)
    if have == size:
        return x
    shape = [size - have if axis == at else each for axis, each in enumerate(shape_of(x))]
    return cat([x, call("zeros", tuple(shape), dtype_of(x))], at)


def _last(x: RelayExpr, at: int) -> RelayExpr:
    rank = rank_of(x)
    return call("transpose", x, (*(e for e in range(rank) if e != at), at))


def _back(x: RelayExpr, at: int) -> RelayExpr:
    rank = rank_of(x)
    order = list(range(rank - 1))
    order.insert(at, rank - 1)
    return call("transpose", x, tuple(order))


def _transform(
    both: Sequence[RelayExpr], at: int, size: int, is_inverse: bool, factor: float
) -> list[RelayExpr]:
    """The transform of one axis, times a factor instead of the inverse's 1 / n."""
    fitted = [_last(_fitted(each, at, size), at) for each in both]
    made = parts(call("dft", *fitted, inverse=is_inverse), 2)
    whole = factor * (size if is_inverse else 1)
    if whole != 1:
        made = [call("multiply", each, like(whole, each)) for each in made]
    return [_back(each, at) for each in made]


def _one(x: RelayExpr, n: int | None, dim: int, norm: str | None, inverse: bool) -> RelayExpr:
    both = both_parts(x)
    at = axis_of(dim, rank_of(both[0]))
    size = n or shape_of(both[0])[at]
    return pair(*_transform(both, at, size, inverse, _scale(norm, size, inverse)))


@aten("fft_fft", "complex::fft_fft")
def fft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    return _one(x, n, dim, norm, inverse=False)


@aten("fft_ifft", "complex::fft_ifft")
def ifft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    return _one(x, n, dim, norm, inverse=True)


def _onesided(x: RelayExpr, at: int, size: int) -> RelayExpr:
    """The half of a transform of real numbers that says all of it."""
    return pair(*(sliced(each, at, 0, size // 2 + 1) for each in fields_of(x)))


@aten("fft_rfft")
def rfft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    made = fft(x, n, dim, norm)
    at = axis_of(dim, rank_of(x))
    return _onesided(made, at, shape_of(fields_of(made)[0])[at])


@aten("fft_ihfft")
def ihfft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    made = ifft(x, n, dim, norm)
    at = axis_of(dim, rank_of(x))
    return _onesided(made, at, shape_of(fields_of(made)[0])[at])


def _whole(x: RelayExpr, at: int, size: int) -> list[RelayExpr]:
    """The other half of a transform of real numbers: conjugates in turned order."""
    made = []
    for each, sign in zip(both_parts(x), (1, -1), strict=True):
        half = _fitted(each, at, size // 2 + 1)
        turned = call("reverse", sliced(half, at, 1, (size + 1) // 2), axis=at)
        mirrored = turned if sign == 1 else call("negative", turned)
        made.append(cat([half, mirrored], at) if shape_of(turned)[at] else half)
    return made


def _to_real(
    x: RelayExpr, n: int | None, dim: int, norm: str | None, inverse: bool
) -> RelayExpr:
    first = both_parts(x)[0]
    at = axis_of(dim, rank_of(first))
    size = n or 2 * (shape_of(first)[at] - 1)
    whole = _whole(x, at, size)
    return _transform(whole, at, size, inverse, _scale(norm, size, inverse))[0]


@aten("fft_irfft", "complex::fft_irfft")
def irfft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    return _to_real(x, n, dim, norm, inverse=True)


@aten("fft_hfft", "complex::fft_hfft")
def hfft(
    x: RelayExpr, n: int | None = None, dim: int = -1, norm: str | None = None
) -> RelayExpr:
    return _to_real(x, n, dim, norm, inverse=False)


# ---- of several axes ----


def _axes(
    x: RelayExpr, s: Sequence[int] | None, dim: Sequence[int] | int | None
) -> list[tuple[int, int | None]]:
    """The axes of a transform, and the sizes that are given."""
    rank = rank_of(both_parts(x)[0])
    if dim is None:
        dims = list(range(rank - len(s), rank)) if s is not None else list(range(rank))
    else:
        dims = [dim] if isinstance(dim, int) else list(dim)
    sizes = [None if each == -1 else each for each in s] if s is not None else [None] * len(dims)
    return [(axis_of(at, rank), size) for at, size in zip(dims, sizes, strict=True)]


Single = Callable[..., RelayExpr]
Several = Callable[..., RelayExpr]


def _several(rest: Single, last: Single, is_last_first: bool) -> Several:
    """A transform of several axes: of the last one by one function, of the rest by another."""

    def convert(
        x: RelayExpr, s: Sequence[int] | None = None, dim: Sequence[int] | int | None = None,
        norm: str | None = None,
    ) -> RelayExpr:
        *others, (at, size) = _axes(x, s, dim)
        made = last(x, size, at, norm) if is_last_first else x
        for axis, extent in others:
            made = rest(made, extent, axis, norm)
        return made if is_last_first else last(made, size, at, norm)

    return convert


def _of_two(function: Several) -> Several:
    """The same, of the last two axes unless others are given."""

    def convert(
        x: RelayExpr, s: Sequence[int] | None = None, dim: Sequence[int] = (-2, -1),
        norm: str | None = None,
    ) -> RelayExpr:
        return function(x, s, dim, norm)

    return convert


for _name, _rest, _final, _first in (
    ("fft", fft, fft, True), ("ifft", ifft, ifft, True), ("rfft", fft, rfft, True),
    ("ihfft", ifft, ihfft, True), ("irfft", ifft, irfft, False), ("hfft", fft, hfft, False),
):
    _function = _several(_rest, _final, _first)
    aten(f"fft_{_name}n", f"complex::fft_{_name}n")(_function)
    aten(f"fft_{_name}2", f"complex::fft_{_name}2")(_of_two(_function))


@aten("stft")
def stft(
    x: RelayExpr, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: RelayExpr | None = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> RelayExpr:
    """Fourier transforms of windows that move along a signal."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    data = reshaped(x, (1, *shape_of(x))) if rank_of(x) == 1 else x
    count = 1 + (shape_of(data)[1] - n_fft) // hop
    places = np.arange(count)[:, None] * hop + np.arange(n_fft)
    frames = call("take", data, constant(places, "int64"), axis=1)
    left = (n_fft - width) // 2
    shape = window if window is not None else constant(np.ones(width), dtype_of(data))
    if width < n_fft:
        edges = [call("zeros", (each,), dtype_of(data)) for each in (left, n_fft - width - left)]
        shape = cat([edges[0], cast(shape, dtype_of(data)), edges[1]], 0)
    norm = "ortho" if normalized else None
    transform = fft if onesided is False else rfft
    made = transform(call("multiply", frames, shape), None, -1, norm)
    turned = [call("transpose", each, (0, 2, 1)) for each in fields_of(made)]
    if rank_of(x) == 1:
        turned = [call("squeeze", each, axis=(0,)) for each in turned]
    return pair(*turned) if return_complex else stacked(pair(*turned))


# ---- as graphs of gradients say them: one normalisation of all axes together ----


def _of_axes(
    both: Sequence[RelayExpr], dim: Sequence[int], is_inverse: bool
) -> list[RelayExpr]:
    """Transforms of some axes, none of which divides by its size."""
    made = list(both)
    for axis in dim:
        at = axis_of(axis, rank_of(made[0]))
        made = _transform(made, at, shape_of(made[0])[at], is_inverse, 1.0)
    return made


def _normalized(made: Sequence[RelayExpr], size: int, normalization: int) -> list[RelayExpr]:
    """normalization: 0 for none, 1 by the root of the size, 2 by the size."""
    factor = (1.0, 1 / math.sqrt(size), 1 / size)[normalization]
    return [call("multiply", each, like(factor, each)) for each in made]


@aten("_fft_c2c", "complex::_fft_c2c")
def c2c(x: RelayExpr, dim: Sequence[int], normalization: int, forward: bool) -> RelayExpr:
    both = both_parts(x)
    size = math.prod(shape_of(both[0])[at] for at in dim)
    return pair(*_normalized(_of_axes(both, dim, not forward), size, normalization))


@aten("_fft_r2c")
def r2c(x: RelayExpr, dim: Sequence[int], normalization: int, onesided: bool) -> RelayExpr:
    size = math.prod(shape_of(x)[at] for at in dim)
    made = pair(*_normalized(_of_axes(both_parts(x), dim, False), size, normalization))
    at = axis_of(dim[-1], rank_of(x))
    return _onesided(made, at, shape_of(x)[at]) if onesided else made


@aten("_fft_c2r", "complex::_fft_c2r")
def c2r(
    x: RelayExpr, dim: Sequence[int], normalization: int, last_dim_size: int
) -> RelayExpr:
    made = pair(*_of_axes(both_parts(x), dim[:-1], True))
    at = axis_of(dim[-1], rank_of(fields_of(made)[0]))
    whole = _whole(made, at, last_dim_size)
    real = _transform(whole, at, last_dim_size, True, 1.0)[0]
    size = math.prod(shape_of(real)[axis] for axis in dim)
    return _normalized([real], size, normalization)[0]
