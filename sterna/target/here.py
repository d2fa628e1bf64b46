"""This machine beside a target."""

from sterna.target.machine import machine_of
from sterna.target.target import Target


def runs_here(target: Target) -> bool:
    """Whether this machine runs what is compiled for a target."""
    machine, here = machine_of(target), machine_of(Target("llvm"))
    return machine.architecture == here.architecture and machine.triple == here.triple
