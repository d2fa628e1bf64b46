"""PTX, the assembly language of NVIDIA's GPUs, through LLVM.

    kernel.py       the LLVM module of a program of kernels: threads, barriers, spaces of memory
    intrinsics.py   what a Call may name beside the functions of all machines: a row for each
    architecture.py which GPU has what, and the versions of PTX that say it
    assemble.py     LLVM's text to PTX, in a process that may end

The emitter is loaded when a program is first made: kernels out of the cache need none.
"""

from typing import TYPE_CHECKING, Any

from sterna.codegen.nvptx.architecture import ALIGNMENT, Architecture
from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.codegen.nvptx.module import generate

_WHERE = {"generate": "sterna.codegen.nvptx.module:generate"}

__all__ = ["ALIGNMENT", "Architecture", "generate"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.codegen.nvptx' has no attribute '{name}'")
    return load_name(_WHERE[name])
