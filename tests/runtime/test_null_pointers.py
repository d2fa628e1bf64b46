"""Null pointers into the C interface are errors with a message, and never the end of a process."""

import re
import subprocess
import sys
from pathlib import Path

from sterna.contrib import cc
from tests.runtime.null_pointers import functions_of
from tests.support import ROOT, require_program

RUNTIME = ROOT / "runtime"


def test_every_function_is_known() -> None:
    header = (RUNTIME / "sterna.h").read_text()
    declared = re.findall(r"^STERNA_API [^;(]*?(sterna_\w+)\(", header, re.MULTILINE)
    assert sorted(each.name for each in functions_of(header)) == sorted(declared)
    assert len(declared) > 90


def test_no_null_pointer_ends_the_process(tmp_path: Path) -> None:
    source, library = tmp_path / "sterna.c", tmp_path / "sterna.so"
    amalgamated = subprocess.run(
        [sys.executable, RUNTIME / "amalgamate.py"], capture_output=True, check=True
    )
    source.write_bytes(amalgamated.stdout)
    options = ["-std=c11", f"-I{RUNTIME}", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    cc.create_shared(library, [source], [*options, "-lpthread", "-ldl"], cc=require_program("gcc"))
    program = Path(__file__).with_name("null_pointers.py")
    done = subprocess.run(
        [sys.executable, program, library, RUNTIME / "sterna.h"],
        capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-300:]}{done.stderr}"
