"""PTX through LLVM, which NVIDIA's driver compiles when a program is first run."""

from collections.abc import Sequence

from sterna.codegen import nvptx
from sterna.ir import build
from sterna.ir.expr import INT32, Call, StringImm
from sterna.target.gpu_generator import GPUGenerator
from sterna.target.target import Target
from sterna.tir.effects import calls
from sterna.tir.stmt import Evaluate, IfThenElse, PrimFunc
from sterna.tir.threads import BEGINS_EARLY

RUNS = "__sterna_runs"
"""What the runtime is asked by a compute capability, whether it must be that one, and addresses:
whether the device that these are on runs code for it."""


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

    def chosen(self, own: PrimFunc, plain: PrimFunc, target: Target) -> PrimFunc:
        arch = nvptx.Architecture.of(arch_of(target))
        arrays = [buffer.data for buffer in own.buffers if buffer is not None]
        numbers = (build.const(arch.number), build.const(int(arch.letter == "a")))
        runs = Call(INT32, "call_packed", (StringImm(RUNS), *numbers, *arrays))
        other = Evaluate(Call(INT32, "try_call", (StringImm(plain.name), *own.params)))
        return own.with_body(IfThenElse(runs.equal(1), own.body, other))

    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        return nvptx.generate(kernels, arch_of(target))


def arch_of(target: Target) -> str:
    """The GPU of a target, such as sm_80."""
    return str(target.attrs.get("arch") or target.attrs.get("mcpu") or "sm_50")


GENERATOR = CUDAGenerator()
