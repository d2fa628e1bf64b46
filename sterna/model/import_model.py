"""Any model that can be compiled, as a graph of Relay and its weights."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna import frontend
from sterna.ir.module import IRModule
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType
from sterna.model.open_shapes import NamedDim, OpenShapeError
from sterna.relay.expr import Function, RelayExpr, Var
from sterna.relay.traverse import substitute
from sterna.runtime import NDArray

Shapes = Mapping[str, Sequence[int] | int]
"""Shapes by input; or the extents of dimensions that an ONNX model names."""
Graph = tuple[IRModule, dict[str, Any]]

# Files that come out of a compiler, not into it.
COMPILED = frozenset({".so", ".dylib", ".dll", ".tar", ".o", ".a", ".c", ".wasm"})


def import_model(model: Any, shapes: Shapes | None, params: Mapping[str, Any] | None) -> Graph:
    """The graph and the weights that are no constants in it; every dimension is known.

    model: the path, the bytes or the ModelProto of an ONNX model, or a graph of Relay (an IRModule
    or a Function, or a pair of it and its params).
    """
    if isinstance(model, tuple) and len(model) == 2:
        model, own = model
        params = {**own, **(params or {})}
    if isinstance(model, Function):
        model = IRModule.from_expr(model)
    if isinstance(model, IRModule):
        return _graph(model, dict(shapes or {}), dict(params or {}))
    if params is not None:
        raise TypeError("params are the weights of a graph of Relay; an ONNX model has its own")
    if isinstance(model, str | os.PathLike):
        return _importer_of(Path(model))(model, dict(shapes or {}))
    if isinstance(model, bytes | bytearray) or hasattr(model, "SerializeToString"):
        return _onnx(model, dict(shapes or {}))
    raise TypeError(
        "a model is the path, the bytes or the ModelProto of an ONNX model, or an IRModule or "
        f"Function of Relay, not {type(model).__name__}"
    )


def lies_in_one_file(path: Path) -> bool:
    """Whether all of a model is in its file."""
    return not frontend.has_external_data(path)


def _importer_of(path: Path) -> Callable[[Any, dict[str, Any]], Graph]:
    if path.suffix in IMPORTERS:
        return IMPORTERS[path.suffix]
    if path.suffix in COMPILED:
        raise ValueError(f"'{path}' is compiled already; sterna.load runs it")
    raise ValueError(
        f"'{path}' is no model that can be imported: its name must end in {' or '.join(IMPORTERS)}"
    )


def _onnx(model: Any, shapes: dict[str, Any]) -> Graph:
    loaded = frontend.load_model(model)
    declared = frontend.declared_inputs(loaded.proto)
    named = {dim for dims in declared.values() for dim in dims or () if isinstance(dim, str)}
    extents = {name: _extent(name, shapes.pop(name)) for name in sorted(named & set(shapes))
               if name not in declared}
    _expect_names(shapes, list(declared))
    opened = {
        name: [extents.get(str(dim), dim) for dim in dims] if dims else ["?"]
        for name, dims in declared.items()
        if name not in shapes
        and (dims is None or any(isinstance(dim, str) and dim not in extents for dim in dims))
    }
    if opened:
        raise OpenShapeError(opened)
    return frontend.from_onnx(loaded, shape={**shapes, **extents})


def _extent(name: str, given: Any) -> int:
    """What shapes says about a dimension that the model names."""
    only = list(given) if isinstance(given, Sequence) else [given]
    if len(only) != 1 or not isinstance(only[0], int):
        raise ValueError(f"shapes gives the dimension '{name}' {given!r}; it takes one number")
    return only[0]


IMPORTERS: dict[str, Callable[[Any, dict[str, Any]], Graph]] = {".onnx": _onnx}


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
