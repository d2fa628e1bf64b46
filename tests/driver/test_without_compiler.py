"""Exports where no compiler, linker or archiver is installed: objects need none."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import cli, relay
from sterna.support import toolchain
from sterna.support.ar_archive import write_archive
from sterna.support.elf_join import ElfObject, NotJoinedError, join_objects
from sterna.support.toolchain import MissingToolError
from tests.support import require_program

X = np.linspace(-1, 1, 32, dtype="float32").reshape(2, 16)


@pytest.fixture(scope="module")
def model() -> sterna.CompiledModel:
    weight = relay.const(np.random.default_rng(0).standard_normal((8, 16), "float32"))
    x = relay.var("x", shape=(2, 16))
    body = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, weight)))
    return sterna.compile(sterna.IRModule.from_expr(relay.Function((x,), body)))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("objects here are not of ELF")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr(toolchain, "options", type("Unset", (), {"c_compiler": None})())


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("form", [".o", ".a", ".tar"])
def test_objects_need_no_tool(model: sterna.CompiledModel, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{form}"
    model.export(path)
    content = path.read_bytes()
    np.testing.assert_array_equal(sterna.load(path)(X), model(X))
    model.export(path)
    assert path.read_bytes() == content


@pytest.mark.usefixtures("bare")
def test_a_library_says_what_to_install(model: sterna.CompiledModel, tmp_path: Path) -> None:
    told = r"linking \.so needs a linker: install gcc.*ziglang; \.o, \.a and \.tar"
    with pytest.raises(MissingToolError, match=told):
        model.export(tmp_path / "model.so")
    assert not (tmp_path / "model.so").exists()


@pytest.mark.usefixtures("bare")
def test_the_command_says_so_before_it_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"which nobody reads")
    status = cli.main(["compile", str(tmp_path / "broken.onnx"), "-o", str(tmp_path / "m.so")])
    assert status == 5 and "needs a linker" in capsys.readouterr().err


@pytest.mark.parametrize("form", [".o", ".a"])
def test_linkers_take_them(
    model: sterna.CompiledModel, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_program("cc")
    with monkeypatch.context() as bare:
        bare.setattr(toolchain, "find_c_compiler", lambda: None)
        bare.setattr(toolchain, "_first_found", lambda configured, names: None)
        bare.setattr(toolchain, "zig", lambda *words: None)
        model.export(tmp_path / f"model{form}")
    whole = ["-Wl,--whole-archive", f"model{form}", "-Wl,--no-whole-archive"]
    command = ["cc", "-shared", "-o", "model.so", *whole, "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.warns(RuntimeWarning, match="has no seal"):
        np.testing.assert_array_equal(sterna.load(tmp_path / "model.so")(X), model(X))


def compiled(folder: Path, name: str, text: str) -> Path:
    (folder / f"{name}.c").write_text(text)
    subprocess.run(["cc", "-c", "-fPIC", f"{name}.c", "-o", f"{name}.o"], cwd=folder, check=True)
    return folder / f"{name}.o"


def test_symbols_of_one_name_become_one(tmp_path: Path) -> None:
    require_program("cc")
    one = compiled(tmp_path, "one", """
        extern int other(int); __attribute__((weak)) int shared(void) { return 1; }
        static int own = 3; int entry(int x) { return other(x) + shared() + own; }""")
    two = compiled(tmp_path, "two", """
        int shared(void) { return 10; } static int own = 20;
        int other(int x) { return x + own; }""")
    join_objects(tmp_path / "both.o", [one, two])
    assert sorted(ElfObject.read(tmp_path / "both.o").exported()) == [b"entry", b"other", b"shared"]
    compiled(tmp_path, "main", "int entry(int); int main(void) { return entry(100); }")
    subprocess.run(["cc", "main.o", "both.o", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "main")]).returncode == 133
    write_archive(tmp_path / "both.a", [one, two])
    subprocess.run(["cc", "main.o", "both.a", "-o", "again"], cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "again")]).returncode in (124, 133)
    with pytest.raises(NotJoinedError, match=r"two objects define (other|shared)"):
        join_objects(tmp_path / "twice.o", [two, two])
