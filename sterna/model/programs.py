"""Functions of tensors as programs: by the graph executor, by the virtual machine where there is
control flow, or by the operators' references where there is next to nothing to compute."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from sterna.driver import relay_build, vm_build
from sterna.frontend.stages import HostFunction, function_of, is_cheap
from sterna.ir.module import IRModule
from sterna.ir.types import TensorType, TupleType
from sterna.model.arguments import shared_array
from sterna.model.compiled_model import CompiledModel
from sterna.relay.arrays import Array, handed_on, on_host
from sterna.relay.expr import Call, Function, GlobalVar, If, Let, RelayExpr, Tuple, Var
from sterna.relay.interpreter import interpret
from sterna.relay.steps import Step
from sterna.relay.traverse import post_order
from sterna.runtime import Device, Module, NDArray, cpu, device
from sterna.runtime.vm import ADT, DEEPEST_RECURSION, VirtualMachine
from sterna.target import Target

Program = Callable[[Mapping[str, Any]], list[Any]]
"""Takes arrays by name, more than it needs perhaps, and gives its results."""


class LoopLimits:
    """After how many calls runs end with an error, of all machines that run a model's loops."""

    def __init__(self) -> None:
        self._calls, self._depth = 0, DEEPEST_RECURSION
        self._is_cancelled = False
        self._machines: weakref.WeakSet[VirtualMachine] = weakref.WeakSet()

    def hold(self, machine: VirtualMachine) -> VirtualMachine:
        """A machine under these limits, now and when they are set anew."""
        machine.set_limits(self._calls, self._depth)
        self._machines.add(machine)
        machine.cancel(self._is_cancelled)
        return machine

    def set(self, calls: int, depth: int) -> None:
        """So many calls (0: any number), so many nested ones."""
        self._calls, self._depth = calls, depth
        for machine in list(self._machines):
            machine.set_limits(calls, depth)

    def cancel(self, stop: bool) -> None:
        """Let runs end now, and new ones as they begin; False lets new ones run again."""
        self._is_cancelled = stop
        for machine in list(self._machines):
            machine.cancel(stop)

    def expect_running(self) -> None:
        """RuntimeError if runs are to end; a model asks between two programs."""
        if self._is_cancelled:
            raise RuntimeError("the run was cancelled")


def program_of(
    function: Function, target: Target, others: IRModule, decides: bool, limits: LoopLimits
) -> Program:
    """A function of tensors, ready to run; it may call other functions of a module.

    One that only decides how to go on, by next to no work, is not compiled.
    """
    names = [param.name_hint for param in function.params]
    parts = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    if any(isinstance(part, Var) for part in parts):
        return _with_names(parts, target, others, decides, limits)
    if decides and is_cheap(function):
        return _interpreted(function, names)
    if has_control_flow(function):
        module = others.shallow_copy()
        module["main"] = function
        return _by_machine(module, names, target, limits)
    factory = relay_build.build(IRModule.from_expr(function), target=target)
    model = CompiledModel(factory.module, Device(target.kind.device_type, 0))
    wanted = [spec.name for spec in model.inputs]
    is_one = len(model.outputs) == 1

    def run(values: Mapping[str, Array]) -> list[Array]:
        made = model(*[values[name] for name in wanted])
        return [made] if is_one else list(made)

    return run


def _with_names(
    parts: Sequence[RelayExpr], target: Target, others: IRModule, decides: bool,
    limits: LoopLimits,
) -> Program:
    """A program some of whose results are among its inputs, which are handed on as they are."""
    computed = tuple(part for part in parts if not isinstance(part, Var))
    body = computed[0] if len(computed) == 1 else Tuple(computed)
    inner = None
    if computed:
        inner = program_of(function_of(body), target, others, decides, limits)

    def run(values: Mapping[str, Array]) -> list[Array]:
        rest = iter(inner(values) if inner is not None else ())
        return [values[p.name_hint] if isinstance(p, Var) else next(rest) for p in parts]

    return run


def with_host(program: Program, host: HostFunction | None) -> Program:
    """A program, and what the host makes of its results; the shapes of that come first."""
    if host is None:
        return program

    def run(values: Mapping[str, Array]) -> list[Array]:
        made = [np.asarray(each) for each in host(program(values))]
        shapes = [number for each in made for number in (each.ndim, *each.shape)]
        return [np.array(shapes, np.int64), *made]

    return run


def has_control_flow(function: Function) -> bool:
    """Whether straight-line code cannot say it."""
    return any(
        isinstance(part, If | Let | Function | Step)
        or (isinstance(part, Call) and isinstance(part.op, GlobalVar))
        for part in post_order(function.body)
    )


def _interpreted(function: Function, names: list[str]) -> Program:
    def run(values: Mapping[str, Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            made = interpret(function, *[on_host(values[name]) for name in names])
        return list(made) if isinstance(made, tuple) else [np.asarray(made)]

    return run


def symbolic_program(
    function: Function, target: Target, others: IRModule, about: str = ""
) -> "SymbolicRun":
    """A function of tensors, some of whose extents are open, as one program for all of them."""
    kind = function.checked_type.ret_type  # type: ignore[attr-defined]
    parts = kind.fields if isinstance(kind, TupleType) else (kind,)
    if not all(isinstance(part, TensorType) for part in parts):
        raise ValueError(f"the model gives {kind!r}, which are not all tensors")
    module = others.shallow_copy()
    module["main"] = function
    executable = vm_build.compile(module, target, about=about)
    return SymbolicRun(executable.mod, [param.name_hint for param in function.params])


def home_of(program: Module) -> Device:
    """The device that a program's blocks run on: the first of the kind that it has kernels for."""
    kernels = program._collect_from_import_tree(lambda module: module.is_device_module)
    return device(kernels[0].kind) if kernels else cpu(0)


class SymbolicRun:
    """A program of the virtual machine whose kernels take extents when they are called."""

    def __init__(self, module: Module, names: list[str]) -> None:
        self.module, self.names = module, names
        self.home = home_of(module)
        self.machine = VirtualMachine(module, self.home)
        self.reads_in_place = self.home == cpu(0)

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """The results: arrays of a GPU where one of the values lies there, else NumPy's."""
        made = self.run(values)
        if self.reads_in_place or not any(isinstance(each, NDArray) for each in values.values()):
            return [handed_on(each) for each in made]
        return made

    def run(self, values: Mapping[str, Any]) -> list[NDArray]:
        """The results as arrays of the runtime, which need not be copied to be given again."""
        given = [values[name] for name in self.names]
        if self.reads_in_place:
            made = self.machine.call("main", [_shared(value) for value in given])
        else:
            made = self.machine.invoke("main", *given)
        return list(made) if isinstance(made, ADT) else [made]


def _shared(value: Any) -> Any:
    """An array as the machine reads it: in place where it lies well."""
    return shared_array(value, _name_of(value.dtype)) if isinstance(value, np.ndarray) else value


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name


def _by_machine(
    module: IRModule, names: list[str], target: Target, limits: LoopLimits
) -> Program:
    program = vm_build.compile(module, target)
    machine = limits.hold(VirtualMachine(program, home_of(program.mod)))

    def run(values: Mapping[str, Any]) -> list[Array]:
        made = machine.invoke("main", *[values[name] for name in names])
        parts = list(made) if isinstance(made, ADT) else [made]
        return [handed_on(each) if isinstance(each, NDArray) else each for each in parts]

    return run
