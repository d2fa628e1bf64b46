"""This machine: its triple, processor, features, caches and GPU. Asked only when needed."""

import ctypes
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from sterna.isa import InstructionSet
from sterna.isa.capability import TileUnit
from sterna.target.triple import parse_triple

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSORS = Path("/proc/cpuinfo")

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
    isa = parse_triple(triple).isa
    features |= listed_features(isa)
    unit = isa.tile_unit
    if unit is not None:
        of_tiles = [name for name in features if name.startswith(unit.prefix)]
        if any(features[name] for name in of_tiles) and not grants_tiles(unit):
            features |= dict.fromkeys(of_tiles, False)
    return Host(
        triple,
        llvm.get_host_cpu_name(),
        tuple(sorted((str(name), bool(there)) for name, there in features.items())),
    )


def listed_features(isa: InstructionSet) -> dict[str, bool]:
    """Those that LLVM does not ask for, as Linux lists them; none where it lists nothing."""
    if not isa.linux_features:
        return {}
    try:
        line = re.search(r"^Features\s*:(.*)$", _PROCESSORS.read_text(), re.MULTILINE)
    except OSError:
        return {}
    listed = line[1].split() if line else []
    return {name: said in listed for said, name in isa.linux_features.items()} if listed else {}


def grants_tiles(unit: TileUnit) -> bool:
    """Whether the system lets this process use the processor's tiles, which it asks for."""
    if sys.platform != unit.system:
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    return bool(call(*unit.permission) == 0)


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
