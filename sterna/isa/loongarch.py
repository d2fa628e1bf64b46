"""LoongArch: LSX and LASX."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

LOONGARCH = InstructionSet(
    name="loongarch",
    spellings=(
        Spelling(r"loongarch64", 64, ("loongarch64",)), Spelling(r"loongarch32", 32),
    ),
    cpus=(("", "generic-la64"),),
    triples=(("", "loongarch64-unknown-linux-gnu"),),
    abis={"ilp32s": "", "ilp32f": "f", "ilp32d": "d", "lp64s": "", "lp64f": "f", "lp64d": "d"},
    registers=(
        VectorRegisters(("lasx",), bits=256, count=32),
        VectorRegisters(("lsx",), bits=128, count=32),
    ),
    fused_multiply_add=(Capability(("f",)),),
)

INSTRUCTION_SETS = (LOONGARCH,)
