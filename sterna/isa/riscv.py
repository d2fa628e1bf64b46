"""RISC-V of 64 and of 32 bits: RVV, whose registers have the length that a processor says."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

_LENGTHS = tuple(32 << power for power in reversed(range(12)))
_REGISTERS = tuple(
    VectorRegisters(("zve32x", f"zvl{bits}b"), bits=bits, count=32) for bits in _LENGTHS
)
_VECTOR_LENGTH = r"zvl\d+b"
_EXCLUSIVE = r"e|32bit|rvi20u32|z[fdh]inx(min)?|zcm[pt]|zc[ef]|z[ci]lsd|xqc.*|xwchc|experimental.*"

_LINUX = "-mtriple=riscv64-unknown-linux-gnu"

RISCV64 = InstructionSet(
    name="riscv64",
    spellings=(Spelling(r"riscv64(be)?", 64, ("riscv64",)),),
    big_endian=r"riscv64be",
    keys=("riscv_cpu", "cpu"),
    cpus=(("", "generic-rv64"),),
    triples=(("", "riscv64-unknown-linux-gnu"),),
    hosted_features=("m", "a", "f", "d", "c"),
    abis={"lp64": "", "lp64e": "", "lp64f": "f", "lp64d": "d"},
    aliases={"rvv": "v"},
    boards={
        "sifive-u54": f"{_LINUX} -mcpu=sifive-u54 -mabi=lp64d",
        "sifive-u74": f"{_LINUX} -mcpu=sifive-u74 -mabi=lp64d",
        "sifive-x280": f"{_LINUX} -mcpu=sifive-x280 -mabi=lp64d",
        "licheepi3a": f"{_LINUX} -mcpu=spacemit-x60 -mabi=lp64d",
    },
    emulator_options="-cpu rv64,v=true",
    vectors="v",
    length_features=_VECTOR_LENGTH,
    exclusive_features=_EXCLUSIVE,
    registers=_REGISTERS,
    fused_multiply_add=(Capability(("f",)),),
)

RISCV32 = InstructionSet(
    name="riscv32",
    spellings=(Spelling(r"riscv32(be)?", 32, ("riscv32",)),),
    big_endian=r"riscv32be",
    keys=("riscv_cpu", "cpu"),
    cpus=(("", "generic-rv32"),),
    triples=(("", "riscv32-unknown-elf"),),
    boards={
        "sifive-e31": "-mtriple=riscv32-unknown-elf -mcpu=sifive-e31 -mabi=ilp32",
        "sifive-e76": "-mtriple=riscv32-unknown-elf -mcpu=sifive-e76 -mabi=ilp32f",
    },
    abis={"ilp32": "", "ilp32e": "", "ilp32f": "f", "ilp32d": "d"},
    emulator_options="-cpu rv32,v=true",
    vectors="v",
    length_features=_VECTOR_LENGTH,
    exclusive_features=_EXCLUSIVE,
    registers=_REGISTERS,
    fused_multiply_add=(Capability(("f",)),),
)

INSTRUCTION_SETS = (RISCV64, RISCV32)
