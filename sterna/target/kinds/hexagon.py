"""hexagon: Qualcomm's DSP, whose code LLVM makes."""

from sterna.target.kind import Option, TargetKind, Value
from sterna.target.processor import refine_processor


def _refine(attrs: dict[str, Value]) -> tuple[str, ...]:
    # v68 is short for LLVM's hexagonv68; the text keeps what was written.
    cpu = str(attrs.get("mcpu", ""))
    full = f"hexagon{cpu}" if cpu[:1] == "v" else cpu
    checked = {"mtriple": "hexagon", **attrs, **({"mcpu": full} if full else {})}
    keys = refine_processor(checked)
    attrs |= {name: value for name, value in checked.items() if name == "mattr"}
    return keys


KIND = TargetKind(
    name="hexagon",
    device_type=16,
    default_keys=("hexagon", "cpu"),
    options=(
        Option("mtriple"),
        Option("mcpu"),
        Option("mattr", "list"),
        Option("num-cores", "int"),
        Option("vector-width", "int"),
        Option("vtcm-capacity", "int", 0),
        Option("llvm-options", "list"),
        Option("runtime"),
        Option("system-lib", "bool"),
    ),
    refine=_refine,
    codegen="sterna.target.code_generators.llvm",
    schedules=("sterna.schedule.default",),
    triple="hexagon-unknown-elf",
)
