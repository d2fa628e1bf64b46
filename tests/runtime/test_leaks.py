"""Every path across the boundary, very often, at constant memory.

Each path runs a million times while the memory of the process is watched, and some thousand times
more while every block is counted. An ordinary run gives each path a third of a second, in which
few get through their million; `pytest tests/runtime/test_leaks.py --whole-million` lets all of
them finish, which takes a while.
"""

import ctypes
import gc
import itertools
import math
import os
import sys
import threading
import time
import weakref
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
Paths = dict[str, Step]

STATM = Path("/proc/self/statm")
PAGE = os.sysconf("SC_PAGESIZE")
LIBC = ctypes.CDLL(None)
SLACK = 3 << 20  # the allocators' own arenas come in steps of one megabyte

MILLION = 1_000_000
SECONDS = 0.3  # for each path, in an ordinary run
ROUNDS = 12  # in which a path has to grow each time before it counts as leaking


class Mine(Exception):
    """An exception of the user's own."""


def resident() -> int:
    """The memory of the process that no file stands behind, in bytes."""
    pages, of_files = map(int, STATM.read_text().split()[1:3])
    return (pages - of_files) * PAGE


def repeat(step: Step, times: int, seconds: float = math.inf) -> None:
    """Run a path that many times, or for so long."""
    end = time.monotonic() + seconds
    for done in range(0, times, 100):
        for _ in itertools.repeat(None, min(100, times - done)):
            step()
        if time.monotonic() > end:
            return


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
    }
    paths: Paths = {}
    for name, value in kinds.items():
        paths[f"{name} to C"] = partial(in_c, value)
        paths[f"{name} to Python"] = partial(in_python, value)
        paths[f"{name} to Python by C"] = partial(call, in_python, value)
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
        "callback": lambda: call(lambda: 1),
        "closure": lambda: adder(1)(2),
        "closure in C": lambda: library["compose"](len, len),
        "call a closure in C": lambda: library["compose"](abs, len)([1]),
        "keep": lambda: library["keep"](lambda: 1),
        "many arguments": lambda: pack(*many),
        "many arguments back": lambda: call(lambda *args: None, *many),
        "register and remove": register,
        "override": override,
        "list names": sterna.list_global_func_names,
        "repr": lambda: repr(adder),
        "threads of C": lambda: library["in_threads"](2, 2, lambda: "a longer text"),
        "pool": lambda: library["in_parallel"](lambda task, tasks: None, 4),
    }


def _errors(library: sterna.Module) -> Paths:
    """Failures in both directions."""
    thing = object()

    def odd() -> None:
        raise Mine("\ud800")

    return {
        "error in C": _catching(library["fail"], "ValueError", "text"),
        "error of an unknown kind": _catching(library["fail"], "NoSuch", "text"),
        "error in Python": _catching(PackedFunc(_raise)),
        "error in a callback": _catching(library["call"], _raise),
        "error wrapped in C": _catching(library["wrap"], _raise),
        "error swallowed by C": lambda: library["swallow"](_raise),
        "error without text": _catching(library["call"], odd),
        "silent error": _catching(library["fail_silently"]),
        "chain of errors": _catching(library["fail_often"], 10),
        "bad argument": _catching(library["pack"], thing, [thing, "\ud800"]),
        "bad result": _catching(PackedFunc(lambda: [thing, 2**80])),
        "bad text from C": _catching(library["make"], "bad long text"),
        "keyword": _catching(lambda: library["echo"](**{"a": 1})),
        "missing function": _catching(library.get_function, "missing"),
        "name taken": _catching(sterna.register_func, "test.leak", len),
        "error in a thread of C": _catching(library["in_threads"], 2, 1, _raise),
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
        "empty": lambda: nd.empty((100,)),
        "array": lambda: nd.array(values),
        "numpy": array.numpy,
        "copyfrom": lambda: array.copyfrom(values),
        "copyto": lambda: array.copyto(array.device),
        "assignment": lambda: array.__setitem__(slice(None), 1),
        "reshape": lambda: array.reshape((2, 3)),
        "properties": lambda: (array.shape, array.strides, array.dtype, array.device),
        "repr": lambda: repr(array),
        "made in C": lambda: library["new_array"](4),
        "bad shape": _catching(nd.empty, (3, -1)),
        "no memory": _catching(nd.empty, (2**50,)),
        "bad copy": _catching(array.copyfrom, [1]),
        "lent": lambda: library["lend"](lambda lent: 1, 4),
        "lent and kept": lambda: library["lend"](keep, 4),
        "lent and returned": lambda: library["lend"](lambda lent: lent, 4),
        "lent and shared": lambda: library["lend"](look, 4),
        "lent and shared too long": _catching(library["lend"], share, 4),
        "lent, with an error": _catching(library["lend"], lambda lent: 1 / 0, 4),
        "numpy in": lambda: nd.from_dlpack(values),
        "read-only numpy in": lambda: nd.from_dlpack(read_only),
        "numpy out": lambda: np.from_dlpack(array),
        "numpy with gaps": _catching(nd.from_dlpack, values[::2]),
        "unused capsule": array.__dlpack__,
        "unused versioned capsule": lambda: array.__dlpack__(max_version=(1, 0)),
        "copy": lambda: array.__dlpack__(copy=True),
        "used capsule": lambda: nd.from_dlpack(array.__dlpack__()),
        "no exporter": _catching(nd.from_dlpack, 3),
        "wrong device": _catching(lambda: array.__dlpack__(dl_device=(2, 0))),
    }


def _modules(library: sterna.Module, path: Path) -> Paths:
    """Modules and their functions."""
    other = sterna.runtime.system_lib("leak")

    def imports() -> None:
        other.import_module(library)
        assert len(other.imported_modules) == 1
        other.clear_imports()

    return {
        "load": lambda: load_module(path),
        "function by name": lambda: library["echo"],
        "call by name": lambda: library["echo"](1),
        "imports": imports,
        "system library": lambda: sterna.runtime.system_lib("prefix"),
        "missing file": _catching(load_module, "/no/such/file.so"),
        "no library": _catching(load_module, __file__),
        "extension": _catching(sterna.runtime.load_extension, path, "init_fails"),
    }


def _torch(library: sterna.Module, torch: Any) -> Paths:
    """PyTorch's tensors in and out."""
    tensor, array = torch.zeros(4), nd.array(np.zeros(4, "float32"))
    gaps = torch.zeros(4, 4).t()
    return {
        "torch in": lambda: nd.from_dlpack(tensor),
        "torch to C": lambda: library["add_one"](tensor),
        "torch to C and back": lambda: library["echo"](tensor),
        "torch out": lambda: torch.from_dlpack(array),
        "torch with gaps": _catching(nd.from_dlpack, gaps),
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


def lost(
    step: Step,
    times: int,
    measure: Callable[[], int],
    allowed: int,
    seconds: float = math.inf,
) -> int:
    """The bytes by which a path grows what is measured; 0 when they are few.

    Tables and arenas also grow now and then, and so does what other threads of the process are
    busy with for some seconds; a path that leaks does it every time.
    """
    more = 0
    for _ in range(ROUNDS):
        gc.collect()
        before = measure()
        repeat(step, times, seconds)
        gc.collect()
        more = measure() - before
        if more < allowed:
            return 0
    return more


def test_memory_stays_constant(paths: Paths, request: pytest.FixtureRequest) -> None:
    seconds = math.inf if request.config.getoption("--whole-million") else SECONDS
    grown: dict[str, int] = {}
    for name, step in paths.items():
        repeat(step, MILLION // 10, SECONDS / 10)
        grown[name] = lost(step, MILLION, resident, SLACK, seconds)
    assert not {name: more for name, more in grown.items() if more}


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]


def in_use() -> int:
    """The bytes that malloc has given out, and pymalloc's blocks at eight bytes each."""
    mallinfo = LIBC.mallinfo2
    mallinfo.restype = _Mallinfo
    facts = mallinfo()
    return int(facts.uordblks + facts.hblkhd) + 8 * sys.getallocatedblocks()


def test_every_block_is_freed(paths: Paths) -> None:
    require(None if hasattr(LIBC, "mallinfo2") else "this libc does not count blocks")
    grown: dict[str, int] = {}
    for name, step in paths.items():
        repeat(step, 200)
        grown[name] = lost(step, 2000, in_use, 8000)
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
    assert lost(lambda: kept.append(bytes(1000)), 10_000, resident, SLACK) > SLACK


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
    ]
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


class _Marker:
    """Something whose end can be seen."""


def _refers_to_itself(register: bool) -> weakref.ref[_Marker]:
    marker = _Marker()
    holder: list[object] = [marker]

    def call_again(depth: int) -> object:
        return holder[1](depth - 1) if depth else len(holder)  # type: ignore[operator]

    function = PackedFunc(call_again)
    holder.append(function)
    if register:
        sterna.register_func("test.refers_to_itself", function)
    assert function(3) == 2
    return weakref.ref(marker)


def test_functions_that_refer_to_themselves_are_collected() -> None:
    seen = _refers_to_itself(register=False)
    assert seen() is not None
    gc.collect()
    assert seen() is None


def test_functions_that_others_hold_are_not_collected() -> None:
    seen = _refers_to_itself(register=True)
    gc.collect()
    assert seen() is not None
    assert sterna.get_global_func("test.refers_to_itself")(2) == 2
    sterna.runtime.remove_global_func("test.refers_to_itself")
    gc.collect()
    assert seen() is None


def test_collections_while_functions_travel_in_other_threads(library: sterna.Module) -> None:
    """A function that is being passed around must not be taken for garbage."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def pass_around() -> None:
        try:
            while not stop.is_set():
                cell: list[object] = []
                function = PackedFunc(lambda: len(cell))  # noqa: B023
                cell.append(function)
                assert library["call"](function) == 1
                assert library["echo"](function)() == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pass_around) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        gc.collect()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_finalizers_can_still_call_their_functions() -> None:
    said: list[str] = []

    class Caller:
        def __init__(self) -> None:
            self.function = PackedFunc(lambda: self)

        def __del__(self) -> None:
            said.append(str(self.function() is self))

    Caller()
    gc.collect()
    assert said == ["True"]
