"""This machine beside a target."""

from sterna.runtime.device import device
from sterna.target.for_schedules import is_gpu
from sterna.target.machine import machine_of
from sterna.target.target import Target


def runs_here(target: Target) -> bool:
    """Whether this machine runs what is compiled for a target."""
    if is_gpu(target):
        host = runs_here(target.host) if target.host is not None else True
        return host and device(target.kind.device_type, 0).exist
    machine, here = machine_of(target), machine_of(Target("llvm"))
    return machine.architecture == here.architecture and machine.triple == here.triple
