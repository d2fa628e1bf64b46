"""Partitioning: regions between marks as functions of the module, each for another compiler.

    end(nn.relu(add(begin(%x), begin(%y))))   ->   @tvmgen_default_own_main_0(%x, %y)

    def @tvmgen_default_own_main_0(%own_0_i0, %own_0_i1, Compiler="own", Primitive=1, ...) {
      nn.relu(add(%own_0_i0, %own_0_i1))
    }
"""

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.ir.types import TupleType
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.passes.annotate_target import BEGIN, END, compiler_of, outside_composites
from sterna.relay.passes.infer_type import infer_type
from sterna.relay.passes.merge_compiler_regions import Regions, is_mark
from sterna.relay.traverse import rebuild, rewrite


def PartitionGraph(mod_name: str = "default", bind_constants: bool = True) -> Pass:
    """Make each region a function; bind_constants: constants that it reads are parts of it."""
    made: Pass = module_pass(
        lambda mod, context: partition_graph(mod, mod_name, bind_constants), opt_level=0,
        name="PartitionGraph",
    )
    return made


def partition_graph(mod: IRModule, mod_name: str, bind_constants: bool) -> IRModule:
    """The module with a function for each region."""
    typed = infer_type(mod)
    made = typed.shallow_copy()
    for name, function in typed.functions.items():
        if isinstance(function, Function) and compiler_of(function) is None:
            maker = _Partition(function, f"tvmgen_{mod_name}", name, bind_constants)
            made[name] = maker.run()
            for symbol, part in maker.made.items():
                made[symbol] = part
    return infer_type(made)


class _Partition:
    """The regions of one function."""

    def __init__(self, function: Function, prefix: str, name: str, bind: bool) -> None:
        self.function, self.prefix, self.name, self.bind = function, prefix, name, bind
        self.regions = Regions(function)
        self.made: dict[str, Function] = {}
        self.done: dict[int, RelayExpr] = {}
        self.calls: dict[int, RelayExpr] = {}
        self.ends: dict[int, list[Call]] = {}
        for expr in self.regions.order:
            if is_mark(expr, END):
                region = self.regions.region_of(expr)
                assert region is not None and isinstance(expr, Call)
                self.ends.setdefault(region, []).append(expr)

    def run(self) -> Function:
        """The function with calls in the place of regions; what they read is made before them."""
        stack: list[RelayExpr] = [self.function]
        while stack:
            expr = stack[-1]
            if id(expr) in self.done:
                stack.pop()
                continue
            waiting = [part for part in self._reads(expr) if id(part) not in self.done]
            if waiting:
                stack += waiting
                continue
            self.done[id(expr)] = self._replacement(expr)
        found = self.done[id(self.function)]
        assert isinstance(found, Function)
        return found

    def _reads(self, expr: RelayExpr) -> list[RelayExpr]:
        if is_mark(expr, END):
            region = self.regions.region_of(expr)
            assert region is not None
            return [begin.args[0] for begin in self.regions.begins[region]]
        if not outside_composites(expr):
            return []
        return list(expr.operands())  # type: ignore[attr-defined]

    def _replacement(self, expr: RelayExpr) -> RelayExpr:
        if is_mark(expr, BEGIN):  # before no end: it marks nothing
            assert isinstance(expr, Call)
            return self.done[id(expr.args[0])]
        if not is_mark(expr, END):
            return rebuild(expr, self.done) if outside_composites(expr) else expr
        region = self.regions.region_of(expr)
        assert region is not None
        if region not in self.calls:
            self.calls[region] = self._call(region)
        call, ends = self.calls[region], self.ends[region]
        sizes = [_size(end) for end in ends]
        if sizes == [None]:
            return call
        place = next(i for i, end in enumerate(ends) if end is expr)
        first, size = sum(n or 1 for n in sizes[:place]), sizes[place]
        if size is None:
            return TupleGetItem(call, first)
        return Tuple(tuple(TupleGetItem(call, first + i) for i in range(size)))

    def _call(self, region: int) -> RelayExpr:
        ends = self.ends[region]
        compiler = str(ends[0].attrs.compiler)  # type: ignore[union-attr]
        number = len(self.made)
        symbol = f"{self.prefix}_{compiler}_{self.name}_{number}"
        params: dict[int, Var] = {}
        args: list[RelayExpr] = []
        inside: dict[int, RelayExpr] = {}
        for begin in sorted(self.regions.begins[region], key=lambda b: self.regions.places[id(b)]):
            read = begin.args[0]
            if self.bind and isinstance(read, Constant):
                inside[id(begin)] = read
                continue
            if id(read) not in params:
                params[id(read)] = Var(f"{compiler}_{number}_i{len(args)}", read.checked_type)
                args.append(self.done[id(read)])
            inside[id(begin)] = params[id(read)]
        values: list[RelayExpr] = []
        for end in ends:
            value, size = self._body(end.args[0], inside), _size(end)
            values += [value] if size is None else [TupleGetItem(value, i) for i in range(size)]
        body = values[0] if [_size(end) for end in ends] == [None] else Tuple(tuple(values))
        attrs = {"Compiler": compiler, "Inline": 1, "Primitive": 1, "global_symbol": symbol}
        self.made[symbol] = Function(tuple(params.values()), body, None, (), attrs)
        return Call(GlobalVar(symbol), tuple(args))

    def _body(self, root: RelayExpr, inside: dict[int, RelayExpr]) -> RelayExpr:
        """What a region computes, over its parameters."""
        stack = [root]
        while stack:
            expr = stack[-1]
            parts = list(expr.operands()) if outside_composites(expr) else []  # type: ignore[attr-defined]
            waiting = [part for part in parts if id(part) not in inside]
            if id(expr) in inside:
                stack.pop()
            elif waiting:
                stack += waiting
            elif is_mark(expr, END):  # a value that others read, too
                assert isinstance(expr, Call)
                inside[id(expr)] = inside[id(expr.args[0])]
            else:
                inside[id(expr)] = rebuild(expr, inside) if parts else expr
        return inside[id(root)]


def _size(end: Call) -> int | None:
    """The number of values where there are several; None for a tensor."""
    kind = end.checked_type
    return len(kind.fields) if isinstance(kind, TupleType) else None


def called_literally(mod: IRModule) -> tuple[IRModule, dict[str, Function]]:
    """The module with functions for other compilers where they are called, and those by name."""
    apart = {
        name: f for name, f in mod.functions.items()
        if isinstance(f, Function) and compiler_of(f) is not None
    }
    if not apart:
        return mod, {}
    made = mod.shallow_copy()
    used: dict[str, Function] = {}
    for name, function in mod.functions.items():
        if name in apart:
            del made.functions[name]
        elif isinstance(function, Function):
            made[name] = _with_literals(function, apart, used)
    return made, used


def _with_literals(
    function: Function, apart: dict[str, Function], used: dict[str, Function]
) -> Function:
    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if isinstance(new, Call) and isinstance(new.op, GlobalVar) and new.op.name_hint in apart:
            part = used[new.op.name_hint] = apart[new.op.name_hint]
            return Call(part, new.args)
        return new

    made = rewrite(function, change, outside_composites)
    assert isinstance(made, Function)
    return made
