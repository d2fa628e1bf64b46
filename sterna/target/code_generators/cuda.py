"""PTX through LLVM, which NVIDIA's driver compiles when a program is first run."""

from collections.abc import Sequence

from sterna.codegen import nvptx
from sterna.codegen.nvptx.architecture import Architecture
from sterna.target.gpu_generator import GPUGenerator
from sterna.target.target import Target
from sterna.tir.passes.begin_early import begin_early
from sterna.tir.stmt import PrimFunc

BEGIN_EARLY = 90
"""The compute capability from which on kernels begin before those in front of them end."""


class CUDAGenerator(GPUGenerator):
    """A program of PTX for each function."""

    device = "cuda"
    alignment = nvptx.ALIGNMENT

    def prepared(self, kernel: PrimFunc, target: Target) -> PrimFunc:
        early = Architecture.of(arch_of(target)).number >= BEGIN_EARLY
        return begin_early(kernel) if early else kernel

    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        return nvptx.generate(kernels, arch_of(target))


def arch_of(target: Target) -> str:
    """The GPU of a target, such as sm_80."""
    return str(target.attrs.get("arch") or target.attrs.get("mcpu") or "sm_50")


GENERATOR = CUDAGenerator()
