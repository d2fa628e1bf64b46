"""hexagon: Qualcomm's DSP, whose code LLVM makes."""

from collections.abc import Mapping

from sterna.target.kind import Option, TargetKind, Value
from sterna.target.processor import refine_processor

VERSIONS: Mapping[str, int] = {
    "v65": 256 << 10, "v66": 256 << 10, "v67": 256 << 10, "v68": 4 << 20, "v69": 8 << 20,
    "v71": 8 << 20, "v73": 8 << 20, "v75": 8 << 20,
}
"""The versions with a vector unit, and the bytes of fast memory beside it."""


def vector_features(version: str) -> list[str]:
    """The features that turn on the vector unit of a version."""
    return [f"+hvx{version}", "+hvx-length128b"]


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
