"""NVIDIA's assembler of PTX, which says whether code is right and how many registers it takes."""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sterna.testing import Feature


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the assembler says of a program."""

    registers: int
    """The most that a kernel of it takes."""
    spilled_bytes: int
    stack_bytes: int
    words: str
    """All of it."""


@cache
def find_ptxas() -> str | None:
    """The assembler: in NVIDIA's package, whose version knows old GPUs too, or on the path."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations or () if spec else ()
    packed = [path for folder in folders for path in Path(folder).glob("cuda_nvcc/bin/ptxas")]
    return str(packed[0]) if packed else shutil.which("ptxas")


def assemble(ptx: str, arch: str) -> Assembled:
    """Hand a program to the assembler; an AssertionError says what it does not take."""
    program = find_ptxas()
    assert program is not None, "ptxas is neither on the path nor in a package"
    done = subprocess.run(
        [program, "-v", f"-arch={arch}", "-o", "/dev/null", "-"], input=ptx, text=True,
        capture_output=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return Assembled(
        _most(r"Used (\d+) registers", done.stderr),
        _most(r"(\d+) bytes spill stores", done.stderr),
        _most(r"(\d+) bytes stack frame", done.stderr),
        done.stderr,
    )


def _most(pattern: str, text: str) -> int:
    return max((int(number) for number in re.findall(pattern, text)), default=0)


def _absence() -> str | None:
    return None if find_ptxas() else "not found; try `pip install nvidia-cuda-nvcc-cu12`"


requires_ptxas = Feature("ptxas", "NVIDIA's assembler ptxas", _absence)
