"""From C or C++ to LLVM's text, which the pragma import_llvm brings into a kernel."""

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sterna.support import toolchain

StrPath = str | os.PathLike[str]

_SUFFIXES = (".c", ".cc", ".cpp", ".cxx")


def create_llvm(
    inputs: str | Sequence[str],
    output: StrPath | None = None,
    options: Sequence[str] | None = None,
    cc: StrPath | None = None,
) -> str:
    """The LLVM text of one source: C++ as text, or the path of a file of C or C++."""
    given = [inputs] if isinstance(inputs, str) else list(inputs)
    if len(given) != 1:
        raise ValueError(f"create_llvm takes one source at a time, not {len(given)}")
    command = shlex.split(os.fspath(cc)) if cc is not None else toolchain.find_clang()
    if command is None:
        raise RuntimeError("no clang was found; install it, or: pip install ziglang")
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source.cc"
        if given[0].endswith(_SUFFIXES) and "\n" not in given[0]:
            source = Path(given[0])
            if not source.exists():
                raise FileNotFoundError(f"create_llvm: there is no file '{source}'")
        else:
            source.write_text(given[0], encoding="utf-8")
        made = Path(output) if output is not None else Path(name) / "made.ll"
        toolchain.run_compiler(
            [*command, "-O3", "-g0", "-S", "-emit-llvm", *(options or ()), str(source),
             "-o", str(made)]
        )
        return made.read_text("utf-8")
