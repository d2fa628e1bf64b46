"""Names of well-known devices and the targets that they stand for."""

from collections.abc import Mapping
from typing import Any


def _cuda(arch: str, registers: int = 65536, shared: int = 49152, **more: Any) -> dict[str, Any]:
    return {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": shared,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": registers,
        **more,
    }


def _arm(cpu: str, features: str, cores: int, triple: str = "aarch64-linux-gnu") -> dict[str, Any]:
    return {
        "kind": "llvm",
        "mtriple": triple,
        "mcpu": cpu,
        "mattr": features.split(),
        "num-cores": cores,
    }


def _jetson(arch: str, cpu: str, cores: int, registers: int = 65536) -> dict[str, Any]:
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}
    return _cuda(arch, registers, host=host)


def _x86(cpu: str, cores: int) -> dict[str, Any]:
    return {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu, "num-cores": cores}


TAGS: Mapping[str, Mapping[str, Any]] = {
    "nvidia/tesla-k80": _cuda("sm_37"),
    "nvidia/tesla-p100": _cuda("sm_60"),
    "nvidia/tesla-p4": _cuda("sm_61"),
    "nvidia/tesla-v100": _cuda("sm_70"),
    "nvidia/nvidia-t4": _cuda("sm_75", l2_cache_size_bytes=4 << 20),
    "nvidia/nvidia-a10g": _cuda("sm_86", l2_cache_size_bytes=6 << 20),
    "nvidia/nvidia-a100": _cuda("sm_80", l2_cache_size_bytes=40 << 20),
    "nvidia/nvidia-h100": _cuda("sm_90a", l2_cache_size_bytes=50 << 20),
    "nvidia/geforce-gtx-1080-ti": _cuda("sm_61"),
    "nvidia/geforce-rtx-2080-ti": _cuda("sm_75"),
    "nvidia/geforce-rtx-3070": _cuda("sm_86"),
    "nvidia/geforce-rtx-3080": _cuda("sm_86"),
    "nvidia/geforce-rtx-3090": _cuda("sm_86"),
    "nvidia/geforce-rtx-3090-ti": _cuda("sm_86"),
    "nvidia/geforce-rtx-4090": _cuda("sm_89", l2_cache_size_bytes=72 << 20),
    "nvidia/jetson-nano": _jetson("sm_53", "cortex-a57", 4, registers=32768),
    "nvidia/jetson-tx2": _jetson("sm_62", "cortex-a57", 4, registers=32768),
    "nvidia/jetson-agx-xavier": _jetson("sm_72", "carmel", 8),
    "nvidia/jetson-agx-orin-32gb": _jetson("sm_87", "cortex-a78", 8),
    "nvidia/jetson-agx-orin-64gb": _jetson("sm_87", "cortex-a78", 12),
    "raspberry-pi/3b-aarch64": _arm("cortex-a53", "+neon", 4),
    "raspberry-pi/4b-aarch64": _arm("cortex-a72", "+neon", 4),
    "raspberry-pi/5-aarch64": _arm("cortex-a76", "+neon", 4),
    "aws/cpu/c5.large": _x86("skylake-avx512", 1),
    "aws/cpu/c5.xlarge": _x86("skylake-avx512", 2),
    "aws/cpu/c5.2xlarge": _x86("skylake-avx512", 4),
    "aws/cpu/c5.4xlarge": _x86("skylake-avx512", 8),
    "aws/cpu/c5.9xlarge": _x86("skylake-avx512", 18),
}


def list_tags() -> dict[str, dict[str, Any]]:
    """The tags and what they stand for."""
    return {name: dict(options) for name, options in TAGS.items()}
