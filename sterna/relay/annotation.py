"""Builders of what graphs say about themselves, under the names that users know."""

from collections.abc import Sequence
from typing import Any

from sterna.relay.builders import builder
from sterna.relay.expr import Function, RelayExpr, Var
from sterna.relay.traverse import substitute


def on_device(
    body: RelayExpr, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> RelayExpr:
    """Say on which device a value is computed: a device, its name, its number, or a target.

    constrain_result: also what reads the value does so there; else it is copied to wherever that
    is. constrain_body: whether the value is computed there, too.
    """
    made: RelayExpr = builder("on_device")(body, device, constrain_result, constrain_body)
    return made


def function_on_device(
    function: Function, param_devices: Sequence[Any], result_device: Any
) -> Function:
    """A function whose parameters and result lie on certain devices, and are used there."""
    if len(param_devices) != len(function.params):
        raise ValueError(
            f"the function has {len(function.params)} parameters, and {len(param_devices)} devices "
            "were given for them"
        )
    homes: dict[Var, RelayExpr] = {
        param: on_device(param, place, constrain_result=True)
        for param, place in zip(function.params, param_devices, strict=True)
    }
    body = on_device(substitute(function.body, homes), result_device, constrain_result=True)
    return Function(function.params, body, None, function.type_params, function.attrs)


def compiler_begin(data: RelayExpr, compiler: str) -> RelayExpr:
    """Where a region of another compiler begins, for PartitionGraph."""
    made: RelayExpr = builder("annotation.compiler_begin")(data, compiler)
    return made


def compiler_end(data: RelayExpr, compiler: str) -> RelayExpr:
    """Where a region of another compiler ends."""
    made: RelayExpr = builder("annotation.compiler_end")(data, compiler)
    return made
