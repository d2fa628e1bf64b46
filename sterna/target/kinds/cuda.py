"""cuda: NVIDIA GPUs."""

import warnings
from collections.abc import Mapping

from sterna.target.gpu import cuda_device
from sterna.target.kind import Option, TargetKind, Value
from sterna.target.names import names_of
from sterna.target.wording import unknown

TF32 = (0, 1, 3)
"""How many products of tf32 may stand for one of float32."""


def _refine(attrs: dict[str, Value]) -> tuple[str, ...]:
    arch = attrs.get("arch")
    if attrs.get("tf32", 0) not in TF32:
        raise ValueError(
            f"-tf32={attrs['tf32']}: how many products of tf32 stand for one of float32 is 1, 3 "
            "for nearly all of its bits, or 0 for none"
        )
    if not arch:
        device = cuda_device(0)
        if device is not None:
            attrs["arch"] = device["arch"]
        else:
            warnings.warn(
                'Unable to detect CUDA version, default to "-arch=sm_50" instead',
                UserWarning,
                stacklevel=4,
            )
            attrs["arch"] = "sm_50"
    elif arch not in names_of("nvptx").cpus:
        raise unknown(str(arch), names_of("nvptx").cpus, "It should be the -arch of a CUDA device")
    plain = attrs.get("plain_arch")
    if plain and (plain not in names_of("nvptx").cpus or not str(plain)[-1].isdigit()):
        known = [name for name in names_of("nvptx").cpus if name[-1].isdigit()]
        raise unknown(str(plain), known, "It should be the -plain_arch that later GPUs run too")
    return ()


def _ask(index: int) -> Mapping[str, Value]:
    device = cuda_device(index)
    if device is None:
        raise ValueError(f"-from_device={index}: this machine has no such CUDA device")
    return device


KIND = TargetKind(
    name="cuda",
    device_type=2,
    default_keys=("cuda", "gpu"),
    codegen="sterna.target.code_generators.cuda",
    schedules=("sterna.schedule.gpu.default",),
    options=(
        Option("arch"),
        Option("plain_arch"),
        Option("mcpu"),
        Option("max_num_threads", "int", 1024),
        Option("thread_warp_size", "int", 32),
        Option("max_threads_per_block", "int"),
        Option("max_shared_memory_per_block", "int"),
        Option("registers_per_block", "int"),
        Option("l2_cache_size_bytes", "int"),
        Option("tf32", "int"),
    ),
    refine=_refine,
    triple="nvptx64-nvidia-cuda",
    query_device=_ask,
)
