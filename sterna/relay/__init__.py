"""Relay: models as graphs of operators.

The builders of operators (relay.nn.conv2d, relay.add, ...) are derived from the operators' records
and found when they are first used.
"""

import importlib as _importlib
from typing import Any as _Any

from sterna.ir.module import IRModule
from sterna.ir.types import (
    Any,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)
from sterna.relay import analysis, operators
from sterna.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from sterna.relay.builders import lookup as _lookup
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from sterna.relay.infer import TypeInferenceError, infer
from sterna.relay.op import Op
from sterna.relay.parser import fromtext, parse, parse_expr
from sterna.relay.reductions import logsumexp, mean_std, mean_variance, std
from sterna.relay.scope_builder import ScopeBuilder
from sterna.relay.steps import RefCreate, RefRead, RefWrite
from sterna.relay.traverse import bind
from sterna.relay.visitor import ExprFunctor, ExprMutator, ExprVisitor
from sterna.support.classic import MOVED as _MOVED
from sterna.support.classic import find_moved as _find_moved

Expr = RelayExpr

__all__ = [
    "Any", "Call", "Clause", "Constant", "Constructor", "Expr", "ExprFunctor", "ExprMutator",
    "ExprVisitor", "FuncType", "Function", "GlobalTypeVar", "GlobalVar", "If", "Let", "Match",
    "Op", "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard", "RefCreate",
    "RefRead", "RefType", "RefWrite", "RelayExpr", "ScopeBuilder", "TensorType", "Tuple",
    "TupleGetItem", "TupleType", "TupleWrapper", "Type", "TypeCall", "TypeData",
    "TypeInferenceError", "TypeVar", "Var", "analysis", "bind", "const", "fromtext", "infer",
    "logsumexp", "mean_std", "mean_variance", "operators", "parse", "parse_expr",
    "scalar_type", "std", "var",
]


def _as_function(expr: _Any) -> Function:
    if isinstance(expr, TupleWrapper):
        expr = expr.tuple_value
    if isinstance(expr, Function):
        return expr
    if not isinstance(expr, RelayExpr):
        raise TypeError(f"a module is made from an expression of a graph, not from {expr!r}")
    return Function(tuple(analysis.free_vars(expr)), expr)


IRModule.wrap = staticmethod(_as_function)


# Names whose code lies in folders above this one, or is seldom needed.
_WHERE = {
    "build": "sterna.driver.relay_build",
    "create_executor": "sterna.driver.create_executor",
    "optimize": "sterna.driver.relay_build",
    "save_param_dict": "sterna.runtime.params",
    "load_param_dict": "sterna.runtime.params",
}

# Modules, some of them of folders above this one.
_MODULES = {
    "annotation": "sterna.relay.annotation",
    "backend": "sterna.relay.backend",
    "dataflow_pattern": "sterna.relay.dataflow_pattern",
    "frontend": "sterna.relay.frontend",
    "loops": "sterna.relay.loops",
    "prelude": "sterna.relay.prelude",
    "quantize": "sterna.quantization.classic",
    "testing": "sterna.relay.testing",
    "transform": "sterna.relay.transform",
    "vm": "sterna.driver.vm_build",
}


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(_MODULES[name])
    if name in _WHERE:
        return getattr(_importlib.import_module(_WHERE[name]), name)
    if f"{__name__}.{name}" in _MOVED:
        return _find_moved(__name__, name)
    found = None if name.startswith("__") else _lookup(name)
    if found is None:
        raise AttributeError(f"relay has no operator or name '{name}'")
    globals()[name] = found
    return found
