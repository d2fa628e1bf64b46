"""metal: Apple GPUs."""

from sterna.target.kind import Option, TargetKind

KIND = TargetKind(
    name="metal",
    device_type=8,
    default_keys=("metal", "gpu"),
    options=(
        Option("max_num_threads", "int", 256),
        Option("max_threads_per_block", "int", 256),
        Option("max_shared_memory_per_block", "int", 32768),
        Option("thread_warp_size", "int", 16),
        Option("max_function_args", "int", 31),
    ),
)
