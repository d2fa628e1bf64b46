"""Quantiles: the numbers below which shares of all lie."""

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_index import gathered
from sterna.frontend.torch.convert_reduce import amax, sort, sum_
from sterna.frontend.torch.convert_shape import axis_of, expand, movedim, ravel, shape_of
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr


@aten("quantile")
def quantile(
    x: RelayExpr, q: RelayExpr | float, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> RelayExpr:
    return _quantile(x, q, dim, keepdim, interpolation, leaves_out=False)


@aten("nanquantile")
def nanquantile(
    x: RelayExpr, q: RelayExpr | float, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> RelayExpr:
    return _quantile(x, q, dim, keepdim, interpolation, leaves_out=True)


def _quantile(
    x: RelayExpr, q: RelayExpr | float, dim: int | None, keepdim: bool, interpolation: str,
    leaves_out: bool,
) -> RelayExpr:
    """What is no number makes a row's quantiles none, or is left out."""
    shares = q if isinstance(q, RelayExpr) else constant(q, dtype_of(x))
    rows = ravel(x) if dim is None or not rank_of(x) else (
        movedim(x, axis_of(dim, rank_of(x)), -1)
    )
    *outer, count = shape_of(rows)
    wanted = shape_of(shares)[0] if rank_of(shares) else 1
    is_nan = call("isnan", rows)
    infinite = call("where", is_nan, like(float("inf"), rows), rows)  # behind all numbers
    ordered = sort(infinite, -1)[0]
    known = sum_(cast(call("logical_not", is_nan), dtype_of(x)), -1, True)
    last = call("subtract", known, like(1, known)) if leaves_out else like(count - 1, known)
    last = call("maximum", last, like(0, last))
    row = reshaped(shares, (*[1] * len(outer), wanted))
    ranks = expand(call("multiply", row, last), (*outer, wanted))
    made = _at_ranks(ordered, ranks, interpolation)
    any_nan = cast(amax(cast(is_nan, "int32"), -1, True), "bool")
    lost = call("equal", known, like(0, known)) if leaves_out else any_nan
    made = call("where", lost, like(float("nan"), made), made)
    if keepdim:
        rank = rank_of(x)
        kept = movedim(reshaped(made, (*outer, 1, wanted)), -1, 0)
        if dim is None:
            kept = reshaped(made, (wanted, *[1] * rank))
        elif rank:
            kept = movedim(kept, -1, 1 + axis_of(dim, rank))
        else:
            kept = reshaped(made, (wanted,))
    else:
        kept = movedim(made, -1, 0) if outer else made
    return kept if rank_of(shares) else reshaped(kept, shape_of(kept)[1:])


def _at_ranks(ordered: RelayExpr, ranks: RelayExpr, interpolation: str) -> RelayExpr:
    """The elements at places that may lie between two."""
    round_by = {"lower": "floor", "higher": "ceil", "nearest": "round"}.get(interpolation)
    if round_by is not None:
        return gathered(ordered, -1, cast(call(round_by, ranks), "int64"))
    below = call("floor", ranks)
    first = gathered(ordered, -1, cast(below, "int64"))
    second = gathered(ordered, -1, cast(call("ceil", ranks), "int64"))
    share = call("subtract", ranks, below) if interpolation == "linear" else like(0.5, ranks)
    between = call("add", first, call("multiply", call("subtract", second, first), share))
    return call("where", call("equal", first, second), first, between)
