"""Types for every expression of a module.

    fn (%x: Tensor[(2, 3), float32]) { add(%x, %x) }
        -> the same, with Tensor[(2, 3), float32] known for the call and the result
"""

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, module_pass
from sterna.ir.types import FuncType
from sterna.relay.expr import Call, Function, GlobalVar
from sterna.relay.infer import infer
from sterna.relay.traverse import post_order


def InferType() -> Pass:
    """Types for every expression; what does not fit together is an error."""
    made: Pass = module_pass(lambda mod, context: infer_type(mod), opt_level=0, name="InferType")
    return made


def infer_type(mod: IRModule, context: PassContext | None = None) -> IRModule:
    """The module itself, all of whose expressions then have types."""
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, Function)}
    for name in _callees_first(functions):
        infer(functions[name])
    return mod


def _callees_first(functions: dict[str, Function]) -> list[str]:
    """The functions' names, those that others call first; calls get the types declared so far."""
    uses: dict[str, list[GlobalVar]] = {}
    for name, function in functions.items():
        found = [e.op for e in post_order(function) if isinstance(e, Call)]
        uses[name] = [op for op in found if isinstance(op, GlobalVar)]
    order: list[str] = []
    state: dict[str, int] = {}
    for start in functions:
        stack = [start]
        while stack:
            name = stack[-1]
            waiting = [v.name_hint for v in uses.get(name, ()) if v.name_hint not in state]
            waiting = [n for n in waiting if n in functions]
            if state.setdefault(name, 0) == 0 and waiting:
                stack += waiting
                continue
            stack.pop()
            if state[name] == 0:
                state[name] = 1
                for var in uses[name]:
                    _declare(var, functions)
                order.append(name)
                infer(functions[name])
    return order


def _declare(var: GlobalVar, functions: dict[str, Function]) -> None:
    function = functions.get(var.name_hint)
    if function is None:
        raise ValueError(f"the module has no function @{var.name_hint}, which is called")
    if function._type is not None:
        var._type = function._type
    elif function.ret_type is not None and all(p._type is not None for p in function.params):
        given = tuple(p._type for p in function.params if p._type is not None)
        var._type = FuncType(given, function.ret_type)
