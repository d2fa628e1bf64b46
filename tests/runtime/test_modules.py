"""Modules: loading libraries, finding functions, imports, extensions, the program's own symbols."""

import ctypes
import gc
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sterna
from sterna.contrib import cc
from sterna.runtime import PackedFunc, load_extension, load_module, system_lib
from sterna.support import native, seal
from sterna.testing import require
from tests.support import require_program

Build = Callable[[str, str], Path]

ANSWER = """
#include "sterna.h"
STERNA_FUNCTION(answer) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(%d);
  return 0;
}
"""

MAIN = """
#include "sterna.h"
STERNA_FUNCTION(main) {
  (void)self, (void)args;
  *ret = sterna_any_int(n);
  return 0;
}
"""

# Finds `helper` among its imports, else in the registry.
LOOKUP = """
#include "sterna.h"
STERNA_EXPORT void *__tvm_ffi__library_ctx;
void *__tvm_ffi__library_ctx;
STERNA_FUNCTION(use_helper) {
  sterna_function *f;
  (void)self;
  if (sterna_module_lookup(__tvm_ffi__library_ctx, "helper", &f)) return -1;
  return sterna_function_call(f, args, n, ret);
}
"""

HELPER = """
#include "sterna.h"
STERNA_FUNCTION(helper) {
  (void)self, (void)args;
  *ret = sterna_any_int(1000 + n);
  return 0;
}
"""


# ---- functions by name ----


def test_functions_by_name(library: sterna.Module) -> None:
    assert library["echo"](5) == library.get_function("echo")(5) == 5
    assert isinstance(library["echo"], PackedFunc)
    assert library.implements_function("echo") and not library.implements_function("ech")
    assert library.kind == library.type_key == "library"
    assert repr(library).startswith("Module(library, ")


@pytest.mark.parametrize("name", ["f", "no_such", "", "x" * 10_000, "echo ", "naïve"])
def test_a_missing_function(library: sterna.Module, name: str) -> None:
    for look in (library.get_function, library.__getitem__):
        with pytest.raises(AttributeError) as caught:
            look(name)
        assert str(caught.value) == f"Module has no function '{name}'"
    assert library._get_function(name, True) is None


def test_odd_names_are_refused(library: sterna.Module) -> None:
    for name in (0, None, b"echo", slice(None)):
        with pytest.raises(TypeError):
            library[name]  # type: ignore[index]
        with pytest.raises(TypeError):
            library.get_function(name)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null"):
        library["ec\0ho"]
    with pytest.raises(UnicodeEncodeError):
        library["\ud800"]


def test_the_entry_function(build: Build, library: sterna.Module) -> None:
    module = load_module(build("entry", MAIN))
    assert module(1, 2, 3) == 3 and module.entry_func() == 0
    with pytest.raises(TypeError):
        module(a=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="Module has no function 'main'"):
        library()


def test_a_function_keeps_its_module_alive(build: Build) -> None:
    require(None if Path("/proc/self/maps").exists() else "no system that lists its libraries")
    text = ANSWER % 7 + "STERNA_EXPORT int __sterna__closeable;\nint __sterna__closeable;\n"
    path = build("short_lived", text)
    module = load_module(path)
    function = module["answer"]
    del module
    gc.collect()
    assert function() == 7 and "short_lived" in Path("/proc/self/maps").read_text()
    del function
    assert "short_lived" not in Path("/proc/self/maps").read_text()
    assert load_module(path)["answer"]() == 7


def test_modules_as_objects(library: sterna.Module, library_path: Path) -> None:
    again = load_module(library_path)
    assert again is not library and again == library and again.same_as(library)
    assert hash(again) == hash(library) and again.type_index == 73
    with pytest.raises(TypeError, match="cannot pickle 'Module' object"):
        pickle.dumps(library)
    assert {library: 1}[again] == 1


# ---- imports ----


def test_imports_are_asked_on_demand(build: Build) -> None:
    outer = load_module(build("outer", ANSWER % 1))
    inner = load_module(build("inner", HELPER))
    assert outer.imported_modules == []
    with pytest.raises(TypeError, match="expected a Module, got int"):
        outer.import_module(5)  # type: ignore[arg-type]
    outer.import_module(inner)
    assert outer.imported_modules == [inner]
    with pytest.raises(AttributeError):
        outer["helper"]
    assert outer.get_function("helper", query_imports=True)(1, 2) == 1002
    assert outer.implements_function("helper", query_imports=True)
    deep = load_module(build("deep", ANSWER % 3))
    deep.import_module(outer)
    assert deep.get_function("helper", True)() == 1000
    outer.clear_imports()
    assert outer.imported_modules == [] and not deep.implements_function("helper", True)


def test_imports_form_no_circle(build: Build) -> None:
    one, two = load_module(build("one", ANSWER % 1)), load_module(build("two", ANSWER % 2))
    one.import_module(two)
    for module, imported in ((one, one), (two, one)):
        with pytest.raises(ValueError, match="cannot import itself"):
            module.import_module(imported)
    one.clear_imports()


def test_compiled_code_finds_imports_and_globals(build: Build, registry: None) -> None:
    user = load_module(build("user", LOOKUP))
    with pytest.raises(ValueError, match="no function 'helper'"):
        user["use_helper"]()
    user.import_module(load_module(build("lends", HELPER)))
    assert user["use_helper"](1) == 1001
    other = load_module(build("other_user", LOOKUP))
    sterna.register_func("helper", lambda *args: -len(args))
    assert other["use_helper"](1, 2) == -2


# ---- files ----


def test_the_same_path_is_loaded_once(build: Build) -> None:
    path = build("once", ANSWER % 5)
    first, second = load_module(path), load_module(str(path))
    assert first.same_as(second)
    os.symlink(path, path.with_name("link.so"))
    assert load_module(path.with_name("link.so")).same_as(first)
    copy = path.with_name("copy.so")
    shutil.copy(path, copy)
    assert not load_module(copy).same_as(first)


def test_paths_of_every_form(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build("naïve name ✓", ANSWER % 6)
    monkeypatch.chdir(path.parent)
    for form in (path, str(path), f"./{path.name}", path.name, Path(path.name)):
        assert load_module(form)["answer"]() == 6
    for bad in (5, None, ["x"]):
        with pytest.raises(TypeError):
            load_module(bad)  # type: ignore[arg-type]
    for load in (load_module, load_extension):
        with pytest.raises(ValueError):
            load("a\0b.so")


def test_a_replaced_file_is_loaded_anew(build: Build) -> None:
    modules = []
    for number in range(5):
        path = build("replaced", ANSWER % number)
        os.utime(path, (number, number))
        modules.append(load_module(path))
        assert modules[-1]["answer"]() == number
    assert [module["answer"]() for module in modules] == [0, 1, 2, 3, 4]


def test_a_file_overwritten_in_place_is_loaded_anew(build: Build, tmp_path: Path) -> None:
    """As a copying tool does it, after the first module is gone."""
    first, second = build("first", ANSWER % 1), build("second", ANSWER % 2)
    path = tmp_path / "place.so"
    shutil.copy(first, path)
    assert load_module(path)["answer"]() == 1
    path.unlink()
    shutil.copy(second, path)
    assert load_module(path)["answer"]() == 2


def test_files_that_are_no_libraries_are_refused(build: Build, tmp_path: Path) -> None:
    good = build("good", ANSWER % 1).read_bytes()[: -seal.SIZE]
    foreign = bytearray(good)
    foreign[18:20] = b"\xb7\x00" if good[18] != 0xB7 else b"\x3e\x00"
    files = {
        "empty.so": (b"", "empty"),
        "text.so": (b"int main(void) { return 0; }\n" * 20, "no ELF file"),
        "short.so": (b"\x7fEL", "truncated"),
        "header.so": (good[:40], "truncated"),
        "half.so": (good[: len(good) // 2], "truncated"),
        "almost.so": (good[:-17], "truncated"),
        "foreign.so": (bytes(foreign), "built for"),
        "zeros.so": (bytes(10_000), "no ELF file"),
    }
    for name, (content, reason) in files.items():
        (tmp_path / name).write_bytes(content)
        for load in (load_module, load_extension):
            with pytest.raises(ValueError, match=reason) as caught:
                load(tmp_path / name)
            assert str(tmp_path / name) in str(caught.value)
    for path, reason in ((tmp_path, "not a file"), (tmp_path / "missing.so", "[Nn]o such file")):
        with pytest.raises(ValueError, match=reason) as caught:
            load_module(path)
        assert str(path) in str(caught.value)


def test_object_files_and_unreadable_files_are_refused(build: Build, tmp_path: Path) -> None:
    build("source", ANSWER % 1)
    compiler = require_program("gcc")
    subprocess.run(
        [compiler, "-c", "source.c", "-o", "object.so", f"-I{native.include_folder()}"],
        cwd=tmp_path, check=True,
    )
    with pytest.raises(ValueError, match="object file"):
        load_module(tmp_path / "object.so")
    with pytest.raises(ValueError, match=r"cannot load '/proc/self/mem'|not a shared"):
        load_module("/proc/self/mem")


def test_missing_symbols_are_named(build: Build) -> None:
    text = "int absent_function(void);\n" + MAIN.replace("int(n)", "int(absent_function())")
    path = build("unresolved", text)
    try:
        module = load_module(path)
    except ValueError as error:
        assert "absent_function" in str(error)
    else:
        assert module.implements_function("main")  # bound when it is first called


def test_file_names_that_are_not_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot load"):
        load_module(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.so"))


# ---- extensions ----


def test_extensions(library_path: Path, registry: None) -> None:
    load_extension(library_path)
    load_extension(library_path, init=None)
    load_extension(library_path, init="init_works")
    assert sterna.get_global_func("test.from_init")(1, 2, 3) == 3
    with pytest.raises(ValueError, match=r"'test\.from_init' is already registered"):
        load_extension(library_path, init="init_works")
    with pytest.raises(LookupError, match="init says no"):
        load_extension(library_path, init="init_fails")
    with pytest.raises(RuntimeError, match=r"'init_returns_3' of .*helpers\.so' returned 3"):
        load_extension(library_path, init="init_returns_3")
    with pytest.raises(ValueError, match="exports no function 'init_missing'"):
        load_extension(library_path, init="init_missing")
    with pytest.raises(TypeError):
        load_extension(library_path, init=5)  # type: ignore[arg-type]


def test_an_extension_that_calls_python_while_it_loads(build: Build, registry: None) -> None:
    seen: list[int] = []
    sterna.register_func("test.loading", seen.append)
    path = build("eager", """
        #include "sterna.h"
        __attribute__((constructor)) static void loaded(void) {
          sterna_function *f;
          sterna_any arg = sterna_any_int(42), ret = sterna_any_none();
          sterna_get_global("test.loading", &f);
          sterna_function_call(f, &arg, 1, &ret);
          sterna_release(f);
        }
        """)
    load_extension(path)
    assert seen == [42]


# ---- the program's own symbols ----


def test_functions_linked_into_the_program(library_path: Path, library: sterna.Module) -> None:
    runtime = ctypes.CDLL("libsterna.so", mode=os.RTLD_NOLOAD)  # the one that is loaded
    helpers = ctypes.CDLL(str(library_path))
    for symbol, function in (("__tvm_ffi_test_echo", "echo"), ("__tvm_ffi_linked_sum", "sum")):
        address = ctypes.cast(getattr(helpers, f"__tvm_ffi_{function}"), ctypes.c_void_p)
        assert runtime.sterna_register_system_symbol(symbol.encode(), address) == 0
    module = system_lib()
    assert module.kind == "system" and module["test_echo"]("a longer text") == "a longer text"
    assert system_lib("linked_")["sum"](1, 2) == 3
    with pytest.raises(AttributeError, match="Module has no function 'echo'"):
        system_lib("linked_")["echo"]
    for prefix in (5, None):
        with pytest.raises(TypeError, match="text"):
            system_lib(prefix)  # type: ignore[arg-type]


# ---- what can be used here ----


def test_enabled() -> None:
    assert sterna.runtime.enabled("cpu")
    assert not sterna.runtime.enabled("metal") and sterna.runtime.enabled("rpc")
    with pytest.raises(ValueError, match=r"unknown kind 'cudaa'; did you mean .*cuda"):
        sterna.runtime.enabled("cudaa")


def test_version() -> None:
    assert sterna.runtime._core.version().count(".") == 2


# ---- the end of the process ----


@pytest.mark.parametrize("registered", [False, True])
def test_c_calls_python_after_its_end(library_path: Path, registered: bool) -> None:
    program = (
        "import sys, sterna\n"
        "f = sterna.runtime.PackedFunc(lambda: None)\n"
        f"if {registered}: sterna.register_func('at_end', f)\n"
        f"sterna.runtime.load_module({str(library_path)!r})['call_at_end'](f)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Python has ended", "")


# ---- create_shared, which the others need ----


def test_a_failed_compilation_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("this is no C")
    with pytest.raises(RuntimeError, match="Compilation error"):
        cc.create_shared(tmp_path / "bad.so", tmp_path / "bad.c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.c"]
