"""Checks in a run: what programs assume of numbers that data decides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sterna.arith import Analyzer
from sterna.frontend.calls import call, call_unfolded, cast, constant, dtype_of, reshape
from sterna.frontend.torch.extents import FAR, Extent, as_tensor, dims_of, found_here
from sterna.frontend.torch.promotion import is_float
from sterna.ir import build
from sterna.ir.expr import Expr, variables_in
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.steps import Expect
from sterna.relay.symbols import simplified_dim

Number = Extent | RelayExpr
Truth = bool | Expr | RelayExpr


def compared(function: Callable[..., Expr], operator: str, a: Number, b: Number) -> Truth:
    """Whether two numbers compare so, by the run where one of them is a tensor."""
    if isinstance(a, RelayExpr) or isinstance(b, RelayExpr):
        return call(operator, _scalar(a), _scalar(b))
    if isinstance(a, int) and isinstance(b, int):
        return bool(build.int_value(function(build.const(a), build.const(b))))
    return function(a, b)


def expected(value: RelayExpr, holds: Truth, reason: str, *numbers: Number) -> RelayExpr:
    """A value, and where something does not hold an error, in which # stands for a number."""
    if isinstance(holds, Expr):
        if _is_sure(holds):
            return value
        holds = as_tensor(holds)
    if isinstance(holds, RelayExpr) and isinstance(holds, Constant):
        holds = bool(to_numpy(holds.data).all())
    if not isinstance(holds, RelayExpr):
        if holds:
            return value
        raise ValueError(_filled(reason, numbers))
    told = [reshape(_scalar(each), (1,)) for each in numbers[: Expect.MOST_NUMBERS]]
    vector = constant([], "int64") if not told else call("concatenate", told, axis=0)
    return Expect(value, cast(reshape(holds, ()), "bool"), vector, reason)


def _filled(reason: str, numbers: Sequence[Number]) -> str:
    """A reason with its numbers, as far as they are known before a run."""
    for number in numbers:
        if isinstance(number, Constant):
            known = str(to_numpy(number.data).item())
        else:
            known = "?" if isinstance(number, RelayExpr) else str(number)
        reason = reason.replace("#", known, 1)
    return reason


def expect_equal(value: RelayExpr, have: Number, want: Number, reason: str) -> RelayExpr:
    """A value, where two numbers are equal; the error tells both."""
    return expected(value, compared(build.equal, "equal", have, want), reason, have, want)


# ---- elements ----


def within_axis(
    places: RelayExpr, extent: Extent, axis: int, error: str = "IndexError",
    from_end: bool = False, text: str = "index {} is out of bounds for dimension # with size {}",
) -> RelayExpr:
    """Places along an axis, and an error of the run where one is outside of it.

    from_end: whether negative ones count from the end.
    """
    if dtype_of(places) in ("bool", "uint8"):
        return places
    said: dict[str, str | bool] = {"error": error, "text": text.replace("#", str(axis))}
    return _checked(places, from_end, extent, said)


def not_zero(divisor: RelayExpr) -> RelayExpr:
    """Divisors, and an error of the run where one is the integer 0."""
    if dtype_of(divisor) == "bool" or is_float(divisor):
        return divisor
    said: dict[str, str | bool] = {
        "error": "RuntimeError", "text": "ZeroDivisionError", "outside": True,
    }
    return _checked(divisor, False, 1, said)


def _checked(
    values: RelayExpr, from_end: bool, high: Extent, said: Mapping[str, str | bool]
) -> RelayExpr:
    """Numbers from 0, or from minus the upper bound, to below the upper bound, or outside."""
    if any(extent == 0 for extent in dims_of(values) if isinstance(extent, int)):
        return values
    if isinstance(values, Constant) and isinstance(high, int):
        known = to_numpy(values.data)
        inside = (known >= (-high if from_end else 0)) & (known < high)
        if not (inside if "outside" in said else ~inside).any():
            return values
    most = cast(as_tensor(high), "int64")
    least = call("negative", most) if from_end else constant(0, "int64")
    return call("add", values, call_unfolded("assert_within", values, least, most, **said))


def _scalar(number: Number) -> RelayExpr:
    if isinstance(number, RelayExpr):
        return reshape(cast(number, "int64"), ())
    return as_tensor(simplified_dim(number))


def _is_sure(holds: Expr) -> bool:
    """Whether something holds of extents in every run."""
    found, analyzer = found_here(), Analyzer()
    for symbol in variables_in(holds):
        analyzer.bind(symbol, 0, min(found.most_of(symbol), FAR - 1) + 1)
    return analyzer.can_prove(holds)


# ---- checks of a program or of a body ----


def assume(holds: Truth, reason: str) -> None:
    """Let the results of the program, or of the branch or round that is imported, have a check."""
    if isinstance(holds, Expr):
        if _is_sure(holds):
            return
        numbers = list(variables_in(holds))[: Expect.MOST_NUMBERS]
        names = ", ".join("#" for _ in numbers)
        if numbers:
            reason = f"{reason}; the numbers of this run are {names}"
        found_here().checks.append((as_tensor(holds), numbers, reason))
        return
    found_here().checks.append((holds, [], reason))


@contextmanager
def own_checks() -> Iterator[Callable[[RelayExpr], RelayExpr]]:
    """Within it checks are collected; the function gives a result that has them."""
    found = found_here()
    outer, found.checks = found.checks, []

    def checked(value: RelayExpr) -> RelayExpr:
        for holds, numbers, reason in found.checks:
            value = expected(value, holds, reason, *numbers)
        found.checks = []
        return value

    try:
        yield checked
    finally:
        found.checks = outer
