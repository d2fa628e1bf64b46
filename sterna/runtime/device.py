"""Devices by name."""

import difflib
import importlib
import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any

from sterna.runtime import _core
from sterna.runtime.registry import get_global_func

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


# What a device tells of itself, by the numbers under which its back end knows it.
_ATTRIBUTES = {
    "max_threads_per_block": 1, "warp_size": 2, "max_shared_memory_per_block": 3,
    "compute_version": 4, "device_name": 5, "max_clock_rate": 6, "multi_processor_count": 7,
    "max_thread_dimensions": 8, "api_version": 11, "driver_version": 12,
    "l2_cache_size_bytes": 13, "total_global_memory": 14, "available_global_memory": 15,
}


class Device(_core.Device):
    """One device: its kind and its number.

    What a GPU tells of itself is None where it tells nothing, and where there is no such device.
    """

    __slots__ = ()

    def _attribute(self, name: str) -> Any:
        ask = self._ask("attribute") if self.exist else None
        return None if ask is None else ask(self.device_id, _ATTRIBUTES[name])

    def _number(self, name: str) -> int | None:
        found = self._attribute(name)
        return None if found is None else int(found)

    def _text(self, name: str) -> str | None:
        found = self._attribute(name)
        return None if found is None else str(found)

    def _ask(self, what: str) -> Callable[..., Any] | None:
        """The function by which its back end answers a question, if it does."""
        kind = device_kind(self.device_type)
        found: Callable[..., Any] | None = get_global_func(f"sterna.{what}.{kind}", True)
        return found

    def create_raw_stream(self) -> int | None:
        """A new stream, which waits for no other; None where the device has none.

        free_raw_stream ends it.
        """
        made = self._stream("create_stream")
        return None if made is None else int(made)

    def free_raw_stream(self, stream: int | None) -> None:
        """End a stream that create_raw_stream made, when all that is in it is done."""
        if stream is not None:
            self._stream("free_stream", stream)

    def set_raw_stream(self, stream: int | None) -> None:
        """Let all that this thread does on the device from now on be done in a stream.

        None is the default stream, which PyTorch works in unless it is told otherwise.
        """
        self._stream("set_stream", stream or 0)

    def sync(self, stream: int | None = None) -> None:
        """Wait until all work on the device, or in one of its streams, is done."""
        if stream is None:
            super().sync()
        else:
            self._stream("sync_stream", stream)

    def _stream(self, what: str, *values: int) -> Any:
        ask = self._ask(what) if self.exist else None
        return None if ask is None else ask(self.device_id, *values)

    def finished_at(self) -> float | None:
        """The second, by its own clock, at which a device is done with all that it was given.

        None if it has no clock.
        """
        ask = self._ask("time")
        return None if ask is None else float(ask(self.device_id)) * 1e-9

    @property
    def max_threads_per_block(self) -> int | None:
        """The threads of a block at most."""
        return self._number("max_threads_per_block")

    @property
    def warp_size(self) -> int | None:
        """Threads that run in step."""
        return self._number("warp_size")

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """Bytes that the threads of a block share at most."""
        return self._number("max_shared_memory_per_block")

    @property
    def compute_version(self) -> str | None:
        """What its maker calls its abilities."""
        return self._text("compute_version")

    @property
    def device_name(self) -> str | None:
        """What its maker calls it."""
        return self._text("device_name")

    @property
    def max_clock_rate(self) -> int | None:
        """Its highest clock in kHz."""
        return self._number("max_clock_rate")

    @property
    def multi_processor_count(self) -> int | None:
        """How many blocks run at once at least."""
        return self._number("multi_processor_count")

    @property
    def max_thread_dimensions(self) -> list[int] | None:
        """The threads of a block at most in x, y and z."""
        text = self._text("max_thread_dimensions")
        return None if text is None else [int(size) for size in json.loads(text)]

    @property
    def api_version(self) -> str | None:
        """That of the interface which its driver offers."""
        return self._text("api_version")

    @property
    def driver_version(self) -> str | None:
        """That of what runs its kernels."""
        return self._text("driver_version")

    @property
    def l2_cache_size_bytes(self) -> int | None:
        """The cache that all blocks share."""
        return self._number("l2_cache_size_bytes")

    @property
    def total_global_memory(self) -> int | None:
        """Bytes of its memory."""
        return self._number("total_global_memory")

    @property
    def available_global_memory(self) -> int | None:
        """Those that nobody uses now."""
        return self._number("available_global_memory")


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


def device_type_of(place: Any) -> int:
    """DLPack's number of the kind of device that a device, its name or number, or a target says."""
    if isinstance(place, _core.Device):
        return int(place.device_type)
    if ask := getattr(place, "get_target_device_type", None):
        return int(ask())
    return int(device(place).device_type)


def device_kind(device_type: int) -> str:
    """The name of a kind of device, by DLPack's number."""
    return next((kind for kind, number in DEVICE_TYPES.items() if number == device_type), "")


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
