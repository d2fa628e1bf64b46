"""Programs that torch.export made, as they are in memory."""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sterna.frontend.open_shapes import NamedDim
from sterna.frontend.torch.functional import changes_in_place, made_functional
from sterna.frontend.torch.lists import rules_for_lists
from sterna.frontend.torch.memory import KEPT_WHOLE, Layout, Layouts, operator_of
from sterna.frontend.torch.program import (
    Argument,
    Body,
    NumberRef,
    OutputKind,
    Program,
    ProgramInput,
    ProgramOutput,
    Ref,
    Step,
    Unreadable,
    Weight,
    named_arguments,
    range_of,
)
from sterna.frontend.torch.table import converter_of
from sterna.frontend.torch.tensors import array_of_tensor, dtype_name
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented

# How often operators without a converter are taken apart into others.
ROUNDS = 4


def read_exported(exported: Any) -> Program:
    """The program of an ExportedProgram, functional, with big operators whole."""
    made = functional(exported)
    return made_functional(_program(made), _layouts_of(made.graph))


def _layouts_of(graph: Any) -> Layouts:
    """Where the tensors of a graph lie."""
    values = {node.name: node.meta.get("val") for node in graph.nodes}
    return lambda name: layout_of(values.get(name))


def read_recorded(exported: Any) -> Program:
    """The same of a program all of whose operators have converters, as torch.export recorded it.

    Changes in place are undone in the record, which takes less time than PyTorch's own passes.
    """
    if all(map(_is_plain, exported.graph.nodes)):
        try:
            return made_functional(_program(exported), _layouts_of(exported.graph))
        except OpNotImplemented:
            pass  # a change in place that only PyTorch's passes undo
    return read_exported(exported)


def read_recorded_fx(module: Any) -> Program | None:
    """The same of an FX graph that PyTorch recorded; None where something in it is not plain."""
    if not all(map(_is_plain, module.graph.nodes)):
        return None
    try:
        return read_fx(module)
    except OpNotImplemented:
        return None  # a change in place that only PyTorch's passes undo


def layout_of(value: Any) -> Layout | None:
    """Where the elements of a tensor lie; an extent that is a symbol is its text."""
    if not hasattr(value, "stride") or not hasattr(value, "dtype"):
        return None
    sizes, strides = (
        [extent if type(extent) is int else str(extent) for extent in every]
        for every in (value.shape, value.stride())
    )
    return Layout(dtype_name(value.dtype), sizes, strides)


def _is_plain(node: Any) -> bool:
    """Whether a node is an operator that has a converter, and keeps no statistics of its own."""
    if node.op == "get_attr":
        return False
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    name = target_name(node.target)
    if name.endswith(".out"):
        return False  # it writes to what stands at `out`
    keeps = name in _WITH_RUNNING_STATISTICS and any(each is True for each in node.args[5:6])
    return converter_of(name) is not None and not keeps


# Normalisations that write to their running statistics when they are trained.
_WITH_RUNNING_STATISTICS = frozenset({"aten.batch_norm.default", "aten.instance_norm.default"})


def _program(made: Any) -> Program:
    """The program of an export as it is."""
    signature = made.graph_signature
    nodes = list(made.graph.nodes)
    held = {**made.state_dict, **made.constants}
    inputs, weights = [], []
    placeholders = {node.name: node for node in nodes if node.op == "placeholder"}
    for spec in signature.input_specs:
        kind, name = spec.kind.name, spec.arg.name
        if kind == "USER_INPUT":
            inputs += _input(placeholders[name], spec.arg)
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            read = partial(array_of_tensor, held[spec.target])
            weights.append(Weight(name, spec.target, read))
        elif kind != "TOKEN":
            raise OpNotImplemented(f"the PyTorch model's input '{name}', which is a {kind}")
    steps = [step for node in nodes if (step := step_of(node)) is not None]
    by_name = {node.name: node for node in nodes}
    outputs = [
        _output(spec, by_name) for spec in signature.output_specs if spec.kind.name != "TOKEN"
    ]
    ranges = {
        str(symbol): found for symbol, limits in made.range_constraints.items()
        if (found := range_of(_limit(limits.lower), _limit(limits.upper))) is not None
    }
    return Program(inputs, weights, steps, outputs, ranges=ranges)


def _limit(number: Any) -> int | None:
    """A bound of a symbol; None if there is none."""
    return int(number) if number.is_Integer else None


def functional(exported: Any) -> Any:
    """Without changes in place; operators without a converter are taken apart where torch can."""
    import torch
    from torch._export.utils import _get_decomp_for_cia

    # What PyTorch keeps whole it takes for no view: a change in place of its result would be lost.
    used = {
        node.target for node in exported.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    }
    views = [
        op for op in used if operator_of(target_name(op)) in KEPT_WHOLE and op._can_decompose()
    ]
    if not any(changes_in_place(target_name(op)) for op in used):
        views = []
    made = exported.run_decompositions({op: _get_decomp_for_cia(op) for op in views})
    for _ in range(ROUNDS):
        unknown = {
            node.target for node in made.graph.nodes
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
            and converter_of(target_name(node.target)) is None
        }
        # What PyTorch itself composes of others first: its other rules have mistakes there.
        decompositions = {op: _get_decomp_for_cia(op) for op in unknown if op._can_decompose()}
        decompositions.update(rules_for_lists(unknown))
        rest = [op for op in unknown if op not in decompositions]
        decompositions.update(torch._decomp.get_decompositions(rest) if rest else {})
        if not decompositions:
            break
        made = made.run_decompositions(decompositions)
    return made


def _input(node: Any, spec: Any) -> list[ProgramInput]:
    value = node.meta.get("val")
    if hasattr(value, "dtype"):
        return [ProgramInput(node.name, dtype_name(value.dtype), shape_of(value))]
    if hasattr(spec, "value"):  # a number or a text, which the program has taken in
        return []
    return [ProgramInput(node.name, "int64", (), is_number=True, symbol=str(value))]


def shape_of(value: Any) -> tuple[NamedDim, ...]:
    """The shape of a fake tensor; open extents by their names."""
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in value.shape)


_OUTPUT_KINDS: Mapping[str, OutputKind] = {
    "USER_OUTPUT": "result", "LOSS_OUTPUT": "result", "BUFFER_MUTATION": "buffer",
    "PARAMETER_MUTATION": "buffer", "USER_INPUT_MUTATION": "input",
}


def _is_complex(node: Any) -> bool:
    """Whether a node gives a tensor of complex numbers; results may also be numbers or None."""
    value: Any = node.meta.get("val") if hasattr(node, "meta") else None
    return hasattr(value, "is_complex") and bool(value.is_complex())


def _device(node: Any) -> str:
    """Where a node's tensor is; nothing for numbers and None."""
    value: Any = node.meta.get("val") if hasattr(node, "meta") else None
    return str(getattr(value, "device", ""))


def _output(spec: Any, nodes: Mapping[str, Any]) -> ProgramOutput:
    kind = _OUTPUT_KINDS.get(spec.kind.name)
    if kind is None:
        raise OpNotImplemented(f"the PyTorch model's output '{spec.arg.name}', a {spec.kind.name}")
    value: Argument
    if hasattr(spec.arg, "value"):
        value = spec.arg.value
    else:
        is_number = type(spec.arg).__name__.startswith("Sym")
        value = NumberRef(spec.arg.name) if is_number else Ref(spec.arg.name)
    made = nodes.get(value.name) if isinstance(value, Ref) else None
    return ProgramOutput(value, kind, spec.target or "", _is_complex(made), _device(made))


# ---- nodes of an FX graph ----

# Their factors are those of the transposed matrix where that lies in rows, as gradients expect.
FACTORED = frozenset({"aten._linalg_det.default", "aten._linalg_slogdet.default"})


def step_of(node: Any) -> Step | None:
    """A node of an FX graph as a step; None for those that only pass values on."""
    if node.op != "call_function" or (node.target is operator.getitem and _picks(node)):
        return None
    arguments = _arguments(node)
    trace = node.meta.get("stack_trace") or ""
    return Step(target_name(node.target), node.name, arguments, _outputs(node), trace)


def target_name(target: Any) -> str:
    """aten.add.Tensor; operator.add for Python's own; a function by its name."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    module, name = getattr(target, "__module__", "") or "", getattr(target, "__name__", "")
    if module == "_operator":
        return f"operator.{name}"
    return f"{module}.{name}".removeprefix("torch.").replace("_C.", "")


def _picks(node: Any) -> bool:
    """Whether an item is one of a step's results."""
    return isinstance(node.args[0].meta.get("val"), tuple | list)


def _outputs(node: Any) -> list[str]:
    value = node.meta.get("val")
    if not isinstance(value, tuple | list):
        return [] if value is None and not node.users else [node.name]
    picked = {
        user.args[1]: user.name for user in node.users
        if user.target is operator.getitem and user.args[0] is node
    }
    return [picked.get(place, "") for place in range(len(value))]


def _arguments(node: Any) -> dict[str, Argument]:
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        names = [each.name for each in schema.arguments]
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    else:
        given = {**named_arguments(target_name(node.target), node.args), **node.kwargs}
    made = {name: argument_of(value) for name, value in given.items()}
    if target_name(node.target) in FACTORED:
        value = node.args[0].meta.get("val")
        made["is_row_major"] = bool(value is not None and value.is_contiguous())
    return made


def argument_of(value: Any) -> Argument:
    """An argument of an FX node in the record's terms."""
    if isinstance(value, list | tuple):
        return [argument_of(part) for part in value]
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    if hasattr(value, "meta") and hasattr(value, "op"):
        if value.op == "get_attr" and hasattr(value.meta.get("val"), "dtype"):
            return Ref(value.name)
        if value.op == "get_attr":
            return _body(value)
        made = value.meta.get("val")
        return Ref(value.name) if hasattr(made, "dtype") else NumberRef(value.name)
    return _other(value)


def _body(node: Any) -> Argument:
    """The graph that a node stands for."""
    graph = getattr(node.graph.owning_module, node.target)
    if not hasattr(graph, "graph"):
        return Unreadable(f"the constant '{node.target}' of a graph")
    nodes = list(graph.graph.nodes)
    return Body(
        [each.name for each in nodes if each.op == "placeholder"],
        [step for each in nodes if (step := step_of(each)) is not None],
        [argument_of(value) for each in nodes if each.op == "output"
         for value in _tuple(each.args[0])],
    )


def _tuple(value: Any) -> Any:
    return value if isinstance(value, tuple | list) else (value,)


def _other(value: Any) -> Argument:
    import torch

    readers: dict[type, Callable[[Any], str]] = {
        torch.dtype: dtype_name, torch.device: str, torch.layout: str, torch.memory_format: str,
        torch._ops.OpOverload: target_name,
    }
    read = readers.get(type(value))
    return Unreadable(f"an argument that is a {type(value).__name__}") if read is None else (
        read(value)
    )


def _array_of_constant(tensor: Any, what: str) -> Array:
    """The elements of a tensor that lies in a graph, also while PyTorch records another."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return array_of_tensor(tensor, what)


def read_fx(module: Any) -> Program:
    """The program of an FX graph of ATen operators, all of whose tensors are inputs."""
    inputs: list[ProgramInput] = []
    weights: list[Weight] = []
    steps: list[Step] = []
    outputs: list[ProgramOutput] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs += _input(node, None)
        elif node.op == "output":
            outputs = [
                ProgramOutput(
                    argument_of(value), is_complex=_is_complex(value), device=_device(value)
                )
                for value in node.args[0]
            ]
        elif node.op == "get_attr" and not hasattr(getattr(module, node.target), "graph"):
            held = getattr(module, node.target)
            weights.append(Weight(node.name, node.target, partial(_array_of_constant, held)))
        elif (step := step_of(node)) is not None:
            steps.append(step)
    return made_functional(
        Program(inputs, weights, steps, outputs), _layouts_of(module.graph)
    )
