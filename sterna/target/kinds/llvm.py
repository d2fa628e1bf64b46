"""llvm: machine code for a processor, made by LLVM."""

from sterna.target.kind import Option, TargetKind
from sterna.target.processor import PROCESSOR_OPTIONS, refine_processor

KIND = TargetKind(
    name="llvm",
    device_type=1,
    default_keys=("cpu",),
    options=(
        *PROCESSOR_OPTIONS,
        Option("fast-math", "bool"),
        Option("fast-math-nnan", "bool"),
        Option("fast-math-ninf", "bool"),
        Option("fast-math-nsz", "bool"),
        Option("fast-math-arcp", "bool"),
        Option("fast-math-contract", "bool"),
        Option("fast-math-reassoc", "bool"),
        Option("opt-level", "int"),
        Option("cl-opt", "list"),
        Option("jit"),
        Option("runtime"),
        Option("system-lib", "bool"),
    ),
    refine=refine_processor,
    codegen="sterna.target.code_generators.llvm",
    schedules=("sterna.schedule.default",),
    triple="host",
)
