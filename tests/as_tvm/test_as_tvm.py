"""Programs that say `import tvm` run as they are."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import clean_environment
from tests.test_acceptance import find_program

SPELLINGS = """
import sys
import tvm
import sterna
import tvm.relay as relay
import tvm.testing
import tvm.ir.transform
from tvm import IRModule, nd, te, relay as r
from tvm.contrib import graph_executor
from tvm.contrib.debugger import debug_executor
from tvm.driver import build_module
from tvm.relay import transform
from tvm.relay.backend import Executor
from tvm.relay.build_module import bind_params_by_name
from tvm.relay.expr_functor import ExprMutator
from tvm.relay.frontend import from_onnx
from tvm.relay.frontend.onnx import from_onnx as same
from tvm.relay.op.nn import conv2d
from tvm.relay.op.tensor import add
from tvm.relay.qnn.op import quantize
from tvm.runtime import ndarray
from tvm.runtime.module import BenchmarkResult
from tvm._ffi.registry import list_global_func_names
from tvm._ffi.base import TVMError

assert tvm is sterna and sys.modules["tvm.relay"] is sys.modules["sterna.relay"] is relay is r
assert te is sterna.te and nd is ndarray is sterna.nd and IRModule is sterna.IRModule
assert tvm.ir.transform.PassContext is sterna.transform.PassContext
assert from_onnx is same is sterna.relay.frontend.from_onnx
assert conv2d is relay.nn.conv2d is relay.op.nn.conv2d and add is relay.add
assert build_module.build is tvm.build and TVMError is tvm.TVMError
assert isinstance(relay.var("x", shape=(2,)), sterna.relay.Var)
assert sterna.relay.__spec__.name == "sterna.relay" and sterna.__name__ == "sterna"
import importlib
assert importlib.reload(tvm.contrib.graph_executor) is graph_executor
print("same")
"""

PROGRAM = """
import sys
import tvm
from beside import VALUE
main = sys.modules["__main__"]
print(__name__, __file__, sys.argv, sys.path[0], VALUE, __spec__, main.tvm is tvm)
"""

SPAWNED = """
import multiprocessing
import tvm

def work(name):
    import tvm.relay
    return tvm.__name__ + name

if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(work, [method]))
"""


def run(*arguments: str, folder: Path | None = None, tvm: bool = True) -> tuple[int, str, str]:
    """Exit status, output and errors of Python, with Sterna as tvm or without."""
    command = [sys.executable, *(["-m", "sterna.as_tvm"] if tvm else []), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, env=clean_environment()
    )
    return done.returncode, done.stdout, done.stderr


def test_every_spelling_of_an_import_gives_the_same_modules() -> None:
    assert run("-c", SPELLINGS) == (0, "same\n", "")


def test_a_program_finds_what_it_would_find_under_python(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "program.py").write_text(PROGRAM)
    (tmp_path / "sub" / "beside.py").write_text("VALUE = 7")
    status, out, err = run("sub/program.py", "-x", "a b", folder=tmp_path)
    folder = tmp_path / "sub"
    argv = ["sub/program.py", "-x", "a b"]
    expected = f"__main__ {folder / 'program.py'} {argv} {folder} 7 None True\n"
    assert (status, out, err) == (0, expected, "")


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('bye')",
        "def f():\n    1 / 0\n\nf()",
        "x = = 1",
        "raise KeyboardInterrupt",
        "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise KeyError(1)",
        "import atexit\natexit.register(lambda: print('end', __name__))\nraise ValueError('no')",
    ],
)
def test_a_program_ends_as_under_python(text: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(text)
    program = str(tmp_path / "program.py")
    assert run(program) == run(program, tvm=False)


def test_modules_folders_and_archives_run(tmp_path: Path) -> None:
    show = "import sys, tvm; print(__name__, __package__, __spec__.name, sys.argv)"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(show)
    (tmp_path / "single.py").write_text(show)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", show)
    main = str(tmp_path / "package" / "__main__.py")
    single = str(tmp_path / "single.py")
    assert run("-m", "package", "a", folder=tmp_path)[1] == (
        f"__main__ package package.__main__ {[main, 'a']}\n"
    )
    assert run("-m", "single", "-m", folder=tmp_path)[1] == f"__main__  single {[single, '-m']}\n"
    for place in ("package", "archive.zip"):
        assert run(place, folder=tmp_path)[1] == f"__main__  __main__ {[place]}\n"
    assert run("-m", "tvm", "--version")[1].startswith("sterna ")


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    for arguments, status, text in [
        ((), 2, "usage:"),
        (("-c",), 2, "Argument expected for the -c option"),
        (("-O", "x.py"), 2, "unknown option -O"),
        (("none.py",), 2, "none.py': it does not exist"),
        (("-m", "no_such_module"), 1, "No module named no_such_module"),
        (("-m", "tvm.no_such"), 1, "Sterna has no 'sterna.no_such'"),
        ((".",), 1, "can't find '__main__' module in '.'"),
    ]:
        code, _, error = run(*arguments, folder=tmp_path)
        assert code == status and text in error and "Traceback" not in error, arguments
    assert run("--help")[:2] == (0, run()[2])


def test_processes_of_multiprocessing_see_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SPAWNED)
    methods = ["['sternaspawn']", "['sternaforkserver']", "['sternafork']"]
    assert run(str(tmp_path / "program.py")) == (0, "\n".join(methods) + "\n", "")


def test_an_installed_tvm_is_hidden_in_this_process_only(tmp_path: Path) -> None:
    (tmp_path / "tvm.py").write_text("__version__ = 'another'")
    assert run("-c", "import tvm; print(tvm.__name__)", folder=tmp_path)[1] == "sterna\n"
    assert run("-c", "import tvm; print(tvm.__version__)", folder=tmp_path, tvm=False)[1] == (
        "another\n"
    )
    late = "import tvm, sterna.as_tvm as a\na.install()"
    code, _, error = run("-c", late, folder=tmp_path, tvm=False)
    assert code == 1 and "RuntimeError: tvm is imported already, from" in error
    twice = "import sterna.as_tvm as a; a.install(); a.install(); import tvm, sys; print(tvm)"
    assert "sterna" in run("-c", twice, folder=tmp_path, tvm=False)[1]


@pytest.mark.parametrize(
    "statement, text",
    [
        ("import tvm.script", "Sterna has no 'sterna.script'; TVMScript is not read; tvm.te"),
        ("import tvm.tir.schedule", "scheduled before they are lowered, by tvm.te.create_schedule"),
        ("import tvm.meta_schedule.postproc", "spaces of your own are templates of tvm.autotvm"),
        ("from tvm import relax", "Sterna has no 'sterna.relax'; graphs are written in tvm.relay"),
        ("import tvm.relay.exprs", "near it are tvm.relay.expr"),
        ("import tvm.contrib.qqq", "tvm.contrib has cblas, cc, "),
        ("from tvm.relay.op.nn import conv9d", "no 'sterna.relay.nn.conv9d'; near it are"),
    ],
)
def test_what_is_missing_is_named_with_what_is_near(statement: str, text: str) -> None:
    code, _, error = run("-c", statement)
    last = error.strip().splitlines()[-1]
    assert code == 1 and last.startswith("ModuleNotFoundError: No module named 'tvm.")
    assert text in last


@pytest.mark.parametrize("number", ["01", "03", "07"])
def test_users_programs_run_with_the_classic_import(number: str, tmp_path: Path) -> None:
    source = find_program(number).read_text("utf-8")
    classic = source.replace("import sterna as tvm", "import tvm").replace("sterna", "tvm")
    (tmp_path / "program.py").write_text(classic)
    status, out, err = run("program.py", folder=tmp_path)
    assert status == 0, err
    assert out.splitlines()[-1] == "ok"
