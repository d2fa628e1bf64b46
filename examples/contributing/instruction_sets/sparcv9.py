"""SPARC V9 in 64 bits: scalar floats, with fused multiply-add from OSA 2011 on."""

from sterna.isa.capability import Capability
from sterna.isa.core import Core, Throughput, by_name
from sterna.isa.instruction_set import InstructionSet, Spelling

SPARCV9 = InstructionSet(
    name="sparcv9",
    spellings=(Spelling(r"sparcv9|sparc64", 64, ("sparcv9",)),),
    big_endian=r"sparcv9|sparc64",
    keys=("cpu",),
    cpus=(("", "v9"),),
    triples=(("", "sparcv9-unknown-linux-gnu"),),
    fused_multiply_add=(Capability(("osa2011",)),),
    cores=by_name({
        "niagara3 niagara4": Core(16, 128, Throughput(multiply_adds=1, loads=1, latency=11)),
    }),
    l1_kib=16,
    l2_kib=128,
)

INSTRUCTION_SETS = (SPARCV9,)
