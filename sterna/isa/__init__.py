"""Instruction sets: one file each, found by listing this folder.

A file lists its INSTRUCTION_SETS, records of everything that is known of them: how triples spell
them, registers, cores with their caches and throughputs, and capabilities. A capability is named by
what it does and is a tuple of rows, the best first; a row names the features that it needs, in
LLVM's words, and LLVM's intrinsics where the code generator calls them:

    dot4=(
        Dot4(("avx512vnni", "avx512bw", "avx512vl"), intrinsics={("uint", "int"): {16: ...}}),
        Dot4(("avxvnni",), intrinsics={("uint", "int"): {8: ...}}),
    )

Nothing else knows a feature by name. A machine has the Instructions of its processor, and all that
is asked of features is asked there: provides("dot4"), or .dot4 for the row itself. Schedules are
told a Processor, which is made of a machine and nothing else.

Adding an instruction that does what a capability does is one row. Adding an instruction set is one
file, and LLVM's list of its processors and features in sterna/target/processors.
"""

from sterna.isa.instruction_set import (
    CAPABILITIES,
    NO_INSTRUCTIONS,
    Instructions,
    InstructionSet,
    instruction_sets,
    spelled,
)

__all__ = [
    "CAPABILITIES", "NO_INSTRUCTIONS", "InstructionSet", "Instructions", "instruction_sets",
    "spelled",
]
