"""Modules that import others, in memory and in files."""

import itertools
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.codegen.llvm import CompiledModule, LLVMCode, LLVMKernels
from sterna.driver import OperatorModule
from sterna.driver.bundle import Bundle, encode
from sterna.runtime import ModulePropertyMask
from tests.support import FOREIGN, require_module, require_program

SUFFIXES = [".so", ".tar", ".o", ".a"]

# Prints what each function of each module gives for 1.0, and the shape of the tree.
INSPECT = """
import json, sys
import numpy as np
import sterna as tvm
def call(function):
    out = np.zeros(4, "float32")
    function(np.ones(4, "float32"), out)
    assert (out == out[0]).all()
    return float(out[0])
def look(module):
    names = [n for n in ("f", "g", "h", "main") if module.implements_function(n)]
    return {"kind": module.type_key, **{n: call(module[n]) for n in names},
            "imports": [look(m) for m in module.imported_modules]}
module = tvm.runtime.load_module(sys.argv[1])
found = {n: call(module.get_function(n, query_imports=True)) for n in sys.argv[2].split(",")}
print(json.dumps([look(module), found]))
"""


def add(name: str, amount: float, target: str = "llvm") -> OperatorModule:
    """A module with one function that adds a number."""
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + amount, name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].parallel(y.op.axis[0])  # so that each has helpers and tasks of its own
    return tvm.build(schedule, [x, y], target=target, name=name)


def inspect(path: Path, names: str = "f") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(path), names],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(function: Any) -> float:
    out = np.zeros(4, "float32")
    function(np.ones(4, "float32"), out)
    return float(out[0])


def family(first: str = "llvm", second: str = "llvm", third: str = "llvm") -> OperatorModule:
    """f, which imports another f and g; g imports that other f too, and h."""
    host, other, last = add("f", 1, first), add("f", 10, second), add("g", 100, third)
    host.import_module(other)
    host.import_module(last)
    last.import_module(other)
    last.import_module(add("h", 1000, second))
    return host


FAMILY = {
    "kind": "library", "f": 2, "main": 2, "imports": [
        {"kind": "library", "f": 11, "main": 11, "imports": []},
        {"kind": "library", "g": 101, "main": 101, "imports": [
            {"kind": "library", "f": 11, "main": 11, "imports": []},
            {"kind": "library", "h": 1001, "main": 1001, "imports": []},
        ]},
    ],
}


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


@pytest.mark.parametrize(
    ("suffix", "targets"),
    [
        (".so", ("llvm",) * 3), (".so", ("c",) * 3), (".so", ("c", "llvm", "c")),
        (".o", ("llvm",) * 3), *((suffix, ("llvm", "c", "llvm")) for suffix in SUFFIXES),
    ],
)
def test_a_fresh_process_finds_every_module(
    suffix: str, targets: tuple[str, str, str], tmp_path: Path
) -> None:
    path = tmp_path / f"family{suffix}"
    family(*targets).export_library(path)
    assert list(tmp_path.iterdir()) == [path]
    assert inspect(path, "f,g,h") == [FAMILY, {"f": 2, "g": 101, "h": 1001}]


def test_c_code_of_all_modules_is_one_source(tmp_path: Path) -> None:
    family("c", "c", "c").export_library(tmp_path / "family.c")
    assert inspect(tmp_path / "family.c", "f,g,h") == [FAMILY, {"f": 2, "g": 101, "h": 1001}]
    with pytest.raises(ValueError, match=r"mixed\.c': not all .* is C code"):
        family("c", "llvm", "c").export_library(tmp_path / "mixed.c")


def test_the_same_in_memory() -> None:
    host = family()
    assert [call(host["f"]), call(host.get_function("g", True))] == [2, 101]
    assert not host.implements_function("g") and host.implements_function("g", query_imports=True)
    other, last = host.imported_modules
    assert isinstance(other, OperatorModule) and other.name == "f"
    assert call(other["f"]) == 11 and [m.type_key for m in last.imported_modules] == ["llvm"] * 2
    assert last.imported_modules[0] == other
    assert "define" in other.get_source()
    host.clear_imports()
    assert host.imported_modules == []


def test_imports_stand_beside_processors_with_other_abilities(tmp_path: Path) -> None:
    triple = "x86_64-unknown-linux-gnu"
    host = add("f", 1, f"llvm -mtriple={triple} -mcpu=x86-64")
    host.import_module(add("f", 2, f"llvm -mtriple={triple} -mcpu=x86-64-v3"))
    host.export_library(tmp_path / "f.tar")
    with tarfile.open(tmp_path / "f.tar") as archive:
        assert archive.getnames() == ["lib.so", "lib0.o", "lib1.o"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_but_ziglang_is_needed(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    host = add("f", 1)
    host.import_module(add("f", 2, "c"))
    host.export_library(tmp_path / f"f{suffix}")
    tree, _ = inspect(tmp_path / f"f{suffix}")
    assert (tree["f"], tree["imports"][0]["f"]) == (2, 3)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".c"])
def test_the_same_input_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    targets = ("c",) * 3 if suffix == ".c" else ("llvm", "c", "llvm")
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        family(*targets).export_library(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_truncated_files_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"family{suffix}"
    family("llvm", "c", "llvm").export_library(path)
    content = path.read_bytes()
    for keep in (1, 40, len(content) // 3, len(content) // 2):
        cut = tmp_path / f"cut{keep}{suffix}"
        cut.write_bytes(content[:keep])
        with pytest.raises(ValueError, match=f"cut{keep}"):
            tvm.runtime.load_module(cut)


def test_files_for_another_machine_are_refused_by_name(tmp_path: Path) -> None:
    require_module("ziglang")
    target = f"llvm -mtriple={FOREIGN}"
    host = add("f", 1, target)
    host.import_module(add("f", 2, target))
    linker = f"{sys.executable} -m ziglang cc -target {FOREIGN}"
    for suffix in (".so", ".tar", ".o", ".a"):
        path = tmp_path / f"foreign{suffix}"
        host.export_library(path, cc=linker)
        with pytest.raises(ValueError, match=rf"foreign\{suffix}': it is built for"):
            tvm.runtime.load_module(path)


# ---- elsewhere ----

ELSEWHERE = """
import sys
import numpy as np
import tvm_ffi
def call(function):
    out = np.zeros(4, "float32")
    function(np.ones(4, "float32"), out)
    return float(out[0])
module = tvm_ffi.load_module(sys.argv[1])
assert call(module["f"]) == 2 and call(module["main"]) == 2
# Its modules share one namespace, in which the first of a name is found.
assert [call(module.get_function(n, query_imports=True)) for n in ("g", "h")] == [101, 1001]
assert len(module.imports) == 2 and len(module.imports[1].imports) == 2
assert "sterna" not in sys.modules
"""


@pytest.mark.parametrize("targets", [("llvm",) * 3, ("c", "llvm", "c")])
def test_tvm_ffi_loads_it(targets: tuple[str, str, str], tmp_path: Path) -> None:
    require_module("tvm_ffi")
    family(*targets).export_library(tmp_path / "family.so")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "family.so")],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr


# ---- what can be exported ----


def test_modules_say_what_can_be_done_with_them(tmp_path: Path) -> None:
    built = add("f", 1)
    assert built.type_key == "llvm" and add("f", 1, "c").type_key == "c"
    assert built.get_property_mask() == 6 and built.is_dso_exportable and built.is_runnable
    assert not built.is_binary_serializable and not built.is_device_module
    built.export_library(tmp_path / "f.so")
    loaded = tvm.runtime.load_module(tmp_path / "f.so")
    assert loaded.get_property_mask() == ModulePropertyMask.RUNNABLE and loaded.get_source() == ""
    built.import_module(loaded)
    assert built._collect_dso_modules() == [built]
    with pytest.raises(ValueError, match="imports one of kind 'library', which cannot be written"):
        built.export_library(tmp_path / "again.so")
    with pytest.raises(ValueError, match="the module is of kind 'library'"):
        loaded.export_library(tmp_path / "again.so")
    with pytest.raises(ValueError, match=r"again\.so.* kind 'library' has no source"):
        loaded.save(tmp_path / "again.so")
    assert not (tmp_path / "again.so").exists()
    assert call(built.get_function("f", True)) == 2


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no option 'compiler'; linking takes cc"):
        add("f", 1).export_library(tmp_path / "f.so", compiler="cc")


class Greeting:
    """The implementation of a module that is bytes in files."""

    kind = "greeting"

    def __init__(self, words: bytes) -> None:
        self.words = words

    def find(self, name: str) -> Any:
        return tvm.runtime.PackedFunc(lambda: self.words.decode()) if name == "greet" else None

    def to_bytes(self) -> bytes:
        return self.words


class GreetingModule(tvm.runtime.Module):
    """Says what it was told."""

    def get_property_mask(self) -> int:
        return ModulePropertyMask.BINARY_SERIALIZABLE | ModulePropertyMask.RUNNABLE


def greeting(words: bytes) -> GreetingModule:
    made: GreetingModule = tvm.runtime._core.make_module(GreetingModule, Greeting(words))
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_modules_of_other_kinds_travel_as_bytes(suffix: str, tmp_path: Path) -> None:
    host = add("f", 1)
    host.import_module(greeting(b"hello"))
    path = tmp_path / f"host{suffix}"
    host.export_library(path)
    with pytest.raises(ValueError, match=rf"host\{suffix}.* of kind 'greeting'"):
        tvm.runtime.load_module(path)
    tvm.register_func("ffi.Module.load_from_bytes.greeting", greeting)
    try:
        loaded = tvm.runtime.load_module(path)
        assert loaded.get_function("greet", True)() == "hello" and call(loaded["f"]) == 2
        assert isinstance(loaded.imported_modules[0], GreetingModule)
        first = greeting(b"I come first")
        first.import_module(host)
        first.export_library(tmp_path / f"first{suffix}")
        loaded = tvm.runtime.load_module(tmp_path / f"first{suffix}")
        assert loaded["greet"]() == "I come first"
        assert call(loaded.get_function("f", True)) == 2
        assert loaded.imported_modules[0].imported_modules[0]["greet"]() == "hello"
    finally:
        tvm.runtime.remove_global_func("ffi.Module.load_from_bytes.greeting")
    with pytest.raises(ValueError, match="without code beside it is no library"):
        greeting(b"alone").export_library(tmp_path / f"alone{suffix}")


def test_the_table_is_laid_out_as_others_read_it() -> None:
    """Numbers of eight bytes: the length, who imports whom, the kinds; then names of our own."""
    host, other = add("f", 1), add("f", 2)
    table = encode(Bundle([host, other], [[1], []]), {1: {"f": "__tvm_ffi_f__1"}})
    numbers = [len(table) - 8, 3, 0, 1, 1, 1, 1]
    start = b"".join(n.to_bytes(8, "little") for n in numbers)
    lib = (4).to_bytes(8, "little") + b"_lib"
    assert table.startswith(start + lib + lib)
    names = [(n).to_bytes(8, "little") for n in (1, 1, 1, 1)]
    tail = b"".join(names) + b"f" + (14).to_bytes(8, "little") + b"__tvm_ffi_f__1"
    assert table == start + lib + lib + tail


def test_symbols_never_meet(tmp_path: Path) -> None:
    """Functions whose names look like the symbols that others are given."""
    host = add("f", 1)
    for number, name in enumerate(["f", "f__1", "f__1__2", "f"]):
        host.import_module(add(name, 10 * (number + 1)))
    host.export_library(tmp_path / "f.so")
    loaded = tvm.runtime.load_module(tmp_path / "f.so")
    found = [call(module["main"]) for module in loaded.imported_modules]
    assert found == [11, 21, 31, 41]


def kernels(name: str, amount: float) -> OperatorModule:
    """A module whose code comes as finished objects."""
    built = add(name, amount)
    code = built.code
    assert isinstance(code, LLVMCode)
    functions = [function for function in code.functions if function.name != "main"]
    content = CompiledModule(functions, code.options, name).object_bytes()
    finished = LLVMKernels({name: content}, code.source, code.options, True)
    return OperatorModule.make(finished, name, built.ir_module_by_target)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_finished_code_keeps_its_symbols(suffix: str, tmp_path: Path) -> None:
    first, path = greeting(b"first"), tmp_path / f"k{suffix}"
    first.import_module(kernels("k", 5))
    for number in range(2):
        first.import_module(add("k", number))
    tvm.register_func("ffi.Module.load_from_bytes.greeting", greeting, override=True)
    try:
        first.export_library(path)
        loaded = tvm.runtime.load_module(path)
        assert [call(module["k"]) for module in loaded.imported_modules] == [6, 1, 2]
    finally:
        tvm.runtime.remove_global_func("ffi.Module.load_from_bytes.greeting")
    first.import_module(kernels("k", 6))
    with pytest.raises(ValueError, match="function 'k', and the code of one is finished"):
        first.export_library(path)


def test_random_trees_come_back(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    modules = [add(f"f{i % 3}", i) for i in range(8)]
    for i, j in itertools.combinations(range(8), 2):
        if numbers.random() < 0.4:
            modules[i].import_module(modules[j])

    def look(module: tvm.runtime.Module) -> Any:
        return [call(module["main"]), [look(m) for m in module.imported_modules]]

    modules[0].export_library(tmp_path / "tree.so")
    assert look(tvm.runtime.load_module(tmp_path / "tree.so")) == look(modules[0])


# ---- calls by name ----


def caller(target: str) -> OperatorModule:
    """f, which does what the function named helper does."""
    x = te.placeholder((4,), name="x")
    y = te.extern(
        (4,), [x], lambda ins, outs: tvm.tir.call_packed("helper", ins[0], outs[0]), name="y",
        dtype="float32",
    )
    return tvm.build(te.create_schedule(y.op), [x, y], target=target, name="f")


def callers(first: str, second: str) -> OperatorModule:
    """A module that calls the helper it imports, and imports another that does the same."""
    outer, inner = caller(first), caller(second)
    outer.import_module(add("helper", 1, first))
    outer.import_module(inner)
    inner.import_module(add("helper", 10, second))
    return outer


@pytest.fixture
def registered_helper() -> Iterator[None]:
    """A function of that name for those who have none of their own."""

    def helper(x: Any, y: Any) -> None:
        y.copyfrom(x.numpy() + 100)

    tvm.register_func("helper", helper)
    yield
    tvm.runtime.remove_global_func("helper")


@pytest.mark.parametrize(
    ("suffix", "targets"),
    [
        *itertools.product(["", ".so"], [("llvm", "llvm"), ("c", "c"), ("llvm", "c")]),
        (".o", ("llvm", "llvm")), (".a", ("llvm", "c")),
    ],
)
def test_each_module_calls_what_it_imports_itself(
    suffix: str, targets: tuple[str, str], tmp_path: Path, registered_helper: None
) -> None:
    module: tvm.runtime.Module = callers(*targets)
    if suffix:
        module.export_library(tmp_path / f"callers{suffix}")
        module = tvm.runtime.load_module(tmp_path / f"callers{suffix}")
    inner = module.imported_modules[1]
    assert [call(module["f"]), call(inner["f"])] == [2, 11]
    alone = caller(targets[0])
    assert call(alone["f"]) == 101


# ---- broken tables ----


@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_broken_tables_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"family{suffix}"
    family().export_library(path)
    content = bytearray(path.read_bytes())
    start = content.find(b"\4" + bytes(7) + b"_lib" + b"\4" + bytes(7) + b"_lib")
    assert start > 0
    start = content.rindex(b"\5" + bytes(7), 0, start) - 8  # the number of modules, and one more
    numbers = np.random.default_rng(0)
    for turn in range(60):
        at = start + int(numbers.integers(0, 160))
        changed = bytearray(content)
        changed[at] = int(numbers.integers(0, 256))
        broken = tmp_path / f"broken{turn}{suffix}"
        broken.write_bytes(changed)
        try:
            tvm.runtime.load_module(broken)
        except ValueError as error:
            assert f"broken{turn}{suffix}" in str(error)
