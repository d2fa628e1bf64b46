"""Calls as C: mathematics, bits, conversions, packed arguments, other functions."""

from collections.abc import Callable

from sterna.codegen.c.expr import ATOM, OTHER, UNARY, ExprWriter, Text
from sterna.codegen.c.halves import HALVES
from sterna.codegen.c.types import (
    CodegenError,
    declare,
    is_odd,
    is_small,
    library_functions,
    string_literal,
    unsigned_type,
    value_type,
)
from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS, Known
from sterna.tir.passes.lower_intrin import lower_call
from sterna.tir.stmt import BufferLoad
from sterna.tir.wanted_array import WantedArray

_SPELLED = Known(lambda row: row.spelled.get("c"))

_TENSOR_FIELDS = {"tensor_ndim": "ndim", "tensor_device": "device_type"}


class CallWriter(ExprWriter):
    """Writes calls."""

    externs: dict[str, str]
    """Declarations of external functions, by name."""
    imported: set[str]
    """Names of functions that imported texts declare."""

    def call_function(self, expr: E.Call, lane: str) -> Text:
        other = None if expr.op in HALVES else lower_call(expr, _SPELLED)
        if other is not None:
            return self.write(other, lane)
        write = _CALLS.get(expr.op)
        if write is not None:
            return write(self, expr, lane)
        if expr.op in _SPELLED and expr.dtype.is_float:
            return self._math(INTRINSICS[expr.op].spelled["c"], expr, lane)
        raise CodegenError(f"C has no {expr.op} of {expr.dtype}: {expr}")

    def args(self, args: tuple[Expr, ...], lane: str) -> str:
        return ", ".join(self.text(arg, OTHER, lane) for arg in args)

    # ---- mathematics ----

    def _math(self, name: str, expr: E.Call, lane: str) -> Text:
        if name == "nextafter" and is_small(expr.dtype):
            raise CodegenError(f"C has no nextafter of {expr.dtype}: {expr}")
        suffix = "" if expr.dtype.element == "float64" else "f"
        text = f"{name}{suffix}({self.args(expr.args, lane)})"
        return self.rounded(text, expr.dtype, ATOM)

    def _ldexp(self, expr: E.Call, lane: str) -> Text:
        name = "ldexp" if expr.dtype.element == "float64" else "ldexpf"
        power = self.text(expr.args[1], UNARY, lane)
        text = f"{name}({self.text(expr.args[0], OTHER, lane)}, (int){power})"
        return self.rounded(text, expr.dtype, ATOM)

    def _classify(self, expr: E.Call, lane: str) -> Text:
        return f"{expr.op}({self.args(expr.args, lane)}) != 0", OTHER

    # ---- bits ----

    def _bitwise(self, expr: E.Call, lane: str) -> Text:
        symbol = INTRINSICS[expr.op].spelled["c"]
        a, b = (self.text(arg, UNARY, lane) for arg in expr.args)
        if expr.dtype.is_bool:
            a, b = (f"({arg})" for arg in (a, b))
        return f"({value_type(expr.dtype)})({a} {symbol} {b})", UNARY

    def _complement(self, expr: E.Call, lane: str) -> Text:
        symbol = "!" if expr.dtype.is_bool else "~"
        text = f"{symbol}{self.text(expr.args[0], UNARY, lane)}"
        if is_odd(expr.dtype):
            return self.low_bits(f"({unsigned_type(expr.dtype)}){text}", expr.dtype)
        return f"({value_type(expr.dtype)}){text}", UNARY

    def _shift_left(self, expr: E.Call, lane: str) -> Text:
        a, b = (self.text(arg, UNARY, lane) for arg in expr.args)
        return self.low_bits(f"({unsigned_type(expr.dtype)}){a} << {b}", expr.dtype)

    def _shift_right(self, expr: E.Call, lane: str) -> Text:
        # Of a negative number this is up to the compiler; all keep the sign.
        a, b = (self.text(arg, UNARY, lane) for arg in expr.args)
        c_type = value_type(expr.dtype)
        # A small constant of 64 bits is written as an int.
        wide = f"({c_type})" if expr.dtype.bits == 64 else ""
        return f"({c_type})({wide}{a} >> {b})", UNARY

    def _count(self, expr: E.Call, lane: str) -> Text:
        return self.helper(expr.op, expr.dtype, list(expr.args), lane)

    def _likely(self, expr: E.Call, lane: str) -> Text:
        return self.write(expr.args[0], lane)

    def _exact(self, expr: E.Call, lane: str) -> Text:
        # It may be computed before the guard of its uses, where in C it must not overflow either.
        return self.write(expr.args[0], lane)

    # ---- conversions ----

    def _saturate(self, expr: E.Call, lane: str) -> Text:
        value, target = expr.args[0], expr.dtype.element
        if is_small(target) and target.bits <= 8:
            name = self.helpers.small("clamp", target)
            return self.rounded(f"{name}({self.number(value, lane)})", target)
        if not target.is_integer:
            return self.convert(value, target, lane)
        shift = _shifted_by(value)
        if shift and value.dtype.element == "int32" and target in ("int8", "int16"):
            assert isinstance(value, E.Call)
            name, value = self.helpers.shifted(target, shift), value.args[0]
        else:
            name = self.helpers.saturate(value.dtype.element, target)
        return f"{name}({self.text(value, OTHER, lane)})", ATOM

    def _reinterpret(self, expr: E.Call, lane: str) -> Text:
        source, target = expr.args[0].dtype.element, expr.dtype.element
        if expr.args[0].dtype.lanes != expr.dtype.lanes:
            return self.repacked(expr, lane)
        if source == target:
            return self.write(expr.args[0], lane)
        text = self.text(expr.args[0], OTHER, lane)
        if target.kind == "handle":
            return f"(void *)(intptr_t)({text})", UNARY
        if source.kind == "handle":
            return f"({value_type(target)})(intptr_t)({text})", UNARY
        if source.bits != target.bits:
            raise CodegenError(f"{expr} reads {source.bits} bits as {target.bits}")
        if is_small(source):
            text = f"{self.helpers.small('bits', source)}({text})"
            source = DataType(f"uint{source.bits}")
        if is_small(target):
            held = DataType(f"uint{target.bits}")
            text = text if source == held else self.low_bits(text, held)[0]
            return f"{self.helpers.small('value', target)}({text})", ATOM
        if not source.is_float and not target.is_float:
            return self.low_bits(text, target)
        return f"{self.helpers.bits(source, target)}({text})", ATOM

    def _dot(self, expr: E.Call, lane: str) -> Text:
        total, a, b = expr.args
        first = f"4 * {lane}" if lane else "0"
        products = []
        for place in range(4):
            own = f"{first} + {place}"
            shared = own if a.dtype.lanes == b.dtype.lanes else str(place)
            products.append(f"{self.text(a, UNARY, shared)} * {self.text(b, UNARY, own)}")
        added = f"(uint32_t)({' + '.join(products)})"
        return self.low_bits(f"(uint32_t){self.text(total, UNARY, lane)} + {added}", expr.dtype)

    def _dot_in_words(self, expr: E.Call, lane: str) -> Text:
        a, b = expr.args
        products = []
        for place in range(2):
            own = f"2 * {lane} + {place}"
            shared = own if a.dtype.lanes == b.dtype.lanes else f"(2 * {lane} + {place}) % 4"
            products.append(f"(int32_t){self.text(a, UNARY, shared)} * {self.text(b, UNARY, own)}")
        name = self.helpers.saturate(DataType("int32"), DataType("int16"))
        return f"{name}({' + '.join(products)})", ATOM

    def _fold(self, expr: E.Call, lane: str) -> Text:
        total, words = expr.args
        first = f"2 * {lane}" if lane else "0"
        both = " + ".join(self.text(words, UNARY, f"{first} + {place}") for place in range(2))
        added = f"(uint32_t)({both})"
        return self.low_bits(f"(uint32_t){self.text(total, UNARY, lane)} + {added}", expr.dtype)

    def _halves(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed(expr.op)
        return f"sterna_{expr.op}({self.args(expr.args, lane)})", ATOM

    def repacked(self, expr: E.Call, lane: str) -> Text:
        """A lane of the same bits in lanes of another size."""
        raise NotImplementedError

    def _store_bits(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("store_bits")
        load = expr.args[0]
        assert isinstance(load, BufferLoad)
        byte = self.element(load.buffer, load.indices, lane)
        self.line(f"sterna_store_bits(&{byte}, {self.args(expr.args[1:], lane)});")
        return "0", ATOM

    def _load_shared(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("load_shared")
        load = expr.args[0]
        assert isinstance(load, BufferLoad)
        return f"sterna_load_shared(&{self.element(load.buffer, load.indices, lane)})", ATOM

    # ---- memory and functions ----

    def _address(self, expr: E.Call, lane: str) -> Text:
        load = expr.args[0]
        if not isinstance(load, BufferLoad):
            raise CodegenError(f"{expr} takes the address of what is no element")
        return f"(void *)&{self.element(load.buffer, load.indices, lane)}", UNARY

    def _prefetch(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("prefetch")
        (load,) = expr.args
        assert isinstance(load, BufferLoad)
        return f"STERNA_PREFETCH(&{self.element(load.buffer, load.indices, lane)})", ATOM

    def _extern(self, expr: E.Call, lane: str) -> Text:
        name, rest = _name(expr), expr.args[1:]
        if name not in library_functions() and name not in self.imported:
            kinds = [
                "const char *" if isinstance(arg, E.StringImm) else value_type(arg.dtype)
                for arg in rest
            ]
            text = f"extern {declare(value_type(expr.dtype), name)}({', '.join(kinds) or 'void'});"
            if self.externs.setdefault(name, text) != text:
                raise CodegenError(f"the function {name} is called with different types")
        return f"{name}({self.args(rest, lane)})", ATOM

    def call_packed(self, expr: E.Call, is_used: bool) -> Text:
        """A call by name; packed.py: it needs statements before it."""
        raise NotImplementedError

    def _llvm(self, expr: E.Call, lane: str) -> Text:
        raise CodegenError(
            f"C code cannot call LLVM's {_name(expr)}; call a C function instead, whose text the "
            "pragma import_c brings"
        )

    def _try_call(self, expr: E.Call, lane: str) -> Text:
        name = self.function_name(_name(expr), len(expr.args) - 1)
        self.kernel_begins()
        self.line(f"if ({name}({self.args(expr.args[1:], lane)}) != 0) {{")
        self.depth += 1
        self.fail()
        self.depth -= 1
        self.line("}")
        return "0", ATOM

    def _check_array(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("check_array")
        wanted, name = WantedArray.of(expr), self.names.make("wanted")
        texts = ", ".join(
            string_literal(text)
            for text in (wanted.function, wanted.argument, wanted.dimensions, str(wanted.dtype))
        )
        dims = range(len(wanted.extents))
        said = ", ".join(string_literal(wanted.extent_text(dim)) for dim in dims) or "0"
        extents = ", ".join(str(extent) for extent in wanted.extents) or "0"
        self.line(f"static const int64_t {name}_extents[] = {{{extents}}};")
        self.line(f"static const char *const {name}_texts[] = {{{said}}};")
        self.line(f"static const struct sterna_wanted {name} = {{")
        self.line(f"  {texts}, {name}_extents, {name}_texts, {wanted.type_code}u, {len(dims)}, "
                  f"{int(wanted.is_written)}, {wanted.device_type}, "
                  f"{string_literal(wanted.device)}")
        self.line("};")
        given = self.args(expr.args[:2], lane)
        self.line(f"if (sterna_check_array({given}, &{name}) != 0) {{")
        self.depth += 1
        self.fail()
        self.depth -= 1
        self.line("}")
        return "0", ATOM

    def function_name(self, name: str, count: int) -> str:
        """The C name of a function of the same module."""
        raise NotImplementedError

    def kernel_begins(self) -> None:
        """Where a network's function calls its next kernel; nothing elsewhere."""
        raise NotImplementedError

    # ---- packed arguments ----

    def _any(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("any")
        args, at = self.text(expr.args[0], UNARY), self.text(expr.args[1], OTHER, "", True)
        one = f"((const sterna_any *){args})[{at}]"
        if expr.op == "any_type":
            return f"{one}.type_index", ATOM
        fields = {"int64": "v_int64", "float64": "v_float64", "handle": "v_ptr"}
        if expr.dtype not in fields:
            raise CodegenError(f"{expr} reads an argument as {expr.dtype}")
        return f"{one}.value.{fields[expr.dtype]}", ATOM

    def _any_tensor(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("any_tensor")
        return f"sterna_any_tensor({self.args(expr.args, lane)})", ATOM

    def _tensor(self, expr: E.Call, lane: str) -> Text:
        self.helpers.fixed("tensor")
        tensor = f"((const sterna_tensor *){self.text(expr.args[0], UNARY)})"
        if expr.op in _TENSOR_FIELDS:
            return f"{tensor}->{_TENSOR_FIELDS[expr.op]}", ATOM
        if expr.op == "tensor_data":
            return f"(void *)((char *){tensor}->data + {tensor}->byte_offset)", UNARY
        if expr.op == "tensor_has_strides":
            return f"{tensor}->strides != 0", OTHER
        if expr.op == "tensor_dtype":
            high = f"(uint32_t){tensor}->bits << 8 | (uint32_t){tensor}->lanes << 16"
            return f"(int32_t)({tensor}->code | {high})", UNARY
        field = "shape" if expr.op == "tensor_shape" else "strides"
        return f"{tensor}->{field}[{self.text(expr.args[1], OTHER, '', True)}]", ATOM


def _shifted_by(value: Expr) -> int:
    """By how many places a word is shifted to the right; 0 if it is not, or nobody knows."""
    if not isinstance(value, E.Call) or value.op != "shift_right":
        return 0
    count = build.int_value(value.args[1])
    return count if count is not None and 0 < count < 32 else 0


def _name(expr: E.Call) -> str:
    first = expr.args[0] if expr.args else None
    if not isinstance(first, E.StringImm):
        raise CodegenError(f"{expr} does not name what it calls")
    return first.value


_CALLS: dict[str, Callable[[CallWriter, E.Call, str], Text]] = {
    "ldexp": CallWriter._ldexp,
    "isnan": CallWriter._classify,
    "isinf": CallWriter._classify,
    "isfinite": CallWriter._classify,
    "bitwise_and": CallWriter._bitwise,
    "bitwise_or": CallWriter._bitwise,
    "bitwise_xor": CallWriter._bitwise,
    "bitwise_not": CallWriter._complement,
    "shift_left": CallWriter._shift_left,
    "shift_right": CallWriter._shift_right,
    "popcount": CallWriter._count,
    "clz": CallWriter._count,
    "likely": CallWriter._likely,
    "exact": CallWriter._exact,
    "saturate": CallWriter._saturate,
    "reinterpret": CallWriter._reinterpret,
    "dot4": CallWriter._dot,
    "dot2": CallWriter._dot_in_words,
    "add_pairs": CallWriter._fold,
    **dict.fromkeys(HALVES, CallWriter._halves),
    "round_bfloat16": lambda writer, expr, lane: writer.write(
        E.Cast(expr.dtype, expr.args[0]), lane),
    "address_of": CallWriter._address,
    "prefetch": CallWriter._prefetch,
    "store_bits": CallWriter._store_bits,
    "load_shared": CallWriter._load_shared,
    "call_extern": CallWriter._extern,
    "call_pure_extern": CallWriter._extern,
    "call_packed": lambda writer, expr, lane: writer.call_packed(expr, True),
    "call_llvm_intrin": CallWriter._llvm,
    "call_llvm_pure_intrin": CallWriter._llvm,
    "call_llvm_void": CallWriter._llvm,
    "try_call": CallWriter._try_call,
    "check_array": CallWriter._check_array,
    "any_type": CallWriter._any,
    "any_value": CallWriter._any,
    "any_tensor": CallWriter._any_tensor,
    **dict.fromkeys(
        ("tensor_data", "tensor_ndim", "tensor_device", "tensor_dtype", "tensor_shape",
         "tensor_has_strides", "tensor_stride"), CallWriter._tensor),
}
