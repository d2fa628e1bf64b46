"""Calls every function of sterna.h with null pointers: python null_pointers.py LIBRARY HEADER.

Each pointer in turn is null while all others are good, then all are. A line says which call comes
next, so that the last one of a process that ended is the one that ended it.
"""

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRAPH = (
    b'{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0],'
    b' "heads": [[0, 0, 0]],'
    b' "node_row_ptr": [0, 1], "attrs": {"shape": ["list_shape", [[2]]], "dltype": ["list_str",'
    b' ["float32"]], "storage_id": ["list_int", [0]]}}'
)

# Where null has a meaning, or is taken without one.
MAY_BE_NULL = {
    "sterna_retain": "object", "sterna_release": "object", "sterna_any_release": "value",
    "sterna_dtype_name": "buffer", "sterna_error_create": "cause context",
    "sterna_function_create": "self deleter", "sterna_register": "self deleter",
    "sterna_function_self": "call", "sterna_set_remote_devices": "find",
    "sterna_module_from_symbols": "self destroy", "sterna_check_processor": "name",
    "sterna_module_create": "self", "sterna_module_function": "self",
    "sterna_register_system_symbol": "address", "sterna_load_extension": "init",
    "sterna_parallel": "data", "sterna_model_load": "path", "sterna_model_load_named": "path name",
    "sterna_model_free": "model", "sterna_model_run_timed": "nanoseconds",
    "sterna_model_bind_input": "data", "sterna_model_bind_output": "data",
    "sterna_register_model": "model",
}

# These are not called with good arguments: they end something, or keep what they are given.
KEEPS = {"sterna_release", "sterna_model_free", "sterna_register_model", "sterna_any_release"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function of the header."""

    type: str
    name: str

    @property
    def is_pointer(self) -> bool:
        """Whether it may be null."""
        return "*" in self.type or self.type in CALLBACKS


@dataclass(frozen=True)
class Function:
    """A function of the header."""

    result: str
    name: str
    parameters: tuple[Parameter, ...]


class Device(ctypes.Structure):
    """DLDevice"""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DataType(ctypes.Structure):
    """DLDataType"""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


CALLBACKS = {"sterna_call", "sterna_task", "sterna_find_symbol", "sterna_find_device", "function"}


def functions_of(header: str) -> list[Function]:
    """What the header declares."""
    text = re.sub(r"/\*.*?\*/| STERNA_PRINTF\(.*?\)", "", header, flags=re.DOTALL)
    found = []
    for match in re.finditer(r"^STERNA_API ([^;(]*?)(sterna_\w+)\(([^;]*?)\)[^;()]*;", text, re.M):
        parts = [] if match[3] == "void" else re.split(r",(?![^(]*\))", match[3])
        parameters = tuple(parameter_of(" ".join(part.split())) for part in parts if part != " ...")
        found.append(Function(match[1].strip(), match[2], parameters))
    return found


def parameter_of(text: str) -> Parameter:
    """A parameter as it is written."""
    callback = re.search(r"\(\*(\w+)\)", text)
    if callback is not None:
        return Parameter("function", callback[1])
    match = re.fullmatch(r"(.*?)(\w+)", text)
    assert match is not None, text
    return Parameter(match[1].replace("const ", "").strip(), match[2])


class Caller:
    """Good arguments of every type, and calls with them."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._rooms: list[Any] = []
        library.sterna_last_error.restype = ctypes.c_char_p
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
        self._made = {
            "sterna_function *": self._make(
                "sterna_function_create", self._callback, None, None
            ),
            "sterna_module *": self._make("sterna_system_module", b"none"),
            "sterna_ndarray *": self._make(
                "sterna_ndarray_empty", None, 0, DataType(2, 32, 1), Device(1, 0)
            ),
            "sterna_error *": self._make("sterna_error_create", b"ValueError", b"text", None, None),
        }
        devices = (Device * 1)(Device(1, 0))
        self._made["sterna_model *"] = self._make(
            "sterna_model_create", GRAPH, ctypes.c_size_t(len(GRAPH)),
            self._made["sterna_module *"], devices, 1,
        )

    def _make(self, name: str, *args: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        failed = self._library[name](*args, ctypes.byref(made))
        assert not failed and made, (name, self._library.sterna_last_error())
        return made

    def _room(self) -> Any:
        """Zeros for whatever is read or written through a pointer."""
        self._rooms.append(ctypes.create_string_buffer(4096))
        return self._rooms[-1]

    def good(self, parameter: Parameter) -> Any:
        """An argument that no call ends over."""
        values: dict[str, Callable[[], Any]] = {
            "char *": lambda: self._room() if parameter.name == "buffer" else b"x",
            "DLDevice": lambda: Device(1, 0), "DLDataType": lambda: DataType(2, 32, 1),
            "size_t": lambda: ctypes.c_size_t(8), "int64_t": lambda: ctypes.c_int64(1),
            "uint64_t": lambda: ctypes.c_uint64(0), "int32_t": lambda: ctypes.c_int32(1),
            "DLDeviceType": lambda: ctypes.c_int32(12), "int": lambda: ctypes.c_int32(0),
            **{kind: lambda made=made: made for kind, made in self._made.items()},  # type: ignore[misc]
            **dict.fromkeys(CALLBACKS, lambda: self._callback),
        }
        return values[parameter.type]() if parameter.type in values else self._room()

    def call(self, function: Function, nulls: set[str]) -> None:
        """Call with some pointers null; what may not be null must be an error with a message."""
        print(function.name, *sorted(nulls), flush=True)
        allowed = set(MAY_BE_NULL.get(function.name, "").split())
        assert allowed <= {each.name for each in function.parameters}, function
        call = self._library[function.name]
        call.restype = ctypes.c_void_p if "*" in function.result else ctypes.c_int32
        self._library.sterna_clear_error()
        result = call(*(None if p.name in nulls else self.good(p) for p in function.parameters))
        if nulls <= allowed:
            return
        assert self._library.sterna_last_error(), "there is no message"
        is_code = function.result in ("int", "int32_t")
        predicates = ("sterna_tensor_is_compact", "sterna_ndarray_is_read_only",
                      "sterna_ndarray_is_sole")
        wanted = -1 if is_code and function.name not in predicates else None
        assert (result or None) == wanted, result


def main() -> None:
    """Call them all."""
    functions = functions_of(Path(sys.argv[2]).read_text())
    caller = Caller(ctypes.CDLL(sys.argv[1]))
    for function in functions:
        pointers = [each.name for each in function.parameters if each.is_pointer]
        if len(pointers) > 1 or function.name not in KEEPS:
            for name in pointers:
                caller.call(function, {name})
        if pointers:
            caller.call(function, set(pointers))
    print(f"{len(functions)} functions")


if __name__ == "__main__":
    main()
