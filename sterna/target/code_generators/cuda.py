"""PTX through LLVM, which NVIDIA's driver compiles when a program is first run."""

from collections.abc import Sequence

from sterna.codegen import nvptx
from sterna.target.gpu_generator import GPUGenerator
from sterna.target.target import Target
from sterna.tir.stmt import PrimFunc


class CUDAGenerator(GPUGenerator):
    """A program of PTX for each function."""

    device = "cuda"
    alignment = nvptx.ALIGNMENT

    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        return nvptx.generate(kernels, arch_of(target))


def arch_of(target: Target) -> str:
    """The GPU of a target, such as sm_80."""
    return str(target.attrs.get("arch") or target.attrs.get("mcpu") or "sm_50")


GENERATOR = CUDAGenerator()
