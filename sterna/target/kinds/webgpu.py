"""webgpu: GPUs in a browser."""

from sterna.target.kind import Option, TargetKind

KIND = TargetKind(
    name="webgpu",
    device_type=15,
    default_keys=("webgpu", "gpu"),
    options=(
        Option("max_num_threads", "int", 256),
        Option("max_threads_per_block", "int", 256),
        Option("max_shared_memory_per_block", "int", 16384),
        Option("thread_warp_size", "int", 1),
    ),
)
