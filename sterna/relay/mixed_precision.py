"""What users say of operators in mixed precision, in the place of what the operators' records say.

    @relay.op.register_mixed_precision_conversion("nn.dense", level=11)
    def conversion(call, mixed_precision_type):
        return [MIXED_PRECISION_ALWAYS, "float32", mixed_precision_type]

The function says whether the call reads narrow floats, in which type it sums, and the type of its
result. relay.transform.ToMixedPrecision asks the one of the highest level.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sterna.relay.expr import Call
from sterna.relay.op import find
from sterna.support.dtype import DataType

MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = range(3)
CATEGORIES = ("always", "follow", "never")
"""What the numbers mean, as records of operators say it."""

Conversion = Callable[[Call, str], Sequence[Any]]
Registered = TypeVar("Registered", bound=Conversion)

_CONVERSIONS: dict[str, tuple[int, Conversion]] = {}


def register_mixed_precision_conversion(
    op_name: str, func: Conversion | None = None, level: int = 10
) -> Any:
    """Say how an operator is computed in mixed precision; without func, as a decorator."""
    find(op_name)

    def register(given: Registered) -> Registered:
        known = _CONVERSIONS.get(op_name)
        if known is not None and known[0] == level and known[1] is not given:
            raise ValueError(
                f"there is a mixed precision conversion of {op_name} with level {level} already; "
                "give yours a higher level"
            )
        if known is None or level >= known[0]:
            _CONVERSIONS[op_name] = level, given
        return given

    return register if func is None else register(func)


def conversion_of(call: Call, narrow: DataType) -> tuple[str, DataType, DataType] | None:
    """What was said of a call's operator: its category, the type of sums, that of its result."""
    name = str(call.op)
    found = _CONVERSIONS.get(name)
    if found is None:
        return None
    said = list(found[1](call, str(narrow)))
    known = said[:1] and said[0] in range(len(CATEGORIES))
    if not known or len(said) not in (1, 3):
        raise ValueError(
            f"the mixed precision conversion of {name} gives {said!r}, not [category, type of sums,"
            " type of the result]; a category is MIXED_PRECISION_ALWAYS, ..._FOLLOW or ..._NEVER"
        )
    sums, result = said[1:] or (str(narrow), str(narrow))
    return CATEGORIES[said[0]], DataType(str(sums)), DataType(str(result))
