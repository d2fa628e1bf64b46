"""The machine behind a target, as a code generator and a schedule need to know it."""

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from sterna.isa import NO_INSTRUCTIONS, Instructions, instruction_sets
from sterna.isa.core import UNKNOWN, Core
from sterna.target.abi import with_float_abi
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
    instructions: Instructions
    """Its instruction set, and the features of it that the code may use."""
    pointer_bits: int
    vector_bits: int
    """Width of the vector registers; 0 if there are none."""
    vector_registers: int
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

    def provides(self, capability: str) -> bool:
        """Whether the processor has a capability of its instruction set, such as dot4."""
        return self.instructions.provides(capability)

    def lanes(self, bits: int) -> int:
        """How many elements of this many bits a vector register holds; 1 without vectors."""
        return max(1, self.vector_bits // bits)

    @property
    def architecture(self) -> str:
        """The name of the instruction set: x86, aarch64, arm, riscv32, riscv64, wasm, ..."""
        return self.instructions.architecture

    @property
    def feature_set(self) -> frozenset[str]:
        """Every feature that the code may use, by LLVM's names."""
        return self.instructions.features

    @property
    def matrix_tiles(self) -> tuple[str, ...]:
        """The types of matrices that it multiplies in tiles, where a program can ask for them."""
        unit = self.instructions.isa.tile_unit
        if unit is None or self.pointer_bits != unit.pointer_bits or unit.system not in self.triple:
            return ()
        return self.instructions.matrix_tiles

    @property
    def emulator_options(self) -> str:
        """What QEMU's user mode must be told to run the code."""
        isa = self.instructions.isa
        return isa.emulator_options if self.instructions.vector_registers.bits else ""

    @property
    def endianness(self) -> str:
        """little or big."""
        return "little" if self.little_endian else "big"


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
    isa, names = triple.isa, names_of(triple.architecture)
    mattr = attrs.get("mattr")
    changes = list(mattr) if isinstance(mattr, tuple) else []
    if not asked and not attrs.get("mabi") and "linux" in triple.text:
        changes = [*(f"+{name}" for name in isa.hosted_features), *changes]
    if float_abi == "soft" and isa.soft_float:
        changes.append(f"+{isa.soft_float}")
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
    width, vectors = attrs.get("vector-width"), isa.vector_registers(held)
    fewer = triple.spelling.most_registers
    core = isa.core(cpu)
    return Machine(
        triple=in_full(triple.text),
        cpu=cpu,
        features=",".join([*own, *changes]),
        instructions=Instructions(isa.name, held),
        pointer_bits=triple.pointer_bits,
        vector_bits=width if isinstance(width, int) else vectors.bits,
        vector_registers=vectors.count if fewer is None else min(vectors.count, fewer),
        little_endian=triple.little_endian,
        object_format=triple.object_format,
        abi=str(attrs.get("mabi", "")),
        float_abi=float_abi,
        core=core,
        **_sizes(attrs, core, asked == NATIVE),
    )


def instructions_of(target: Described | None) -> Instructions:
    """The instructions of a target's processor; none where it has no processor."""
    if target is None or not (target.attrs.get("mtriple") or target.kind.triple):
        return NO_INSTRUCTIONS
    return machine_of(target).instructions


def is_microcontroller(target: Described) -> bool:
    """Whether a target's processor has short addresses and no operating system."""
    if not (target.attrs.get("mtriple") or target.kind.triple):
        return False
    machine = machine_of(target)
    system = machine.triple.split("-")[2:3]
    return (machine.pointer_bits <= 32 and system in (["none"], ["unknown"], [])
            and machine.architecture != "wasm")


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
    held = names_of(architectures[0]).cpus[base_name(asked)]
    return parse_triple(instruction_sets()[architectures[0]].default_triple(held))


def _cpu(asked: str, triple: Triple, names: Names) -> str:
    cpu = base_name(asked)
    if cpu and cpu not in names.cpus and f"{triple.architecture}{cpu}" in names.cpus:
        return f"{triple.architecture}{cpu}"
    return cpu or triple.isa.default_cpu(triple.text)


def _of_triple(triple: Triple, names: Names) -> frozenset[str]:
    """What the first part of a triple brings, by our lists and by LLVM's."""
    first = re.sub(r"^(arm|thumb)(eb)?", "arm", triple.first)
    return names.closure(triple.spelling.brings) | names.triples.get(first, frozenset())


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
    for level in (1, 2):
        if isinstance(size := attrs.get(f"l{level}_cache_size_bytes"), int):
            found[f"l{level}_bytes"] = size
    return found
