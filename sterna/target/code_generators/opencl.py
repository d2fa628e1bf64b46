"""OpenCL C, which the device's driver compiles when a program is first run."""

from collections.abc import Sequence

from sterna.codegen import opencl
from sterna.target.gpu_generator import GPUGenerator
from sterna.target.target import Target
from sterna.tir.stmt import PrimFunc


class OpenCLGenerator(GPUGenerator):
    """A program of OpenCL C for each function."""

    device = "opencl"

    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        return opencl.generate(kernels)


GENERATOR = OpenCLGenerator()
