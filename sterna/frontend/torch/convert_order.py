"""Elements in another order: flips, rolls, turns, grids and shuffles."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, rank_of, type_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_shape import axis_of, cat, ravel, shape_of, slice_, transpose
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr


@aten("flip")
def flip(x: RelayExpr, dims: Sequence[int]) -> RelayExpr:
    for dim in dims:
        x = call("reverse", x, axis_of(dim, rank_of(x))) if rank_of(x) else x
    return x


@aten("fliplr")
def fliplr(x: RelayExpr) -> RelayExpr:
    return flip(x, (1,))


@aten("flipud")
def flipud(x: RelayExpr) -> RelayExpr:
    return flip(x, (0,))


@aten("roll")
def roll(x: RelayExpr, shifts: int | Sequence[int], dims: Sequence[int] = ()) -> RelayExpr:
    amounts = [shifts] if isinstance(shifts, int) else shifts
    if not dims:
        flat = roll(ravel(x), amounts, (0,)) if rank_of(x) else x
        return reshaped(flat, shape_of(x))
    for shift, dim in zip(amounts, [dims] if isinstance(dims, int) else dims, strict=True):
        at = axis_of(dim, rank_of(x))
        whole = shape_of(x)[at]
        cut = (whole - shift) % whole if whole else 0
        if cut:
            x = cat([slice_(x, at, cut, whole), slice_(x, at, 0, cut)], at)
    return x


@aten("rot90")
def rot90(x: RelayExpr, k: int = 1, dims: Sequence[int] = (0, 1)) -> RelayExpr:
    a, b = dims
    turns = k % 4
    if turns == 2:
        return flip(x, (a, b))
    if turns == 1:
        return transpose(flip(x, (b,)), a, b)
    return flip(transpose(x, a, b), (b,)) if turns else x


@aten("meshgrid")
def meshgrid(tensors: Sequence[RelayExpr], indexing: str = "ij") -> list[RelayExpr]:
    lines = [reshaped(x, (math.prod(shape_of(x)),)) for x in tensors]
    if indexing == "xy":
        lines[:2] = lines[1::-1]
    whole = tuple(shape_of(line)[0] for line in lines)
    made = [
        call("broadcast_to", reshaped(line, [-1 if a == at else 1 for a in range(len(whole))]),
             whole)
        if 0 not in whole else call("zeros", whole, str(type_of(line).dtype))
        for at, line in enumerate(lines)
    ]
    if indexing == "xy":
        made = [transpose(each, 0, 1) if len(whole) > 1 else each for each in made]
        made[:2] = made[1::-1]
        made = [transpose(each, 0, 1) if len(whole) > 1 else each for each in made]
    return made


@aten("pixel_shuffle")
def pixel_shuffle(x: RelayExpr, upscale_factor: int) -> RelayExpr:
    *outer, channels, height, width = shape_of(x)
    r = upscale_factor
    blocks = reshaped(x, (math.prod(outer), channels // (r * r), r, r, height, width))
    made = call("transpose", blocks, (0, 1, 4, 2, 5, 3))
    return reshaped(made, (*outer, channels // (r * r), height * r, width * r))


@aten("pixel_unshuffle")
def pixel_unshuffle(x: RelayExpr, downscale_factor: int) -> RelayExpr:
    *outer, channels, height, width = shape_of(x)
    r = downscale_factor
    blocks = reshaped(x, (math.prod(outer), channels, height // r, r, width // r, r))
    made = call("transpose", blocks, (0, 1, 3, 5, 2, 4))
    return reshaped(made, (*outer, channels * r * r, height // r, width // r))


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(x: RelayExpr, groups: int) -> RelayExpr:
    batch, channels, *rest = shape_of(x)
    blocks = reshaped(x, (batch, groups, channels // groups, *rest))
    return reshaped(transpose(blocks, 1, 2), (batch, channels, *rest))
