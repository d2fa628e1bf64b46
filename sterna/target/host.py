"""This machine: its triple, processor, features, caches and GPU. Asked only when needed."""

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSORS = Path("/proc/cpuinfo")
# What Linux calls the features of AArch64 that LLVM does not ask it for, and LLVM's names for them.
_OF_AARCH64 = {
    "asimddp": "dotprod", "asimdfhm": "fp16fml", "asimdhp": "fullfp16", "asimdrdm": "rdm",
    "bf16": "bf16", "fcma": "complxnum", "frint": "fptoint", "i8mm": "i8mm", "jscvt": "jsconv",
    "lrcpc": "rcpc", "sve": "sve", "sve2": "sve2",
}
# Of Linux on x86-64: the number of a system call and what it is asked.
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Host:
    """What LLVM and the system say of this machine."""

    triple: str
    cpu: str
    features: tuple[tuple[str, bool], ...]
    """Each feature that is tested for and whether it is there; its name says the others."""


@cache
def host() -> Host:
    """This machine."""
    triple, features = llvm.get_process_triple(), llvm.get_host_cpu_features()
    if triple.startswith("aarch64"):
        features |= features_of_aarch64()
    if any(there for name, there in features.items() if _is_of_tiles(name)) and not grants_tiles():
        features |= dict.fromkeys(filter(_is_of_tiles, features), False)
    return Host(
        triple,
        llvm.get_host_cpu_name(),
        tuple(sorted((str(name), bool(there)) for name, there in features.items())),
    )


def features_of_aarch64() -> dict[str, bool]:
    """Those that Linux lists and those that it does not; none where it lists nothing."""
    try:
        line = re.search(r"^Features\s*:(.*)$", _PROCESSORS.read_text(), re.MULTILINE)
    except OSError:
        return {}
    listed = line[1].split() if line else []
    return {name: said in listed for said, name in _OF_AARCH64.items()} if listed else {}


def _is_of_tiles(feature: str) -> bool:
    return feature.startswith("amx-")


def grants_tiles() -> bool:
    """Whether the system lets this process use the processor's tiles, which it asks for."""
    if sys.platform != "linux":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return bool(call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


@cache
def cache_bytes() -> dict[int, int]:
    """Sizes of the data caches by level, as far as the system tells."""
    found: dict[int, int] = {}
    for entry in sorted(_CACHES.glob("index*")):
        try:
            level = int((entry / "level").read_text())
            kind = (entry / "type").read_text().strip()
            size = (entry / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if match and kind != "Instruction":
            found[level] = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    return found


def cores() -> int:
    """The processors that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
