"""AArch64: NEON, DOTPROD and I8MM."""

from sterna.isa.arm_cores import CORES
from sterna.isa.capability import (
    ByLanes,
    ByteLookup,
    Capability,
    Dot4,
    Estimate,
    SaturatingNarrow,
    VectorRegisters,
)
from sterna.isa.instruction_set import InstructionSet, Level, Spelling

_NEON = Capability(("neon",))
_SAME_SIGNS = {
    ("int", "int"): {4: "llvm.aarch64.neon.sdot.v4i32.v16i8"},
    ("uint", "uint"): {4: "llvm.aarch64.neon.udot.v4i32.v16i8"},
}

_LINUX = "-mtriple=aarch64-linux-gnu"
_ANDROID = "-mtriple=aarch64-linux-android"

AARCH64 = InstructionSet(
    name="aarch64",
    spellings=(
        Spelling(r"aarch64_32|arm64_32", 32),
        Spelling(r"aarch64(_be)?|arm64(e|ec)?", 64, ("aarch64", "arm64")),
    ),
    big_endian=r"aarch64_be",
    keys=("arm_cpu", "cpu"),
    cpus=((r"apple-(macos|darwin)", "apple-m1"), ("", "generic")),
    triples=(("", "aarch64-unknown-linux-gnu"),),
    abis={"aapcs": "", "darwinpcs": ""},
    aliases={"asimd": "neon", "fp16_simd": "fullfp16", "matmul_i8": "i8mm"},
    implied_features=("fp-armv8",),
    linux_features={
        "asimddp": "dotprod", "asimdfhm": "fp16fml", "asimdhp": "fullfp16", "asimdrdm": "rdm",
        "bf16": "bf16", "fcma": "complxnum", "frint": "fptoint", "i8mm": "i8mm", "jscvt": "jsconv",
        "lrcpc": "rcpc", "sve": "sve", "sve2": "sve2",
    },
    loader_features="""
        lse rdm rcpc dotprod fullfp16 fp16fml complxnum sha3 flagm i8mm bf16 sve sve2 sme cssc mops
    """,
    boards={
        **dict.fromkeys(
            ("pixel2", "mate10", "mate10pro", "p20", "p20pro"), f"{_ANDROID} -mattr=+neon"
        ),
        "rasp3b64": f"{_LINUX} -mattr=+neon -mcpu=cortex-a53",
        "rasp4b64": f"{_LINUX} -mattr=+neon -mcpu=cortex-a72",
        "rk3399": f"{_LINUX} -mattr=+neon",
        "ultra96": f"{_LINUX} -mattr=+neon -mcpu=cortex-a53",
        "thunderx": f"{_LINUX} -mattr=+neon,+crc,+lse -mcpu=thunderxt88",
        "jetson-nano": f"{_LINUX} -mattr=+neon -mcpu=cortex-a57",
    },
    levels=(
        Level("armv8", "-mcpu=generic"),
        Level("dotprod", "-mcpu=generic -mattr=+dotprod,+fullfp16"),
        Level("i8mm", "-mcpu=generic -mattr=+dotprod,+fullfp16,+i8mm"),
    ),
    registers=(VectorRegisters(("neon",), bits=128, count=32, divides_float64=True),),
    operand_registers=4,
    cores=CORES,
    fused_multiply_add=(Capability(),),
    fma_contraction=(Capability(),),
    slow_conversions=(_NEON,),
    by_element_fma=(_NEON,),
    fp16_arithmetic=(Capability(("fullfp16", "neon")),),
    ieee_maximum=(_NEON,),
    byte_lookup=(  # a lookup in four registers takes as long as four instructions
        ByteLookup(("neon",), entries=64, instructions=20, intrinsics={
            16: "llvm.aarch64.neon.tbl4.v16i8",
        }),
    ),
    dot4=(
        Dot4(("i8mm", "dotprod"), intrinsics={
            **_SAME_SIGNS, ("uint", "int"): {4: "llvm.aarch64.neon.usdot.v4i32.v16i8"},
        }),
        Dot4(("dotprod",), intrinsics=_SAME_SIGNS),
    ),
    saturating_narrow=(
        SaturatingNarrow(
            ("neon",), lanes=4, to_int16="llvm.aarch64.neon.sqxtn.v4i16",
            to_int8="llvm.aarch64.neon.sqxtn.v8i8", to_uint8="llvm.aarch64.neon.sqxtun.v8i8",
        ),
    ),
    round_to_int32=(
        ByLanes(("neon",), intrinsics={4: "llvm.aarch64.neon.fcvtns.v4i32.v4f32"}),
    ),
    reciprocal_estimate=(
        Estimate(("neon",), bits=8, lanes=4, intrinsic="llvm.aarch64.neon.frecpe.v4f32"),
    ),
    whole_vectors=(_NEON,),
)

INSTRUCTION_SETS = (AARCH64,)
