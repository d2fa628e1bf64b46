"""lower and build: from a schedule to loops, and from loops to a module that runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.codegen.code import Code, MixedCode
from sterna.driver.operator_module import OperatorModule
from sterna.ir.expr import INT32, Call, StringImm, Var
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.support.recursion import deep_recursion
from sterna.target import Target, is_gpu
from sterna.te.lower import lower_schedule
from sterna.te.schedule import Schedule
from sterna.te.tensor import Tensor
from sterna.tir import pipeline
from sterna.tir.passes.lower_registered import lower_registered
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.passes.skip_assert import skip_assert
from sterna.tir.stmt import Evaluate, PrimFunc


def lower(
    inp: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Any = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops that will run. simple_mode leaves out the passes that make them hard to read.

    binds: by tensor, the buffers that arguments of a schedule have.
    """
    functions = {f.name: f for f in _functions(inp, args, name, binds)}
    if not PassContext.current().get_config("tir.noalias"):
        functions = {name: _with_attr(f, "noalias", False) for name, f in functions.items()}
    with deep_recursion():
        return pipeline.run_module(IRModule(functions), simple_mode)


def schedule_to_module(
    sch: Schedule, args: Sequence[Any] | None = None, name: str = "main", binds: Any = None
) -> IRModule:
    """The loops of a schedule before any pass."""
    return IRModule({each.name: each for each in _functions(sch, args, name, binds)})


def _functions(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Any = None
) -> list[PrimFunc]:
    if isinstance(inp, Schedule):
        if args is None:
            raise ValueError("args must be given for lowering a schedule: its inputs and outputs")
        made = lower_schedule(inp, args, name, binds)
        if len(args) == len(made.params):
            return [made]
        return [_with_attr(made, "arguments", len(args))]
    if isinstance(inp, PrimFunc):
        return [inp if inp.name else _with_name(inp, name)]
    if isinstance(inp, IRModule):
        functions = list(inp.functions.values())
        wrong = [f for f in functions if not isinstance(f, PrimFunc)]
        if wrong:
            raise ValueError(f"only functions of loops can be built, not {wrong[0]!r}")
        return [each if each.name else _with_name(each, name)
                for name, each in inp.functions.items() if isinstance(each, PrimFunc)]
    raise ValueError(f"expected a schedule, a PrimFunc or an IRModule, got {type(inp).__name__}")


def _with_name(func: PrimFunc, name: str) -> PrimFunc:
    return func.with_attr("global_symbol", name)


def _with_attr(func: PrimFunc, name: str, value: Any) -> PrimFunc:
    attrs = {**func.attrs, name: value}
    return PrimFunc(func.name, func.params, func.buffers, func.body, attrs)


Lowered = Schedule | PrimFunc | IRModule


def build(
    inputs: Lowered | Sequence[PrimFunc | IRModule] | Mapping[str | Target, Lowered],
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    runtime: Any = None,
    name: str = "default_function",
    binds: Any = None,
) -> OperatorModule:
    """A module with one function per function of loops, each compiled for its target.

    inputs: a schedule (with args), a PrimFunc, an IRModule, a list of these two, or a dict from
    targets to what is compiled for them. Without a target: the one of the `with` around, else what
    a function's attribute "target" says, else llvm.
    """
    if runtime is not None:
        raise ValueError(
            f"runtime={runtime!r} is for whole models: single functions run with every runtime; "
            "leave it out"
        )
    with deep_recursion():
        return _build(_wanted(inputs, args, target, target_host, name, binds), name)


def _wanted(
    inputs: Any,
    args: Sequence[Any] | None,
    target: str | Target | None,
    target_host: str | Target | None,
    name: str,
    binds: Any,
) -> dict[Target, IRModule]:
    """The loops of each target."""
    if isinstance(inputs, Mapping):
        for each in inputs.values():
            _expect_outputs(each, args, name)
        given = [(_buildable(key, target_host), each) for key, each in inputs.items()]
        return {key: lower(each, args, name, binds) for key, each in given}
    asked = target if target is not None else Target.current(allow_none=True)
    if asked is not None:
        asked = _buildable(asked, target_host)
    listed = inputs if isinstance(inputs, list | tuple) else [inputs]
    for each in listed:
        _expect_outputs(each, args, name)
    lowered = _merged([lower(each, args, name, binds) for each in listed])
    wanted: dict[Target, IRModule] = {}
    for known, function in lowered.functions.items():
        assert isinstance(function, PrimFunc)
        home = asked or _buildable(function.attrs.get("target", "llvm"), target_host)
        wanted.setdefault(home, IRModule())[known] = function
    return wanted or {asked or _buildable("llvm", target_host): lowered}


def _expect_outputs(given: Any, args: Sequence[Any] | None, name: str) -> None:
    """What is built gives its results to its caller; loops that are only looked at need not."""
    if isinstance(given, Schedule) and args is not None:
        made = [given.stage_map.get(arg.op) for arg in args if isinstance(arg, Tensor)]
        for stage in given.stages:
            if stage.is_output and stage not in made:
                raise ValueError(
                    f"the output {stage.op.name} of {name} is not among its arguments: pass it in "
                    "args"
                )


def _buildable(target: str | Target, host: str | Target | None) -> Target:
    wanted = Target(target)
    wanted.kind.code_generator()
    return wanted if host is None else wanted.with_host(host)


def _merged(modules: Sequence[IRModule]) -> IRModule:
    functions: dict[str, Any] = {}
    for module in modules:
        twice = functions.keys() & module.functions.keys()
        if twice:
            raise ValueError(f"two of the inputs have a function '{min(twice)}'; rename one")
        functions |= module.functions
    return IRModule(functions)


def _build(wanted: Mapping[Target, IRModule], name: str) -> OperatorModule:
    _merged(list(wanted.values()))  # a module has one function of a name
    kernels = {target: _with_wrappers(module, target) for target, module in wanted.items()}
    wrappers = [f for each in kernels.values() for f in each if f.attrs.get("packed")]
    if len(wrappers) == 1 and wrappers[0].name != "main":
        next(each for each in kernels.values() if wrappers[0] in each).append(_entry(wrappers[0]))
    parts = [
        target.kind.code_generator().compile(functions, target, name, list(kernels))
        for target, functions in kernels.items()
    ]
    code: Code = parts[0] if len(parts) == 1 else MixedCode(parts)
    return OperatorModule.make(code, name, wanted)


def _entry(only: PrimFunc) -> PrimFunc:
    """A module of one function is called like that function: main passes everything on."""
    params = tuple(Var(p.name, p.dtype) for p in only.params)
    call = Call(INT32, "try_call", (StringImm(f"__tvm_ffi_{only.name}"), *params))
    return PrimFunc("main", params, only.buffers, Evaluate(call), {"packed": True})


def _with_wrappers(module: IRModule, target: Target) -> list[PrimFunc]:
    """The functions as a target knows their calls, each with the packed function around it."""
    made: list[PrimFunc] = []
    for function in module.functions.values():
        assert isinstance(function, PrimFunc)
        known = lower_registered(function, target.kind.name, is_gpu(target))
        made += [known, make_packed(known, arguments_of(known))]
    if PassContext.current().get_config("tir.disable_assert"):
        return [skip_assert(function) for function in made]
    return made


def arguments_of(function: PrimFunc) -> int:
    """How many of a function's parameters its callers give; the shapes of arrays say the others."""
    count = function.attrs.get("arguments", len(function.params))
    assert isinstance(count, int)
    return count
