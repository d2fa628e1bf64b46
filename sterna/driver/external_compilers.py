"""External compilers (BYOC): code for parts of a graph, registered as relay.ext.<compiler>."""

from collections.abc import Mapping

from sterna.ir.module import IRModule
from sterna.relay.expr import Function
from sterna.relay.passes.annotate_target import compiler_of
from sterna.relay.passes.infer_type import infer_type
from sterna.relay.passes.partition_graph import called_literally
from sterna.runtime import Module, get_global_func

CODEGEN = "relay.ext."


def compiled_elsewhere(mod: IRModule | Function) -> tuple[IRModule | Function, list[Module]]:
    """The network with calls of other compilers' kernels, and the modules that hold these."""
    if isinstance(mod, Function):
        return mod, []
    made, parts = called_literally(infer_type(mod) if has_other_parts(mod) else mod)
    return made, _code_of(parts)


def has_other_parts(mod: IRModule) -> bool:
    """Whether some function of a module is for another compiler."""
    return any(compiler_of(f) is not None for f in mod.functions.values())


def refuse_other_parts(mod: IRModule, what: str) -> None:
    """Say that only the graph executor runs code of other compilers."""
    for name, function in mod.functions.items():
        if (compiler := compiler_of(function)) is not None:
            raise ValueError(
                f"the function {name} is for the compiler {compiler}, whose code {what} does not "
                'call; build it for a processor and the graph executor, Executor("graph")'
            )


def _code_of(parts: Mapping[str, Function]) -> list[Module]:
    made = []
    for name, function in parts.items():
        compiler = compiler_of(function)
        codegen = get_global_func(f"{CODEGEN}{compiler}", allow_missing=True)
        if codegen is None:
            raise ValueError(
                f"the function {name} is for the compiler {compiler}, which is not there: "
                f'register_func("{CODEGEN}{compiler}", codegen), where codegen(function) gives a '
                "module with a function of the name function.attrs[\"global_symbol\"]"
            )
        module = codegen(function)
        assert function.attrs is not None
        symbol = function.attrs["global_symbol"]
        if not isinstance(module, Module) or not module.implements_function(symbol, True):
            raise TypeError(f"{CODEGEN}{compiler} gave {module!r}, no module with a '{symbol}'")
        made.append(module)
    return made
