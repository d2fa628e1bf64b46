"""opencl: any OpenCL device."""

from sterna.target.kind import Option, TargetKind

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
    query_device="sterna.target.opencl_device",
)
