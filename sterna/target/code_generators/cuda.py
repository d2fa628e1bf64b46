"""PTX through LLVM, which NVIDIA's driver compiles when a program is first run."""

from collections.abc import Sequence

from sterna.codegen import nvptx
from sterna.target.gpu_generator import GPUGenerator
from sterna.target.target import Target
from sterna.tir.effects import calls
from sterna.tir.stmt import PrimFunc
from sterna.tir.threads import BEGINS_EARLY


class CUDAGenerator(GPUGenerator):
    """A program of PTX for each function."""

    device = "cuda"
    alignment = nvptx.ALIGNMENT

    def prepared(self, kernel: PrimFunc, target: Target) -> PrimFunc:
        able = nvptx.Architecture.of(arch_of(target)).starts_early
        if not able or calls(kernel.body, "wait_for_grids"):
            return kernel
        attrs = {**kernel.attrs, BEGINS_EARLY: True}
        return PrimFunc(kernel.name, kernel.params, kernel.buffers, kernel.body, attrs)

    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        return nvptx.generate(kernels, arch_of(target))


def arch_of(target: Target) -> str:
    """The GPU of a target, such as sm_80."""
    return str(target.attrs.get("arch") or target.attrs.get("mcpu") or "sm_50")


GENERATOR = CUDAGenerator()
