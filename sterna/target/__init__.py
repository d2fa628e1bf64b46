"""What code is made for: targets, their kinds, and the machines that they stand for."""

from sterna.support.classic import classic_names
from sterna.target.for_schedules import host_of, is_gpu, plain_of, processor_of
from sterna.target.generic_func import (
    GenericFunc,
    generic_func,
    get_native_generic_func,
    override_native_generic_func,
)
from sterna.target.kind import Option, TargetKind, register
from sterna.target.machine import Machine, instructions_of, is_microcontroller, machine_of
from sterna.target.needed import needed
from sterna.target.shortcuts import (
    adreno,
    arm_cpu,
    bifrost,
    create,
    cuda,
    hexagon,
    intel_graphics,
    mali,
    micro,
    riscv_cpu,
    rocm,
)
from sterna.target.tags import list_tags
from sterna.target.target import Target

__all__ = [
    "GenericFunc", "Machine", "Option", "Target", "TargetKind",
    "generic_func", "get_native_generic_func", "override_native_generic_func",
    "adreno", "arm_cpu", "bifrost", "create", "cuda", "hexagon", "host_of", "instructions_of",
    "intel_graphics", "is_gpu", "is_microcontroller",
    "list_tags", "machine_of", "mali", "micro", "needed", "plain_of",
    "processor_of", "register", "riscv_cpu", "rocm",
]

__getattr__ = classic_names(__name__)
