"""What is known of processors by their names: caches, and what they do in a cycle."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Core:
    """One core; of a cache that several share, its part."""

    l1_kib: int | None = None
    l2_kib: int | None = None
    multiply_adds: int = 2
    """Vectors of products that it adds in a cycle."""
    loads: int = 2
    latency: int = 4
    """Cycles of a multiply-add."""
    issued: int = 4
    """Instructions of any kind that it starts in a cycle."""


UNKNOWN = Core()

_CORES: dict[str, Core] = {
    # In order, with one pipe for vectors.
    "cortex-a53 cortex-a55 cortex-a510 cortex-a520": Core(32, 128, 1, 1, 4, 2),
    "cortex-a57 cortex-a72 cortex-a73": Core(32, 256, 2, 1, 5, 3),
    "cortex-a75 cortex-a76 cortex-a77 cortex-a78": Core(64, 256),
    "neoverse-n1": Core(64, 1024),
    "neoverse-n2 cortex-a710 cortex-a715 cortex-a720": Core(64, 512, issued=5),
    "neoverse-v1 cortex-x1": Core(64, 1024, 4, 3, 4, 8),
    "neoverse-v2 neoverse-v3 cortex-x2 cortex-x3 cortex-x4": Core(64, 1024, 4, 3, 4, 8),
    "apple-m1 apple-m2 apple-m3 apple-m4": Core(128, 3072, 4, 3, 4, 8),
    "haswell broadwell skylake": Core(32, 256),
    "skylake-avx512 cascadelake cooperlake": Core(32, 1024),
    "icelake-server": Core(48, 1280),
    "sapphirerapids emeraldrapids graniterapids": Core(48, 2048),
    "alderlake raptorlake": Core(48, 1280),
    "znver1 znver2 znver3": Core(32, 512),
    "znver4": Core(32, 1024),
    "znver5": Core(48, 1024),
}
_BY_NAME = {name: core for names, core in _CORES.items() for name in names.split()}


def core_of(cpu: str) -> Core:
    """The core of a processor; one like most where its name is not known."""
    return _BY_NAME.get(cpu, UNKNOWN)
