"""The package builds with the machine's compiler and, where there is none, with ziglang."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sterna
from sterna.runtime import _core
from tests.support import ROOT, require_module

USE_IT = """
import sys
import numpy as np
import sterna as tvm
assert tvm.__file__.startswith(sys.argv[1]), tvm.__file__
double = tvm.register_func("double", lambda x: tvm.nd.array(x.numpy() * 2))
assert (double(np.ones(3, "float32")).numpy() == 2).all()
from sterna.support import native
names = sorted(p.name for p in native.library_folder().iterdir())
back_ends = [name for name in names if "sterna_" in name]
assert "libsterna.a" in names and len(names) == 2 + len(back_ends) and back_ends, names
assert native.runtime_source().is_file() and (native.include_folder() / "sterna.hpp").is_file()
"""


def requirements(search_path: str) -> str:
    """What the build backend asks pip for, with these programs to be found."""
    code = "import backend; print(backend.get_requires_for_build_wheel())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
        env={"PATH": search_path, "PYTHONPATH": str(ROOT / "build_tools")},
    )
    return done.stdout.splitlines()[-1]


def test_ziglang_is_asked_for_only_without_a_compiler(tmp_path: Path) -> None:
    require_module("setuptools")
    assert "ziglang" in requirements(str(tmp_path))
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    assert "ziglang" not in requirements(str(tmp_path))


@pytest.fixture(scope="module")
def wheel_without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, with no program on the PATH."""
    require_module("setuptools")
    require_module("ziglang")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    empty = folder / "bin"
    empty.mkdir()
    environment = {**os.environ, "PATH": str(empty)}
    environment.pop("CC", None)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(source), "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(folder)],
        env=environment, check=True, capture_output=True, timeout=600,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_a_wheel_built_by_ziglang_works(wheel_without_compiler: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_without_compiler) as archive:
        archive.extractall(tmp_path)
    subprocess.run(
        [sys.executable, "-c", USE_IT, str(tmp_path)], check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )


def test_the_wheel_holds_what_users_need_and_no_more(wheel_without_compiler: Path) -> None:
    with zipfile.ZipFile(wheel_without_compiler) as archive:
        names = archive.namelist()
    assert "sterna/py.typed" in names
    assert {"sterna/cli/digits/digits.onnx", "sterna/cli/digits/digits.npz"} <= set(names)
    templates = {f"sterna/micro/templates/{name}" for name in (
        "common/src/example.c", "baremetal/microtvm_api_server.py", "baremetal/boards.json",
        "baremetal/libc/math.h",
    )}
    assert templates <= set(names)
    assert not [n for n in names if n.startswith(("tests/", "runtime/", "benchmarks/"))]
    assert not [n for n in names if n.startswith("sterna/runtime/core/")]


def test_one_version_everywhere() -> None:
    header = (ROOT / "runtime" / "sterna.h").read_text()
    parts = re.findall(r"#define STERNA_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    assert ".".join(parts) == sterna.__version__ == _core.version()
