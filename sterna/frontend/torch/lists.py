"""Operators on lists of tensors, with which optimisers step, as one operator for each tensor.

    a2, b2 = _foreach_add([a, b], [c, d])      ->      a2 = add(a, c);  b2 = add(b, d)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

_PREFIX = "_foreach_"
# Where the operator on one tensor has another name, or none that takes a number.
_OTHER_NAMES = {
    "norm.Scalar": "linalg_vector_norm", "zero.default": "zeros_like",
    "maximum.Scalar": "clamp_min", "maximum.ScalarList": "clamp_min",
    "minimum.Scalar": "clamp_max", "minimum.ScalarList": "clamp_max",
}
# Numbers that the operator on one tensor takes by name.
_NAMED = {"alpha": "alpha", "value": "value", "dtype": "dtype"}


def rules_for_lists(operators: Iterable[Any]) -> Mapping[Any, Callable[..., Any]]:
    """How each of some operators that goes over lists, and writes to none, is taken apart."""
    rules = {operator: _rule(operator) for operator in operators}
    return {operator: rule for operator, rule in rules.items() if rule is not None}


def _rule(operator: Any) -> Callable[..., Any] | None:
    import torch

    schema = operator._schema
    name = schema.name.rpartition("::")[2].removeprefix(_PREFIX)
    own = _OTHER_NAMES.get(f"{name}.{schema.overload_name or 'default'}", name)
    names = [argument.name for argument in schema.arguments]
    takes_factor = name in ("addcmul", "addcdiv")
    is_plain = _PREFIX in schema.name and not schema.is_mutable and hasattr(torch.ops.aten, own)
    if not is_plain or (takes_factor and schema.overload_name == "Tensor"):
        return None
    named = {**_NAMED, "scalars": "value"} if takes_factor else _NAMED

    def rule(*given: Any, **options: Any) -> list[Any]:
        arguments = {**dict(zip(names, given, strict=False)), **options}
        lists = [value for value in arguments.values() if isinstance(value, list | tuple)]
        made = []
        for place in range(len(lists[0])):
            picked = {
                key: value[place] if isinstance(value, list | tuple) else value
                for key, value in arguments.items()
            }
            plain = [value for key, value in picked.items() if key not in named]
            kept = {named[key]: value for key, value in picked.items() if key in named}
            made.append(getattr(torch.ops.aten, own)(*plain, **kept))
        return made

    return rule
