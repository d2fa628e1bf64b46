"""Machines that kernels are compiled for, the same wherever they are compiled.

Each is named in full: triple, processor and cores, from whose names the sizes of caches follow, so
that nothing depends on the machine that compiles.
"""

from collections.abc import Sequence

_X86 = "llvm -mtriple=x86_64-linux-gnu -mcpu="
_AARCH64 = "llvm -mtriple=aarch64-linux-gnu -mcpu="

_PROCESSORS = {
    "avx2": f"{_X86}haswell",
    "avx512": f"{_X86}skylake-avx512",
    "vnni": f"{_X86}cascadelake",
    "amx": f"{_X86}sapphirerapids",
    "neoverse-n1": f"{_AARCH64}neoverse-n1",
    "neoverse-v1": f"{_AARCH64}neoverse-v1",
    "cortex-a72": f"{_AARCH64}cortex-a72",
    "rvv": "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+m,+a,+f,+d,+c,+v",
    "wasm": "llvm -mtriple=wasm32-wasi -mattr=+simd128",
    "cortex-m4": "c -mcpu=cortex-m4",
}
_MANY_THREADS = ("avx2", "vnni", "amx", "neoverse-n1")

MACHINES: dict[str, str] = {
    **{name: f"{text} -num-cores=1" for name, text in _PROCESSORS.items()},
    **{f"{name}-16": f"{_PROCESSORS[name]} -num-cores=16" for name in _MANY_THREADS},
}
"""Targets by the names of machines; -16 has as many threads."""


def machines_named(names: Sequence[str]) -> dict[str, str]:
    """The targets of some machines, or of all."""
    unknown = [name for name in names if name not in MACHINES]
    if unknown:
        raise ValueError(
            f"there is no machine '{unknown[0]}'; choose from {', '.join(MACHINES)}"
        )
    return {name: MACHINES[name] for name in names or MACHINES}
