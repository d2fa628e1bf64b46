"""Every path across the boundary, very often, at constant memory.

Each path runs up to a million times while the memory of the process is watched, and some thousand
times more while every block is counted.
"""

import ctypes
import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import nd
from sterna.runtime import DataType, PackedFunc, load_module
from sterna.testing import require

Step = Callable[[], object]
Paths = dict[str, tuple[int, Step]]  # how often each runs, and what

STATM = Path("/proc/self/statm")
PAGE = os.sysconf("SC_PAGESIZE")
LIBC = ctypes.CDLL(None)
SLACK = 3 << 20  # the allocators' own arenas come in steps of one megabyte

MILLION, MANY, SOME, FEW = 1_000_000, 100_000, 50_000, 10_000


class Mine(Exception):
    """An exception of the user's own."""


def resident() -> int:
    """The memory of the process, in bytes."""
    return int(STATM.read_text().split()[1]) * PAGE


def repeat(step: Step, times: int) -> None:
    """Run a path that many times."""
    for _ in itertools.repeat(None, times):
        step()


@pytest.fixture(autouse=True)
def _quick_collections() -> Iterator[None]:
    """Keeps the collector away from what other tests and libraries have made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _raise() -> None:
    raise Mine("text")


def _catching(function: Callable[..., Any], *args: Any) -> Step:
    def step() -> None:
        try:
            function(*args)
        except BaseException:
            return
        raise AssertionError("nothing was raised")

    return step


def _calls(library: sterna.Module) -> Paths:
    """Calls with arguments and results of each kind."""
    in_c, in_python, call = library["echo"], PackedFunc(lambda value: value), library["call"]
    array, device, dtype, thing = nd.array([1.0]), sterna.cpu(), DataType("int8"), object()
    values = np.arange(3.0)
    kinds: dict[str, Any] = {
        "none": None, "int": 5, "large int": 2**62, "bool": True, "float": 1.5, "short text": "abc",
        "text": "a longer text", "text with zeros": "a longer\0text", "short bytes": b"abc",
        "bytes": b"longer bytes", "bytearray": bytearray(b"longer bytes"), "device": device,
        "dtype": dtype, "array": array, "function": in_c, "callable": len, "module": library,
        "object": thing, "pointer": ctypes.c_void_p(8), "numpy scalar": np.int32(3),
        "list": [1, "a longer text", [thing, array]], "numpy array": values,
    }  # fmt: skip
    paths: Paths = {}
    for name, value in kinds.items():
        # NumPy's own export and the way through a list take a while.
        times = MANY if name in ("list", "numpy array", "pointer", "numpy scalar") else MILLION
        paths[f"{name} to C"] = times, partial(in_c, value)
        paths[f"{name} to Python"] = times // 4, partial(in_python, value)
        paths[f"{name} to Python by C"] = times // 8, partial(call, in_python, value)
    return paths


def _functions(library: sterna.Module) -> Paths:
    """Callbacks, closures, the registry, many arguments."""
    call, adder = library["call"], PackedFunc(lambda number: lambda value: value + number)
    many, pack = list(range(40)), library["pack"]

    def register() -> None:
        sterna.register_func("test.leak", len)
        sterna.get_global_func("test.leak")
        sterna.remove_global_func("test.leak")

    def override() -> None:
        sterna.register_func("test.leak", lambda: 1, override=True)

    return {
        "callback": (MILLION, lambda: call(lambda: 1)),
        "closure": (MANY, lambda: adder(1)(2)),
        "closure in C": (MANY, lambda: library["compose"](len, len)),
        "call a closure in C": (MANY, lambda: library["compose"](abs, len)([1])),
        "keep": (MANY, lambda: library["keep"](lambda: 1)),
        "many arguments": (SOME, lambda: pack(*many)),
        "many arguments back": (SOME, lambda: call(lambda *args: None, *many)),
        "register and remove": (MANY, register),
        "override": (MANY, override),
        "list names": (FEW, sterna.list_global_func_names),
        "repr": (MANY, lambda: repr(adder)),
        "threads of C": (FEW // 5, lambda: library["in_threads"](2, 2, lambda: "a longer text")),
        "pool": (FEW, lambda: library["in_parallel"](lambda task, tasks: None, 4)),
    }


def _errors(library: sterna.Module) -> Paths:
    """Failures in both directions."""
    thing = object()

    def odd() -> None:
        raise Mine("\ud800")

    return {
        "error in C": (SOME, _catching(library["fail"], "ValueError", "text")),
        "error of an unknown kind": (SOME, _catching(library["fail"], "NoSuch", "text")),
        "error in Python": (MANY, _catching(PackedFunc(_raise))),
        "error in a callback": (MANY, _catching(library["call"], _raise)),
        "error wrapped in C": (SOME, _catching(library["wrap"], _raise)),
        "error swallowed by C": (MANY, lambda: library["swallow"](_raise)),
        "error without text": (SOME, _catching(library["call"], odd)),
        "silent error": (SOME, _catching(library["fail_silently"])),
        "chain of errors": (FEW, _catching(library["fail_often"], 10)),
        "bad argument": (MANY, _catching(library["pack"], thing, [thing, "\ud800"])),
        "bad result": (MANY, _catching(PackedFunc(lambda: [thing, 2**80]))),
        "bad text from C": (SOME, _catching(library["make"], "bad long text")),
        "keyword": (MANY, _catching(lambda: library["echo"](**{"a": 1}))),
        "missing function": (SOME, _catching(library.get_function, "missing")),
        "name taken": (FEW, _catching(sterna.register_func, "test.leak", len)),
        "error in a thread of C": (FEW // 5, _catching(library["in_threads"], 2, 1, _raise)),
    }


def _arrays(library: sterna.Module) -> Paths:
    """Arrays: new ones, copies, views, loans."""
    array, values = nd.array(np.arange(6.0)), np.arange(6.0)
    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    kept: list[Any] = [None]

    def keep(lent: sterna.NDArray) -> None:
        kept[0] = lent.reshape((2, 2))

    def look(lent: sterna.NDArray) -> float:
        return float(np.from_dlpack(lent).sum())

    def share(lent: sterna.NDArray) -> None:
        kept[0] = np.from_dlpack(lent)

    return {
        "empty": (MANY, lambda: nd.empty((100,))),
        "array": (MANY, lambda: nd.array(values)),
        "numpy": (MANY, array.numpy),
        "copyfrom": (MANY, lambda: array.copyfrom(values)),
        "copyto": (MANY, lambda: array.copyto(array.device)),
        "assignment": (SOME, lambda: array.__setitem__(slice(None), 1)),
        "reshape": (MANY, lambda: array.reshape((2, 3))),
        "properties": (MANY, lambda: (array.shape, array.strides, array.dtype, array.device)),
        "repr": (FEW // 5, lambda: repr(array)),
        "made in C": (MANY, lambda: library["new_array"](4)),
        "bad shape": (SOME, _catching(nd.empty, (3, -1))),
        "no memory": (FEW, _catching(nd.empty, (2**50,))),
        "bad copy": (SOME, _catching(array.copyfrom, [1])),
        "lent": (MANY, lambda: library["lend"](lambda lent: 1, 4)),
        "lent and kept": (MANY, lambda: library["lend"](keep, 4)),
        "lent and returned": (MANY, lambda: library["lend"](lambda lent: lent, 4)),
        "lent and shared": (SOME, lambda: library["lend"](look, 4)),
        "lent and shared too long": (SOME, _catching(library["lend"], share, 4)),
        "lent, with an error": (MANY, _catching(library["lend"], lambda lent: 1 / 0, 4)),
        "numpy in": (MANY, lambda: nd.from_dlpack(values)),
        "read-only numpy in": (MANY, lambda: nd.from_dlpack(read_only)),
        "numpy out": (MANY, lambda: np.from_dlpack(array)),
        "numpy with gaps": (SOME, _catching(nd.from_dlpack, values[::2])),
        "unused capsule": (MANY, array.__dlpack__),
        "unused versioned capsule": (MANY, lambda: array.__dlpack__(max_version=(1, 0))),
        "copy": (MANY, lambda: array.__dlpack__(copy=True)),
        "used capsule": (MANY, lambda: nd.from_dlpack(array.__dlpack__())),
        "no exporter": (SOME, _catching(nd.from_dlpack, 3)),
        "wrong device": (SOME, _catching(lambda: array.__dlpack__(dl_device=(2, 0)))),
    }


def _modules(library: sterna.Module, path: Path) -> Paths:
    """Modules and their functions."""
    other = sterna.runtime.system_lib("leak")

    def imports() -> None:
        other.import_module(library)
        assert len(other.imported_modules) == 1
        other.clear_imports()

    return {
        "load": (FEW, lambda: load_module(path)),
        "function by name": (MANY, lambda: library["echo"]),
        "call by name": (MANY, lambda: library["echo"](1)),
        "imports": (MANY, imports),
        "system library": (MANY, lambda: sterna.runtime.system_lib("prefix")),
        "missing file": (FEW, _catching(load_module, "/no/such/file.so")),
        "no library": (FEW, _catching(load_module, __file__)),
        "extension": (FEW, _catching(sterna.runtime.load_extension, path, "init_fails")),
    }


def _torch(library: sterna.Module, torch: Any) -> Paths:
    """PyTorch's tensors in and out."""
    tensor, array = torch.zeros(4), nd.array(np.zeros(4, "float32"))
    gaps = torch.zeros(4, 4).t()
    return {
        "torch in": (MANY, lambda: nd.from_dlpack(tensor)),
        "torch to C": (MILLION, lambda: library["add_one"](tensor)),
        "torch to C and back": (MANY, lambda: library["echo"](tensor)),
        "torch out": (MANY // 2, lambda: torch.from_dlpack(array)),
        "torch with gaps": (SOME, _catching(nd.from_dlpack, gaps)),
    }


GROUPS = ("calls", "functions", "errors", "arrays", "modules", "torch")


@pytest.fixture(params=GROUPS)
def paths(
    request: pytest.FixtureRequest, library: sterna.Module, library_path: Path, registry: None
) -> Paths:
    """The paths of one group."""
    require(None if STATM.exists() else "this system does not tell a process its memory")
    sterna.register_func("test.leak", len)
    if request.param != "errors":
        sterna.remove_global_func("test.leak")
    match request.param:
        case "calls":
            return _calls(library)
        case "functions":
            return _functions(library)
        case "errors":
            return _errors(library)
        case "arrays":
            return _arrays(library)
        case "modules":
            return _modules(library, library_path)
        case _:
            return _torch(library, request.getfixturevalue("torch"))


def lost(step: Step, times: int, measure: Callable[[], int], allowed: int) -> int:
    """The bytes by which a path grows what is measured; 0 when they are few.

    Tables and arenas also grow now and then, once; a path that leaks does it every time.
    """
    more = 0
    for _ in range(3):
        gc.collect()
        before = measure()
        repeat(step, times)
        gc.collect()
        more = measure() - before
        if more < allowed:
            return 0
    return more


def test_memory_stays_constant(paths: Paths) -> None:
    grown: dict[str, int] = {}
    for name, (times, step) in paths.items():
        repeat(step, times // 10)
        grown[name] = lost(step, times, resident, SLACK)
    assert not {name: more for name, more in grown.items() if more}


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use() -> int:
    """The bytes that malloc has given out, and pymalloc's blocks at eight bytes each."""
    mallinfo = LIBC.mallinfo2
    mallinfo.restype = _Mallinfo
    facts = mallinfo()
    return int(facts.uordblks + facts.hblkhd) + 8 * sys.getallocatedblocks()


def test_every_block_is_freed(paths: Paths) -> None:
    require(None if hasattr(LIBC, "mallinfo2") else "this libc does not count blocks")
    grown: dict[str, int] = {}
    for name, (times, step) in paths.items():
        repeat(step, 200)
        runs = min(times, 2000)
        grown[name] = lost(step, runs, in_use, 4 * runs)
    assert not {name: more for name, more in grown.items() if more}


def test_a_leak_would_be_seen(library: sterna.Module) -> None:
    kept: list[Any] = []
    leaks: list[Step] = [
        lambda: kept.append([]),
        lambda: kept.append(library["new_array"](4)),
        lambda: LIBC.malloc(16),
    ]
    if hasattr(LIBC, "mallinfo2"):
        assert all(lost(leak, 2000, in_use, 8000) > 8000 for leak in leaks)
    assert lost(lambda: kept.append(bytes(1000)), SOME, resident, SLACK) > SLACK


def test_references_to_arguments_are_exact(library: sterna.Module) -> None:
    """Not one reference more or less, however a call ends."""

    class Thing:
        def __call__(self) -> None:
            pass

    thing, values, text = object(), np.arange(3.0), "a longer text of our own" + str(os.getpid())
    data, callable_thing, number = bytes(range(100)), Thing(), 2**40 + os.getpid()
    array, items = nd.array([1.0]), [1, 2, "a longer text"]
    watched: list[Any] = [
        thing, values, text, data, callable_thing, number, array, items, library, library["echo"],
        sterna.cuda(5), None.__class__, Thing,
    ]  # fmt: skip
    steps: list[Step] = [
        lambda: library["echo"](items),
        lambda: library["pack"](*watched),
        lambda: PackedFunc(lambda *args: args)(*watched),
        lambda: library["call"](lambda *args: args, *watched),
        _catching(library["call"], lambda *args: 1 / 0, *watched),
        _catching(library["pack"], *watched, 2**80),
        _catching(library["pack"], watched, "\ud800"),
        _catching(library["read"], "int", watched),
        lambda: nd.from_dlpack(values),
        lambda: library["in_threads"](3, 3, lambda *args: args, *watched),
    ]
    for step in steps:
        step()  # what is remembered, such as types, is remembered now
    before = [sys.getrefcount(item) for item in watched]
    for step in steps:
        repeat(step, 10)
    gc.collect()
    assert [sys.getrefcount(item) for item in watched] == before


def test_nothing_is_left_for_the_garbage_collector(library: sterna.Module) -> None:
    """Calls, errors and callbacks make no cycles."""
    array = nd.array([1.0])
    steps: list[Step] = [
        lambda: library["echo"]([array, "text"]),
        lambda: library["call"](lambda value: [value], array),
        _catching(library["fail"], "ValueError", "text"),
        _catching(library["call"], _raise),
        _catching(library["wrap"], _raise),
        lambda: np.from_dlpack(array.reshape((1, 1))),
    ]
    gc.collect()
    gc.disable()
    try:
        for step in steps:
            repeat(step, 100)
        assert gc.collect() == 0
    finally:
        gc.enable()
