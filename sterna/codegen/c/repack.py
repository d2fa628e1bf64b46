"""Vectors of elements of less than a byte from bytes, and back; words of four bytes."""

from sterna.codegen.c.expr import ATOM, OTHER, Text
from sterna.codegen.c.packed import PackedWriter
from sterna.codegen.c.types import CodegenError, is_small
from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.tir.stmt import BufferLoad


class RepackWriter(PackedWriter):
    """Writes reinterpret where the number of lanes changes."""

    def repacked(self, expr: E.Call, lane: str) -> Text:
        source, target = expr.args[0].dtype, expr.dtype
        if source.element == "uint8" and target.is_packed:
            code = self._taken(expr.args[0], target.element, lane)
            return self._number(code, target.element)
        if source.is_packed and target.element == "uint8":
            return f"{self._filled(expr.args[0], target.lanes)}[{lane or '0'}]", ATOM
        if source.element == "int8" and source.lanes == 4 and target == "int32":
            return self._word(expr.args[0]), ATOM
        raise CodegenError(f"{expr} reads {source} as {target}")

    def _word(self, source: Expr) -> str:
        """Four bytes that lie side by side as one word."""
        self.helpers.fixed("load_word")
        if isinstance(source, BufferLoad):
            (index,) = source.indices
            if isinstance(index, E.Ramp) and build.is_const(index.stride, 1):
                name = self.lookup(source.buffer.data).name
                return f"sterna_load_word(&{name}[{self.text(index.base, OTHER, index=True)}])"
        return f"sterna_load_word({self.materialize(source)})"

    def materialize(self, value: Expr, name: str = "vector") -> str:
        if fills_bytes(value):
            return self._filled(value.args[0], value.dtype.lanes)  # type: ignore[attr-defined]
        return super().materialize(value, name)

    def _taken(self, source: Expr, dtype: DataType, lane: str) -> str:
        """The bits of one element."""
        bits = dtype.bits
        if 8 % bits == 0:
            per = 8 // bits
            byte, shift = f"{lane} / {per}", f"{lane} % {per} * {bits}"
            return f"{self._byte(source, byte)} >> {shift}"
        first, last = f"{lane} * {bits} / 8", f"({lane} * {bits} + {bits - 1}) / 8"
        word = f"({self._byte(source, first)} | {self._byte(source, last)} << 8)"
        return f"{word} >> {lane} * {bits} % 8"

    def _byte(self, source: Expr, number: str) -> str:
        """A byte of a vector, or the only one."""
        if source.dtype.lanes == 1:
            return self.text(source, ATOM)
        if isinstance(source, BufferLoad):
            (index,) = source.indices
            if isinstance(index, E.Ramp) and build.is_const(index.stride, 1):
                name = self.lookup(source.buffer.data).name
                return f"{name}[{self.text(index.base, OTHER, index=True)} + {number}]"
        return f"{self.materialize(source)}[{number}]"

    def _number(self, code: str, dtype: DataType) -> Text:
        if is_small(dtype):
            held, _ = self.low_bits(f"(uint32_t)({code})", DataType(f"uint{dtype.bits}"))
            return f"{self.helpers.small('value', dtype)}({held})", ATOM
        return self.low_bits(f"(uint32_t)({code})", dtype)

    def _filled(self, source: Expr, count: int) -> str:
        """An array of the bytes that a vector fills."""
        dtype = source.dtype.element
        held = DataType(f"uint{dtype.bits}")
        codes = E.Call(held.with_lanes(source.dtype.lanes), "reinterpret", (source,))
        array, lane = self.names.make("bytes"), self.names.make("lane")
        self.line(f"uint8_t {array}[{count}] = {{0}};")
        self.line(f"for (int32_t {lane} = 0; {lane} < {source.dtype.lanes}; {lane}++) {{")
        self.depth += 1
        word, bits = self.names.make("word"), dtype.bits
        self.line(f"uint32_t {word} = (uint32_t){self.text(codes, ATOM, lane)}"
                  f" << {lane} * {bits} % 8;")
        places = [(f"{lane} * {bits} / 8", word)]
        if 8 % bits:
            places.append((f"({lane} * {bits} + {bits - 1}) / 8", f"{word} >> 8"))
        for place, part in places:
            self.line(f"{array}[{place}] = (uint8_t)({array}[{place}] | ({part}));")
        self.depth -= 1
        self.line("}")
        return array


def fills_bytes(value: Expr) -> bool:
    """Whether a vector of bytes is made from smaller elements, all at once."""
    if not isinstance(value, E.Call) or value.op != "reinterpret":
        return False
    source = value.args[0].dtype
    return source.is_packed and value.dtype.element == "uint8"
