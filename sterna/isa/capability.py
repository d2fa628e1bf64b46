"""What an instruction set can do: rows that name the features they need and LLVM's intrinsics.

A capability is named by what it does (dot4, saturating_pack, reciprocal_estimate). An instruction
set holds a tuple of rows for each, the best first; a processor has the first row all of whose
features are among its own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """One way to do a thing, and LLVM's names of the features that it takes."""

    needs: tuple[str, ...] = ()

    def is_among(self, features: Collection[str]) -> bool:
        """Whether a processor with such features has it."""
        return all(name in features for name in self.needs)


Row = TypeVar("Row", bound=Capability)


def best(rows: Iterable[Row], features: Collection[str]) -> Row | None:
    """The first row that a processor with such features has."""
    return next((row for row in rows if row.is_among(features)), None)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VectorRegisters(Capability):
    """A file of vector registers."""

    bits: int = 0
    count: int = 0
    divides_float64: bool = False
    """Whether one instruction divides all the float64 in them."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Dot4(Capability):
    """Four products of bytes added to each 32-bit lane: VNNI's vpdpbusd, DOTPROD's sdot and udot,
    I8MM's usdot.

    The arguments of the intrinsic are the sums and both operands.
    """

    intrinsics: Mapping[tuple[str, str], Mapping[int, str]]
    """By the kinds of both operands (int or uint), then by the lanes of the sums."""

    @property
    def data_types(self) -> tuple[str, ...]:
        """The types that are multiplied with int8 in one instruction."""
        return tuple(f"{data}8" for data, weight in self.intrinsics if weight == "int")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ByLanes(Capability):
    """One instruction in several widths."""

    intrinsics: Mapping[int, str]
    """By the lanes of the result."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ByteLookup(ByLanes):
    """Bytes looked up in a table of as many that registers hold: vpshufb, vpermi2b, tbl."""

    entries: int
    """Those that one instruction looks up in: 16 in each part of a register, or whole ones."""
    instructions: int
    """What a vector takes of all 256, in instructions of the usual throughput."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SaturatingNarrow(Capability):
    """Integers of 32 bits to 16 and then to 8, those out of range to the nearest: x86's packs,
    which take two registers, and AArch64's sqxtn and sqxtun, which take one."""

    lanes: int
    """Integers of 32 bits in a register."""
    to_int16: str
    to_int8: str
    to_uint8: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimate(Capability):
    """The first bits of a function of float32 in one instruction: rcp14ps, frecpe."""

    bits: int
    lanes: int
    intrinsic: str
    operands: tuple[str, ...] = ()
    """What it takes beside the register, in LLVM's words."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpenConversion(Capability):
    """Vectors of floats become integers of one type; numbers beyond its ends become anything."""

    dtype: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MatrixTiles(Capability):
    """Matrices of one type multiplied in registers of their own."""

    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TileUnit:
    """The instructions around matrix tiles (AMX), and how a process comes to use them."""

    feature: str
    """Without this one there are no tiles."""
    prefix: str
    """How all of its features begin."""
    pointer_bits: int
    system: str
    """The only system that grants tiles, as triples name it."""
    permission: tuple[int, int, int]
    """The number of its system call that asks for tiles, and what it is asked."""
    configure: str
    release: str
    zero: str
    load: str
    store: str
    dots: Mapping[str, str]
    """By the types of both operands, with a space between."""
