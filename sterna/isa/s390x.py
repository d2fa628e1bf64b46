"""s390x: IBM's mainframes, and their vector facility."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

S390X = InstructionSet(
    name="s390x",
    spellings=(Spelling(r"s390x|systemz", 64, ("s390x",)),),
    big_endian=r".*",
    triples=(("", "s390x-unknown-linux-gnu"),),
    registers=(VectorRegisters(("vector",), bits=128, count=32),),
    fused_multiply_add=(Capability(),),
)

INSTRUCTION_SETS = (S390X,)
