"""relay.create_executor: one way to run an expression, by whichever executor is named."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sterna.driver import relay_build, vm_build
from sterna.ir.module import IRModule
from sterna.ir.types import FuncType, TensorType, TupleType, Type
from sterna.relay.analysis import free_vars
from sterna.relay.backend import Executor as ExecutorChoice
from sterna.relay.expr import Function, GlobalVar, Var, as_expr
from sterna.relay.interpreter import interpret
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.infer_type import infer_type
from sterna.relay.traverse import bind
from sterna.runtime import Device, NDArray, cpu, ndarray
from sterna.runtime.graph_executor import GraphModule
from sterna.runtime.vm import VirtualMachine

Run = Callable[..., Any]


class Evaluator:
    """What evaluates expressions of a module by one kind of executor."""

    def __init__(
        self, kind: str, mod: IRModule, device: Device, target: Any,
        params: Mapping[str, Any] | None,
    ) -> None:
        self.kind, self.mod, self.device, self.target = kind, mod, device, target
        self.params = dict(params or {})

    def evaluate(self, expr: Any = None, binds: Mapping[Var, Any] | None = None) -> Any:
        """A function of the module or an expression: one to call, the other's value.

        Without an expression it is main. binds: values of variables.
        """
        whole = self.mod["main"] if expr is None else expr
        if isinstance(whole, GlobalVar):
            whole = self.mod[whole]
        whole = as_expr(whole)
        if binds:
            whole = bind(whole, {var: as_expr(value) for var, value in binds.items()})
        if isinstance(whole, Function):
            return self._callable(whole)
        if free := free_vars(whole):
            names = ", ".join(var.name_hint for var in free)
            raise ValueError(f"the expression reads {names}; give binds, or a function of them")
        return self._callable(Function((), whole))()

    def _callable(self, function: Function) -> Run:
        if self.params:
            function = bind_params(function, self.params)
        module = self.mod.shallow_copy()
        module["main"] = function
        names = [param.name_hint for param in function.params]
        run = _KINDS[self.kind](infer_type(module), self)

        def call(*args: Any, **named: Any) -> Any:
            return run(_arranged(names, args, named))

        return call


def create_executor(
    kind: str = "debug", mod: IRModule | None = None, device: Device | None = None,
    target: Any = "llvm", params: Mapping[str, Any] | None = None,
) -> Evaluator:
    """What evaluates expressions: by the interpreter ("debug"), "graph", "vm" or "aot"."""
    if kind not in _KINDS:
        raise RuntimeError(f"unknown execution strategy: {kind}; there are {', '.join(_KINDS)}")
    return Evaluator(kind, IRModule() if mod is None else mod, device or cpu(0), target, params)


def _arranged(names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The arguments in order; all must be there."""
    unknown = [name for name in named if name not in names[len(args):]]
    if unknown or len(args) + len(named) != len(names):
        raise ValueError(
            f"the function takes {', '.join(names) or 'nothing'}; got {len(args)} values by place "
            f"and {', '.join(named) or 'none'} by name"
        )
    return [*args, *(named[name] for name in names[len(args):])]


# ---- the kinds ----


def _by_interpreter(module: IRModule, asked: Evaluator) -> Run:
    main = module["main"]

    def run(args: list[Any]) -> Any:
        return _as_arrays(interpret(main, *map(_as_numpy, args), mod=module))

    return run


def _as_numpy(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_as_numpy, value))
    return value.numpy() if isinstance(value, NDArray) else np.asarray(value)


def _as_arrays(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_arrays, value))
    return ndarray.array(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


def _by_machine(module: IRModule, asked: Evaluator) -> Run:
    exe = vm_build.compile(module, asked.target)
    machine = VirtualMachine(exe, asked.device)
    return lambda args: machine.invoke("main", *args)


def _by_graph(module: IRModule, asked: Evaluator) -> Run:
    return _built(module, asked, None)


def _ahead_of_time(module: IRModule, asked: Evaluator) -> Run:
    return _built(module, asked, ExecutorChoice("aot"))


def _built(module: IRModule, asked: Evaluator, executor: ExecutorChoice | None) -> Run:
    kind = module["main"].checked_type
    assert isinstance(kind, FuncType)
    _expect_static(kind.ret_type, asked.kind)
    lib = relay_build.build(module, target=asked.target, executor=executor)
    graph = GraphModule(lib["default"](asked.device))
    names = [param.name_hint for param in module["main"].params]

    def run(args: list[Any]) -> Any:
        for name, value in zip(names, args, strict=True):
            graph.set_input(name, value)
        graph.run()
        found = [graph.get_output(i).copyto(cpu(0)) for i in range(graph.get_num_outputs())]
        return found[0] if isinstance(kind.ret_type, TensorType) else found

    return run


def _expect_static(kind: Type, executor: str) -> None:
    parts = kind.fields if isinstance(kind, TupleType) else (kind,)
    if any(not isinstance(part, TensorType) or not part.is_static for part in parts):
        raise ValueError(
            f'the "{executor}" executor gives tensors of known shapes, not {kind!r}; '
            'use create_executor("vm")'
        )


_KINDS: dict[str, Callable[[IRModule, Evaluator], Run]] = {
    "debug": _by_interpreter, "graph": _by_graph, "vm": _by_machine, "aot": _ahead_of_time,
}

