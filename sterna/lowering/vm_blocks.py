"""Blocks of the virtual machine: straight-line functions of tensors between steps of control flow.

Extents that only a run tells are symbols, and registers keep the shapes that blocks have found for
them, so that a later block knows which extents of its operands are equal.
"""

from collections.abc import Callable, Iterator, Sequence

from sterna.ir.expr import Expr, variables_in
from sterna.ir.expr import Var as ShapeVar
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import FuncType, TensorType, TupleType, Type, flatten_type
from sterna.lowering.kernel_scalars import leaves_of
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.passes.dynamic_to_static import dynamic_to_static
from sterna.relay.symbolic_values import is_of_shapes
from sterna.relay.symbols import Symbols, bindable
from sterna.relay.traverse import post_order, rebuild, substitute

Shapes = dict[int, Type]
"""By register, what is known of the tensor in it beyond its type in the program."""


class Block:
    """The inside of a block while it is put together.

    named: what an expression stands for; register_of: where a value is; field_of: a register that
    is given a field of a tuple; shapes: what is known of registers.
    """

    def __init__(
        self, named: Callable[[RelayExpr], RelayExpr], register_of: Callable[[RelayExpr], int],
        field_of: Callable[[int, int], int], shapes: Shapes, symbols: Symbols,
    ) -> None:
        self.named, self.register_of, self.field_of = named, register_of, field_of
        self.shapes, self.symbols = shapes, symbols
        self.inner: dict[int, RelayExpr] = {}
        self.params: list[Var] = []
        self.arguments: list[int] = []
        self.by_register: dict[int, Var] = {}

    def add(self, call: Call) -> None:
        """Take a call in; operands from outside become parameters."""
        for part in call.args:
            self._operand(part)
        self.inner[id(call)] = rebuild(call, self.inner)

    def fields(self, call: Call) -> list[RelayExpr]:
        """The tensors that a call in it gives."""
        made = self.inner[id(call)]
        if isinstance(call.checked_type, TensorType):
            return [made]
        return [TupleGetItem(made, place) for place in range(len(tensors_of(call)))]

    def function(self, body: RelayExpr) -> Function:
        """The block, all of whose symbols are extents of its parameters."""
        for symbol in _symbols(body):
            self._bind(symbol)
        kinds = [param.checked_type for param in self.params]
        found = bindable(kinds, self.symbols)
        params = [
            param if have is kind else Var(param.name_hint, have)
            for param, kind, have in zip(self.params, kinds, found, strict=True)
        ]
        changed: dict[Var, RelayExpr] = dict(zip(self.params, params, strict=True))
        made = Function(tuple(params), substitute(body, changed))
        if not all(kind.is_symbolic for kind in _kinds(made)):
            made = dynamic_to_static(made)  # shapes of parameters may tell what others are
        _expect_symbolic(made)
        return made

    def _operand(self, part: RelayExpr) -> RelayExpr:
        found = self.inner.get(id(part))
        if found is not None:
            return found
        named = self.named(part)
        if id(named) in self.inner:
            found = self.inner[id(named)]
        elif isinstance(named, Constant):
            found = named
        elif isinstance(named, Tuple):
            found = Tuple(tuple(self._operand(field) for field in named.fields))
        elif isinstance(named, Call) and is_of_shapes(named):
            self.add(named)  # once more: what it is is known where the shapes are
            found = self.inner[id(named)]
        elif isinstance(named, TupleGetItem) and self._holds(named.tuple_value):
            found = TupleGetItem(self._operand(named.tuple_value), named.index)
        else:
            found = self._param(self.register_of(named), named.checked_type, named)
        self.inner[id(part)] = self.inner[id(named)] = found
        return found

    def _bind(self, symbol: ShapeVar) -> None:
        """A parameter that tells an extent which operators have as a number, if none does."""
        def tells(kind: Type) -> bool:
            return isinstance(kind, TensorType) and any(dim is symbol for dim in kind.shape)

        if any(tells(param.checked_type) for param in self.params):
            return
        found = next((at for at, kind in sorted(self.shapes.items()) if tells(kind)), None)
        if found is not None:
            self._param(found, self.shapes[found], Var("shape"))

    def _holds(self, expr: RelayExpr) -> bool:
        named = self.named(expr)
        return id(named) in self.inner or isinstance(named, Tuple)

    def _param(self, register: int, kind: Type, expr: RelayExpr) -> RelayExpr:
        """A parameter for a tensor, one for each in a tuple."""
        if isinstance(kind, TupleType):
            fields = [
                self._param(self.field_of(register, place), part, expr)
                for place, part in enumerate(kind.fields)
            ]
            return Tuple(tuple(fields))
        if register not in self.by_register:
            if not isinstance(kind, TensorType):
                raise ValueError(f"an operator is given {kind!r}, which is no tensor")
            known = self.shapes.setdefault(register, self.symbols.opened(kind))
            name = expr.name_hint if isinstance(expr, Var) else "x"
            var = Var(f"{name}_{len(self.params)}", known)
            self.by_register[register] = var
            self.params.append(var)
            self.arguments.append(register)
        return self.by_register[register]


def _symbols(body: RelayExpr) -> list[ShapeVar]:
    """The symbols of the extents that operators are given as numbers."""
    found: dict[ShapeVar, None] = {}
    for part in post_order(body):
        if isinstance(part, Call) and part.attrs is not None:
            for _, value in part.attrs.items():
                for number in leaves_of(value):
                    if isinstance(number, Expr) and not isinstance(number, AnyDim):
                        found.update(dict.fromkeys(variables_in(number)))
    return list(found)


def _kinds(block: Function) -> Iterator[TensorType]:
    """The types of all results of operators."""
    for part in post_order(block.body):
        if isinstance(part, Call):
            yield from flatten_type(part.checked_type)


def _expect_symbolic(block: Function) -> None:
    """All extents are expressions over symbols; a ValueError names the operator that has others."""
    assert isinstance(block.checked_type, FuncType)
    for part in post_order(block.body):
        kinds = flatten_type(part.checked_type) if isinstance(part, Call) else []
        for kind in kinds:
            if not kind.is_symbolic:
                assert isinstance(part, Call)
                at = f" at {part.span}" if part.span else ""
                raise ValueError(
                    f"{part.op}{at} gives {kind!r}, whose extents the shapes of its operands do "
                    "not tell; say the shapes, or give what decides them as constants"
                )


def tensors_of(call: Call) -> Sequence[Type]:
    """The types of the tensors that a call of an operator gives."""
    kind = call.checked_type
    return kind.fields if isinstance(kind, TupleType) else (kind,)
