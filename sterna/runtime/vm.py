"""The virtual machine: runs programs with control flow around blocks of compiled code.

A program is bytes that runtime/vm reads and checks, and a module with the functions of its blocks.
Values are tensors and objects: tuples, constructors' values, references, closures.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from sterna.runtime import _core, ndarray
from sterna.runtime._core import PackedFunc
from sterna.runtime.device import REMOTE_DEVICES, Device, cpu
from sterna.runtime.module import Module, ModulePropertyMask
from sterna.runtime.ndarray import NDArray
from sterna.runtime.registry import get_global_func, register_func
from sterna.runtime.timing import BenchmarkResult, make_evaluator

KIND = "vm"
DEEPEST_RECURSION = 1 << 20

# What kinds of objects have as tags that no constructor has.
_TUPLE, _LIST = -1, -3


@register_func("runtime.vm.check_signals")
def _check_signals() -> None:
    """Python handles signals as it enters a function; long runs call it now and then."""


class VMCode:
    """What stands behind a module of a program."""

    def __init__(
        self, bytecode: bytes, lib: Module | None, constants: Sequence[NDArray] = ()
    ) -> None:
        self.bytecode, self.lib, self.constants = bytecode, lib, list(constants)

    @property
    def kind(self) -> str:
        """What names its loader."""
        return KIND

    def to_bytes(self) -> bytes:
        """The program with its constants."""
        if not self.constants:
            return self.bytecode
        program = self.bytecode[: -8 * len(self.constants)]
        return program + b"".join(map(_packed, self.constants))

    @cached_property
    def loaded(self) -> Module:
        """The program as the runtime has it, over these constants."""
        module: Module = get_global_func(f"ffi.Module.load_from_bytes.{KIND}")(
            bytearray(self.bytecode)
        )
        for number, array in enumerate(self.constants):
            module["give_constant"](number, array)
        if self.lib is not None:
            module.import_module(self.lib)
        return module

    def find(self, name: str) -> PackedFunc | None:
        """A function of the machine."""
        found: PackedFunc | None = self.loaded._get_function(name, False)
        return found


def _packed(array: NDArray) -> bytes:
    """A constant as runtime/vm/vm.h describes it."""
    kind = array.dtype
    number = kind.type_code | kind.bits << 8 | kind.lanes << 16
    head = np.array([1, number, array.ndim, *array.shape, array.nbytes], "<i8")
    raw = np.zeros(-(-array.nbytes // 8) * 8, np.uint8)
    if array.nbytes:
        array._copy_to_buffer(raw[: array.nbytes])
    return head.tobytes() + raw.tobytes()


class VMModule(Module):
    """A program as a module, which goes into files with the library that it imports."""

    _implementation: VMCode

    @classmethod
    def over(cls, code: VMCode) -> "VMModule":
        """A module of a program."""
        made: VMModule = _core.make_module(cls, code)
        if code.lib is not None:
            made.import_module(code.lib)
        return made

    @property
    def kind(self) -> str:
        """What sort of module it is."""
        return KIND

    def get_property_mask(self) -> int:
        """What can be done with it; see ModulePropertyMask."""
        return ModulePropertyMask.BINARY_SERIALIZABLE | ModulePropertyMask.RUNNABLE


class Executable:
    """A compiled program: bytecode, the library of its blocks, and constants."""

    def __init__(
        self, bytecode: bytes, lib: Module | None, constants: Sequence[NDArray] = ()
    ) -> None:
        self._code = VMCode(bytecode, lib, constants)
        self.mod = VMModule.over(self._code)

    @property
    def module(self) -> Module:
        """The program as a module, whose export_library writes all of it to one file."""
        return self.mod

    @property
    def lib(self) -> Module | None:
        """The functions of its blocks; None if it has none."""
        return self._code.lib

    @property
    def constants(self) -> list[NDArray]:
        """Its constants."""
        return list(self._code.constants)

    @property
    def globals(self) -> list[str]:
        """The names of its functions."""
        return list(parameters_of(self.mod))

    def get_function_params(self, name: str) -> list[str]:
        """What a function's parameters are called."""
        return _parameters(self.mod, name)

    def save(self) -> tuple[bytearray, Module | None]:
        """The program with its constants, and the library, which load_exec takes."""
        return bytearray(self._code.to_bytes()), self.lib

    @staticmethod
    def load_exec(bytecode: bytes | bytearray | str, lib: Module | None) -> "Executable":
        """What save gave."""
        if not isinstance(bytecode, bytes | bytearray | str):
            raise TypeError(f"bytecode is bytes, not {type(bytecode).__name__}")
        if lib is not None and not isinstance(lib, Module):
            raise TypeError(f"lib is a Module or None, not {type(lib).__name__}")
        raw = bytecode.encode("latin-1") if isinstance(bytecode, str) else bytes(bytecode)
        made = Executable(raw, lib)
        parameters_of(made.mod)  # it is read and checked now
        return made


def parameters_of(module: Module) -> dict[str, list[str]]:
    """The names of a program's functions, and those of their parameters."""
    describe = module["describe"]
    found: dict[str, list[str]] = {}
    while (told := describe(len(found))) is not None:
        name, params = told
        found[name] = params.split("\n") if params else []
    return found


def _parameters(module: Module, name: str) -> list[str]:
    known = parameters_of(module)
    if name not in known:
        raise ValueError(f"the program has no function '{name}'; it has {', '.join(known)}")
    return known[name]


class ADT:
    """A tuple or a constructor's value: fields, which may be such values again, and a tag."""

    def __init__(self, tag: int, fields: Sequence[Any]) -> None:
        if not isinstance(tag, int) or tag < 0 or not isinstance(fields, Sequence):
            raise TypeError(f"an ADT is a tag of at least 0 and its fields, not {tag!r}")
        self.tag, self._fields, self.is_tuple = tag, list(fields), tag == 0
        self._machine: VirtualMachine | None = None
        self.handle: Any = None

    @staticmethod
    def of(machine: "VirtualMachine", handle: Any) -> "ADT":
        """A value of a machine, whose fields are looked up there."""
        tag, *fields = machine._look(handle)
        made = ADT(max(tag, 0), fields)
        made._machine, made.handle, made.is_tuple = machine, handle, tag in (_TUPLE, _LIST)
        return made

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, place: int) -> Any:
        field = self._fields[place]
        return field if self._machine is None else self._machine._given(field)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        kind = "tuple" if self.is_tuple else f"constructor {self.tag}"
        return f"ADT({kind} of {len(self)})"


class VirtualMachine:
    """Runs a program: set_input and invoke, or run with the inputs of main.

    Threads may share a machine, each with its own arguments; inputs that are set are one for all.
    """

    NAIVE_ALLOCATOR, POOLED_ALLOCATOR = 1, 2

    def __init__(
        self, exe: Executable | Module, device: Device | Sequence[Device],
        memory_cfg: str | Mapping[Device, str] | None = None,
    ) -> None:
        if not isinstance(exe, Executable | Module):
            raise TypeError(f"exe is an Executable or a Module, not {type(exe).__name__}")
        module = exe.mod if isinstance(exe, Executable) else exe
        if not module.implements_function("invoke"):
            raise TypeError(f"{exe!r} is no program; relay.vm.compile makes one")
        if not isinstance(memory_cfg, str | Mapping | None):
            raise TypeError(f"memory_cfg is text or a dict, not {type(memory_cfg).__name__}")
        self.module = module
        self.devices = [device] if isinstance(device, Device) else list(device)
        self._home = next((each for each in self.devices if each.device_type != 1), cpu(0))
        if self._home != cpu(0) and self._home.device_type < REMOTE_DEVICES:
            module["set_device"](self._home)
        self._invoke, self._look, self._make = module["invoke"], module["look"], module["make"]
        self._params = parameters_of(module)
        self._set: dict[str, list[Any]] = {}
        self._last: Any = None

    # ---- arguments ----

    def _taken(self, value: Any) -> Any:
        """A value as the machine takes it."""
        if isinstance(value, NDArray):
            return self._there(value)
        if isinstance(value, ADT) and value.handle is None:
            tag = _TUPLE if value.is_tuple else value.tag
            return self._make(tag, *[self._taken(part) for part in value])
        if isinstance(value, ADT):
            return value.handle
        if isinstance(value, tuple | list):
            return self._make(_TUPLE, *[self._taken(part) for part in value])
        if value is None:
            return self._there(ndarray.empty((0,), "float32"))
        if isinstance(value, bool | int | float):
            kinds = {bool: "bool", int: "int32", float: "float32"}
            return self._there(ndarray.array(np.array(value, kinds[type(value)])))
        if isinstance(value, _core.Object):
            return value
        return self._there(ndarray.array(value))

    def _there(self, array: NDArray) -> NDArray:
        """An array on the GPU that the program runs on; on a processor as it is."""
        is_remote = self._home.device_type >= REMOTE_DEVICES
        if self._home == cpu(0) or is_remote or array.device == self._home:
            return array
        return array.copyto(self._home)

    def _given(self, value: Any) -> Any:
        """A value as users see it."""
        if isinstance(value, NDArray) or not isinstance(value, _core.Object):
            return value
        return ADT.of(self, value)

    def _arranged(
        self, func_name: str, args: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Any]:
        params = self._names(func_name)
        if len(args) + sum(name in named for name in params[len(args):]) != len(params):
            raise ValueError(
                f"the function '{func_name}' takes {', '.join(params) or 'nothing'}; got "
                f"{len(args)} values by place and {', '.join(named) or 'none'} by name"
            )
        values = [*args, *(named[name] for name in params[len(args):])]
        return [self._taken(value) for value in values]

    def _names(self, func_name: str) -> list[str]:
        if func_name not in self._params:
            known = ", ".join(self._params)
            raise ValueError(f"the program has no function '{func_name}'; it has {known}")
        return self._params[func_name]

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep the arguments of a function for invoke; names may be more than it has."""
        self._set[func_name] = self._arranged(func_name, args, kwargs)

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Keep one argument: by its place or name and the value, or by one keyword."""
        params = self._names(func_name)
        if len(args) == 2 and not kwargs:
            tag, value = args
        elif not args and len(kwargs) == 1:
            ((tag, value),) = kwargs.items()
        else:
            raise ValueError("set_one_input takes a place or name and a value, or one keyword")
        if isinstance(tag, str) and tag not in params:
            raise ValueError(f"'{func_name}' has no parameter '{tag}'; it has {', '.join(params)}")
        place = params.index(tag) if isinstance(tag, str) else int(tag)
        kept = self._set.setdefault(func_name, [None] * len(params))
        kept[place] = self._taken(value)

    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The place of a parameter; -1 if there is none of that name."""
        params = self._names(func_name)
        return params.index(input_name) if input_name in params else -1

    # ---- running ----

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a function, with these arguments or with those that were set."""
        return self._given(self._invoke(func_name, *self._arguments(func_name, args, kwargs)))

    def _arguments(
        self, func_name: str, args: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Any]:
        """These arguments, or those that were set."""
        return self._arranged(func_name, args, named) if args or named else self._kept(func_name)

    def _kept(self, func_name: str) -> list[Any]:
        """The arguments of a function that were set."""
        names, given = self._names(func_name), self._set.get(func_name, [])
        if any(value is None for value in given) or len(given) != len(names):
            raise ValueError(
                f"'{func_name}' takes {', '.join(names)}; set_input has not given all"
            )
        return given

    def call(self, func_name: str, values: Sequence[NDArray]) -> Any:
        """Call a function with its arguments in order, which the machine reads where they lie."""
        return self._given(self._invoke(func_name, *values))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call main."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call a function and keep its results for get_outputs."""
        self._last = self.invoke(func_name, *args, **kwargs)

    def get_outputs(self) -> list[Any]:
        """What the function gave that was called last by invoke_stateful."""
        if self._last is None:
            raise ValueError("no function was called by invoke_stateful yet")
        return list(self._last) if isinstance(self._last, ADT) else [self._last]

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Call a function and copy its results into arrays."""
        self.invoke_stateful(func_name, **input_args)
        for into, value in zip(output_args, self.get_outputs(), strict=True):
            value.copyto(into)

    def set_limits(self, calls: int = 0, depth: int = DEEPEST_RECURSION) -> None:
        """Let runs end with an error after so many calls (0: never), or so many nested ones."""
        self.module["set_limits"](calls, depth)

    def cancel(self, stop: bool = True) -> None:
        """Let all runs end with an error, from another thread; False lets new ones run again."""
        self.module["cancel"](stop)

    def benchmark(
        self, device: Device, *args: Any, func_name: str = "main", repeat: int = 5, number: int = 5,
        min_repeat_ms: int | None = None, limit_zero_time_iterations: int = 100,
        end_to_end: bool = False, cooldown_interval_ms: int = 0, repeats_to_cooldown: int = 1,
        **kwargs: Any,
    ) -> BenchmarkResult:
        """Time a function on arguments, or on those that were set.

        end_to_end also takes their way into the machine.
        """
        given = self._arguments(func_name, args, kwargs)

        def once() -> None:
            taken = self._arguments(func_name, args, kwargs) if end_to_end else given
            self._invoke(func_name, *taken)

        return make_evaluator(
            PackedFunc(once), device, number, repeat, min_repeat_ms or 0,
            limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown,
        )()
