"""NVPTX: NVIDIA's GPUs, as LLVM writes their code (PTX)."""

from sterna.isa.capability import Capability, Estimate, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

NVPTX = InstructionSet(
    name="nvptx",
    spellings=(Spelling(r"nvptx", 32), Spelling(r"nvptx64", 64, ("nvptx64",))),
    cpus=(("", "sm_50"),),
    triples=(("", "nvptx64-nvidia-cuda"),),
    registers=(VectorRegisters(bits=128, count=0),),  # what one thread loads at once
    fused_multiply_add=(Capability(),),
    fma_contraction=(Capability(),),
    fp16_arithmetic=(Capability(("sm_53",)),),
    bf16_conversion=(Capability(("sm_80",)),),
    ieee_maximum=(Capability(("sm_80",)),),
    reciprocal_estimate=(Estimate(intrinsic="llvm.nvvm.rcp.approx.ftz.f", lanes=1, bits=23),),
)

INSTRUCTION_SETS = (NVPTX,)
