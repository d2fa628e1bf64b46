"""Padding and dilation of tensors, and how much of it convolutions ask for."""

from collections.abc import Sequence
from typing import Any

from sterna.ir import build
from sterna.te import Tensor, const
from sterna.tir.op import all as all_of
from sterna.tir.op import if_then_else, indexdiv, indexmod
from sterna.topi.stage import stage
from sterna.topi.tag import INJECTIVE
from sterna.topi.utils import equal_const_int, simplify

Padding = int | str | Sequence[int]


def pad(
    data: Tensor, pad_before: Sequence[Any], pad_after: Sequence[Any] | None = None,
    pad_value: Any = 0.0, name: str = "PadInput", attrs: Any = None,
) -> Tensor:
    """A border of one value around a tensor: so many before and after each axis."""
    after = list(pad_before if pad_after is None else pad_after)
    before, rank = list(pad_before), len(data.shape)
    if len(before) != rank or len(after) != rank:
        raise ValueError(
            f"pad takes {rank} widths before and after, one of each axis of {data}; it was given "
            f"{len(before)} and {len(after)}"
        )
    shape = [simplify(build.as_expr(n) + b + a)
             for n, b, a in zip(data.shape, before, after, strict=True)]
    value = build.cast(str(data.dtype), pad_value)

    def element(*indices: Any) -> Any:
        inside, at = [], []
        for index, low, high, extent in zip(indices, before, after, data.shape, strict=True):
            if not equal_const_int(low, 0):
                inside.append(index >= low)
            if not equal_const_int(high, 0):
                inside.append(index < extent + low)
            at.append(index if equal_const_int(low, 0) else index - low)
        return if_then_else(all_of(*inside), data(*at), value) if inside else data(*at)

    return stage(tuple(shape), element, name=name, tag=f"{INJECTIVE},pad")


def dilate(
    data: Tensor, strides: Sequence[int], dilation_value: Any = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """A tensor with strides - 1 values between its elements."""
    if len(strides) != len(data.shape):
        raise ValueError(f"dilate takes {len(data.shape)} strides for {data}, not {len(strides)}")
    shape = [simplify((build.as_expr(n) - 1) * s + 1)
             for n, s in zip(data.shape, strides, strict=True)]
    value = const(dilation_value, str(data.dtype))

    def element(*indices: Any) -> Any:
        inside, at = [], []
        for index, stride in zip(indices, strides, strict=True):
            if stride == 1:
                at.append(index)
            else:
                at.append(indexdiv(index, stride))
                inside.append(indexmod(index, stride).equal(0))
        return if_then_else(all_of(*inside), data(*at), value) if inside else data(*at)

    return stage(tuple(shape), element, name=name, tag=f"{INJECTIVE},dilate")


def pad_widths(padding: Padding, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """The widths before and after each spatial axis, of what users say."""
    rank = len(kernel)
    if isinstance(padding, str):
        if padding not in ("VALID", "SAME"):
            raise ValueError(f'padding is VALID, SAME or numbers, not "{padding}"')
        total = [0 if padding == "VALID" else extent - 1 for extent in kernel]
        before = [(n + 1) // 2 for n in total]
        return before, [n - b for n, b in zip(total, before, strict=True)]
    if isinstance(padding, int):
        return [padding] * rank, [padding] * rank
    widths = [int(width) for width in padding]
    if len(widths) == rank:
        return list(widths), list(widths)
    if len(widths) == 2 * rank:
        return widths[:rank], widths[rank:]
    raise ValueError(f"padding has 1, {rank} or {2 * rank} widths here, not {len(widths)}")
