"""PTX, the assembly language of NVIDIA's GPUs, through LLVM.

    kernel.py       the LLVM module of a program of kernels: threads, barriers, spaces of memory
    intrinsics.py   what a Call may name beside the functions of all machines: a row for each
    architecture.py which GPU has what, and the versions of PTX that say it
    assemble.py     LLVM's text to PTX, in a process that may end
"""

from sterna.codegen.nvptx.architecture import Architecture
from sterna.codegen.nvptx.kernel import ALIGNMENT
from sterna.codegen.nvptx.module import generate

__all__ = ["ALIGNMENT", "Architecture", "generate"]
