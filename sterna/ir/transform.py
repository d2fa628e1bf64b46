"""Passes: what changes modules, and how several become one.

A pass takes an IRModule and gives one; it leaves what it was given as it is, and gives the same
object when nothing changes. Called by itself it always runs; a Sequential asks the PassContext.
"""

import copy
import functools
import inspect
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, overload

from sterna.ir.config import register_config
from sterna.ir.instrument import PassInfo
from sterna.ir.module import IRModule
from sterna.ir.node import Node
from sterna.ir.pass_context import PassContext
from sterna.support.discovery import load_everywhere

__all__ = [
    "ApplyPassToFunction", "FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo",
    "PrintIR", "Sequential", "find_pass", "function_pass", "module_pass", "register_config",
    "register_pass",
]

log = logging.getLogger("sterna.transform")

ModuleChange = Callable[[IRModule, PassContext], IRModule]
FunctionChange = Callable[[Any, IRModule, PassContext], Any]


class Pass:
    """Something that makes a module out of a module."""

    def __init__(self, info: PassInfo) -> None:
        self.info = info

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        """What the pass does."""
        raise NotImplementedError(f"the pass {self.info.name} does nothing: define transform")

    def __call__(self, mod: IRModule) -> IRModule:
        """Run the pass, unless an instrument of the current context is against it."""
        name = self.info.name
        if not isinstance(mod, IRModule):
            raise TypeError(
                f"the pass {name} takes an IRModule, not {type(mod).__name__}; put it into one: "
                "IRModule({name: function})"
            )
        context = PassContext.current()
        if not context.before_pass(mod, self.info):
            return mod
        begin = time.perf_counter()
        made = self.transform(mod, context)
        if not isinstance(made, IRModule):
            raise TypeError(f"the pass {name} gave {type(made).__name__} instead of an IRModule")
        if log.isEnabledFor(logging.DEBUG):
            took = (time.perf_counter() - begin) * 1e3
            log.debug("%s: %.3f ms%s", name, took, ", unchanged" if made is mod else "")
        context.after_pass(made, self.info)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info.name}, opt_level={self.info.opt_level})"


class ModulePass(Pass):
    """A pass over a module as a whole."""

    def __init__(self, change: ModuleChange, info: PassInfo) -> None:
        super().__init__(info)
        self.change = change

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        return self.change(mod, context)


class FunctionPass(Pass):
    """A pass over each function of one kind; the other functions of a module stay as they are."""

    def __init__(self, change: FunctionChange, info: PassInfo, kind: type[Node] = Node) -> None:
        super().__init__(info)
        self.change = change
        self.kind = kind

    def takes(self, function: Node) -> bool:
        """Whether the pass changes this function."""
        return isinstance(function, self.kind)

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        changed = {
            name: self.change(function, mod, context)
            for name, function in mod.functions.items()
            if self.takes(function)
        }
        for name, made in changed.items():
            if not isinstance(made, self.kind):
                raise TypeError(
                    f"the pass {self.info.name} gave {type(made).__name__} for the function "
                    f"'{name}' instead of a {self.kind.__name__}"
                )
        if all(made is mod.functions[name] for name, made in changed.items()):
            return mod
        result = copy.copy(mod)
        result.functions = {**mod.functions, **changed}
        return result


class Sequential(Pass):
    """Passes one after the other: those that the PassContext enables, and what they require.

    A pass finds the passes that it requires among the others here, else among those registered.
    """

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
    ) -> None:
        super().__init__(_info(name, opt_level, required))
        self.passes = list(passes or ())
        for one in self.passes:
            if not isinstance(one, Pass):
                raise TypeError(f"{name} is made of passes, not of {type(one).__name__} ({one!r})")

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        for one in self.passes:
            if context.pass_enabled(one.info):
                mod = self._run(one, mod, ())
        return mod

    def _run(self, one: Pass, mod: IRModule, waiting: tuple[str, ...]) -> IRModule:
        waiting = (*waiting, one.info.name)
        for name in one.info.required:
            if name in waiting:
                raise ValueError(f"passes require each other: {' -> '.join((*waiting, name))}")
            mod = self._run(self._find(name), mod, waiting)
        return one(mod)

    def _find(self, name: str) -> Pass:
        here = next((one for one in self.passes if one.info.name == name), None)
        return here or find_pass(name)


# ---- passes by name ----

_REGISTERED: dict[str, Callable[[], Pass]] = {}


def register_pass(name: str, make: Callable[[], Pass]) -> None:
    """Let other passes require a pass by its name."""
    _REGISTERED[name] = make


def find_pass(name: str) -> Pass:
    """A registered pass; a folder registers its passes in its file transform.py."""
    if name not in _REGISTERED:
        load_everywhere("transform")
    if name not in _REGISTERED:
        raise ValueError(f"there is no pass '{name}'; register_pass makes one known")
    return _REGISTERED[name]()


# ---- decorators ----


def _info(name: str, opt_level: int, required: Sequence[str] | None) -> PassInfo:
    if isinstance(required, str):
        raise TypeError(f"required must be a list of the names of passes, not '{required}'")
    return PassInfo(opt_level, name, tuple(required or ()))


@overload
def module_pass(
    pass_func: None = None,
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
) -> Callable[[Any], Any]: ...
@overload
def module_pass(
    pass_func: Callable[..., Any],
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
) -> Any: ...


def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """A pass from a function (mod, ctx) -> mod, or from a class with such a transform_module.

    Of a class comes a class: calling it as the original makes the pass. Without pass_func this is
    a decorator.
    """
    if opt_level is None:
        raise ValueError("a module pass needs an opt_level: the level from which on it runs")
    if pass_func is None:
        return functools.partial(
            module_pass, opt_level=opt_level, name=name, required=required
        )
    info = _info(name or pass_func.__name__, opt_level, required)
    if inspect.isclass(pass_func):
        return _class_of(ModulePass, pass_func, "transform_module", info)
    return ModulePass(pass_func, info)


@overload
def function_pass(
    pass_func: None = None,
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
    kind: type[Node] = ...,
    base: type[FunctionPass] = ...,
) -> Callable[[Any], Any]: ...
@overload
def function_pass(
    pass_func: Callable[..., Any],
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
    kind: type[Node] = ...,
    base: type[FunctionPass] = ...,
) -> Any: ...


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    kind: type[Node] = Node,
    base: type[FunctionPass] = FunctionPass,
) -> Any:
    """A pass from a function (func, mod, ctx) -> func, or a class with such a transform_function.

    It runs over the functions of one kind. Of a class comes a class: calling it as the original
    makes the pass. Without pass_func this is a decorator.
    """
    if opt_level is None:
        raise ValueError("a function pass needs an opt_level: the level from which on it runs")
    if pass_func is None:
        return functools.partial(
            function_pass, opt_level=opt_level, name=name, required=required, kind=kind, base=base
        )
    info = _info(name or pass_func.__name__, opt_level, required)
    if inspect.isclass(pass_func):
        return _class_of(base, pass_func, "transform_function", info, kind)
    return base(pass_func, info, kind)


def _class_of(base: Any, original: type, method: str, info: PassInfo, *more: Any) -> type:
    """A class of passes, each of which asks an object of the original class."""
    if not callable(getattr(original, method, None)):
        raise TypeError(f"the class {original.__name__} needs a method {method} to be a pass")

    class Made(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **named: Any) -> None:
            self._original = original(*args, **named)
            super().__init__(getattr(self._original, method), info, *more)

        def __getattr__(self, name: str) -> Any:
            if name == "_original":  # asked for before it is there
                raise AttributeError(name)
            return getattr(self._original, name)

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(Made, attribute, getattr(original, attribute))
    return Made


# ---- passes over any module ----


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:
    """A pass that prints the module and leaves it as it is."""

    def show(mod: IRModule, context: PassContext) -> IRModule:
        print(f"PrintIR({header}):\n{mod}")
        return mod

    return ModulePass(show, PassInfo(0, "PrintIR"))


def ApplyPassToFunction(
    transform: Pass, func_name_regex: str, error_if_no_function_matches_regex: bool = False
) -> Pass:
    """A pass that runs another over the functions whose whole names match."""

    def apply(mod: IRModule, context: PassContext) -> IRModule:
        names = [n for n in mod.functions if re.fullmatch(func_name_regex, str(n))]
        if not names and error_if_no_function_matches_regex:
            known = ", ".join(map(str, mod.functions)) or "none"
            raise ValueError(f"no function's name matches '{func_name_regex}'; there are: {known}")
        part = copy.copy(mod)
        part.functions = {name: mod.functions[name] for name in names}
        made = transform(part)
        if made is part:
            return mod
        result = copy.copy(mod)
        gone = set(names) - set(made.functions)
        kept = {name: f for name, f in mod.functions.items() if name not in gone}
        result.functions = {**kept, **made.functions}
        return result

    return ModulePass(apply, PassInfo(0, f"ApplyPassTo_{func_name_regex}"))
