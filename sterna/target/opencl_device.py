"""What an OpenCL device of this machine says of itself."""

from collections.abc import Mapping

from sterna.runtime.device import opencl
from sterna.target.kind import Value


def ask(index: int) -> Mapping[str, Value]:
    """The options of a live OpenCL device."""
    device = opencl(index)
    if not device.exist:
        raise ValueError(f"-from_device={index}: this machine has no such OpenCL device")
    threads, shared = device.max_threads_per_block, device.max_shared_memory_per_block
    asked = {
        "max_threads_per_block": threads, "max_num_threads": threads,
        "max_shared_memory_per_block": shared, "thread_warp_size": device.warp_size,
    }
    return {name: value for name, value in asked.items() if value is not None}
