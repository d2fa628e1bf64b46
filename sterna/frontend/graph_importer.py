"""A model's graph on its way: what every importer does between a file's nodes and a module.

A format's importer adds weights and inputs, then nodes in the order of their results, and finishes
with the names of the outputs. Errors name the user's nodes; what has no converter is gathered, and
nodes that read the results of such are passed over.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass

from sterna.frontend.calls import Room, dtype_of, fields_of, is_sequence
from sterna.frontend.format import Graph
from sterna.frontend.inputs import Inputs
from sterna.frontend.limits import count_of
from sterna.frontend.names import Names
from sterna.frontend.node import Result
from sterna.frontend.open_shapes import NamedDim, UndecidedError
from sterna.frontend.unsupported import Unsupported
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.types import TensorType, flatten_type
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, from_numpy, from_weights
from sterna.relay.expr import Constant, Function, RelayExpr, Tuple, Var
from sterna.relay.op import find
from sterna.relay.traverse import rewrite
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError, OpNotImplemented

# What stands for a result that could not be converted; what reads it is passed over.
UNMADE = Var("unmade")
# What stands for an optional value that is not there.
ABSENT = Var("absent")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What an importer tells about a node: how messages name it, what it reads and makes."""

    name: str
    kind: str
    reads: Sequence[str]
    outputs: Sequence[str]
    """The names of the results; an empty one is not wanted."""
    operator: str
    """The operator as a list of unsupported ones names it, with its version where it has one."""

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.kind})"


class GraphImporter:
    """One model on its way to a graph."""

    def __init__(self, format_name: str, given: Inputs, freeze: bool, room: Room) -> None:
        find("add")  # loads the operators
        self.format_name, self.given, self.freeze, self.room = format_name, given, freeze, room
        self.values: MutableMapping[str, RelayExpr] = {}
        self.inputs: list[Var] = []
        self.weights: dict[Var, NDArray] = {}
        self.unsupported = Unsupported(format_name)
        self.names = Names()
        """The names of inputs and of weights that are variables."""
        self.weight_names: set[str] = set()
        self._held: dict[Constant, str] = {}

    # ---- what there is before the first node ----

    def add_weight(self, name: str, read: Callable[[str], Array]) -> None:
        """A weight; read gives its elements and is told what to call it."""
        what = f"weight '{name}'"
        if not name:
            raise ValueError(f"the {self.format_name} model has a weight without a name")
        if name in self.weight_names:
            raise ValueError(f"{what} is there twice")
        self.weight_names.add(name)
        try:
            held = Constant(from_weights(read(what)))
        except OpNotImplemented as error:
            self.unsupported.add(str(error), name)
            self.values[name] = UNMADE
            return
        held.span = name
        self.room.add_weight(held.data.nbytes)
        self.values[name] = held
        if self.freeze:
            return
        if DataType(dtype_of(held)).kind not in ("float", "bfloat"):
            self._held[held] = name  # a shape perhaps: a constant until nothing needs it known
            return
        self.values[name] = self._variable(name, held.data)

    def _variable(self, name: str, data: NDArray) -> Var:
        """A weight as a parameter; graphs in a model may have weights of one name."""
        var = Var(self.names.unique(name), TensorType(tuple(data.shape), DataType(data.dtype)))
        var.span = name
        self.weights[var] = data
        return var

    def add_input(
        self, name: str, shape: Sequence[NamedDim] | None, dtype: Callable[[str], str]
    ) -> None:
        """An input of the model; dtype gives its element type and is told what to call it."""
        if not name or name in self.values:
            raise ValueError(f"the {self.format_name} model has two inputs of the name '{name}'")
        try:
            kind = self.given.dtypes.get(name) or dtype(f"input '{name}'")
            declared = self.given.type_of(name, shape, kind)
            var = Var(name, declared)
        except OpNotImplemented as error:
            self.unsupported.add(str(error), name)
            self.values[name] = UNMADE
            return
        var.span = name
        if name in self.given.fixed:
            value = self.given.constant(name, declared)
            self.values[name] = Constant(from_numpy(value))
            return
        self.values[name] = var
        self.inputs.append(var)

    # ---- nodes ----

    def add_node(self, node: NodeFacts, convert: Callable[[], Result] | None) -> None:
        """A node's results; convert makes them, None where its operator has no converter."""
        results = self._converted(node, convert)
        for name, result in zip(node.outputs, results, strict=False):
            if name and result is not None:
                if result is not UNMADE and result is not ABSENT:
                    _expect_size(node, result)
                    _mark(result, node.name)
                self.values[name] = result

    def _converted(
        self, node: NodeFacts, convert: Callable[[], Result] | None
    ) -> Sequence[RelayExpr | None]:
        """The results of a node; where something is not supported, what stands for results."""
        unmade = [UNMADE] * len(node.outputs)
        if convert is None:
            self.unsupported.add(node.operator, node.name)
            return unmade
        if any(self.values.get(name) is UNMADE for name in node.reads):
            return unmade
        try:
            made = convert()
            results = [made] if isinstance(made, RelayExpr) else list(made)
            for place in range(len(results), len(node.outputs)):
                if node.outputs[place]:
                    raise OpNotImplemented(f"its result {place}")
            return results
        except OpNotImplemented as error:
            self.unsupported.add(f"{node.operator}: {error}", node.name)
            return unmade
        except ValueError as error:
            text = str(error)
            names_it = text.startswith("node '")
            is_open = any(_is_open(self.values.get(name)) for name in node.reads)
            is_undecided = is_open or isinstance(error, UndecidedError)
            if names_it and is_undecided == isinstance(error, UndecidedError):
                raise
            kind = UndecidedError if is_undecided else ValueError
            raise kind(text if names_it else f"{node}: {text}") from error
        except InternalError:
            raise
        except Exception as error:
            # Operands and attributes that do not fit fail in many ways; a file causes one kind.
            raise ValueError(f"{node}: {type(error).__name__}: {error}") from error

    # ---- what there is behind the last node ----

    def result(self, name: str) -> RelayExpr:
        """What the model's output of this name is."""
        if name not in self.values:
            raise ValueError(f"the model's output '{name}' is the result of no node")
        return self.values[name]

    def finish(self, outputs: Sequence[str]) -> Graph:
        """The module and the weights that are no constants, if everything has a converter."""
        results = [self.result(name) for name in outputs]
        self.unsupported.expect_none()
        named = self._tensors(outputs, results)
        body = named[0][1] if len(named) == 1 else Tuple(tuple(result for _, result in named))
        if not self.freeze:
            body = self._with_variables(body)
        used = set(free_vars(body))
        weights = [var for var in self.weights if var in used]
        module = IRModule.from_expr(Function((*self.inputs, *weights), body))
        module.attrs[OUTPUT_NAMES] = tuple(name for name, _ in named)
        return module, {var.name_hint: self.weights[var] for var in weights}

    def _tensors(
        self, outputs: Sequence[str], results: Sequence[RelayExpr]
    ) -> list[tuple[str, RelayExpr]]:
        """Results by name; of a sequence one by one, numbered."""
        named: list[tuple[str, RelayExpr]] = []
        for output, result in zip(outputs, results, strict=True):
            if is_sequence(result):
                many = enumerate(fields_of(result))
                named += [(f"{output}.{place}", part) for place, part in many]
            else:
                named.append((output, result))
        if not named:
            nothing = "gives empty sequences and nothing else" if outputs else "has no output"
            raise ValueError(f"the {self.format_name} model {nothing}")
        return named

    def _with_variables(self, body: RelayExpr) -> RelayExpr:
        """The graph with variables for the weights that were constants while it was built."""
        named = {held: self._variable(name, held.data) for held, name in self._held.items()}
        return rewrite(
            body, lambda new, old: named.get(new, new) if isinstance(new, Constant) else new
        )


def _is_open(value: RelayExpr | None) -> bool:
    """Whether only runs know a value's shape."""
    kind = None if value is None else value._type
    return isinstance(kind, TensorType) and not kind.is_static


def _expect_size(node: NodeFacts, result: RelayExpr) -> None:
    """A result is one that memory could hold."""
    for kind in flatten_type(result.checked_type):
        known = (extent for extent in kind.shape if isinstance(extent, int))
        count_of(known, kind.dtype.bits, f"{node}: its result")


def _mark(expr: RelayExpr, name: str) -> None:
    """Name the node that expressions come from, as far as they have no name yet."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if part.span is None:
            part.span = name
            stack.extend(part.operands())  # type: ignore[attr-defined]
