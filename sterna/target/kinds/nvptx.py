"""nvptx: NVIDIA GPUs through LLVM."""

from sterna.target.kind import Option, TargetKind
from sterna.target.processor import refine_processor

KIND = TargetKind(
    name="nvptx",
    device_type=2,
    default_keys=("cuda", "gpu"),
    codegen="sterna.target.code_generators.cuda",
    schedules=("sterna.schedule.gpu.default",),
    options=(
        Option("mtriple", default="nvptx64-nvidia-cuda"),
        Option("mcpu"),
        Option("max_num_threads", "int", 1024),
        Option("thread_warp_size", "int", 32),
    ),
    refine=refine_processor,
    triple="nvptx64-nvidia-cuda",
)
