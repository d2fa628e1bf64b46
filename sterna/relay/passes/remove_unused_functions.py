"""Dead function elimination: functions that nothing calls, removed.

    def @main() { ... }  def @other() { ... }   ->   def @main() { ... }
"""

from collections.abc import Sequence

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.relay.expr import GlobalVar, RelayExpr
from sterna.relay.traverse import post_order


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:
    """Keep the entry functions and what they call."""
    entries = list(entry_functions) if entry_functions is not None else ["main"]
    made: Pass = module_pass(
        lambda mod, context: remove_unused_functions(mod, entries),
        opt_level=1, name="RemoveUnusedFunctions",
    )
    return made


def remove_unused_functions(mod: IRModule, entries: Sequence[str]) -> IRModule:
    """The module with the functions that can be reached."""
    reached: set[str] = set()
    waiting = [name for name in entries if name in mod]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        function = mod[name]
        if isinstance(function, RelayExpr):
            waiting += [
                expr.name_hint for expr in _global_names(function) if expr.name_hint in mod
            ]
    if len(reached) == len(mod):
        return mod
    return IRModule({n: f for n, f in mod.functions.items() if n in reached}, mod.attrs)


def _global_names(root: RelayExpr) -> list[GlobalVar]:
    names: dict[GlobalVar, None] = {}
    for expr in post_order(root):
        if isinstance(expr, GlobalVar):
            names.setdefault(expr)
        op = getattr(expr, "op", None)
        if isinstance(op, GlobalVar):
            names.setdefault(op)
    return list(names)
