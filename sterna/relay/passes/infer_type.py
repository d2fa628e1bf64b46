"""Type and shape inference: types for every expression of a module.

    fn (%x: Tensor[(2, 3), float32]) { add(%x, %x) }
        -> the same, with Tensor[(2, 3), float32] known for the call and the result
"""

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.ir.types import FuncType
from sterna.relay.expr import Call, Function, GlobalVar
from sterna.relay.infer import infer
from sterna.relay.traverse import post_order


def InferType() -> Pass:
    """Types for every expression; what does not fit together is an error.

    Functions say what they give: ret_type.
    """
    made: Pass = module_pass(
        lambda mod, context: _with_results(infer_type(mod)), opt_level=0, name="InferType"
    )
    return made


def _with_results(mod: IRModule) -> IRModule:
    """A module whose functions say what they give; the one that is given stays as it is."""
    made = mod.shallow_copy()
    for name, function in mod.functions.items():
        if not isinstance(function, Function) or not isinstance(function._type, FuncType):
            continue
        made[name] = told = Function(
            function.params, function.body, function._type.ret_type, function.type_params,
            function.attrs,
        )
        told.span, told._type = function.span, function._type
    return made


def infer_type(mod: IRModule) -> IRModule:
    """The module itself, all of whose expressions then have types."""
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, Function)}
    uses = {name: _called(function) for name, function in functions.items()}
    for name in _callees_first(uses):
        for var in uses[name]:
            _declare(var, functions)
        infer(functions[name])
    return mod


def _called(function: Function) -> list[GlobalVar]:
    parts = post_order(function)
    called = [expr.op for expr in parts if isinstance(expr, Call)]
    return [each for each in (*called, *parts) if isinstance(each, GlobalVar)]


def _callees_first(uses: dict[str, list[GlobalVar]]) -> list[str]:
    """The functions' names, those that others call first."""
    order: list[str] = []
    opened: set[str] = set()
    done: set[str] = set()
    for start in uses:
        stack = [start]
        while stack:
            name = stack[-1]
            called = [var.name_hint for var in uses[name]]
            waiting = [n for n in called if n not in opened and n in uses]
            if name not in opened and waiting:
                opened.add(name)
                stack += waiting
                continue
            opened.add(name)
            stack.pop()
            if name not in done:
                done.add(name)
                order.append(name)
    return order


def _declare(var: GlobalVar, functions: dict[str, Function]) -> None:
    function = functions.get(var.name_hint)
    if function is None:
        raise ValueError(f"the module has no function @{var.name_hint}, which is called")
    if function._type is not None:
        var._type = function._type
    elif function.ret_type is not None and all(p._type is not None for p in function.params):
        given = tuple(p._type for p in function.params if p._type is not None)
        var._type = FuncType(given, function.ret_type, function.type_params)
