"""MIPS: MSA."""

from sterna.isa.capability import VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

MIPS = InstructionSet(
    name="mips",
    spellings=(Spelling(r"mips(el)?", 32, ("mips",)), Spelling(r"mips64(el)?", 64)),
    big_endian=r"mips(64)?",
    cpus=(("", "mips32r2"),),
    triples=(("", "mips-unknown-linux-gnu"),),
    abis={"o32": "", "n32": "", "n64": ""},
    registers=(VectorRegisters(("msa",), bits=128, count=32),),
)

INSTRUCTION_SETS = (MIPS,)
