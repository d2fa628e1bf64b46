"""Function inlining: functions of the module that are marked, in the place of their calls.

    def @main(%x) { @f(%x) }  def @f(%y, Inline=1) { exp(%y) }   ->   def @main(%x) { exp(%x) }

Functions that are written where they are called go too: (fn (%y) { exp(%y) })(%x) is exp(%x).
"""

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, module_pass
from sterna.relay.expr import Call, Function, GlobalVar, RelayExpr
from sterna.relay.traverse import inlined, not_primitive, post_order, rewrite


def Inline() -> Pass:
    """Put the bodies of functions with the attribute Inline=1 in the place of their calls."""
    made: Pass = module_pass(lambda mod, context: inline(mod), opt_level=0, name="InlineGlobals")
    return made


InlineGlobals = Inline


def inline(mod: IRModule) -> IRModule:
    """The module without marked functions, except those that something else than a call names."""
    functions = {name: f for name, f in mod.functions.items() if isinstance(f, Function)}
    marked = {name: f for name, f in functions.items() if (f.attrs or {}).get("Inline")}
    if not marked and not any(
        _calls_literal(e) for f in functions.values() for e in post_order(f, not_primitive)
    ):
        return mod
    done: dict[str, Function] = {}
    for name in _callees_first(marked):
        done[name] = _with_bodies(marked[name], done)
    made = {
        name: _with_bodies(f, done) if isinstance(f, Function) else f
        for name, f in mod.functions.items()
        if name not in marked
    }
    named = {
        e.name_hint for f in (*made.values(), *done.values()) if isinstance(f, Function)
        for e in post_order(f) if isinstance(e, GlobalVar)
    }
    kept = {name: done[name] for name in mod.functions if name in marked and name in named}
    return IRModule({**made, **kept}, mod.attrs)


def mark_called(mod: IRModule) -> IRModule:
    """The module with all that main calls marked, for executors that run one function."""
    called = {name: f for name, f in mod.functions.items()
              if isinstance(f, Function) and name != "main" and not f.is_primitive}
    main = mod.functions.get("main")
    if not called or not isinstance(main, Function):
        return mod
    made, waiting = mod.shallow_copy(), _called(main, called)
    while waiting:
        name = waiting.pop()
        if made[name] is called[name]:
            made[name] = called[name].with_attr("Inline", 1)
            waiting += _called(called[name], called)
    return made


def _callees_first(marked: dict[str, Function]) -> list[str]:
    """The marked functions, those that others call first; none may end up in itself."""
    order: dict[str, None] = {}
    for start in marked:
        way: dict[str, list[str]] = {}
        stack = [] if start in order else [start]
        while stack:
            name = stack[-1]
            waiting = way.setdefault(name, _called(marked[name], marked))
            if not waiting:
                order.setdefault(name)
                way.pop(stack.pop())
                continue
            following = waiting.pop()
            if following in way:
                raise ValueError(
                    f"the function @{following} is to be inlined but calls itself; the virtual "
                    "machine runs such functions: relay.vm.compile"
                )
            if following not in order:
                stack.append(following)
    return list(order)


def _called(function: Function, marked: dict[str, Function]) -> list[str]:
    found = [e.op for e in post_order(function, not_primitive) if isinstance(e, Call)]
    names = [op.name_hint for op in found if isinstance(op, GlobalVar)]
    return [name for name in dict.fromkeys(names) if name in marked]


def _calls_literal(expr: RelayExpr) -> bool:
    """Whether it is a call of a function that is written there, and is no kernel."""
    return isinstance(expr, Call) and isinstance(expr.op, Function) and not expr.op.is_primitive


def _with_bodies(function: Function, bodies: dict[str, Function]) -> Function:
    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if _calls_literal(new):
            assert isinstance(new, Call) and isinstance(new.op, Function)
            return inlined(new.op, new.args)
        if isinstance(new, Call) and isinstance(new.op, GlobalVar):
            body = bodies.get(new.op.name_hint)
            return new if body is None else inlined(body, new.args)
        return new

    made = rewrite(function, change, not_primitive)
    assert isinstance(made, Function)
    return made
