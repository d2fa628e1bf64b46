"""Names of well-known devices and the targets that they stand for."""

from collections.abc import Mapping
from typing import Any

from sterna.isa.aarch64 import AARCH64


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


def _raspberry_pi(cpu: str, cores: int) -> dict[str, Any]:
    vectors = AARCH64.registers[-1].needs
    return {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": cpu,
        "mattr": [f"+{feature}" for feature in vectors],
        "num-cores": cores,
    }


def _jetson(arch: str, cpu: str, cores: int, registers: int = 65536) -> dict[str, Any]:
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}
    return _cuda(arch, registers, host=host)


def _x86(cpu: str, cores: int) -> dict[str, Any]:
    return {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu, "num-cores": cores}


# NVIDIA's GPUs by what they can do, of which no more is known here.
_NVIDIA_GPUS = {
    "sm_35": "tesla-k20 tesla-k40 geforce-gtx-780 geforce-gtx-780-ti geforce-gtx-titan",
    "sm_37": "tesla-k80",
    "sm_50": "geforce-gtx-750 geforce-gtx-750-ti quadro-k620",
    "sm_52": "tesla-m40 tesla-m60 geforce-gtx-970 geforce-gtx-980 geforce-gtx-980-ti "
             "geforce-gtx-titan-x quadro-m4000 quadro-m5000",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": "tesla-p4 tesla-p40 geforce-gtx-1050 geforce-gtx-1060 geforce-gtx-1070 "
             "geforce-gtx-1080 geforce-gtx-1080-ti nvidia-titan-x nvidia-titan-xp quadro-p4000 "
             "quadro-p5000 quadro-p6000",
    "sm_70": "tesla-v100 nvidia-titan-v quadro-gv100",
    "sm_75": "geforce-gtx-1650 geforce-gtx-1660 geforce-gtx-1660-ti geforce-rtx-2060 "
             "geforce-rtx-2070 geforce-rtx-2080 geforce-rtx-2080-ti nvidia-titan-rtx "
             "quadro-rtx-4000 quadro-rtx-5000 quadro-rtx-6000 quadro-rtx-8000",
    "sm_80": "nvidia-a30",
    "sm_86": "nvidia-a2 nvidia-a10 nvidia-a16 nvidia-a40 rtx-a2000 rtx-a4000 rtx-a5000 rtx-a6000 "
             "geforce-rtx-3050 geforce-rtx-3060 geforce-rtx-3070 geforce-rtx-3080 "
             "geforce-rtx-3080-ti geforce-rtx-3090 geforce-rtx-3090-ti",
    "sm_89": "nvidia-l4 nvidia-l40 nvidia-l40s rtx-6000-ada geforce-rtx-4060 geforce-rtx-4070 "
             "geforce-rtx-4080",
    "sm_100a": "nvidia-b100 nvidia-b200",
    "sm_120a": "geforce-rtx-5070 geforce-rtx-5080 geforce-rtx-5090",
}

TAGS: Mapping[str, Mapping[str, Any]] = {
    **{
        f"nvidia/{name}": _cuda(arch)
        for arch, names in _NVIDIA_GPUS.items() for name in names.split()
    },
    "nvidia/nvidia-t4": _cuda("sm_75", l2_cache_size_bytes=4 << 20),
    "nvidia/nvidia-a10g": _cuda("sm_86", l2_cache_size_bytes=6 << 20),
    "nvidia/nvidia-a100": _cuda("sm_80", l2_cache_size_bytes=40 << 20),
    "nvidia/nvidia-h100": _cuda("sm_90a", l2_cache_size_bytes=50 << 20),
    "nvidia/nvidia-h200": _cuda("sm_90a", l2_cache_size_bytes=60 << 20),
    "nvidia/geforce-rtx-4090": _cuda("sm_89", l2_cache_size_bytes=72 << 20),
    "nvidia/jetson-nano": _jetson("sm_53", "cortex-a57", 4, registers=32768),
    "nvidia/jetson-tx2": _jetson("sm_62", "cortex-a57", 4, registers=32768),
    "nvidia/jetson-agx-xavier": _jetson("sm_72", "carmel", 8),
    "nvidia/jetson-xavier-nx": _jetson("sm_72", "carmel", 6),
    "nvidia/jetson-orin-nano": _jetson("sm_87", "cortex-a78", 6),
    "nvidia/jetson-orin-nx": _jetson("sm_87", "cortex-a78", 8),
    "nvidia/jetson-agx-orin-32gb": _jetson("sm_87", "cortex-a78", 8),
    "nvidia/jetson-agx-orin-64gb": _jetson("sm_87", "cortex-a78", 12),
    "raspberry-pi/3b-aarch64": _raspberry_pi("cortex-a53", 4),
    "raspberry-pi/4b-aarch64": _raspberry_pi("cortex-a72", 4),
    "raspberry-pi/5-aarch64": _raspberry_pi("cortex-a76", 4),
    "aws/cpu/c5.large": _x86("skylake-avx512", 1),
    "aws/cpu/c5.xlarge": _x86("skylake-avx512", 2),
    "aws/cpu/c5.2xlarge": _x86("skylake-avx512", 4),
    "aws/cpu/c5.4xlarge": _x86("skylake-avx512", 8),
    "aws/cpu/c5.9xlarge": _x86("skylake-avx512", 18),
}


def list_tags() -> dict[str, dict[str, Any]]:
    """The tags and what they stand for."""
    return {name: dict(options) for name, options in TAGS.items()}
