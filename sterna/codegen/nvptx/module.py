"""A program of PTX from a list of kernels."""

from collections.abc import Sequence

from sterna.codegen.llvm.emitter import ModuleWriter
from sterna.codegen.llvm.machine import Abilities, LLVMOptions
from sterna.codegen.nvptx.architecture import Architecture, Needs
from sterna.codegen.nvptx.assemble import assemble
from sterna.codegen.nvptx.kernel import KernelEmitter
from sterna.isa import Instructions
from sterna.tir.passes.expand_tiles import expand_tiles
from sterna.tir.stmt import PrimFunc

TRIPLE = "nvptx64-nvidia-cuda"
_ROUNDINGS = ("floor", "ceil", "trunc", "rint", "round")
_ABILITIES = Abilities(
    True, frozenset(f"{name}.f{bits}" for name in _ROUNDINGS for bits in (32, 64))
)


class DeviceModule(ModuleWriter):
    """The text of a module of kernels, and what its instructions ask for."""

    def __init__(self, architecture: Architecture, level: int) -> None:
        instructions = Instructions("nvptx", architecture.features)
        options = LLVMOptions(TRIPLE, architecture.name, "", level, instructions=instructions)
        super().__init__(options, "kernels")
        self.architecture = architecture
        self.version = 0

    @property
    def abilities(self) -> Abilities:
        """What GPUs have instructions for: all of it."""
        return _ABILITIES

    @property
    def atomics(self) -> bool:
        """All GPUs change bits of a word at once."""
        return True

    def need(self, needs: Needs, kernel: str, what: str) -> None:
        """Note that a kernel uses an instruction; it is refused if the GPU has it not."""
        missing = needs.missing_in(self.architecture)
        if missing:
            raise ValueError(
                f"{kernel} uses {what}, which {missing} has and {self.architecture.name} has not; "
                f"build it for another GPU (-arch), or without {what}"
            )
        self.version = max(self.version, needs.version)


def generate(kernels: Sequence[PrimFunc], arch: str, level: int = 3) -> str:
    """The kernels as one program of PTX, in the least version that says what they need.

    arch: the GPU, such as sm_80; level: of LLVM's optimisation.
    """
    module = DeviceModule(Architecture.of(arch), level)
    for kernel in kernels:
        emitter = KernelEmitter(module, kernel.name)
        module.functions.append(emitter.kernel(expand_tiles(kernel)))
    version = max(module.version, module.architecture.least_version)
    return assemble(module.text(), module.architecture.name, f"+ptx{version}", level)
