"""Composite functions: parts of graphs that patterns describe, each as a function with a name.

    dense = is_op("nn.dense")(wildcard(), wildcard())
    pattern_table = [("own.dense_relu", is_op("nn.relu")(dense))]

An entry may have a third part, a function that is asked of each match whether it counts.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.relay.dataflow_pattern import DFPattern, partition
from sterna.relay.expr import Function, RelayExpr

Entry = tuple[str, DFPattern] | tuple[str, DFPattern, Callable[[RelayExpr], bool]]
CheckedEntry = tuple[str, DFPattern, Callable[[RelayExpr], bool] | None]


def MergeComposite(pattern_table: Sequence[Entry]) -> Pass:
    """Make each match of a table's patterns a call of a function with the attribute Composite.

    Earlier entries of the table come first, so that the larger of two patterns may be asked first.
    """
    entries = [_entry(each) for each in pattern_table]

    made: Pass = module_pass(
        lambda mod, context: merge_composite(mod, entries), opt_level=0, name="MergeComposite"
    )
    return made


def merge_composite(mod: IRModule, entries: Sequence[CheckedEntry]) -> IRModule:
    """The module with a call of a composite function for each match."""
    made = mod.shallow_copy()
    for name, function in mod.functions.items():
        if isinstance(function, Function):
            made[name] = _merged(function, entries)
    return made


def _entry(given: Any) -> CheckedEntry:
    parts = tuple(given) if isinstance(given, tuple | list) else ()
    if len(parts) not in (2, 3) or not isinstance(parts[1], DFPattern):
        raise TypeError(
            "an entry of a pattern table is (name, pattern) or (name, pattern, check), not "
            f"{given!r}"
        )
    return str(parts[0]), parts[1], parts[2] if len(parts) == 3 else None


def _merged(function: Function, entries: Sequence[CheckedEntry]) -> Function:
    body = function.body
    for name, pattern, check in entries:
        body = partition(pattern, body, {"Composite": name}, check)
    if body is function.body:
        return function
    return Function(function.params, body, function.ret_type, function.type_params, function.attrs)
