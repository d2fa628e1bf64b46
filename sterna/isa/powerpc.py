"""PowerPC: AltiVec and VSX."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

POWERPC = InstructionSet(
    name="powerpc",
    spellings=(
        Spelling(r"(powerpc|ppc)64(le)?", 64, ("powerpc64le",)),
        Spelling(r"(powerpc|ppc)(le|32|32le)?", 32),
    ),
    big_endian=r"(powerpc|ppc)(32|64)?",
    cpus=((r"^(powerpc|ppc)64le", "ppc64le"), ("", "generic")),
    triples=(("", "powerpc64le-unknown-linux-gnu"),),
    abis={"elfv1": "", "elfv2": ""},
    registers=(
        VectorRegisters(("altivec", "vsx"), bits=128, count=64),
        VectorRegisters(("altivec",), bits=128, count=32),
    ),
    fused_multiply_add=(Capability(),),
)

INSTRUCTION_SETS = (POWERPC,)
