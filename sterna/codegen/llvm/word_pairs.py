"""dot2 (pmaddubsw) and add_pairs (pmaddwd): products of bytes in 16 bits, pairs of these in 32."""

from sterna.codegen.llvm.emitter import FunctionWriter
from sterna.codegen.llvm.types import splat_literal, value_type
from sterna.support.dtype import DataType


class WordPairs:
    """Writes one dot2 or add_pairs of so many words."""

    def __init__(self, writer: FunctionWriter, words: int) -> None:
        self.writer, self.words = writer, words
        self.instructions = writer.module.options.instructions
        self.kind, self.bytes = f"<{words} x i16>", f"<{2 * words} x i8>"

    def dot(self, a: tuple[DataType, str], b: tuple[DataType, str]) -> str:
        """Products of as many bytes, in pairs."""
        row = self.instructions.dot2  # of an unsigned and a signed operand
        name = row.intrinsics.get(self.words) if row else None
        for first, second in ((a, b), (b, a)):
            if name is not None and (first[0].kind, second[0].kind) == ("uint", "int"):
                declared = self.writer.module.declare(
                    name, self.kind, f"{self.bytes}, {self.bytes}"
                )
                operands = f"{self.bytes} {first[1]}, {self.bytes} {second[1]}"
                return self.writer.value(f"call {self.kind} {declared}({operands})")
        wide = f"<{self.words} x i32>"
        products = [
            self.writer.value(f"mul {wide} {self.every_other(a, place)}, "
                              f"{self.every_other(b, place)}")
            for place in range(2)
        ]
        total = self.writer.value(f"add {wide} {products[0]}, {products[1]}")
        for limit, number in (("smin", (1 << 15) - 1), ("smax", -(1 << 15))):
            name = f"llvm.{limit}.v{self.words}i32"
            declared = self.writer.module.declare(name, wide, f"{wide}, {wide}")
            bound = splat_literal("i32", str(number), self.words)
            total = self.writer.value(f"call {wide} {declared}({wide} {total}, {wide} {bound})")
        return self.writer.value(f"trunc {wide} {total} to {self.kind}")

    def fold(self, dtype: DataType, total: str, words: str) -> str:
        """total, of half as many lanes, plus both words of each."""
        wide = value_type(dtype)
        row = self.instructions.dot2_int16
        name = row.intrinsics.get(dtype.lanes) if row else None
        if name is not None:
            declared = self.writer.module.declare(name, wide, f"{self.kind}, {self.kind}")
            ones = splat_literal("i16", "1", self.words)
            both = self.writer.value(
                f"call {wide} {declared}({self.kind} {words}, {self.kind} {ones})"
            )
            return self.writer.value(f"add {wide} {total}, {both}")
        for place in range(2):
            part = self.every_other((DataType("int16"), words), place)
            if dtype.lanes == 1:
                part = self.writer.value(f"extractelement <1 x i32> {part}, i32 0")
            total = self.writer.value(f"add {wide} {total}, {part}")
        return total

    def every_other(self, operand: tuple[DataType, str], first: int) -> str:
        """Every second number of a vector as one of 32 bits."""
        dtype, value = operand
        count = self.words if dtype.bits == 8 else self.words // 2
        picks = ", ".join(f"i32 {2 * lane + first}" for lane in range(count))
        source = f"<{2 * count} x i{dtype.bits}>"
        narrow = self.writer.value(
            f"shufflevector {source} {value}, {source} poison, <{count} x i32> <{picks}>"
        )
        widen = "zext" if dtype.is_uint else "sext"
        return self.writer.value(f"{widen} <{count} x i{dtype.bits}> {narrow} to <{count} x i32>")
