"""vulkan: GPUs through SPIR-V."""

from sterna.target.kind import Option, TargetKind

_SUPPORTS = (
    "float16", "float64", "int8", "int16", "int64", "8bit_buffer", "16bit_buffer",
    "storage_buffer_storage_class", "push_descriptor", "dedicated_allocation",
    "integer_dot_product", "cooperative_matrix",
)

_LIMITS = (
    "supported_subgroup_operations", "max_block_size_x", "max_block_size_y", "max_block_size_z",
    "max_push_constants_size", "max_uniform_buffer_range", "max_storage_buffer_range",
    "max_per_stage_descriptor_storage_buffer", "max_shared_memory_per_block",
    "driver_version", "vulkan_api_version", "max_spirv_version",
)

KIND = TargetKind(
    name="vulkan",
    device_type=7,
    default_keys=("vulkan", "gpu"),
    options=(
        Option("mattr", "list"),
        Option("max_num_threads", "int", 256),
        Option("max_threads_per_block", "int", 256),
        Option("thread_warp_size", "int", 1),
        Option("supports_float32", "bool", True),
        Option("supports_int32", "bool", True),
        *(Option(f"supports_{what}", "bool") for what in _SUPPORTS),
        *(Option(name, "int") for name in _LIMITS),
        Option("device_type"),
        Option("device_name"),
        Option("driver_name"),
    ),
)
