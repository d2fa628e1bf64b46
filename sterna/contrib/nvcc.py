"""What a CUDA GPU has, by the names that users of the classic API know; no toolkit is asked.

Kernels become PTX through LLVM, so that nvcc is not needed and not looked for.
"""

import re
from typing import Any

from sterna.target import Target

# The least compute capabilities that have a thing.
_FP16, _FP16_TOO = (5, 3), (6, 0)
_INT8, _TENSOR_CORES, _BF16, _FP8 = (6, 1), (7, 0), (8, 0), (8, 9)


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """"9.0" or "9.0.a" as two numbers."""
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\w+)?", compute_version)
    if found is None:
        raise ValueError(f"'{compute_version}' is no compute version such as 8.0 or 9.0.a")
    return int(found[1]), int(found[2])


def get_target_compute_version(target: Any = None) -> str:
    """The compute version of a target, "8.0" or "9.0.a"; without one of the current target.

    Where neither says it, the first GPU of this machine does.
    """
    asked = Target(target) if target is not None else Target.current(allow_none=True)
    arch = asked.attrs.get("arch") if asked is not None else None
    if arch is None:
        arch = Target("cuda -from_device=0").attrs["arch"]
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", str(arch))
    if found is None:
        raise ValueError(f"'{arch}' is no GPU such as sm_80")
    return ".".join(part for part in found.groups() if part)


def _version(compute_version: str | None = None, target: Any = None) -> tuple[int, int]:
    return parse_compute_version(compute_version or get_target_compute_version(target))


def have_fp16(compute_version: str) -> bool:
    """Whether float16 is computed natively."""
    version = parse_compute_version(compute_version)
    return version == _FP16 or version >= _FP16_TOO


def have_int8(compute_version: str) -> bool:
    """Whether four products of bytes are one instruction."""
    return parse_compute_version(compute_version) >= _INT8


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    """Whether there are Tensor Cores."""
    return _version(compute_version, target) >= _TENSOR_CORES


def have_cudagraph() -> bool:
    """Whether launches are recorded and replayed as a whole: every driver that we load does."""
    return True


def have_bf16(compute_version: str) -> bool:
    """Whether bfloat16 is computed natively."""
    return parse_compute_version(compute_version) >= _BF16


def have_fp8(compute_version: str) -> bool:
    """Whether Tensor Cores take float8."""
    return parse_compute_version(compute_version) >= _FP8
