"""From a program of ATen operators to a graph."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sterna.frontend import torch as package
from sterna.frontend.calls import Room, cast, constant, dtype_of
from sterna.frontend.format import Graph
from sterna.frontend.graph_importer import UNMADE, GraphImporter, NodeFacts
from sterna.frontend.inputs import Inputs
from sterna.frontend.node import Result
from sterna.frontend.open_shapes import NamedDim
from sterna.frontend.torch.checks import own_checks
from sterna.frontend.torch.complex_pairs import PARTS, in_parts, is_complex, stacked, unstacked
from sterna.frontend.torch.extents import as_tensor, counting_found, in_body, told
from sterna.frontend.torch.program import (
    Argument,
    Body,
    NumberRef,
    Program,
    ProgramInput,
    Ref,
    Step,
    Unreadable,
    Weight,
    is_check,
    live_steps,
    refs_of,
)
from sterna.frontend.torch.promotion import DEFAULT_FLOAT, category
from sterna.frontend.torch.source_lines import called
from sterna.frontend.torch.table import call_converter, converter_of
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Constant, Function, RelayExpr
from sterna.relay.symbols import simplified_dim
from sterna.support.errors import OpNotImplemented

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("convert_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

FORMAT_NAME = "PyTorch"

CustomConverters = Mapping[str, Callable[..., Any]]
"""Converters of the user by operator, aten.relu, which go before those of the table."""


# Arguments that say extents of results, or places where parts of tensors begin and end.
SIZES = frozenset({"size", "start", "end", "length", "split_sizes", "output_size"})


# Operators of a tensor and a number `other`.
ARITHMETIC = frozenset({
    "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.rsub.Scalar",
})

# Conditions of loops are written out twice, and short scans step by step: graphs in graphs grow.
MOST_BODIES = 1 << 14


class ProgramImporter(GraphImporter):
    """One program on its way to a graph."""

    def __init__(
        self, program: Program, given: Inputs, freeze: bool, room: Room,
        custom: CustomConverters | None = None,
    ) -> None:
        super().__init__(FORMAT_NAME, given, freeze, room)
        self.program, self.steps = program, live_steps(program)
        self.custom = custom or {}
        self.extents: dict[str, Dim] = {}
        """Numbers that open extents decide, by name."""
        self.bodies = 0
        self.size_names = {
            name for step in self.steps for word, each in step.arguments.items()
            if word in SIZES for name in refs_of(each)
        }

    def run(self) -> Graph:
        """The module and the weights that are no constants."""
        with counting_found() as found, own_checks() as self.checked:
            module, weights = self._graph()
        main: Function = module["main"]
        body = found.bound(main.body)
        if body is not main.body:
            module["main"] = Function(main.params, body)
        return module, weights

    def _graph(self) -> Graph:
        changed = {out.target for out in self.program.outputs if out.kind == "buffer"}
        state = [weight for weight in self.program.weights if weight.name in changed]
        for weight in self.program.weights:
            if weight.name not in changed:
                self._add_constant(weight)
        tensors = [one for one in self.program.inputs if not one.is_number]
        shapes = {one.name: _shape_of_parts(one) for one in tensors}
        self.given.expect_fitting(shapes)
        for one in tensors:
            dtype = PARTS.get(one.dtype, one.dtype)
            self.add_input(one.name, shapes[one.name], partial(_same, dtype))
            if one.dtype in PARTS:
                self.values[one.name] = unstacked(self.values[one.name])
        self._bind_numbers()
        for weight in state:
            self._add_state(weight)
        try:
            for step in self.steps:
                self._add_step(step)
        except ValueError:
            self._list_unsupported()
            raise
        return self.finish(self._outputs())

    def _add_constant(self, weight: Weight) -> None:
        is_in_parts = False

        def read(what: str) -> Array:
            nonlocal is_in_parts
            array = weight.read(what)
            is_in_parts = bool(np.iscomplexobj(array))
            return in_parts(array) if is_in_parts else array

        if weight.name not in self.weight_names:  # layers may share one
            self.add_weight(weight.name, read)
            if is_in_parts:
                self.values[weight.name] = unstacked(self.values[weight.name])
        self.values[weight.value] = self.values[weight.name]

    def _bind_numbers(self) -> None:
        """Numbers among the inputs that are extents of tensors."""
        extents: dict[str, Dim] = {}
        for one in self.program.inputs:
            given = self.given.shapes.get(one.name, ())
            extents.update(
                {name: dim for name, dim in zip(one.shape or (), given, strict=False)
                 if isinstance(name, str)}
            )
        for one in self.program.inputs:
            if one.is_number and one.symbol in extents:
                self.values[one.name] = as_tensor(extents[one.symbol])
                self.extents[one.name] = extents[one.symbol]

    def _add_state(self, weight: Weight) -> None:
        """A buffer that the model changes: the caller gives it, and gets the new value back."""
        if weight.name not in self.values:
            array = weight.read(f"buffer '{weight.name}'")
            self.add_input(weight.name, array.shape, partial(_same, str(array.dtype)))
        self.values[weight.value] = self.values[weight.name]

    # ---- steps ----

    def _add_step(self, step: Step) -> None:
        function = self._converter(step.target)
        reads = [name for each in step.arguments.values() for name in refs_of(each)]
        facts = NodeFacts(
            called(step.name, step.trace), step.target, reads, step.outputs, step.target
        )

        def convert() -> Result:
            takes_open = _takes_open_numbers(step.target)
            given = {
                name: self._value(each, name in SIZES, takes_open)
                for name, each in step.arguments.items()
            }
            is_number = isinstance(step.arguments.get("other"), NumberRef)
            if is_number and isinstance(given["other"], RelayExpr):
                given["other"] = _number_beside(given["other"], given["self"])
            made = call_converter(self._converter_for(step.target, given), given)
            if isinstance(made, Expr):
                self.extents[step.outputs[0]] = simplified_dim(made)
                return as_tensor(made)
            return constant(made) if isinstance(made, bool | int | float) else _tensors(made)

        self.add_node(facts, None if function is None else convert)

    def _converter(self, target: str) -> Callable[..., Any] | None:
        return self.custom.get(target.rpartition(".")[0]) or converter_of(target)

    def _converter_for(self, target: str, given: Mapping[str, Any]) -> Callable[..., Any]:
        """The converter of an operator, or that of its complex operands."""
        is_plain = not any(
            is_complex(part) or isinstance(part, complex) for value in given.values()
            for part in (value if isinstance(value, list) else [value])
        )
        name = target if is_plain else f"complex.{target.partition('.')[2]}"
        found = self._converter(name)
        if found is None:
            raise OpNotImplemented("complex operands")
        return found

    def _value(
        self, argument: Argument, is_size: bool = False, is_open: bool = False
    ) -> Any:
        """What a converter gets for an argument; sizes may be numbers that the data decides.

        Where numbers may be open, those that the data decides and that are no sizes are tensors.
        """
        if isinstance(argument, list):
            return [self._value(part, is_size, is_open) for part in argument]
        if isinstance(argument, Ref | NumberRef):
            if argument.name not in self.values:
                raise ValueError(f"it reads '{argument.name}', which nothing has made before it")
            found = self.values[argument.name]
            if isinstance(argument, Ref):
                return found
            extent = self.extents.get(argument.name)
            is_size = is_size or (is_open and argument.name in self.size_names)
            if extent is None and is_size and is_computed_size(found):
                extent = self.extents[argument.name] = told(found)
            if extent is None and is_open and found is not UNMADE:
                is_known = isinstance(found, Constant) or not isinstance(found, RelayExpr)
                return number_of(found) if is_known else found
            return number_of(found) if extent is None else extent
        if isinstance(argument, Body):
            return partial(self._run_body, argument)
        if isinstance(argument, Unreadable):
            raise OpNotImplemented(argument.what)
        return argument

    def _run_body(self, body: Body, *operands: RelayExpr) -> list[RelayExpr]:
        """What a branch or a round gives for operands; it knows nothing of what is around it."""
        around = self.values
        if len(operands) != len(body.inputs):
            raise ValueError(
                f"a branch or round of {len(body.inputs)} operands is given {len(operands)}"
            )
        self.bodies += 1
        if self.bodies > MOST_BODIES:
            raise ValueError(f"its branches and rounds come to more than {MOST_BODIES}")
        self.values = dict(zip(body.inputs, operands, strict=True))
        try:
            with in_body(), own_checks() as checked:
                for step in body.steps:
                    self._add_step(step)
                made = [self._result(each) for each in body.outputs if each is not None]
                return [checked(each) if at == 0 and each is not UNMADE else each
                        for at, each in enumerate(made)]
        finally:
            self.values = around

    def _list_unsupported(self) -> None:
        """Where a step fails, all operators without a converter are worth more than that."""
        for step in self.steps:
            if self._converter(step.target) is None:
                self.unsupported.add(step.target, called(step.name, step.trace))
        self.unsupported.expect_none()

    # ---- results ----

    def _outputs(self) -> Sequence[str]:
        """The names of the results, each a value of its own; new values of buffers come behind.

        What a model writes to its inputs is not written back.
        """
        taken = set(self.values)
        named: list[str] = []
        results = [out for out in self.program.outputs if out.kind == "result"]
        state = [out for out in self.program.outputs if out.kind == "buffer"]
        for place, output in enumerate([*results, *state]):
            if output.value is None:
                continue
            made = self._result(output.value)
            made = self.checked(made) if made is not UNMADE else made
            own = output.value.name if isinstance(output.value, Ref) else f"output_{place}"
            given = self.program.output_names
            name = given[place] if place < len(given) else own
            name = f"new {output.target}" if output.kind == "buffer" else name
            if name in named or (name in taken and name != own):
                name = f"output_{place}"
            self.values[name] = made
            named.append(name)
        return named


    def _result(self, argument: Argument) -> RelayExpr:
        """A result: a tensor, both parts of a complex one, or a number, which data may decide."""
        source = Ref(argument.name) if isinstance(argument, NumberRef) else argument
        value = self._value(source)
        if not isinstance(value, RelayExpr):
            return constant(value)
        return stacked(value) if value is not UNMADE and is_complex(value) else value


def _tensors(made: Any) -> Result:
    """What a converter made, which is a tensor or some of them."""
    for each in made if isinstance(made, list | tuple) else [made]:
        if each is not None and each is not UNMADE and not isinstance(each, RelayExpr):
            raise ValueError(f"its result is of the type {type(each).__name__}, which is no tensor")
    found: Result = made
    return found


def _takes_open_numbers(target: str) -> bool:
    """Whether an operator takes numbers that data decides: arithmetic and selections."""
    own = ("operator.", "aten.select.", "aten.select_copy.")
    return (
        target in ARITHMETIC or is_check(target) or target.startswith(own) or "." not in target
    )


def _number_beside(number: RelayExpr, x: RelayExpr) -> RelayExpr:
    """A number that data decides, of the type that it has beside a tensor."""
    own, wanted = dtype_of(number), dtype_of(x)
    if category(own) > category(wanted):
        wanted = DEFAULT_FLOAT if own.startswith("float") else own
    return cast(number, wanted)


def is_computed_size(expr: RelayExpr) -> bool:
    """Whether an expression is a whole number that only a run tells."""
    if expr is UNMADE or isinstance(expr, Constant) or not isinstance(expr, RelayExpr):
        return False
    kind = expr.checked_type
    return isinstance(kind, TensorType) and not kind.ndim and "int" in str(kind.dtype)


def number_of(expr: RelayExpr) -> int | float | bool:
    """The number that an expression is, which must be known."""
    if expr is UNMADE or not isinstance(expr, Constant):
        raise OpNotImplemented("a size or number that the data decides")
    found: int | float | bool = to_numpy(expr.data).reshape(()).item()
    return found


def _shape_of_parts(one: ProgramInput) -> Sequence[NamedDim] | None:
    """The shape of an input's tensor, in which both parts of complex numbers lie side by side."""
    return one.shape if one.shape is None or one.dtype not in PARTS else (*one.shape, 2)


def _same(dtype: str, what: str) -> str:
    return dtype
