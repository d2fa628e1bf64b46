"""What users say other compilers take: operators of graphs, by a check of each call."""

from collections.abc import Callable
from typing import Any

Check = Callable[[Any], Any]

PREFIX = "target."
_checks: dict[tuple[str, str], Check] = {}


def register_check(op_name: str, compiler: str, check: Check) -> None:
    """Say that a compiler takes those calls of an operator that a check is true of."""
    if not callable(check):
        raise TypeError(f"{PREFIX}{compiler} of {op_name} is a function of a call, not {check!r}")
    _checks[op_name, compiler] = check


def is_taken(op_name: str, compiler: str, call: Any) -> bool:
    """Whether a compiler takes a call of an operator."""
    check = _checks.get((op_name, compiler))
    return check is not None and bool(check(call))
