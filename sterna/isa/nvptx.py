"""NVPTX: NVIDIA's GPUs, as LLVM writes their code (PTX)."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

NVPTX = InstructionSet(
    name="nvptx",
    spellings=(Spelling(r"nvptx", 32), Spelling(r"nvptx64", 64, ("nvptx64",))),
    cpus=(("", "sm_50"),),
    triples=(("", "nvptx64-nvidia-cuda"),),
    registers=(VectorRegisters(bits=128, count=0),),  # what one thread loads at once
    fused_multiply_add=(Capability(),),
)

INSTRUCTION_SETS = (NVPTX,)
