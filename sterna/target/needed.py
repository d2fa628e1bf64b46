"""What code says of the processor that it needs; see runtime/src/processor.c."""

from sterna.target.machine import Machine


def needed(*machines: Machine) -> str:
    """A processor's name and those of its features that others may lack and all of these have.

    Code for several processors may be there for one to be chosen of them.
    """
    first = machines[0]
    looked_for = first.instructions.isa.loader_features.split()
    held = [name for name in looked_for if all(each.has(name) for each in machines)]
    return " ".join([first.cpu, *held]) if looked_for else ""
