"""Open models: from a model to what is compiled when it is called."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.frontend.inputs import is_range
from sterna.frontend.open_inputs import Given, OpenInput
from sterna.frontend.open_shapes import OPEN, NamedDim
from sterna.frontend.stages import Decide
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType
from sterna.model.background import HOT_AFTER
from sterna.model.import_and_build import narrowed
from sterna.model.import_model import format_of, import_model
from sterna.model.open_arguments import Ranges
from sterna.model.open_files import told
from sterna.model.open_model import OpenModel, Trace
from sterna.model.programs import LoopLimits, Program, program_of, symbolic_program
from sterna.relay.expr import Function, RelayExpr, TupleGetItem, Var
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.traverse import substitute
from sterna.target import Target


def build_open(
    model: Any, target: Target, shapes: Mapping[str, Any] | None,
    params: Mapping[str, Any] | None, narrow: str | None, context: PassContext,
    example_inputs: Sequence[Any] | None = None,
) -> OpenModel | None:
    """A model that is compiled when it is called; None if its shapes are given.

    A format that knows nothing of open shapes may have choices and loops all the same.
    """
    if isinstance(model, tuple) and len(model) == 2:
        model, own = model
        params = {**own, **(params or {})}
    others = IRModule()
    trace: Trace | None
    if isinstance(model, Function | IRModule):
        module = IRModule.from_expr(model) if isinstance(model, Function) else model
        others = module
        trace = RelayTrace(module, params or {})
    else:
        trace = format_of(model).trace_model(model, example_inputs)
    if trace is None:
        others, own = import_model(
            model, dict(shapes or {}), None, example_inputs)
        trace, shapes = RelayTrace(others, own), None

    limits = LoopLimits()

    def build(function: Function, decides: bool) -> Program:
        with context:
            if narrow is not None:
                function = narrowed(IRModule.from_expr(function), {}, narrow, target)["main"]
            return program_of(function, target, others, decides, limits)

    fixed, ranges = _sorted_out(trace.inputs, shapes or {})
    if fixed:
        return None  # what is said as extents or shapes is compiled once, or not at all
    with context:
        often = context.get_config(HOT_AFTER)
        try:
            function = trace.symbolic()
            if narrow is not None:
                function = narrowed(IRModule.from_expr(function), {}, narrow, target)["main"]
            symbolic = symbolic_program(function, target, others, told(trace, ranges))
        except (ValueError, TypeError, NotImplementedError) as error:
            return OpenModel(trace, build, ranges, None, str(error), limits=limits)
    return OpenModel(trace, build, ranges, symbolic, "", often, limits)


def _sorted_out(
    inputs: Sequence[OpenInput], shapes: Mapping[str, Any]
) -> tuple[dict[str, Any], Ranges]:
    """Shapes and extents that are given, and ranges of dimensions by name."""
    names = {each.name for each in inputs}
    dims = {dim for each in inputs for dim in each.shape or () if isinstance(dim, str)}
    given = {
        n: (int(each[0]), int(each[1])) for n, each in shapes.items()
        if n in dims - names and isinstance(each, tuple | list) and is_range(each)
    }
    declared = {n: limits for one in inputs for n, limits in one.ranges.items() if n in dims}
    ranges = {**declared, **given}
    return {n: each for n, each in shapes.items() if n not in given}, ranges


class RelayTrace:
    """A graph of Relay that is typed anew when inputs come."""

    def __init__(self, module: IRModule, params: Mapping[str, Any]) -> None:
        self.main: Function = bind_params(module["main"], params)
        self.inputs: Sequence[OpenInput] = [_input(var) for var in self.main.params]
        kind = self.main.checked_type.ret_type  # type: ignore[attr-defined]
        count = len(kind.fields) if isinstance(kind, TupleType) else 1
        self.outputs: Sequence[str] = module.attrs.get(OUTPUT_NAMES) or [
            f"output{place}" for place in range(count)]
        self.needs_host = False

    def symbolic(self) -> Function:
        """The function itself, whose open dimensions become symbols when it is compiled."""
        return self.main

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """The outputs for inputs of these shapes."""
        sized: dict[Var, RelayExpr] = {}
        for var in self.main.params:
            given, kind = inputs[var.name_hint], var.checked_type
            if isinstance(kind, TensorType) and not kind.is_static:
                assert given is not None and not isinstance(given, list)
                sized[var] = Var(var.name_hint, TensorType(given.shape, kind.dtype))
        body = substitute(self.main.body, sized)
        kind = body.checked_type
        if isinstance(kind, TupleType):
            return [TupleGetItem(body, place) for place in range(len(kind.fields))]
        return [body]


def _input(var: Var) -> OpenInput:
    kind = var.checked_type
    if not isinstance(kind, TensorType):
        raise ValueError(f"input '{var.name_hint}' has the type {kind!r}; models take tensors")
    return OpenInput(var.name_hint, [_dim(extent) for extent in kind.shape], str(kind.dtype))


def _dim(extent: Dim) -> NamedDim:
    if isinstance(extent, int):
        return extent
    return (extent.name or OPEN) if isinstance(extent, AnyDim) else str(extent)
