"""Byte dot products (VNNI vpdpbusd, AArch64 sdot and udot): dot4, four products added to each lane.

Where signs are not those of the instruction, the first operand is taken apart: x = (x & 127) - 128
or + 128, by its highest bit, which is exact whatever the second operand is. Without an instruction
bytes become words: in each lane those at even and those at odd places are multiplied in pairs.
sterna/isa says which instructions there are, by the signs of both operands and by lanes.
"""

from collections.abc import Callable
from typing import Any

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.types import splat_literal
from sterna.support.dtype import DataType


class Dot:
    """Writes one dot4."""

    def __init__(self, writer: FunctionWriter, lanes: int) -> None:
        self.writer, self.lanes = writer, lanes
        self.instructions = writer.module.options.instructions
        self.words, self.bytes = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"

    def write(self, total: str, a: tuple[DataType, str], b: tuple[DataType, str]) -> str:
        """total + the products of vectors of as many bytes."""
        row = self.instructions.dot4
        known = row.intrinsics if row else {}
        # Where both have one sign, what is the same for all lanes comes second: AArch64 takes it
        # from one lane of a register.
        for first, second in ((b, a), (a, b)):
            name = known.get((first[0].kind, second[0].kind), {}).get(self.lanes)
            if name is not None:
                return self.call(name, total, first[1], second[1])
        for (_, second_kind), names in known.items():
            if self.lanes in names and second_kind == b[0].kind:
                return self.split(names[self.lanes], total, a[1], b[1])
        return self.by_words(total, a, b)

    def call(self, name: str, total: str, a: str, b: str) -> str:
        """The instruction itself."""
        declared = self.writer.module.declare(
            name, self.words, f"{self.words}, {self.bytes}, {self.bytes}"
        )
        operands = f"{self.words} {total}, {self.bytes} {a}, {self.bytes} {b}"
        return self.writer.value(f"call {self.words} {declared}({operands})")

    def split(self, name: str, total: str, a: str, b: str) -> str:
        """By an instruction whose first operand has the other sign than a has."""
        low = self.bytewise("and", a, 127)
        high = self.bytewise("and", a, 128)
        added = self.call(name, total, low, b)
        rest = self.call(name, "zeroinitializer", high, b)
        # The highest bit counts 128 or -128, the other way round than the instruction thinks.
        return self.writer.value(f"sub {self.words} {added}, {rest}")

    def bytewise(self, op: str, value: str, number: int) -> str:
        text = str(number - 256 if number > 127 else number)
        every = splat_literal("i8", text, 4 * self.lanes)
        return self.writer.value(f"{op} {self.bytes} {value}, {every}")

    # ---- without an instruction ----

    def by_words(self, total: str, a: tuple[DataType, str], b: tuple[DataType, str]) -> str:
        row = self.instructions.dot2_int16
        pairs = row.intrinsics.get(self.lanes) if row else None
        places: tuple[Callable[[tuple[DataType, str]], Any], ...]
        if pairs is None:
            places = tuple(self.one(place) for place in range(4))
            multiply: Callable[[str, str], str] = self.product
        else:
            places = (self.even, self.odd)
            multiply = self.pair(pairs)
        for place in places:
            part = multiply(place(a), place(b))
            total = self.writer.value(f"add {self.words} {total}, {part}")
        return total

    def pair(self, name: str) -> Callable[[str, str], str]:
        """Products of words, added in pairs."""
        kind = f"<{2 * self.lanes} x i16>"
        declared = self.writer.module.declare(name, self.words, f"{kind}, {kind}")
        return lambda a, b: self.writer.value(
            f"call {self.words} {declared}({kind} {a}, {kind} {b})"
        )

    def even(self, operand: tuple[DataType, str]) -> str:
        """The first and the third byte of each lane as words."""
        dtype, value = operand
        word = self.as_words(value)
        if dtype.is_uint:
            return self.wordwise("and", word, 255)
        return self.wordwise("ashr", self.wordwise("shl", word, 8), 8)

    def odd(self, operand: tuple[DataType, str]) -> str:
        """The second and the fourth byte of each lane as words."""
        dtype, value = operand
        return self.wordwise("lshr" if dtype.is_uint else "ashr", self.as_words(value), 8)

    def as_words(self, value: str) -> str:
        return self.writer.value(f"bitcast {self.bytes} {value} to <{2 * self.lanes} x i16>")

    def wordwise(self, op: str, value: str, number: int) -> str:
        every = splat_literal("i16", str(number), 2 * self.lanes)
        return self.writer.value(f"{op} <{2 * self.lanes} x i16> {value}, {every}")

    def one(self, place: int) -> Callable[[tuple[DataType, str]], str]:
        """One byte of each lane as a number of 32 bits."""
        picks = ", ".join(f"i32 {4 * lane + place}" for lane in range(self.lanes))

        def take(operand: tuple[DataType, str]) -> str:
            dtype, value = operand
            narrow = self.writer.value(
                f"shufflevector {self.bytes} {value}, {self.bytes} poison, "
                f"<{self.lanes} x i32> <{picks}>"
            )
            widen = "zext" if dtype.is_uint else "sext"
            return self.writer.value(f"{widen} <{self.lanes} x i8> {narrow} to {self.words}")

        return take

    def product(self, a: str, b: str) -> str:
        return self.writer.value(f"mul {self.words} {a}, {b}")
