"""c: C99 source for whatever compiler the device has."""

from sterna.target.kind import Option, TargetKind
from sterna.target.processor import PROCESSOR_OPTIONS, refine_processor

KIND = TargetKind(
    name="c",
    device_type=1,
    default_keys=("cpu",),
    options=(
        *PROCESSOR_OPTIONS,
        Option("march"),
        Option("mfpu"),
        Option("mtune"),
        Option("runtime"),
        Option("system-lib", "bool"),
        Option("workspace-byte-alignment", "int"),
        Option("constants-byte-alignment", "int"),
    ),
    refine=refine_processor,
    codegen="sterna.target.code_generators.c",
    schedules=("sterna.schedule.default",),
    triple="host",
)
