"""AMDGCN: AMD's GPUs."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

AMDGCN = InstructionSet(
    name="amdgcn",
    spellings=(Spelling(r"amdgcn|amdgpu", 64, ("amdgcn",)),),
    cpus=(("", "gfx900"),),
    triples=(("", "amdgcn-amd-amdhsa"),),
    registers=(VectorRegisters(bits=128, count=0),),  # what one thread loads at once
    fused_multiply_add=(Capability(),),
)

INSTRUCTION_SETS = (AMDGCN,)
