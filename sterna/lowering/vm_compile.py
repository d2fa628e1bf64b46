"""Lambda lifting and code generation for the virtual machine: functions with control flow become
code around blocks, each of which is an ordinary straight-line function of tensors.

    if (%c) { nn.relu(%x) } else { %x }  ->  if r0 else L; r2 = block(r1); return r2; L: return r1

A function inside another gets what it reads of the outer one as its first parameters. Where it is
called by its name no closure is made, and a call in tail position is a jump: loops are such calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sterna.ir.module import IRModule
from sterna.ir.types import TensorType, flatten_type
from sterna.lowering.vm_blocks import Block, Shapes, tensors_of
from sterna.lowering.vm_code import TUPLE, Instruction, Label, VMFunction
from sterna.lowering.vm_scopes import Level, Scope, Scopes, is_step, levels_of
from sterna.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)
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
    Var,
)
from sterna.relay.op import record_of
from sterna.relay.steps import Step as RelayStep
from sterna.relay.symbols import Symbols
from sterna.runtime import NDArray
from sterna.support.recursion import deep_recursion


@dataclass(slots=True)
class Compiled:
    """What is left when control flow is taken out: code, and straight-line functions."""

    functions: list[VMFunction]
    blocks: list[Function]
    constants: list[NDArray]


@dataclass(frozen=True, slots=True)
class _Known:
    """A function that a name stands for, and what it reads of the functions around it."""

    number: int
    captured: tuple[RelayExpr, ...]


@dataclass(slots=True)
class _State:
    """What all functions of a module share."""

    functions: list[VMFunction] = field(default_factory=list)
    blocks: list[Function] = field(default_factory=list)
    constants: dict[int, int] = field(default_factory=dict)
    arrays: list[NDArray] = field(default_factory=list)
    globals: dict[str, int] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)

    def constant(self, value: NDArray) -> int:
        if id(value) not in self.constants:
            self.constants[id(value)] = len(self.arrays)
            self.arrays.append(value)
        return self.constants[id(value)]


def compile_functions(module: IRModule) -> Compiled:
    """The code of all functions of a typed module."""
    state = _State()
    functions = {n: f for n, f in module.functions.items() if isinstance(f, Function)}
    for name, function in functions.items():
        state.globals[name] = len(state.functions)
        state.functions.append(VMFunction(name, [p.name_hint for p in function.params]))
    with deep_recursion():
        for name, function in functions.items():
            made = state.functions[state.globals[name]]
            _FunctionCompiler(state, made, Scopes(function), {}).run(function, ())
    return Compiled(state.functions, state.blocks, state.arrays)


class _FunctionCompiler:
    """One function on its way to code."""

    def __init__(
        self, state: _State, made: VMFunction, scopes: Scopes, known: dict[Var, _Known]
    ) -> None:
        self.state, self.made, self.scopes = state, made, scopes
        self.known = dict(known)
        self.values: list[dict[int, int]] = [{}]
        """Registers by expression, for each scope that is open."""
        self.lets: dict[Var, RelayExpr] = {}
        self.results: dict[int, list[int]] = {}
        """The registers of what blocks have made, by call."""
        self.shapes: Shapes = {}

    def run(self, function: Function, captured: Sequence[RelayExpr]) -> None:
        own = Symbols(count=self.state.symbols.count)  # names are those of one function
        for part in (*captured, *function.params):
            register = self.values[0][id(part)] = self._register()
            if isinstance(part.checked_type, TensorType):
                self.shapes[register] = own.opened(part.checked_type)
        self.state.symbols.count = own.count
        (scope,) = self.scopes.inside[id(function)]
        self._scope(scope, function.body, None)

    # ---- registers ----

    def _register(self) -> int:
        self.made.registers += 1
        return self.made.registers - 1

    def _emit(self, name: str, *operands: object) -> None:
        self.made.code.append(Instruction(name, operands))

    def _find(self, expr: RelayExpr) -> int | None:
        for values in reversed(self.values):
            if id(expr) in values:
                return values[id(expr)]
        return None

    def _value(self, expr: RelayExpr) -> int:
        """The register of a value; what is no more than a name or a tuple is made here."""
        found = self._find(expr)
        if found is not None:
            return found
        if isinstance(expr, Let):
            return self._value(expr.body)
        if isinstance(expr, Var) and expr in self.lets and expr not in self.known:
            return self._value(self.lets[expr])
        made = self._register()
        if isinstance(expr, Constant):
            self._emit("constant", made, self.state.constant(expr.data))
        elif isinstance(expr, Var) and expr in self.known:
            self._emit("closure", made, self.known[expr].number, self._captured(self.known[expr]))
        elif isinstance(expr, GlobalVar):
            self._emit("closure", made, self._global(expr), ())
        elif isinstance(expr, Constructor):
            self._emit("closure", made, self._maker(expr), ())
        elif isinstance(expr, Tuple):
            fields = tuple(self._value(part) for part in expr.fields)
            self._emit("object", made, TUPLE, fields)
        elif isinstance(expr, TupleGetItem):
            return self._item(expr, made)
        elif id(expr) in self.results:
            self._emit("object", made, TUPLE, tuple(self.results[id(expr)]))
        else:
            raise ValueError(f"a value is read that nothing computes: {expr!r}")
        self.values[-1][id(expr)] = made
        return made

    def _item(self, expr: TupleGetItem, made: int) -> int:
        whole = self._named(expr.tuple_value)
        if isinstance(whole, Tuple):
            return self._value(whole.fields[expr.index])
        if id(whole) in self.results and record_of(whole) is not None:
            return self.results[id(whole)][expr.index]
        self._emit("field", made, self._value(whole), expr.index)
        self.values[-1][id(expr)] = made
        return made

    def _named(self, expr: RelayExpr) -> RelayExpr:
        """What a name stands for in this function."""
        while True:
            if isinstance(expr, Let):
                expr = expr.body
            elif isinstance(expr, Var) and self._is_name(expr):
                expr = self.lets[expr]
            else:
                return expr

    def _is_name(self, var: Var) -> bool:
        return var in self.lets and var not in self.known and self._find(var) is None

    def _global(self, var: GlobalVar) -> int:
        if var.name_hint not in self.state.globals:
            raise ValueError(f"the module has no function @{var.name_hint}, which is called")
        return self.state.globals[var.name_hint]

    def _captured(self, known: _Known) -> tuple[int, ...]:
        return tuple(self._value(part) for part in known.captured)

    # ---- scopes ----

    def _scope(self, scope: Scope, value: RelayExpr, into: int | None) -> None:
        """The code of a scope, whose value goes into a register; None: it is the function's."""
        self.values.append({})
        bound = [expr for expr in reversed(scope.exprs) if isinstance(expr, Let)]
        self.lets.update({expr.var: expr.value for expr in bound})
        for expr in bound:  # the outermost name comes first
            if isinstance(expr.value, Function):
                self._lift(expr.value, expr.var)
        result = self._named(value)
        levels = levels_of(scope, self.scopes)
        outside = _read_outside(scope, levels, self.scopes, value)
        for level in levels:
            self._block(level.calls, outside)
            for step in level.steps:
                if step is result and isinstance(step, Call | If | Match):
                    self._ending(step, into)
                    self.values.pop()
                    return
                if not isinstance(step, Function) or not self._is_named(step):
                    self._step(step)
        found = self._value(value)
        self._emit(*(("return", found) if into is None else ("move", into, found)))
        self.values.pop()

    def _is_named(self, function: Function) -> bool:
        return any(self.lets.get(var) is function for var in self.known)

    def _ending(self, step: RelayExpr, into: int | None) -> None:
        """A step that is the last of its scope: in tail position, if the scope is."""
        if isinstance(step, If):
            self._choice(step, into)
        elif isinstance(step, Match):
            self._match(step, into)
        elif isinstance(step, Call) and isinstance(step.op, Constructor):
            made = self._register() if into is None else into
            self._call(step, made, is_tail=False)
            if into is None:
                self._emit("return", made)
        elif isinstance(step, Call):
            self._call(step, into, is_tail=into is None)

    def _step(self, expr: RelayExpr) -> None:
        if isinstance(expr, Function):
            known = self._lift(expr, None)
            made = self._register()
            self._emit("closure", made, known.number, self._captured(known))
        elif isinstance(expr, If):
            made = self._register()
            self._choice(expr, made)
        elif isinstance(expr, Match):
            made = self._register()
            self._match(expr, made)
        elif isinstance(expr, Call):
            made = self._register()
            self._call(expr, made, is_tail=False)
        elif isinstance(expr, RelayStep):
            made = self._register()
            self._emit_step(expr, made)
            kind = expr.checked_type
            if isinstance(kind, TensorType) and kind.is_symbolic:
                self.shapes[made] = kind
        else:
            raise ValueError(f"the virtual machine does not know {type(expr).__name__}: {expr!r}")
        self.values[-1][id(expr)] = made

    def _emit_step(self, expr: RelayStep, made: int) -> None:
        registers = tuple(self._value(part) for part in expr.operands())
        if expr.INSTRUCTION == "append":  # the list passes over: what is read again stays whole
            own = self._register()
            self._emit("move", own, registers[0])
            registers = (own, *registers[1:])
        operands = expr.emitted(registers, self.state.constant)
        if expr.INSTRUCTION == "write":
            self._emit("write", *operands)
            self._emit("object", made, TUPLE, ())
        else:
            self._emit(expr.INSTRUCTION, made, *operands)

    def _choice(self, expr: If, into: int | None) -> None:
        otherwise, end = Label(), Label()
        first, second = self.scopes.inside[id(expr)]
        self._emit("if", self._value(expr.cond), otherwise)
        self._scope(first, expr.true_branch, into)
        if into is not None:
            self._emit("jump", end)
        self.made.code.append(otherwise)
        self._scope(second, expr.false_branch, into)
        if into is not None:
            self.made.code.append(end)

    def _match(self, expr: Match, into: int | None) -> None:
        data, end = self._value(expr.data), Label()
        for clause, scope in zip(expr.clauses, self.scopes.inside[id(expr)], strict=True):
            following = Label()
            self.values.append({})
            self._pattern(data, clause.lhs, following)
            self._scope(scope, clause.rhs, into)
            self.values.pop()
            if into is not None:
                self._emit("jump", end)
            self.made.code.append(following)
        self._emit("fail")
        if into is not None:
            self.made.code.append(end)

    def _pattern(self, value: int, pattern: Pattern, otherwise: Label) -> None:
        """Go on if a value looks like a pattern, whose variables get registers."""
        if isinstance(pattern, PatternVar):
            self.values[-1][id(pattern.var)] = value
        elif isinstance(pattern, PatternConstructor | PatternTuple):
            if isinstance(pattern, PatternConstructor):
                self._emit("case", value, pattern.constructor.tag, otherwise)
            for place, part in enumerate(pattern.patterns):
                if not isinstance(part, PatternWildcard):
                    own = self._register()
                    self._emit("field", own, value, place)
                    self._pattern(own, part, otherwise)

    def _maker(self, constructor: Constructor) -> int:
        """A function that does what a constructor does, for where it is a value."""
        count = len(constructor.inputs)
        fields = tuple(range(count))
        names = [f"field{place}" for place in fields]
        made = VMFunction(f"{constructor.name_hint}.{len(self.state.functions)}", names)
        made.registers = count + 1
        made.code = [
            Instruction("object", (count, constructor.tag, fields)), Instruction("return", (count,))
        ]
        self.state.functions.append(made)
        return len(self.state.functions) - 1

    def _call(self, call: Call, into: int | None, is_tail: bool) -> None:
        args = tuple(self._value(arg) for arg in call.args)
        callee = call.op
        if isinstance(callee, Constructor):
            self._emit("object", into, callee.tag, args)
            return
        while isinstance(callee, Var) and self._is_name(callee):
            callee = self.lets[callee]
        known: _Known | None = None
        if isinstance(callee, GlobalVar):
            known = _Known(self._global(callee), ())
        elif isinstance(callee, Var):
            known = self.known.get(callee)
        elif isinstance(callee, Function):
            known = self._lift(callee, None)
        target = () if is_tail else (into,)
        if known is not None:
            every = (*self._captured(known), *args)
            self._emit("tail" if is_tail else "call", *target, known.number, every)
        else:
            self._emit("run" if is_tail else "apply", *target, self._value(callee), args)

    # ---- functions inside ----

    def _lift(self, function: Function, name: Var | None) -> _Known:
        """Compile a function that stands inside another; it may call itself by its name."""
        if name is not None and name in self.known:
            return self.known[name]
        (scope,) = self.scopes.inside[id(function)]
        own = {id(param) for param in function.params}
        captured: dict[int, RelayExpr] = {}
        stack = list(scope.reads)
        while stack:
            part = stack.pop(0)
            if part is name or id(part) in own or id(part) in captured:
                continue
            if isinstance(part, Var) and part in self.known:
                stack += self.known[part].captured
            elif isinstance(part, Var) and not self._is_visible(part):
                continue  # it is bound inside
            else:
                captured[id(part)] = part
        known = _Known(len(self.state.functions), tuple(captured.values()))
        hint = name.name_hint if name is not None else "lambda"
        hidden = [f"captured_{place}" for place in range(len(captured))]
        made = VMFunction(
            f"{self.made.name}.{hint}.{known.number}",
            [*hidden, *(p.name_hint for p in function.params)],
        )
        self.state.functions.append(made)
        if name is not None:
            self.known[name] = known
        inner = _FunctionCompiler(self.state, made, self.scopes, self.known)
        inner.run(function, known.captured)
        return known

    def _is_visible(self, var: Var) -> bool:
        return self._find(var) is not None or var in self.lets

    # ---- blocks ----

    def _block(self, calls: Sequence[Call], outside: set[int]) -> None:
        """Straight-line code for calls of operators; those that others read are its results."""
        wanted = [call for call in calls if id(call) in outside]
        if not wanted:
            return
        block = Block(self._named, self._value, self._field, self.shapes, self.state.symbols)
        for call in calls:
            block.add(call)
        results = [field for call in wanted for field in block.fields(call)]
        function = block.function(results[0] if len(results) == 1 else Tuple(tuple(results)))
        registers = tuple(self._register() for _ in results)
        self.shapes.update(zip(registers, flatten_type(function.body.checked_type), strict=True))
        at = 0
        for call in wanted:
            count = len(tensors_of(call))
            own = list(registers[at : at + count])
            at += count
            self.results[id(call)] = own
            if isinstance(call.checked_type, TensorType):
                self.values[-1][id(call)] = own[0]
        self._emit("block", len(self.state.blocks), tuple(block.arguments), registers)
        self.state.blocks.append(function)

    def _field(self, register: int, place: int) -> int:
        own = self._register()
        self._emit("field", own, register, place)
        return own


def _read_outside(
    scope: Scope, levels: Sequence[Level], scopes: Scopes, value: RelayExpr
) -> set[int]:
    """The calls of a scope whose results something else than their own block reads."""
    place = {id(call): number for number, level in enumerate(levels) for call in level.calls}
    names = {expr.var: expr.value for expr in scope.exprs if isinstance(expr, Let)}
    found: set[int] = set()

    def mark(root: RelayExpr, reader: int | None) -> None:
        stack = [root]
        while stack:
            part = stack.pop()
            if isinstance(part, Var) and part in names:
                stack.append(names[part])
            elif isinstance(part, Let):
                stack.append(part.body)
            elif isinstance(part, Tuple):
                stack += part.fields
            elif isinstance(part, TupleGetItem):
                stack.append(part.tuple_value)
            elif id(part) in place and place[id(part)] != reader:
                found.add(id(part))

    mark(value, None)
    for expr in scope.exprs:
        reader = place.get(id(expr))
        if record_of(expr) is not None or is_step(expr):
            for part in _direct_parts(expr):
                mark(part, reader)
        for own in scopes.inside.get(id(expr), ()):
            for part in own.reads:
                mark(part, None)
    return found


def _direct_parts(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    if isinstance(expr, Call):
        return (expr.op, *expr.args)
    if isinstance(expr, Match):
        return (expr.data,)
    if isinstance(expr, RelayStep):
        return expr.operands()
    return (expr.cond,) if isinstance(expr, If) else ()


