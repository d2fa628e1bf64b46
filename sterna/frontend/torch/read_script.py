"""TorchScript: graphs that torch.jit.trace or torch.jit.script made, run once on shapes.

A graph is run on fake tensors, which have shapes and element types but no data. Every number that
follows from shapes is so known, branches and loops that such numbers decide are gone, and what is
left is a list of operators.
"""

import operator
import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from sterna.frontend.torch.functional import made_functional
from sterna.frontend.torch.memory import Layout
from sterna.frontend.torch.program import (
    Argument,
    Program,
    ProgramInput,
    ProgramOutput,
    Ref,
    Step,
    Unreadable,
    Weight,
)
from sterna.frontend.torch.quantized_script import QuantizedTensors
from sterna.frontend.torch.read_exported import layout_of, shape_of
from sterna.frontend.torch.script_inputs import InputInfo, fake_input, graph_of
from sterna.frontend.torch.source_lines import called
from sterna.frontend.torch.tensors import array_of_tensor, dtype_name
from sterna.support.errors import OpNotImplemented

# What loops may grow to: steps of the program, and nodes that are run to find them.
MOST_STEPS = 200_000
MOST_NODES = 2_000_000

# What PyTorch's reader raises of broken files: errors of C++, and of messages with odd bytes.
BROKEN = (RuntimeError, ValueError, IndexError, OverflowError, MemoryError)


class ScriptError(ValueError):
    """A node of a script that cannot be run; the message names it and its line."""


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _slice(values: Any, start: int | None, end: int | None, step: int) -> Any:
    return values[start:end:step]


def _set_item(values: Any, key: Any, value: Any) -> Any:
    values[key] = value
    return values


def _extend(values: list[Any], more: list[Any]) -> None:
    values.extend(more)


def _insert(values: list[Any], place: int, value: Any) -> None:
    values.insert(place, value)


def _update(values: dict[Any, Any], more: dict[Any, Any]) -> None:
    values.update(more)


# What operators do with lists and dictionaries, whose tensors must stay the same objects.
_OF_LISTS: dict[str, Callable[..., Any]] = {
    "aten::__getitem__": operator.getitem, "aten::len": len, "aten::append": _append,
    "aten::slice": _slice, "aten::add": operator.add, "aten::list": list,
    "aten::keys": lambda values: list(values), "aten::values": lambda d: list(d.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::_set_item": _set_item, "aten::extend": _extend, "aten::insert": _insert,
    "aten::update": _update, "aten::copy": copy, "aten::dict": dict,
    "aten::pop": lambda values, *given: values.pop(*given),
    "aten::get": lambda values, *given: values.get(*given),
    "aten::clear": lambda values: values.clear(), "aten::reverse": lambda values: values.reverse(),
    "aten::__contains__": lambda values, value: value in values,
}
# Conversions of numbers, of which operators take the first kind that fits, and that may be bool.
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::Int": int, "aten::Float": float, "aten::Bool": bool, "aten::IntImplicit": int,
    "aten::FloatImplicit": float, "aten::ScalarImplicit": lambda value: value,
    "aten::pow": operator.pow,
}
_OF_ANYTHING: dict[str, Callable[..., Any]] = {
    "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not,
}

_TRACED = re.compile(r"^([^\n(]+)\((\d+)\): ", re.MULTILINE)


def read_script(
    module: Any, inputs: Sequence[InputInfo], default_dtype: str = "float32"
) -> Program:
    """The program of a script module or a script function for inputs of these shapes."""
    run = _Run(module)
    program = run.run(inputs, default_dtype)
    return made_functional(program, run.layouts.get)


class _Run:
    """One run of a graph on fake tensors."""

    def __init__(self, module: Any) -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.torch = torch
        self.module = module
        self.graph = graph_of(module).copy()
        torch._C._jit_pass_inline(self.graph)
        self.nodes = 0
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.values: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []
        self.layouts: dict[str, Layout | None] = {}
        self.weights: dict[str, Weight] = {}
        self.steps: list[Step] = []
        self.quantized = QuantizedTensors(self)

    def run(self, infos: Sequence[InputInfo], default_dtype: str) -> Program:
        given = list(self.graph.inputs())
        if isinstance(self.module, self.torch.nn.Module):
            self.values[given.pop(0).debugName()] = ("", self.module)
        inputs: list[ProgramInput] = []
        with self.mode:
            for info, value in zip(infos, given, strict=True):
                made = fake_input(info, value, default_dtype)
                self.values[value.debugName()] = made
                self._name_inputs(info.name, made, inputs)
            with self.torch.no_grad():
                self._block(self.graph)
        outputs = [self.values[value.debugName()] for value in self.graph.outputs()]
        listed = [ProgramOutput(self._argument(each)) for each in _flat(outputs)]
        return Program(inputs, list(self.weights.values()), self.steps, listed)

    def _name_inputs(self, name: str, made: Any, inputs: list[ProgramInput]) -> None:
        if isinstance(made, tuple | list):
            for place, each in enumerate(made):
                self._name_inputs(f"{name}.{place}", each, inputs)
            return
        self._name(made, name)
        inputs.append(ProgramInput(name, dtype_name(made.dtype), shape_of(made)))

    def _name(self, tensor: Any, name: str) -> None:
        self.names[id(tensor)] = name
        self.kept.append(tensor)
        self.layouts[name] = layout_of(tensor)

    # ---- nodes ----

    def _block(self, block: Any) -> None:
        for node in block.nodes():
            self._count()
            try:
                self._node(node)
            except (OpNotImplemented, ScriptError):
                raise
            except Exception as error:
                self._refuse(node, error)

    def _count(self) -> None:
        """Loops end, whatever a file says of them."""
        self.nodes += 1
        if len(self.steps) > MOST_STEPS:
            raise ScriptError(f"the PyTorch model's loops make more than {MOST_STEPS:,} steps")
        if self.nodes > MOST_NODES:
            raise ScriptError(f"the PyTorch model's loops run more than {MOST_NODES:,} nodes")

    def _node(self, node: Any) -> None:
        special = getattr(self, "_" + node.kind().replace("::", "_"), None)
        if special is not None:
            special(node)
        elif node.kind().startswith("prim::"):
            self._plain_value(node)
        else:
            self._call(node)

    def _given(self, node: Any) -> list[Any]:
        return [self.values[value.debugName()] for value in node.inputs()]

    def _set(self, node: Any, *made: Any) -> None:
        for value, each in zip(node.outputs(), made, strict=True):
            self.values[value.debugName()] = each

    def _call(self, node: Any) -> None:
        """An operator: run on shapes, and recorded if tensors are among its results."""
        given = self._given(node)
        own = _OF_ANYTHING.get(node.kind())
        if own is None and given and isinstance(given[0], list | tuple | dict):
            own = _OF_LISTS.get(node.kind())
        if own is None and given and all(isinstance(e, bool | int | float) for e in given):
            own = _OF_NUMBERS.get(node.kind())
        if own is not None:
            made = own(*given)
            self._set(node, *([made] if node.outputsSize() else []))
        elif self.quantized.handles(node.kind(), given):
            self.quantized.call(node, given)
        else:
            self.call_plain(node, given)

    def call_plain(self, node: Any, given: Sequence[Any]) -> Any:
        """An operator of tensors, run on shapes and recorded."""
        space, _, kind = node.kind().partition("::")
        packet = getattr(getattr(self.torch.ops, space), kind, None)
        if packet is None:
            raise OpNotImplemented(
                f"{self._where(node)}: the operator {node.kind()}, which this PyTorch lacks"
            )
        made = self._called(packet, node, given)
        results = [made] if node.outputsSize() == 1 else list(made)
        self._set(node, *results)
        tensors = [each for each in _flat(results) if self._is_tensor(each)]
        if tensors:
            self._record(node, f"{space}.{kind}", given, tensors)
        return made

    def _called(self, packet: Any, node: Any, given: Sequence[Any]) -> Any:
        """Arguments by place, and by name those that a schema wants so and that say something."""
        schema = self.torch._C.parse_schema(node.schema())
        by_place, by_name = [], {}
        for argument, value in zip(schema.arguments, given, strict=True):
            if not argument.kwarg_only:
                by_place.append(value)
            elif value != argument.default_value:
                by_name[argument.name] = value
        if not any(map(self._is_tensor, _flat(given))):  # numbers, that stay numbers
            packet = getattr(packet, schema.overload_name or "default", packet)
        return packet(*by_place, **by_name)

    def _record(self, node: Any, packet: str, given: Sequence[Any], made: Sequence[Any]) -> None:
        schema = self.torch._C.parse_schema(node.schema())
        names = [argument.name for argument in schema.arguments]
        arguments = {
            name: _dtype_argument(value) if name == "dtype" else self._argument(value)
            for name, value in zip(names, given, strict=True)
        }
        own = next(iter(node.outputs())).debugName()
        outputs = [f"{own}.{len(self.steps)}.{place}" for place in range(len(made))]
        for tensor, name in zip(made, outputs, strict=True):
            self._name(tensor, name)
        target = f"{packet}.{schema.overload_name or 'default'}"
        self.steps.append(Step(target, f"%{own}", arguments, outputs, _trace(node)))

    def set_result(self, node: Any, made: Any) -> None:
        """The one result of a node."""
        self._set(node, made)

    def emit(self, node: Any, target: str, arguments: dict[str, Any], made: Any) -> Any:
        """A step of its own for a part of a node."""
        own = f"{next(iter(node.outputs())).debugName()}.{len(self.steps)}"
        self._name(made, own)
        given = {name: self._argument(value) for name, value in arguments.items()}
        self.steps.append(Step(target, f"%{own}", given, [own], _trace(node)))
        return made

    def hold(self, node: Any, tensor: Any) -> Any:
        """A tensor of the model that is no parameter."""
        return self._held(f"constant_{len(self.weights)}", tensor)

    def where(self, node: Any) -> str:
        """How messages name a node."""
        return self._where(node)

    def _refuse(self, node: Any, error: Exception) -> None:
        name = type(error).__name__
        if "DataDependent" in name or "DynamicOutputShape" in name:
            raise OpNotImplemented(
                f"{self._where(node)}: {node.kind()}: data decides about its result"
            ) from None
        said = str(error) or name
        raise ScriptError(f"{self._where(node)}: {node.kind()}: {said}") from error

    def _where(self, node: Any) -> str:
        own = next((f"%{value.debugName()}" for value in node.outputs()), node.kind())
        return called(own, _trace(node))

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor)

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, list | tuple):
            return [self._argument(part) for part in value]
        if self._is_tensor(value):
            return Ref(self.names[id(value)])
        if isinstance(value, self.torch.dtype):
            return _dtype_argument(value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, self.torch.device):
            return str(value)
        return Unreadable(f"an argument that is a {type(value).__name__}")

    # ---- values that are no operators' results ----

    def _prim_Constant(self, node: Any) -> None:
        output = next(iter(node.outputs()))
        value = output.toIValue()
        if self._is_tensor(value):
            value = self._held(f"constant_{len(self.weights)}", value)
        elif isinstance(value, list | tuple) and any(map(self._is_tensor, value)):
            value = [self._held(f"constant_{len(self.weights)}", each) for each in value]
        self._set(node, value)

    def _held(self, name: str, tensor: Any) -> Any:
        """A tensor of the model as a weight."""
        made = self.mode.from_tensor(tensor)
        self._name(made, name)

        def read(what: str) -> Any:
            return array_of_tensor(tensor, what)

        self.weights[name] = Weight(name, name, read)
        return made

    def _prim_GetAttr(self, node: Any) -> None:
        (path, owner), = self._given(node)
        name = node.s("name")
        value = getattr(owner, name)
        whole = f"{path}.{name}" if path else name
        if isinstance(value, self.torch.nn.Module):
            self._set(node, (whole, value))
        elif self._is_tensor(value):
            self._set(node, self._attribute(whole, value))
        elif isinstance(value, list) and any(map(self._is_tensor, value)):
            named = [f"{path}.{each}" for each in getattr(owner, "_flat_weights_names", ())]
            whole_names = named or [f"{whole}.{place}" for place in range(len(value))]
            pairs = zip(whole_names, value, strict=True)
            self._set(node, [self._attribute(each, tensor) for each, tensor in pairs])
        else:
            self._set(node, value)

    def _attribute(self, name: str, tensor: Any) -> Any:
        """A parameter or buffer, the same one whenever it is read."""
        known = self.values.get(f"attribute {name}")
        if known is None:
            known = self.values[f"attribute {name}"] = self._held(name, tensor)
        return known

    def _prim_SetAttr(self, node: Any) -> None:
        raise OpNotImplemented(
            f"{called(node.s('name'), _trace(node))}: an attribute that the model sets as it runs"
        )

    def _prim_ListConstruct(self, node: Any) -> None:
        self._set(node, self._given(node))

    def _prim_TupleConstruct(self, node: Any) -> None:
        self._set(node, tuple(self._given(node)))

    def _prim_DictConstruct(self, node: Any) -> None:
        given = self._given(node)
        self._set(node, dict(zip(given[::2], given[1::2], strict=True)))

    def _prim_ListUnpack(self, node: Any) -> None:
        self._set(node, *self._given(node)[0])

    def _prim_TupleUnpack(self, node: Any) -> None:
        self._set(node, *self._given(node)[0])

    def _prim_TupleIndex(self, node: Any) -> None:
        values, place = self._given(node)
        self._set(node, values[place])

    def _first(self, node: Any) -> None:
        self._set(node, self._given(node)[0])

    _prim_NumToTensor = _prim_unchecked_cast = _first

    def _aten_detach(self, node: Any) -> None:
        self._first(node)

    def _prim_dtype(self, node: Any) -> None:
        self._set(node, self._given(node)[0].dtype)

    def _prim_device(self, node: Any) -> None:
        self._set(node, self.torch.device("cpu"))

    def _prim_is_cuda(self, node: Any) -> None:
        self._set(node, False)

    def _prim_Uninitialized(self, node: Any) -> None:
        self._set(node, None)

    def _prim_RaiseException(self, node: Any) -> None:
        raise ScriptError(f"{self._where(node)}: the model raises {self._given(node)[0]!r}")

    def _prim_Print(self, node: Any) -> None:
        """What a model prints is not part of its graph."""

    def _plain_value(self, node: Any) -> None:
        """A function of numbers; what is none is refused by name."""
        given = self._given(node)
        operation = getattr(self.torch.ops.prim, node.kind().partition("::")[2], None)
        if operation is None or any(map(self._is_tensor, _flat(given))):
            raise OpNotImplemented(f"{self._where(node)}: {node.kind()}")
        self._set(node, operation(*given))

    # ---- control flow that shapes decide ----

    def _prim_If(self, node: Any) -> None:
        condition = self._given(node)[0]
        if self._is_tensor(condition):
            raise OpNotImplemented(f"{self._where(node)}: a branch that data decides")
        taken = list(node.blocks())[0 if condition else 1]
        self._block(taken)
        self._set(node, *(self.values[value.debugName()] for value in taken.outputs()))

    def _prim_Loop(self, node: Any) -> None:
        most, goes_on, *carried = self._given(node)
        body = next(iter(node.blocks()))
        turn = 0
        while turn < most and goes_on:
            self._count()
            for value, each in zip(body.inputs(), (turn, *carried), strict=True):
                self.values[value.debugName()] = each
            self._block(body)
            goes_on, *carried = (self.values[value.debugName()] for value in body.outputs())
            if self._is_tensor(goes_on):
                raise OpNotImplemented(f"{self._where(node)}: a loop whose end data decides")
            turn += 1
        self._set(node, *carried)


def _flat(value: Any) -> list[Any]:
    """Values one by one, those of lists, tuples and dictionaries too."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [part for each in value for part in _flat(each)]
    return [value]


def _dtype_argument(value: Any) -> Argument:
    """TorchScript writes types of elements as their numbers."""
    import torch

    if value is None or isinstance(value, torch.dtype):
        return None if value is None else dtype_name(value)
    return _NUMBERED.get(value, f"the unknown type {value}")


_NUMBERED = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16",
}


def _trace(node: Any) -> str:
    """The stack of the user's program; a trace has the innermost line first."""
    try:
        text = str(node.sourceRange())
    except BROKEN:
        return ""  # the file's own record of lines is broken
    traced = _TRACED.findall(text)
    if traced:
        return "\n".join(f'File "{path.strip()}", line {line}' for path, line in reversed(traced))
    return text
