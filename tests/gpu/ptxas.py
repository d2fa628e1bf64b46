"""NVIDIA's assembler of PTX, which says whether code is right and how many registers it takes."""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the assembler says of a program."""

    registers: int
    """The most that a kernel of it takes."""
    spilled_bytes: int
    stack_bytes: int


@cache
def find_ptxas() -> str | None:
    """The assembler: on the path, or in NVIDIA's packages."""
    found = shutil.which("ptxas")
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        found = found or next((str(path) for path in Path(folder).glob("*/bin/ptxas")), None)
    return found


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
    )


def _most(pattern: str, text: str) -> int:
    return max((int(number) for number in re.findall(pattern, text)), default=0)
