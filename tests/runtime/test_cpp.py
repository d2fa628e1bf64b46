"""sterna.hpp: the example and the checks in cpp/, compiled without warnings, run with no leak."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import relay
from tests.support import LEAKS, require_program

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"
EXAMPLES = ROOT / "examples" / "cpp"
CHECKS = Path(__file__).resolve().parent / "cpp"

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
SANITIZERS = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def run(command: list[str], **environment: str) -> str:
    """Runs a program, which must succeed and say nothing on its error output."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def second_compiler() -> list[str]:
    """Clang in one form or another."""
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    return [require_program("clang++")]


@dataclass(frozen=True)
class Build:
    """A compiler with its options, and the folder that holds the runtime it has made."""

    folder: Path
    compiler: list[str]
    options: list[str]

    def runtime(self) -> None:
        """Makes libsterna.so of the one-file runtime."""
        source = self.folder / "sterna.c"
        source.write_text(run([sys.executable, str(RUNTIME / "amalgamate.py")]), encoding="utf-8")
        output = ["-shared", "-fPIC", "-o", str(self.folder / "libsterna.so")]
        language = ["-x", "c", "-std=c11", f"-I{RUNTIME}"]
        libraries = ["-lpthread", "-ldl"]
        run([*self.compiler, *self.options, *output, *language, str(source), *libraries])

    def make(self, source: Path, name: str, *more: str) -> str:
        """Makes a program, or with -shared a library, of one C++ file."""
        output = str(self.folder / name)
        options = [*self.options, "-std=c++17", f"-I{RUNTIME}", *WARNINGS, *more]
        libraries = [f"-L{self.folder}", "-lsterna", "-lpthread", f"-Wl,-rpath,{self.folder}"]
        searched = "-shared" not in more and self.options == SANITIZERS
        sources = [str(source), *([str(LEAKS)] if searched else [])]
        run([*self.compiler, *options, "-o", output, *sources, *libraries])
        return output

    def run(self, program: str, library: str) -> str:
        """Runs a program that takes a library, with several threads even on one core."""
        return run([program, library], STERNA_NUM_THREADS="4", ASAN_OPTIONS="detect_leaks=1")


@pytest.fixture(scope="module", params=["plain", "sanitized", "second compiler"])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The runtime, made once by each compiler."""
    folder = tmp_path_factory.mktemp("cpp")
    if request.param == "second compiler":
        made = Build(folder, second_compiler(), [])
    else:
        options = SANITIZERS if request.param == "sanitized" else []
        made = Build(folder, [require_program("g++")], options)
    made.runtime()
    return made


def test_example(build: Build) -> None:
    # Optimized, since some warnings need the optimizer's view of the code.
    library = build.make(EXAMPLES / "scale.cpp", "scale.so", "-O2", "-shared", "-fPIC")
    program = build.make(EXAMPLES / "deploy.cpp", "deploy", "-O2")
    assert build.run(program, library).splitlines() == [
        "10 20 30 40 50 60 ",
        "an array of float32 with shape 2 3",
        "TypeError: argument 2 of 'scale': expected float, got text",
    ]


def test_checks(build: Build) -> None:
    library = build.make(CHECKS / "library.cpp", "library.so", "-shared", "-fPIC")
    program = build.make(CHECKS / "check.cpp", "check")
    assert build.run(program, library) == "all is well\n"


@pytest.mark.parametrize("name", ["c/run_model.c", "cpp/run_model.cpp"])
def test_examples_run_a_model_by_the_lines_that_they_show(name: str, tmp_path: Path) -> None:
    require_program("cc")
    require_program("c++")
    x = relay.var("x", shape=(3,))
    model = sterna.compile(relay.Function([x], relay.nn.relu(x * relay.const([2.0, 3.0, -1.0]))))
    for file in ("model.so", "model.o"):
        model.export(tmp_path / file)
    np.arange(3, dtype="float32").tofile(tmp_path / "input.bin")
    source = EXAMPLES.parent / name
    (tmp_path / source.name).write_text(source.read_text())
    comment = source.read_text().partition("*/")[0]
    lines = re.findall(r"^ \*     (.*)$", comment, re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    if source.suffix == ".cpp":
        assert done.stdout == "0 3 0 \n"
    else:
        given = np.fromfile(tmp_path / "output.bin", "float32")
        np.testing.assert_array_equal(given, [0, 3, 0])
