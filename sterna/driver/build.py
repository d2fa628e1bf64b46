"""lower and build: from a schedule to loops, and from loops to a module that runs."""

from collections.abc import Sequence
from typing import Any

from sterna.codegen.llvm import LLVMOptions
from sterna.driver.code import CCode, Code, LLVMCode
from sterna.driver.operator_module import OperatorModule
from sterna.ir.expr import INT32, Call, StringImm, Var
from sterna.ir.module import IRModule
from sterna.support.recursion import deep_recursion
from sterna.target import Target, machine_of
from sterna.target.abi import check_abi
from sterna.te.lower import lower_schedule
from sterna.te.schedule import Schedule
from sterna.tir import pipeline
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import Evaluate, PrimFunc


def lower(
    inp: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Any = None,
    simple_mode: bool = False,
) -> IRModule:
    """The loops that will run. simple_mode leaves out the passes that make them hard to read."""
    if binds:
        raise ValueError("binds is not supported: pass the buffers themselves in args")
    functions = {f.name: f for f in _functions(inp, args, name)}
    return pipeline.run_module(IRModule(functions), simple_mode)


def _functions(inp: Any, args: Sequence[Any] | None, name: str) -> list[PrimFunc]:
    if isinstance(inp, Schedule):
        if args is None:
            raise ValueError("args must be given for lowering a schedule: its inputs and outputs")
        return [lower_schedule(inp, args, name)]
    if isinstance(inp, PrimFunc):
        return [inp]
    if isinstance(inp, IRModule):
        functions = list(inp.functions.values())
        wrong = [f for f in functions if not isinstance(f, PrimFunc)]
        if wrong:
            raise ValueError(f"only functions of loops can be built, not {wrong[0]!r}")
        return functions  # type: ignore[return-value]
    raise ValueError(f"expected a schedule, a PrimFunc or an IRModule, got {type(inp).__name__}")


def build(
    inputs: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    runtime: Any = None,
    name: str = "default_function",
    binds: Any = None,
) -> OperatorModule:
    """A module with one function per function of loops, compiled for a target."""
    wanted = Target(target) if target is not None else Target.current(allow_none=True)
    if wanted is None:
        wanted = Target("llvm")
    if target_host is not None:
        wanted = wanted.with_host(target_host)
    if runtime is not None:
        raise ValueError("runtime= has no meaning for single functions; leave it out")
    wanted.kind.require_codegen()
    with deep_recursion():
        return _build(inputs, args, wanted, name, binds)


def _build(
    inputs: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None,
    target: Target,
    name: str,
    binds: Any,
) -> OperatorModule:
    lowered = lower(inputs, args, name, binds)
    kernels: list[PrimFunc] = []
    for function in lowered.functions.values():
        assert isinstance(function, PrimFunc)
        kernels += _with_wrapper(function, len(args) if args is not None else None)
    wrappers = [f for f in kernels if f.attrs.get("packed")]
    if len(wrappers) == 1:
        kernels.append(_entry(wrappers[0]))
    return OperatorModule.make(_generate(kernels, target, name), name, target, lowered)


def _generate(kernels: list[PrimFunc], target: Target, name: str) -> Code:
    if target.kind.name == "c":
        return CCode(kernels, name)
    return LLVMCode(kernels, llvm_options(target), name, runs_here(target))


def llvm_options(target: Target) -> LLVMOptions:
    """What LLVM is told about a target."""
    machine = machine_of(target)
    check_abi(machine)
    return LLVMOptions(machine.triple, machine.cpu, machine.features, abi=machine.abi)


def runs_here(target: Target) -> bool:
    """Whether this machine runs what is compiled for a target."""
    machine, here = machine_of(target), machine_of(Target("llvm"))
    return machine.architecture == here.architecture and machine.triple == here.triple


def _entry(only: PrimFunc) -> PrimFunc:
    """A module of one function is called like that function: main passes everything on."""
    params = tuple(Var(p.name, p.dtype) for p in only.params)
    call = Call(INT32, "try_call", (StringImm(f"__tvm_ffi_{only.name}"), *params))
    return PrimFunc("main", params, only.buffers, Evaluate(call), {"packed": True})


def _with_wrapper(func: PrimFunc, arguments: int | None) -> list[PrimFunc]:
    """A function and the packed function around it."""
    count = arguments if arguments is not None else len(func.params)
    return [func, make_packed(func, count)]
