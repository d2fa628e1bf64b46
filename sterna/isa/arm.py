"""32-bit Arm: NEON on application processors, MVE (Helium) on microcontrollers."""

from sterna.isa.arm_cores import CORES
from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

_LINUX = "-mtriple=armv7l-linux-gnueabihf"

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
    boards={
        "rasp3b": f"{_LINUX} -mattr=+neon",
        "rasp4b": f"{_LINUX} -mattr=+neon -mcpu=cortex-a72",
        "pynq": f"{_LINUX} -mattr=+neon -mcpu=cortex-a9",
        "beagleai": f"{_LINUX} -mattr=+neon,+vfp4,+thumb2 -mcpu=cortex-a15",
        "stm32mp1": f"{_LINUX} -mattr=+neon,+vfp4,+thumb2 -mcpu=cortex-a7",
    },
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
