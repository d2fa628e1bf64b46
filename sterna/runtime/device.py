"""Devices by name."""

import difflib
import importlib
import importlib.util
import re

from sterna.runtime import _core

# DLPack's numbers by the names that users write; targets name the device that they run on.
DEVICE_TYPES: dict[str, int] = {
    "cpu": 1, "llvm": 1, "c": 1, "stackvm": 1, "hybrid": 1, "composite": 1, "test": 1,
    "cuda": 2, "nvptx": 2, "gpu": 2,
    "cuda_host": 3,
    "opencl": 4, "cl": 4, "sdaccel": 4, "aocl": 4, "aocl_sw_emu": 4,
    "vulkan": 7,
    "metal": 8, "mtl": 8,
    "vpi": 9,
    "rocm": 10,
    "rocm_host": 11,
    "ext_dev": 12,
    "cuda_managed": 13,
    "oneapi": 14,
    "webgpu": 15,
    "hexagon": 16,
}

# Where the kinds of targets are listed; a machine that only runs models need not have it.
KINDS = "sterna.target.kind"

# The types of the nth other machine's devices are theirs plus n + 1 times this.
REMOTE_DEVICES = 128

_WITH_INDEX = re.compile(r"(\w+):(\d+)")


class Device(_core.Device):
    """One device: its kind and its number."""

    __slots__ = ()


def device(name: str | int, index: int = 0) -> Device:
    """The device with a name like "cpu", "cuda:1" or the target "llvm -mcpu=native"."""
    if isinstance(name, int):
        return Device(name, index)
    if not isinstance(name, str):
        raise TypeError(f"a device is named by text or by a number, not by {name!r}")
    words = name.split()
    first = words[0] if words else ""
    if match := _WITH_INDEX.fullmatch(first):
        if index:
            raise ValueError(f"device '{name}' has a number already; drop index={index}")
        first, index = match[1], int(match[2])
    number = DEVICE_TYPES.get(first) or _type_of_kind(first)
    if number is None:
        near = difflib.get_close_matches(first, DEVICE_TYPES, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "one of " + ", ".join(DEVICE_TYPES)
        raise ValueError(f"unknown device '{name}'; {hint}")
    return Device(number, index)


def _type_of_kind(name: str) -> int | None:
    """The device that a kind of target runs on which was added from elsewhere."""
    if importlib.util.find_spec(KINDS) is None:
        return None
    kind = importlib.import_module(KINDS).all_kinds().get(name)
    return None if kind is None else int(kind.device_type)


def cpu(index: int = 0) -> Device:
    """The machine's processor."""
    return Device(1, index)


def cuda(index: int = 0) -> Device:
    """An NVIDIA GPU."""
    return Device(2, index)


def opencl(index: int = 0) -> Device:
    """An OpenCL device."""
    return Device(4, index)


def vulkan(index: int = 0) -> Device:
    """A Vulkan device."""
    return Device(7, index)


def metal(index: int = 0) -> Device:
    """An Apple GPU."""
    return Device(8, index)


def vpi(index: int = 0) -> Device:
    """A simulated device."""
    return Device(9, index)


def rocm(index: int = 0) -> Device:
    """An AMD GPU."""
    return Device(10, index)


def ext_dev(index: int = 0) -> Device:
    """A device of somebody else's making."""
    return Device(12, index)


def webgpu(index: int = 0) -> Device:
    """A GPU behind WebGPU."""
    return Device(15, index)


def hexagon(index: int = 0) -> Device:
    """A Qualcomm Hexagon DSP."""
    return Device(16, index)
