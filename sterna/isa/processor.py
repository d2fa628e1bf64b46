"""What schedules are told of a processor: what they choose tiles, orders and sharing by."""

from dataclasses import dataclass

from sterna.isa.core import COMMON, Throughput
from sterna.support.dtype import DataType


@dataclass(frozen=True, slots=True)
class Processor:
    """What schedules ask of a processor."""

    vector_bits: int = 128
    """The widest vector that pays."""
    vector_registers: int = 16
    operand_registers: int = 0
    """How many of these LLVM fills with operands of products to come."""
    by_element_fma: bool = False
    """Whether a multiply-add takes one lane of a register for all lanes of another."""
    gathers: bool = False
    """Whether one instruction reads words from as many places as a vector has lanes."""
    byte_lookup: int = 0
    """Instructions that look up a vector of bytes in a table of 256 bytes; 0: there are none."""
    whole_vectors: bool = False
    """Whether channels of zeros that fill vectors up pay."""
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    knows_caches: bool = True
    """Whether the machine or the table of its core says these sizes; else they may be wrong."""
    has_dot4: bool = False
    """Whether an instruction adds four products of bytes to each 32-bit lane (VNNI, DOTPROD)."""
    has_dot2: bool = False
    """Whether one adds two of them in 16 bits (vpmaddubsw)."""
    has_dot_halves: bool = False
    """Whether one adds the products of both 16-bit halves of two words to a word (SMLAD)."""
    has_dot_across: bool = False
    """Whether one adds the products of all bytes of two vectors to a word (VMLADAVA)."""
    is_scalar_controller: bool = False
    """Whether it is a microcontroller that multiplies one pair of bytes at a time, with a compiler
    of C: Cortex-M0, Cortex-M3, RV32."""
    threads: int = 1
    """How many kernels are written for; more threads find work in parallel loops too."""
    fp16_arithmetic: bool = False
    """Whether vectors of float16 are multiplied and added as they are, twice as many at once."""
    broadcasts_fp16: bool = True
    """Whether a float16 comes into all lanes of a register as quickly as wider numbers do."""
    matrix_tiles: tuple[str, ...] = ()
    """The types of matrices that are multiplied in registers of their own (AMX): bfloat16, int8."""
    has_spare_memory: bool = True
    """Whether kernels may work in memory beside their operands to be faster."""
    throughput: Throughput = COMMON
    smt_throughput: Throughput = COMMON
    """What is left where another program's thread runs on the same core."""

    @property
    def prefers_dot2(self) -> bool:
        """Whether bytes are best multiplied by dot2, for want of dot4."""
        return self.has_dot2 and not self.has_dot4

    @property
    def tile_registers(self) -> int:
        """Registers for a tile of accumulators, a row of what it takes, and one more operand."""
        return self.registers_for(1)

    def registers_for(self, together: int) -> int:
        """The same where the numbers of so many steps share a register."""
        ahead = self.operand_registers if together == 1 else 0
        return max(2, self.vector_registers - ahead)

    def steps_together(self, dtype: DataType, depth: int, least: int = 2) -> int:
        """The steps of a sum whose numbers one load brings, of so many that lie side by side.

        least: fewer loads do not pay.
        """
        lanes = self.lanes(dtype)
        whole = depth >= least * lanes and depth % lanes == 0
        return lanes if self.by_element_fma and whole else 1

    def tile_widths(self, dtype: DataType, columns: int) -> tuple[int, ...]:
        """The widths of a register tile of a type that suit so many columns; none: any may do.

        A number that is slow to broadcast is an operand of one product, which does it on the way.
        """
        lanes = self.lanes(dtype)
        slow = dtype == "float16" and self.fp16_arithmetic and not self.broadcasts_fp16
        return (lanes,) if slow and columns % lanes == 0 else ()

    def lanes(self, dtype: DataType) -> int:
        """Elements of a vector."""
        return max(1, self.vector_bits // max(8, dtype.bits))
