"""WebAssembly: vectors of 128 bits (simd128), and the relaxed ones that fuse multiply-adds."""

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

WASM = InstructionSet(
    name="wasm",
    spellings=(Spelling(r"wasm32", 32, ("wasm32",)), Spelling(r"wasm64", 64, ("wasm64",))),
    object_format="wasm",
    static_code=True,
    triples=(("", "wasm32-unknown-unknown"),),
    vectors="simd128",
    registers=(VectorRegisters(("simd128",), bits=128, count=16),),
    fused_multiply_add=(Capability(("relaxed-simd",)),),
)

INSTRUCTION_SETS = (WASM,)
