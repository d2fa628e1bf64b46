"""A network's module and its weights."""

import math
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass
from sterna.ir.types import TensorType
from sterna.relay.expr import Function, RelayExpr
from sterna.relay.infer import infer
from sterna.relay.passes.infer_type import InferType
from sterna.runtime import NDArray
from sterna.runtime.ndarray import array


def run_infer_type(expr: Any) -> Any:
    """The expression, all of whose parts have types."""
    infer(expr)
    return expr


def run_opt_pass(expr: RelayExpr, opt_pass: Pass, import_prelude: bool = False) -> RelayExpr:
    """The expression as a pass leaves it; a function of what is free in it if it is none itself.

    import_prelude: kept for programs that say so; lists and options are part of every module.
    """
    entry: Function = opt_pass(InferType()(IRModule.from_expr(expr)))["main"]
    return entry if isinstance(expr, Function) else entry.body


def create_workload(
    net: RelayExpr | Function, seed: int = 0
) -> tuple[IRModule, dict[str, NDArray]]:
    """The network as a module, and a value for every parameter but the data.

    Weights are scaled by what they sum over, so that numbers neither vanish nor explode; statistics
    of norms are those of no change.
    """
    mod = IRModule.from_expr(net)
    main = mod["main"]
    infer(main)
    random = np.random.default_rng(seed)
    params = {}
    for param in main.params:
        if param.name_hint != "data":
            params[param.name_hint] = array(_value(param.name_hint, param.checked_type, random))
    return mod, params


def _value(name: str, kind: Any, random: np.random.Generator) -> Any:
    assert isinstance(kind, TensorType)
    shape = kind.concrete_shape
    if name.endswith(("gamma", "var")):
        made = np.ones(shape)
    elif name.endswith(("beta", "bias", "mean")):
        made = 0.1 * random.standard_normal(shape)
    else:
        fan_in = max(1, math.prod(shape) // max(1, shape[0]))
        last = 0.02 if name.startswith("fc") else 1.0  # probabilities of one class alone hide much
        made = random.standard_normal(shape) * math.sqrt(2.0 / fan_in) * last
    return made.astype(str(kind.dtype))
