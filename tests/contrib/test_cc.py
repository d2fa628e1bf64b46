"""Compiling C and C++ against the runtime."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sterna as tvm
from sterna.contrib import cc, ndk
from sterna.support import cross, toolchain
from sterna.support.architecture import architecture_of
from tests.support import require_module, require_program

ANSWER_C = """
#include "sterna.h"
STERNA_FUNCTION(answer) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(42);
  return 0;
}
"""

ANSWER_CXX = """
#include "sterna.h"
#include <string>
STERNA_FUNCTION(answer) {
  (void)self, (void)args, (void)n;
  std::string text = "forty-two";
  return sterna_string(text.data(), text.size(), ret);
}
"""


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_c_source_becomes_a_module(tmp_path: Path) -> None:
    cc.create_shared(tmp_path / "m.so", [write(tmp_path, "m.c", ANSWER_C)])
    assert tvm.runtime.load_module(tmp_path / "m.so")["answer"]() == 42


def test_a_cxx_source_becomes_a_module(tmp_path: Path) -> None:
    require_program("c++")
    cc.create_shared(str(tmp_path / "m.so"), str(write(tmp_path, "m.cc", ANSWER_CXX)))
    assert tvm.runtime.load_module(tmp_path / "m.so")["answer"]() == "forty-two"


def test_ziglang_does_it_too(tmp_path: Path) -> None:
    require_module("ziglang")
    zig = f"{sys.executable} -m ziglang cc"
    cc.create_shared(tmp_path / "m.so", [write(tmp_path, "m.c", ANSWER_C)], cc=zig)
    assert tvm.runtime.load_module(tmp_path / "m.so")["answer"]() == 42


def test_ziglang_is_found_where_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_module("ziglang")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_c_compiler() == [sys.executable, "-m", "ziglang", "cc"]
    assert "ziglang" in str(cc.get_cc())


def test_no_compiler_at_all_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = write(tmp_path, "m.c", ANSWER_C)
    monkeypatch.setattr(toolchain, "find_c_compiler", lambda: None)
    with pytest.raises(RuntimeError, match="pip install ziglang"):
        cc.create_shared(tmp_path / "m.so", [source])


def test_cc_variable_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = write(tmp_path, "mycc", "#!/bin/sh\necho used; exit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(toolchain.CompileError, match=r"exit status 3(?s:.*)used"):
        cc.create_shared(tmp_path / "m.so", [write(tmp_path, "m.c", ANSWER_C)])


def test_options_and_cwd(tmp_path: Path) -> None:
    write(tmp_path, "m.c", ANSWER_C.replace("42", "VALUE"))
    cc.create_shared("m.so", "m.c", options=["-DVALUE=7"], cwd=tmp_path)
    assert tvm.runtime.load_module(tmp_path / "m.so")["answer"]() == 7


def test_a_failed_compilation_leaves_the_old_file_alone(tmp_path: Path) -> None:
    output = tmp_path / "m.so"
    cc.create_shared(output, write(tmp_path, "m.c", ANSWER_C))
    before = output.read_bytes()
    with pytest.raises(RuntimeError, match=r"Compilation error(?s:.*)broken\.c(?s:.*)Command line"):
        cc.create_shared(output, write(tmp_path, "broken.c", "int f( {"))
    assert output.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.c", "m.c", "m.so"]


def test_missing_inputs_and_compilers_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.c"):
        cc.create_shared(tmp_path / "m.so", tmp_path / "nothing.c")
    with pytest.raises(toolchain.MissingToolError, match="no-such-cc"):
        cc.create_shared(tmp_path / "m.so", write(tmp_path, "m.c", ANSWER_C), cc="no-such-cc")


def test_a_program_links_with_the_runtime(tmp_path: Path) -> None:
    source = write(
        tmp_path, "p.c", '#include "sterna.h"\n#include <stdio.h>\n'
        "int main(void) { puts(sterna_version()); return 0; }\n",
    )
    cc.create_executable(tmp_path / "p", source)
    done = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == tvm.__version__


def test_archives_are_joined(tmp_path: Path) -> None:
    for place, name in enumerate(("one", "two", "three")):
        folder = tmp_path / name
        folder.mkdir()
        source = write(folder, "m.c", f"int {name}(void) {{ return {place}; }}\n")
        toolchain.compile_object(folder / "m.o", source)
    cc.create_staticlib(tmp_path / "first.a", [tmp_path / "one" / "m.o", tmp_path / "two" / "m.o"])
    cc.create_staticlib(tmp_path / "all.a", [tmp_path / "first.a", tmp_path / "three" / "m.o"])
    require_program("nm")
    symbols = cc.get_global_symbol_section_map(tmp_path / "all.a")
    assert symbols == {"one": "T", "two": "T", "three": "T"}
    assert ndk.get_global_symbol_section_map(tmp_path / "all.a", nm="nm") == symbols
    ndk.create_staticlib(tmp_path / "ndk.a", [tmp_path / "first.a"])
    assert set(cc.get_global_symbol_section_map(tmp_path / "ndk.a")) == {"one", "two"}
    with pytest.raises(FileNotFoundError, match=r"nothing\.o"):
        cc.create_staticlib(tmp_path / "all.a", tmp_path / "nothing.o")
    with pytest.raises(FileNotFoundError, match=r"nothing\.so"):
        cc.get_global_symbol_section_map(tmp_path / "nothing.so")


def test_a_compiler_says_what_it_makes_code_for(tmp_path: Path) -> None:
    gcc = require_program("gcc")
    triple = cc.get_target_by_dump_machine(gcc)()
    assert triple is not None and cross.is_here(triple)
    assert cc.get_target_by_dump_machine("no-such-cc")() is None
    assert cc.get_target_by_dump_machine(None)() is None
    assert cc.cross_compile(gcc).get_target_triple() == triple
    shared: Any = cc.create_shared
    assert shared.output_format == "so" and shared.get_target_triple()
    assert cc.cross_compile(shared).get_target_triple is shared.get_target_triple
    with pytest.raises(TypeError, match="takes a list of options"):
        cc.cross_compile(gcc, "program")


def test_another_machines_compiler_links_no_runtime_of_this_one(tmp_path: Path) -> None:
    require_module("ziglang")
    other = "riscv64" if "aarch64" in platform.machine() else "aarch64"
    command = f"{sys.executable} -m ziglang cc -target {other}-linux-gnu"
    cc.create_shared(tmp_path / "m.so", [write(tmp_path, "m.c", ANSWER_C)], cc=command)
    assert other.startswith(architecture_of(tmp_path / "m.so").processor)


def test_ccache_is_asked_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, "m.c", ANSWER_C)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match="ccache was not found"):
        cc.create_shared(tmp_path / "m.so", source, ccache_env={})
    monkeypatch.undo()
    script = write(tmp_path, "ccache", '#!/bin/sh\necho "$CCACHE_DIR $1"; exit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(toolchain.CompileError, match=r"\n/there \S*cc"):
        cc.create_shared(tmp_path / "m.so", source, ccache_env={"CCACHE_DIR": "/there"})
