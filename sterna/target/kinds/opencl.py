"""opencl: any OpenCL device."""

from collections.abc import Mapping

from sterna.runtime.device import opencl
from sterna.target.kind import Option, TargetKind, Value


def _ask(index: int) -> Mapping[str, Value]:
    device = opencl(index)
    if not device.exist:
        raise ValueError(f"-from_device={index}: this machine has no such OpenCL device")
    threads, shared = device.max_threads_per_block, device.max_shared_memory_per_block
    asked = {
        "max_threads_per_block": threads, "max_num_threads": threads,
        "max_shared_memory_per_block": shared, "thread_warp_size": device.warp_size,
    }
    return {name: value for name, value in asked.items() if value is not None}


KIND = TargetKind(
    name="opencl",
    device_type=4,
    default_keys=("opencl", "gpu"),
    codegen="sterna.target.code_generators.opencl",
    schedules=("sterna.schedule.gpu.default",),
    options=(
        Option("max_num_threads", "int", 256),
        Option("max_threads_per_block", "int", 256),
        Option("max_shared_memory_per_block", "int", 16384),
        Option("thread_warp_size", "int", 1),
        Option("texture_spatial_limit", "int", 16384),
        Option("texture_depth_limit", "int", 2048),
        Option("max_function_args", "int", 128),
        Option("image_base_address_alignment", "int", 64),
    ),
    query_device=_ask,
)
