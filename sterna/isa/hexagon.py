"""Hexagon: Qualcomm's DSP, and its vector unit HVX."""

from collections.abc import Mapping

from sterna.isa.capability import Capability, VectorRegisters
from sterna.isa.instruction_set import InstructionSet, Spelling

# Any of them turns HVX on.
_HVX = (
    "hvx", "hvx-length128b", "hvx-ieee-fp", "hvx-qfloat", "hvxv60", "hvxv62", "hvxv65", "hvxv66",
    "hvxv67", "hvxv68", "hvxv69", "hvxv71", "hvxv73", "hvxv75", "hvxv79", "hvxv81",
)

HEXAGON = InstructionSet(
    name="hexagon",
    spellings=(Spelling(r"hexagon", 32, ("hexagon",)),),
    cpus=(("", "hexagonv68"),),
    triples=(("", "hexagon-unknown-elf"),),
    registers=(
        VectorRegisters(("hvx-length64b",), bits=512, count=32),
        *(VectorRegisters((name,), bits=1024, count=32) for name in _HVX),
    ),
    fused_multiply_add=(Capability(),),
)

INSTRUCTION_SETS = (HEXAGON,)


VERSIONS: Mapping[str, int] = {
    "v65": 256 << 10, "v66": 256 << 10, "v67": 256 << 10, "v68": 4 << 20, "v69": 8 << 20,
    "v71": 8 << 20, "v73": 8 << 20, "v75": 8 << 20,
}
"""The versions with HVX, and the bytes of the fast memory beside it (VTCM)."""


def vector_features(version: str) -> list[str]:
    """What -mattr takes to turn on HVX in its common length, of a version."""
    return [f"+hvx{version}", "+hvx-length128b"]
