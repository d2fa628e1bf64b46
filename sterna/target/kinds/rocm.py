"""rocm: AMD GPUs."""

from sterna.target.kind import Option, TargetKind
from sterna.target.processor import refine_processor

KIND = TargetKind(
    name="rocm",
    device_type=10,
    default_keys=("rocm", "gpu"),
    options=(
        Option("mtriple", default="amdgcn-amd-amdhsa"),
        Option("mcpu", default="gfx900"),
        Option("mattr", "list"),
        Option("max_num_threads", "int", 256),
        Option("max_threads_per_block", "int", 256),
        Option("max_shared_memory_per_block", "int", 65536),
        Option("thread_warp_size", "int", 64),
    ),
    refine=refine_processor,
    triple="amdgcn-amd-amdhsa",
)
