"""Any model that can be compiled, as a graph of Relay and its weights."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna.frontend.format import Format, ImportOptions
from sterna.frontend.formats import recognise
from sterna.frontend.inputs import Inputs, Shapes
from sterna.frontend.open_shapes import NamedDim, OpenShapeError
from sterna.ir.module import IRModule
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType
from sterna.relay.arrays import from_numpy
from sterna.relay.expr import Function, RelayExpr, Var
from sterna.relay.traverse import substitute
from sterna.runtime import NDArray

Graph = tuple[IRModule, dict[str, Any]]

# Files that come out of a compiler, not into it.
COMPILED = frozenset({".so", ".dylib", ".dll", ".tar", ".o", ".a", ".c", ".wasm"})


def import_model(
    model: Any, shapes: Shapes | None, params: Mapping[str, Any] | None,
    example_inputs: Sequence[Any] | None = None, for_microcontroller: bool = False,
    fixed: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph and the weights that are no constants in it; every dimension is known.

    model: the path, the bytes or the object of a model in any format that can be imported, or a
    graph of Relay (an IRModule or a Function, or a pair of it and its params).
    for_microcontroller: whether quantised numbers are rounded as kernels for these do it, where a
    format knows several ways.
    fixed: values of inputs, which become constants.
    """
    if isinstance(model, tuple) and len(model) == 2:
        model, own = model
        params = {**own, **(params or {})}
    if isinstance(model, Function):
        model = IRModule.from_expr(model)
    if isinstance(model, IRModule):
        return _graph(model, dict(shapes or {}), {**(params or {}), **_constants(model, fixed)})
    found = format_of(model)
    if params is not None:
        raise TypeError(
            f"params are the weights of a graph of Relay; {found.called} has its own"
        )
    options = ImportOptions(
        shapes or {}, all_known=True, argument="shapes", example_inputs=example_inputs,
        for_microcontroller=for_microcontroller, fixed=fixed or {},
    )
    module, weights = found.load_model(model, options)
    left = {name for name in fixed or {} if name in _names(module)}
    return module, {**weights, **_constants(module, {name: (fixed or {})[name] for name in left})}


def _names(module: IRModule) -> list[str]:
    return [var.name_hint for var in module["main"].params]


def _constants(module: IRModule, fixed: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values that parameters of a graph are fixed to."""
    given = Inputs({}, fixed=fixed)
    kinds = {var.name_hint: var.checked_type for var in module["main"].params}
    given.expect_fitting(dict.fromkeys(kinds))
    return {name: from_numpy(given.constant(name, kinds[name])) for name in given.fixed}


def format_of(model: Any) -> Format:
    """The format of a model that is to be compiled."""
    if isinstance(model, str | os.PathLike) and Path(model).suffix in COMPILED:
        raise ValueError(f"'{os.fspath(model)}' is compiled already; sterna.load runs it")
    return recognise(model)


# ---- graphs ----


def _graph(module: IRModule, shapes: dict[str, Any], params: dict[str, Any]) -> Graph:
    main = module["main"]
    inputs = [var for var in main.params if var.name_hint not in params]
    _expect_names(shapes, [var.name_hint for var in inputs])
    changed: dict[Var, RelayExpr] = {
        var: Var(var.name_hint, _sized(var, shapes[var.name_hint]))
        for var in inputs
        if var.name_hint in shapes
    }
    if changed:
        module = module.shallow_copy()
        main = module["main"] = Function(
            tuple(changed.get(var, var) for var in main.params), substitute(main.body, changed)
        )
    opened = {
        var.name_hint: [_shown(dim) for dim in kind.shape]
        for var in main.params
        if isinstance(kind := var.checked_type, TensorType) and not kind.is_static
    }
    if opened:
        raise OpenShapeError(opened)
    return module, {name: value for name, value in params.items() if _is_array(name, value)}


def _sized(var: Var, shape: Sequence[int]) -> TensorType:
    kind = var.checked_type
    if not isinstance(kind, TensorType) or len(kind.shape) != len(shape):
        raise ValueError(
            f"shapes gives input '{var.name_hint}' the shape {tuple(shape)}, which does not fit "
            f"its type {kind!r}"
        )
    for have, wanted in zip(kind.shape, shape, strict=True):
        if isinstance(have, int) and have != wanted:
            raise ValueError(
                f"shapes gives input '{var.name_hint}' the shape {tuple(shape)}, but its type is "
                f"{kind!r}"
            )
    return TensorType(tuple(shape), kind.dtype)


def _shown(dim: Dim) -> NamedDim:
    return dim if isinstance(dim, int) else "?" if isinstance(dim, AnyDim) else str(dim)


def _is_array(name: str, value: Any) -> bool:
    if not isinstance(value, NDArray) and not hasattr(value, "__array__"):
        raise TypeError(f"params['{name}'] is a {type(value).__name__}; weights are arrays")
    return True


def _expect_names(shapes: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in shapes:
        if name not in names:
            raise ValueError(
                f"shapes names '{name}', which is no input of the model; its inputs are "
                f"{', '.join(names)}"
            )
