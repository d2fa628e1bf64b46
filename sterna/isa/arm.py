"""32-bit Arm: NEON on application processors, MVE (Helium) on microcontrollers."""

from sterna.isa.arm_cores import CORES
from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

ARM = InstructionSet(
    name="arm",
    spellings=(
        Spelling(r"(arm|thumb)(eb)?(v\d[\w.]*)?", 32, ("arm", "armv7a", "thumbv7em")),
        Spelling(r"xscale(eb)?", 32),
    ),
    big_endian=r".*eb(v.*)?",
    keys=("arm_cpu", "cpu"),
    triples=(("mclass", "thumb-none-eabi"), ("", "arm-unknown-linux-gnueabihf")),
    soft_float="soft-float",
    abis={"aapcs": "", "aapcs-linux": "", "aapcs16": "", "apcs-gnu": ""},
    aliases={"mve_fp": "mve.fp"},
    registers=(
        VectorRegisters(("neon",), bits=128, count=16),
        VectorRegisters(("mve",), bits=128, count=8),
    ),
    operand_registers=2,
    cores=CORES,
    dot_halves=(Capability(("dsp", "mclass")),),
    dot_across=(Capability(("mve",)),),
    fused_multiply_add=tuple(Capability((name,)) for name in ("vfp4sp", "vfp4d16sp", "mve.fp")),
)

INSTRUCTION_SETS = (ARM,)
