"""The record of an instruction set, and the instructions that one processor has of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import get_args

from sterna.isa.capability import (
    ByLanes,
    ByteLookup,
    Capability,
    Dot4,
    Estimate,
    MatrixTiles,
    OpenConversion,
    SaturatingNarrow,
    TileUnit,
    VectorRegisters,
    best,
)
from sterna.isa.core import UNKNOWN, Core, SharedCore
from sterna.support.discovery import modules_of

PACKAGE = "sterna.isa"


@dataclass(frozen=True, slots=True)
class Spelling:
    """How triples begin that mean an instruction set."""

    pattern: str
    pointer_bits: int
    examples: tuple[str, ...] = ()
    """Beginnings that people know."""
    brings: tuple[str, ...] = ()
    """Features of every processor that such a triple is for."""
    most_registers: int | None = None
    """The vector registers that such code can name, if these are fewer than there are."""


@dataclass(frozen=True, slots=True)
class Level:
    """A step of an architecture that portable code is made for."""

    name: str
    options: str
    """Of the target, which name a processor and features."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InstructionSet:
    """Everything that is known of an instruction set. Features have LLVM's names.

    Fields of rows are capabilities: what its extensions bring, the best first.
    """

    name: str
    """As a machine's architecture: x86, aarch64, riscv64, ..."""
    spellings: tuple[Spelling, ...]
    big_endian: str = ""
    """The pattern of beginnings of triples that store the highest byte first."""
    object_format: str = ""
    """Where the system does not say it."""
    static_code: bool = False
    """Whether its code is linked statically, whatever the system."""
    keys: tuple[str, ...] = ()
    """The keys of targets for it, by which schedules are found."""
    cpus: tuple[tuple[str, str], ...] = (("", "generic"),)
    """LLVM's processor when none is named: by patterns to find in a triple, the first that fits."""
    triples: tuple[tuple[str, str], ...]
    """The triple when only a processor is named: by a feature of it, the first that fits."""
    hosted_features: tuple[str, ...] = ()
    """What every processor has that runs an operating system, whose libraries count on it."""
    soft_float: str = ""
    """The feature that passes numbers of -mfloat-abi=soft, where that can be chosen."""
    abis: Mapping[str, str] = field(default_factory=dict)
    """What -mabi may name, each with the feature that it needs or nothing."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Features by names that users of the classic API know."""
    linux_features: Mapping[str, str] = field(default_factory=dict)
    """Features that LLVM does not ask the system for, by Linux's names in /proc/cpuinfo."""
    loader_features: str = ""
    """What LLVM uses unasked, or the code generator on purpose, with spaces between: loaders look
    for these before they run code. Tiles are not here: the code itself asks for them."""
    boards: Mapping[str, str] = field(default_factory=dict)
    """Options of targets for well-known boards, by the names that users of the classic API know."""
    levels: tuple[Level, ...] = ()
    """Those that a portable file holds code for, the lowest first."""
    vectors: str = ""
    """The feature that brings vectors, where processors of which no more is said have none."""
    length_features: str = ""
    """The pattern of features that tell how long vectors are; LLVM knows them beside those that
    bring vectors, the first of what registers need."""
    exclusive_features: str = ""
    """The pattern of features that exclude common ones; LLVM ends the process beside these."""
    implied_features: tuple[str, ...] = ()
    """What LLVM gives every processor of it, and what others then bring along unseen."""
    emulator_options: str = ""
    """What QEMU's user mode must be told where the code uses vectors."""

    registers: tuple[VectorRegisters, ...] = ()
    """The widest first."""
    llvm_vector_bits: int | None = 128
    """The longest vectors that LLVM is given in one piece; None: as long as the registers."""
    operand_registers: int = 0
    """How many vector registers LLVM fills with operands of products to come; with fewer left it
    spills accumulators. 0 where products take operands from memory or from other registers."""
    broadcasts_fp16: bool = True
    """Whether a float16 comes into all lanes of a register as quickly as wider numbers do."""
    cores: Mapping[str, Core] = field(default_factory=dict)
    """Those that are known, by LLVM's names."""
    l1_kib: int = 32
    """The caches of processors that nothing is known of."""
    l2_kib: int = 512
    smt: SharedCore | None = None
    """What a thread has left beside others on the same core, if cores run several."""

    fused_multiply_add: tuple[Capability, ...] = ()
    """Fused multiply-add of float32."""
    fma_contraction: tuple[Capability, ...] = ()
    """Products and sums become a fused multiply-add wherever they may, in scalars and vectors
    alike, so that a kernel can count on one rounding."""
    slow_conversions: tuple[Capability, ...] = ()
    """Vectors of int32 become float32, or are rounded back, in more time than additions take."""
    by_element_fma: tuple[Capability, ...] = ()
    """A multiply-add takes one lane of a register for all lanes of another (AArch64's fmla)."""
    rounding_conversion: tuple[Capability, ...] = ()
    """Floats that LLVM's rint rounds become int32 in the same instruction (cvtps2dq)."""
    open_conversions: tuple[OpenConversion, ...] = ()
    """The types that vectors of floats become by instructions which know no ends (cvttps2dq)."""
    fp16_arithmetic: tuple[Capability, ...] = ()
    """Vectors of float16 are multiplied and added as they are."""
    bf16_rounding: tuple[Capability, ...] = ()
    """One instruction rounds float32 to bfloat16, and may take subnormal numbers for 0."""
    bf16_conversion: tuple[Capability, ...] = ()
    """One instruction rounds float32 to bfloat16, subnormal numbers included."""
    ieee_maximum: tuple[Capability, ...] = ()
    """One instruction gives the larger of two numbers, or the NaN among them."""
    picks_from_rows: tuple[Capability, ...] = ()
    """Words that lie some words apart come by shuffles of the rows that hold them sooner than by a
    gather, as measured."""
    gathers: tuple[ByLanes, ...] = ()
    """One instruction reads words from as many places as a vector has lanes, no slower than one
    after the other: vgatherdps."""
    byte_lookup: tuple[ByteLookup, ...] = ()
    """Bytes are looked up in tables that lie in registers, sooner than one after the other."""
    ordered_maximum: tuple[Capability, ...] = ()
    """One instruction gives the larger of two numbers, and the second where one is NaN."""
    dot4: tuple[Dot4, ...] = ()
    """Four products of bytes added to each 32-bit lane (vpdpbusd, sdot)."""
    dot2: tuple[ByLanes, ...] = ()
    """Products of unsigned and signed bytes added in pairs, saturated to 16 bits (vpmaddubsw)."""
    dot2_int16: tuple[ByLanes, ...] = ()
    """Products of 16-bit integers added in pairs to 32 bits (vpmaddwd)."""
    dot_halves: tuple[Capability, ...] = ()
    """Products of both 16-bit halves of two words added to a word, in registers for integers, and
    bytes widened to such halves (SMLAD, SXTB16)."""
    dot_across: tuple[Capability, ...] = ()
    """Products of all bytes of two vectors added to one word, loops that leave out lanes at their
    end, and rounding products of words (VMLADAVA, DLSTP, VQRDMULH)."""
    saturating_pack: tuple[SaturatingNarrow, ...] = ()
    """Narrowing that takes two registers, each within its parts of 128 bits."""
    saturating_narrow: tuple[SaturatingNarrow, ...] = ()
    """Narrowing that takes one register; a float32 becomes an integer in one instruction, too."""
    round_to_int32: tuple[ByLanes, ...] = ()
    """The nearest int32 of each float32, the even one in the middle."""
    reciprocal_estimate: tuple[Estimate, ...] = ()
    """The first bits of 1/x, where multiply-adds are fused."""
    matrix_tiles: tuple[MatrixTiles, ...] = ()
    """The types of matrices that the tile unit multiplies."""
    whole_vectors: tuple[Capability, ...] = ()
    """Channels that do not fill vectors are worth filling up with zeros."""
    tile_unit: TileUnit | None = None
    """Registers for matrices, and how a process comes to use them (AMX)."""

    def vector_registers(self, features: frozenset[str]) -> VectorRegisters:
        """The widest registers of a processor with such features."""
        return best(self.registers, features) or _NO_REGISTERS

    def core(self, cpu: str) -> Core:
        """The core of a processor; one like most where its name is not known."""
        return self.cores.get(cpu, UNKNOWN)

    def default_cpu(self, triple: str) -> str:
        """LLVM's processor for a triple."""
        return next(cpu for pattern, cpu in self.cpus if re.search(pattern, triple))

    def default_triple(self, features: frozenset[str]) -> str:
        """A triple for a processor with such features."""
        return next(triple for name, triple in self.triples if not name or name in features)


_NO_REGISTERS = VectorRegisters()
_NOTHING = InstructionSet(name="", spellings=(), triples=())


def _holds_rows(kind: object) -> bool:
    row = next(iter(get_args(kind)), None)
    return isinstance(row, type) and issubclass(row, Capability)


CAPABILITIES = frozenset(each.name for each in fields(InstructionSet) if _holds_rows(each.type))


@cache
def instruction_sets() -> dict[str, InstructionSet]:
    """All of them by name: those that the files of this folder list as INSTRUCTION_SETS."""
    found = [getattr(module, "INSTRUCTION_SETS", ()) for module in modules_of(PACKAGE)]
    return {made.name: made for listed in found for made in listed}


@cache
def spelled(first: str) -> tuple[InstructionSet, Spelling] | None:
    """What the first part of a triple means; None if nothing."""
    for made in instruction_sets().values():
        for spelling in made.spellings:
            if re.fullmatch(spelling.pattern, first):
                return made, spelling
    return None


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions of one processor: the features that it has of an instruction set."""

    architecture: str = ""
    """The name of the instruction set; empty: nothing is known of it, and nothing provided."""
    features: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def isa(self) -> InstructionSet:
        """The instruction set."""
        return instruction_sets()[self.architecture] if self.architecture else _NOTHING

    def provides(self, capability: str) -> bool:
        """Whether the processor has a capability, by the name of its field."""
        if capability not in CAPABILITIES:
            known = ", ".join(sorted(CAPABILITIES))
            raise ValueError(f"there is no capability '{capability}'; there are {known}")
        rows: tuple[Capability, ...] = getattr(self.isa, capability)
        return best(rows, self.features) is not None

    @property
    def whole_vector_bits(self) -> int:
        """The longest vectors that LLVM is given in one piece."""
        return self.isa.llvm_vector_bits or max(128, self.vector_registers.bits)

    @property
    def vector_registers(self) -> VectorRegisters:
        """The widest vector registers."""
        return self.isa.vector_registers(self.features)

    @property
    def dot4(self) -> Dot4 | None:
        """The best row of a capability, if the processor has one; the same goes for those below."""
        return best(self.isa.dot4, self.features)

    @property
    def gathers(self) -> ByLanes | None:
        return best(self.isa.gathers, self.features)

    @property
    def byte_lookup(self) -> ByteLookup | None:
        return best(self.isa.byte_lookup, self.features)

    @property
    def dot2(self) -> ByLanes | None:
        return best(self.isa.dot2, self.features)

    @property
    def dot2_int16(self) -> ByLanes | None:
        return best(self.isa.dot2_int16, self.features)

    @property
    def saturating_pack(self) -> SaturatingNarrow | None:
        return best(self.isa.saturating_pack, self.features)

    @property
    def saturating_narrow(self) -> SaturatingNarrow | None:
        return best(self.isa.saturating_narrow, self.features)

    @property
    def round_to_int32(self) -> ByLanes | None:
        return best(self.isa.round_to_int32, self.features)

    @property
    def reciprocal_estimate(self) -> Estimate | None:
        return best(self.isa.reciprocal_estimate, self.features)

    @property
    def open_conversions(self) -> tuple[str, ...]:
        """The types that vectors of floats become by instructions which know no ends."""
        return tuple(row.dtype for row in self.isa.open_conversions if row.is_among(self.features))

    @property
    def matrix_tiles(self) -> tuple[str, ...]:
        """The types of matrices that are multiplied in tiles, on a system that grants them."""
        return tuple(row.dtype for row in self.isa.matrix_tiles if row.is_among(self.features))


NO_INSTRUCTIONS = Instructions()
