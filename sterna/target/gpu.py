"""What the NVIDIA driver says of a GPU of this machine."""

import ctypes
import sys
from collections.abc import Mapping
from functools import cache

from sterna.target.kind import Value

# The driver's numbers for what it tells, and our options for it.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_shared_memory_per_block": 8,
    "thread_warp_size": 10,
    "registers_per_block": 12,
    "l2_cache_size_bytes": 38,
}
_MAJOR, _MINOR = 75, 76


@cache
def cuda_device(index: int) -> Mapping[str, Value] | None:
    """The options of a live CUDA device, or None if there is none."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return None
    device = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None

    def ask(attribute: int) -> int | None:
        value = ctypes.c_int()
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        return None if failed else value.value

    major, minor = ask(_MAJOR), ask(_MINOR)
    if major is None or minor is None:
        return None
    told = {name: ask(attribute) for name, attribute in _ATTRIBUTES.items()}
    found: dict[str, Value] = {name: value for name, value in told.items() if value is not None}
    # Code for 9.0 itself has what no later GPU is sure to have.
    letter = "a" if (major, minor) == (9, 0) else ""
    return {"arch": f"sm_{major}{minor}{letter}", **found}
