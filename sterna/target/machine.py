"""The machine behind a target, as a code generator and a schedule need to know it."""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

from sterna.target.abi import with_float_abi
from sterna.target.cores import UNKNOWN, Core, core_of
from sterna.target.kind import TargetKind, Value
from sterna.target.names import Names, architectures_of_cpu, names_of
from sterna.target.processor import NATIVE, base_name
from sterna.target.triple import Triple, in_full, parse_triple

if TYPE_CHECKING:
    from sterna.target.host import Host


class Described(Protocol):
    """What a machine is read from: a target."""

    @property
    def kind(self) -> TargetKind: ...

    @property
    def attrs(self) -> Mapping[str, Value]: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor, in LLVM's words and in numbers."""

    triple: str
    """With all of its parts."""
    cpu: str
    features: str
    """LLVM's feature string: what differs from the processor's own, with commas between."""
    architecture: str
    """x86, aarch64, arm, riscv32, riscv64, wasm, hexagon, ..."""
    feature_set: frozenset[str] = field(repr=False)
    """Every feature that the code may use, by LLVM's names."""
    pointer_bits: int
    vector_bits: int
    """Width of the vector registers; 0 if there are none."""
    vector_registers: int
    loaded_ahead: int
    """How many of these LLVM fills with operands of products to come."""
    by_element: bool
    """Whether a product takes one lane of a register for all lanes of another."""
    has_fma: bool
    little_endian: bool
    object_format: str
    """elf, macho, coff or wasm."""
    abi: str = ""
    """As -mabi names it; empty: what is usual for the triple and the processor."""
    float_abi: str = ""
    """As -mfloat-abi names it; the triple says the same."""
    cores: int | None = None
    l1_bytes: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    core: Core = UNKNOWN
    """What is known by the processor's name; sizes of caches, where they are known, are above."""

    def has(self, feature: str) -> bool:
        """Whether the code may use a feature, by LLVM's name."""
        return feature in self.feature_set

    def lanes(self, bits: int) -> int:
        """How many elements of this many bits a vector register holds; 1 without vectors."""
        return max(1, self.vector_bits // bits)

    @property
    def dot(self) -> str:
        """The feature that multiplies bytes and adds products best; empty if there is none."""
        known = _DOTS.get(self.architecture, ())
        return next((names[0] for names in known if self.feature_set.issuperset(names)), "")

    @property
    def multiplies_bytes(self) -> bool:
        """Whether that adds four products of bytes to each lane in one instruction."""
        return self.dot in ("avx512vnni", "avxvnni", "dotprod", "i8mm")

    @property
    def pairs_bytes(self) -> bool:
        """Whether that multiplies bytes in one instruction and adds products in pairs, no more."""
        return self.dot in ("avx512bw", "avx2")

    @property
    def computes_half(self) -> bool:
        """Whether vectors of float16 are multiplied and added as they are."""
        needed = _HALF.get(self.architecture)
        return needed is not None and self.feature_set.issuperset(needed)

    @property
    def tiles(self) -> tuple[str, ...]:
        """The types of matrices that it multiplies in tiles, where a program can ask for them."""
        if self.pointer_bits != 64 or "linux" not in self.triple:
            return ()
        known = _TILES.get(self.architecture, {})
        return tuple(name for name, feature in known.items() if feature in self.feature_set)

    @property
    def endianness(self) -> str:
        """little or big."""
        return "little" if self.little_endian else "big"


# Features that multiply narrow integers and add the products, the best first, each with those that
# bring it to registers of all widths.
_DOTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "x86": (("avx512vnni", "avx512bw", "avx512vl"), ("avxvnni",), ("avx512bw", "avx512vl"),
            ("avx2",), ("sse2",)),
    "aarch64": (("i8mm", "dotprod"), ("dotprod",)),
}

# Features that compute with float16 in registers of all widths.
_HALF = {"x86": ("avx512fp16", "avx512vl"), "aarch64": ("fullfp16", "neon")}

# Features that multiply matrices in registers of their own, by the type of their elements.
_TILES = {"x86": {"bfloat16": "amx-bf16", "int8": "amx-int8"}}

# LLVM's processor for an architecture when none is named.
_DEFAULT_CPUS = {
    "riscv32": "generic-rv32", "riscv64": "generic-rv64", "hexagon": "hexagonv68",
    "nvptx": "sm_50", "amdgcn": "gfx900", "avr": "avr2", "loongarch": "generic-la64",
    "mips": "mips32r2",
}

# The triple for a processor of another architecture than this machine's.
_DEFAULT_TRIPLES = {
    "x86": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu",
    "arm": "arm-unknown-linux-gnueabihf", "riscv32": "riscv32-unknown-elf",
    "riscv64": "riscv64-unknown-linux-gnu", "wasm": "wasm32-unknown-unknown",
    "hexagon": "hexagon-unknown-elf", "nvptx": "nvptx64-nvidia-cuda",
    "amdgcn": "amdgcn-amd-amdhsa", "avr": "avr-unknown-unknown",
    "powerpc": "powerpc64le-unknown-linux-gnu", "s390x": "s390x-unknown-linux-gnu",
    "loongarch": "loongarch64-unknown-linux-gnu", "mips": "mips-unknown-linux-gnu",
}


@cache
def machine_of(target: Described) -> Machine:
    """The machine of a target; `native` and a missing triple are answered by this machine.

    Raises ValueError for a target that LLVM has no triple for, such as opencl.
    """
    kind, attrs = target.kind, target.attrs
    if not (attrs.get("mtriple") or kind.triple):
        raise ValueError(
            f"target kind '{kind.name}' describes no processor; give a target such as llvm or c"
        )
    asked = str(attrs.get("mcpu") or attrs.get("arch") or "")
    triple = _triple(kind, attrs, asked)
    float_abi = str(attrs.get("mfloat-abi", ""))
    triple = parse_triple(with_float_abi(triple.text, float_abi))
    names = names_of(triple.architecture)
    mattr = attrs.get("mattr")
    changes = list(mattr) if isinstance(mattr, tuple) else []
    if not asked and triple.architecture == "riscv64" and not attrs.get("mabi"):
        changes = [*_of_system(triple), *changes]
    if float_abi == "soft" and triple.architecture == "arm":
        changes.append("+soft-float")
    own: list[str] = []
    if asked == NATIVE:
        machine = _host()
        cpu = machine.cpu
        own = [f"{'+' if there else '-'}{name}" for name, there in machine.features]
        base = names.apply(names.cpus.get(cpu, frozenset()), own)
    else:
        cpu = _cpu(asked, triple, names)
        base = names.cpus.get(cpu, frozenset())
    held = names.apply(base | _of_triple(triple, names), changes)
    width = attrs.get("vector-width")
    bits, registers = _vectors(triple, held)
    return Machine(
        triple=in_full(triple.text),
        cpu=cpu,
        features=",".join([*own, *changes]),
        architecture=triple.architecture,
        feature_set=held,
        pointer_bits=triple.pointer_bits,
        vector_bits=width if isinstance(width, int) else bits,
        vector_registers=registers,
        loaded_ahead=_LOADED_AHEAD.get(triple.architecture, 0) if bits else 0,
        by_element=triple.architecture == "aarch64" and bits > 0,
        has_fma=_has_fma(triple.architecture, held),
        little_endian=triple.little_endian,
        object_format=triple.object_format,
        abi=str(attrs.get("mabi", "")),
        float_abi=float_abi,
        core=core_of(cpu),
        **_sizes(attrs, core_of(cpu), asked == NATIVE),
    )


def _host() -> "Host":
    # LLVM is loaded only for a target that needs to know this machine.
    found: Host = importlib.import_module("sterna.target.host").host()
    return found


def _triple(kind: TargetKind, attrs: Mapping[str, Value], asked: str) -> Triple:
    given = str(attrs.get("mtriple") or "")
    if given:
        triple = parse_triple(given)
        if asked == NATIVE and parse_triple(_host().triple).architecture != triple.architecture:
            raise ValueError(
                f"-mcpu=native names this machine's processor, which is no {triple.first}; "
                f"name the processor of '{given}' or drop -mtriple"
            )
        return triple
    if kind.triple != "host":
        return parse_triple(str(kind.triple))
    own = parse_triple(_host().triple)
    if not asked or asked == NATIVE:
        return own
    architectures = architectures_of_cpu(base_name(asked))
    if own.architecture in architectures or not architectures:
        return own
    if "mclass" in names_of(architectures[0]).cpus[base_name(asked)]:
        return parse_triple("thumb-none-eabi")
    return parse_triple(_DEFAULT_TRIPLES[architectures[0]])


def _cpu(asked: str, triple: Triple, names: Names) -> str:
    cpu = base_name(asked)
    if cpu and cpu not in names.cpus and f"{triple.architecture}{cpu}" in names.cpus:
        return f"{triple.architecture}{cpu}"
    if cpu:
        return cpu
    if triple.architecture == "aarch64" and re.search(r"apple-(macos|darwin)", triple.text):
        return "apple-m1"
    if triple.text.startswith(("powerpc64le", "ppc64le")):
        return "ppc64le"
    return _DEFAULT_CPUS.get(triple.architecture, "generic")


def _of_system(triple: Triple) -> list[str]:
    """What every processor has that runs an operating system, whose libraries count on it."""
    return ["+m", "+a", "+f", "+d", "+c"] if "linux" in triple.text else []


def _of_triple(triple: Triple, names: Names) -> frozenset[str]:
    if triple.architecture == "x86" and triple.first != "x86" and triple.first[0] != "i":
        return names.closure(["64bit", "cx8", "cmov", "sse2", "fxsr"])
    if triple.architecture == "arm":
        first = re.sub(r"^(arm|thumb)(eb)?", "arm", triple.first)
        return names.triples.get(first, frozenset())
    return frozenset()


def _vectors(triple: Triple, held: frozenset[str]) -> tuple[int, int]:
    """Bits of a vector register, and how many of them there are."""
    match triple.architecture:
        case "x86":
            few = 16 if triple.pointer_bits == 64 or triple.first == "x86_64" else 8
            if "avx512f" in held:
                return 512, 32 if few == 16 else 8
            return next((bits for f, bits in (("avx", 256), ("sse", 128)) if f in held), 0), few
        case "aarch64":
            return (128, 32) if "neon" in held else (0, 0)
        case "arm":
            return (128, 16) if "neon" in held else (128, 8) if "mve" in held else (0, 0)
        case "riscv32" | "riscv64":
            lengths = [int(m[1]) for f in held if (m := re.fullmatch(r"zvl(\d+)b", f))]
            return (max(lengths), 32) if lengths and held & {"v", "zve32x"} else (0, 0)
        case "wasm":
            return (128, 16) if "simd128" in held else (0, 0)
        case "hexagon":
            if not any(f.startswith("hvx") for f in held):
                return 0, 0
            return 512 if "hvx-length64b" in held else 1024, 32
        case "powerpc":
            return (128, 64 if "vsx" in held else 32) if "altivec" in held else (0, 0)
        case "s390x":
            return (128, 32) if "vector" in held else (0, 0)
        case "loongarch":
            return (256, 32) if "lasx" in held else (128, 32) if "lsx" in held else (0, 0)
        case "mips":
            return (128, 32) if "msa" in held else (0, 0)
        case "nvptx" | "amdgcn":
            return 128, 0  # what one thread loads at once
    return 0, 0


# On x86 products take operands from memory, on RISC-V numbers from registers of another kind; here
# both come through vector registers, and with fewer than these LLVM spills accumulators.
_LOADED_AHEAD = {"aarch64": 4, "arm": 2}

_FMA = {
    "x86": {"fma", "avx512f"},
    "arm": {"vfp4sp", "vfp4d16sp", "mve.fp"},
    "riscv32": {"f"},
    "riscv64": {"f"},
    "loongarch": {"f"},
    "wasm": {"relaxed-simd"},
    "avr": set(),
    "mips": set(),
}


def _has_fma(architecture: str, held: frozenset[str]) -> bool:
    return architecture not in _FMA or bool(_FMA[architecture] & held)


def _sizes(attrs: Mapping[str, Value], core: Core, native: bool) -> dict[str, int]:
    known = {"l1_bytes": core.l1_kib, "l2_bytes": core.l2_kib}
    found = {name: kib * 1024 for name, kib in known.items() if kib is not None}
    if native:
        host = importlib.import_module("sterna.target.host")
        told = {f"l{level}_bytes": size for level, size in host.cache_bytes().items() if level < 4}
        found = {**found, **told}
        found["cores"] = host.cores()
    if isinstance(count := attrs.get("num-cores"), int):
        found["cores"] = count
    return found
