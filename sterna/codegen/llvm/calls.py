"""Intrinsics: LLVM for the functions that a Call may name. Meaning: sterna/tir/intrinsics.py."""

from collections.abc import Callable, Sequence

from sterna.codegen.llvm import convert, math, small_floats
from sterna.codegen.llvm.dot import Dot
from sterna.codegen.llvm.emitter import COLD, INLINE, ModuleWriter
from sterna.codegen.llvm.layouts import ANY, TENSOR
from sterna.codegen.llvm.memory import MemoryEmitter, flat_index
from sterna.codegen.llvm.narrow import adds_to_round, round_and_move
from sterna.codegen.llvm.quotient import rounded_sum, without_division
from sterna.codegen.llvm.rounded_bytes import LARGEST_WHOLE, bounds
from sterna.codegen.llvm.tiles import write_tile_call
from sterna.codegen.llvm.types import (
    element_type,
    float_literal,
    mangled,
    splat_literal,
    symbol,
    value_type,
    vector_type,
)
from sterna.codegen.llvm.word_pairs import WordPairs
from sterna.ir.expr import Call, Cast, Expr, FloatImm, IntImm, StringImm, Var
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.intrinsics import INTRINSICS, Intrinsic
from sterna.tir.passes.lower_intrin import lower_call
from sterna.tir.stmt import BufferLoad

# The members of a DLTensor by their places.
_DATA, _DEVICE, _NDIM, _SHAPE, _STRIDES, _OFFSET = 0, 1, 3, 7, 8, 9
_NDARRAY = 70
_OBJECT_BYTES = 24


class CallEmitter(MemoryEmitter):
    """Expressions with calls."""

    data_slots: dict[int, str]
    """Where the address of a checked array lies, by the identity of its tensor's variable."""

    def __init__(self, module: ModuleWriter) -> None:
        super().__init__(module)
        self.hidden: dict[tuple[float, ...], tuple[str, DataType]] = {}
        """Registers in whose lanes constants of a mathematical function lie, by all of these."""

    def _call(self, expr: Call) -> str:
        other = lower_call(expr, math.IMPLEMENTED)
        if other is not None:
            return self.expr(other)
        method = _CALLS.get(expr.op)
        if method is not None:
            return method(self, expr)
        row = INTRINSICS.get(expr.op)
        if row is not None and row.llvm:
            return self._by_llvm(expr, row)
        if math.knows(expr.op):
            return self._math(expr)
        raise ValueError(f"the LLVM code generator knows no intrinsic '{expr.op}'")

    # ---- control ----

    def _if_then_else(self, expr: Call) -> str:
        condition, then, otherwise = expr.args
        with self.exact(False):
            test = self.expr(condition)
        if is_harmless(then) and is_harmless(otherwise):
            a, b = self.expr(then), self.expr(otherwise)
            return self.select(test, condition.dtype.lanes, expr.dtype, a, b)
        if condition.dtype.lanes > 1:
            return self._masked_choice(expr, test)
        writer = self.writer
        yes, no, after = (writer.label(hint) for hint in ("then", "else", "after"))
        writer.branch(test, yes, no)
        writer.start(yes)
        a, from_yes = self.expr(then), writer.block
        writer.jump(after)
        writer.start(no)
        b, from_no = self.expr(otherwise), writer.block
        writer.jump(after)
        writer.start(after)
        kind = value_type(expr.dtype)
        return writer.value(f"phi {kind} [ {a}, %{from_yes} ], [ {b}, %{from_no} ]")

    def _masked_choice(self, expr: Call, test: str) -> str:
        lanes = expr.dtype.lanes
        with self.masked(test, lanes):
            a = self.expr(expr.args[1])
        ones = splat_literal("i1", "true", lanes)
        opposite = self.writer.value(f"xor <{lanes} x i1> {test}, {ones}")
        with self.masked(opposite, lanes):
            b = self.expr(expr.args[2])
        return self.select(test, lanes, expr.dtype, a, b)

    def _likely(self, expr: Call) -> str:
        return self.expr(expr.args[0])

    def _exact(self, expr: Call) -> str:
        with self.exact():
            return self.expr(expr.args[0])

    def _any_lane(self, expr: Call) -> str:
        lanes = expr.args[0].dtype.lanes
        test = self.expr(expr.args[0])
        if lanes == 1:
            return test
        name = f"llvm.vector.reduce.or.v{lanes}i1"
        return self.writer.intrinsic(name, "i1", f"<{lanes} x i1> {test}")

    # ---- bits and rounding ----

    def _bitwise(self, expr: Call, name: str) -> str:
        with self.exact(False):
            a, b = (self.expr(arg) for arg in expr.args)
        return self.writer.value(f"{name} {value_type(expr.dtype)} {a}, {b}")

    def _shift_right(self, expr: Call) -> str:
        return self._bitwise(expr, "ashr" if expr.dtype.is_int else "lshr")

    def _bitwise_not(self, expr: Call) -> str:
        literal = "true" if expr.dtype.is_bool else "-1"
        ones = splat_literal(element_type(expr.dtype), literal, expr.dtype.lanes)
        return self.writer.value(f"xor {value_type(expr.dtype)} {self.expr(expr.args[0])}, {ones}")

    def _count_bits(self, expr: Call) -> str:
        dtype = expr.args[0].dtype
        kind = value_type(dtype)
        arguments = [f"{kind} {self.expr(expr.args[0])}"]
        if expr.op == "clz":
            arguments.append("i1 false")
        name = INTRINSICS[expr.op].llvm
        count = self.writer.intrinsic(f"{name}.{mangled(dtype)}", kind, *arguments)
        unsigned = DataType(f"uint{1 if dtype.is_bool else dtype.bits}").with_lanes(dtype.lanes)
        return convert.cast(self.writer, unsigned, expr.dtype, count)

    def _by_llvm(self, expr: Call, row: Intrinsic) -> str:
        """What LLVM has itself: an instruction for two operands, or an intrinsic."""
        if not row.llvm.startswith("llvm."):
            return self._bitwise(expr, row.llvm)
        dtype = expr.dtype
        rounds = bool(row.polynomial)  # an instruction that not every processor has
        narrow = convert.is_narrow(dtype) if rounds else (
            convert.computes_in_float(self.writer, dtype)
        )
        if narrow:
            return self._through(small_floats.FLOAT32, expr)
        name = row.llvm.removeprefix("llvm.")
        if rounds and f"{name}.f{dtype.bits}" not in self.module.abilities.rounds:
            return self._math(expr)
        kind = value_type(dtype)
        arguments = [f"{kind} {self.expr(arg)}" for arg in expr.args]
        return self.writer.intrinsic(f"{row.llvm}.{mangled(dtype)}", kind, *arguments)

    def _is_kind(self, expr: Call) -> str:
        """isnan, isinf, isfinite."""
        dtype = expr.args[0].dtype
        operand = self.expr(expr.args[0])
        if convert.computes_in_float(self.writer, dtype):
            operand = small_floats.widen(self.writer, dtype, operand)
            dtype = small_floats.FLOAT32.with_lanes(dtype.lanes)
        kind = value_type(dtype)
        if expr.op == "isnan":
            return self.writer.value(f"fcmp uno {kind} {operand}, {operand}")
        size = self.writer.intrinsic(f"llvm.fabs.{mangled(dtype)}", kind, f"{kind} {operand}")
        infinity = float_literal(float("inf"), dtype.element)
        bound = splat_literal(element_type(dtype), infinity, dtype.lanes)
        test = "oeq" if expr.op == "isinf" else "olt"
        return self.writer.value(f"fcmp {test} {kind} {size}, {bound}")

    # ---- conversions ----

    def _saturate(self, expr: Call) -> str:
        quickly = self._rounded_bytes(expr) or self._whole_within_ends(expr)
        if quickly is not None:
            return quickly
        has_fma = self.module.options.instructions.provides("fused_multiply_add")
        quick = without_division(expr) if has_fma else None
        value = expr.args[0] if quick is None else quick
        source, found = value.dtype, rounded_sum(value)
        if found is not None and adds_to_round(self.writer, source, expr.dtype):
            given = round_and_move(self.writer, source.lanes, self.expr(found[0]), found[1])
        elif found is not None and convert.rounds_within(self.writer, source, expr.dtype):
            whole = self.expr(found[0])
            return convert.round_within(self.writer, source, expr.dtype, whole, found[1])
        else:
            given = self.expr(value)
        return convert.saturate(self.writer, value.dtype, expr.dtype, given)

    def _whole_within_ends(self, expr: Call) -> str | None:
        """Floats that surely fit: by an instruction that knows no ends of what it converts to."""
        value = expr.args[0]
        is_rounded = isinstance(value, Call) and value.op == "nearbyint"
        source = value.args[0] if isinstance(value, Call) and is_rounded else value
        if not convert.converts_within(self.writer, source.dtype, expr.dtype):
            return None
        found = bounds(source)
        if found is None or not -LARGEST_WHOLE <= found[0] <= found[1] <= LARGEST_WHOLE:
            return None
        kind, whole = value_type(source.dtype), self.expr(source)
        if is_rounded:
            whole = self.writer.intrinsic(
                f"llvm.rint.{mangled(source.dtype)}", kind, f"{kind} {whole}")
        return self.writer.value(f"fptosi {kind} {whole} to {value_type(expr.dtype)}")

    def _reinterpret(self, expr: Call) -> str:
        source, target = expr.args[0].dtype, expr.dtype
        operand = self.expr(expr.args[0])
        if value_type(source) == value_type(target):
            return operand
        if "handle" in (source.kind, target.kind):
            return convert.cast(self.writer, source, target, operand)
        if source.is_bool:
            wide = DataType("uint8").with_lanes(source.lanes)
            operand, source = convert.cast(self.writer, source, wide, operand), wide
        if target.is_bool:
            return convert.cast(self.writer, source, target, operand)
        reverses = source.lanes != target.lanes and self.module.is_big_endian
        if reverses and source.lanes > 1:
            operand = self.shuffle(source, operand, None, list(reversed(range(source.lanes))))
        operand = self.writer.value(
            f"bitcast {value_type(source)} {operand} to {value_type(target)}"
        )
        if reverses and target.lanes > 1:
            operand = self.shuffle(target, operand, None, list(reversed(range(target.lanes))))
        return operand

    def _round_bfloat16(self, expr: Call) -> str:
        source, target = expr.args[0].dtype, expr.dtype
        operand = self.expr(expr.args[0])
        if not self.module.options.instructions.provides("bf16_rounding"):
            return convert.cast(self.writer, source, target, operand)
        kind = vector_type("bfloat", target.lanes)
        rounded = self.writer.value(f"fptrunc {value_type(source)} {operand} to {kind}")
        return self.writer.value(f"bitcast {kind} {rounded} to {value_type(target)}")

    def _dot(self, expr: Call) -> str:
        total, a, b = expr.args
        first, second = self._as_many(a, b), self.expr(b)
        dot = Dot(self.writer, expr.dtype.lanes)
        return dot.write(self.expr(total), (a.dtype, first), (b.dtype, second))

    def _as_many(self, a: Expr, b: Expr) -> str:
        """a, whose four bytes may serve all lanes, with as many bytes as b."""
        value = self.expr(a)
        lanes = b.dtype.lanes // 4
        if a.dtype.lanes == b.dtype.lanes:
            return value
        word = self.writer.value(f"bitcast {value_type(a.dtype)} {value} to i32")
        every = self.splat(DataType("int32"), word, lanes)
        words = value_type(DataType("int32").with_lanes(lanes))
        return self.writer.value(f"bitcast {words} {every} to {value_type(b.dtype)}")

    def _dot_in_words(self, expr: Call) -> str:
        a, b = expr.args
        first, second = self._as_many(a, b), self.expr(b)
        pairs = WordPairs(self.writer, expr.dtype.lanes)
        return pairs.dot((a.dtype, first), (b.dtype, second))

    def _fold(self, expr: Call) -> str:
        total, words = (self.expr(arg) for arg in expr.args)
        pairs = WordPairs(self.writer, 2 * expr.dtype.lanes)
        return pairs.fold(expr.dtype, total, words)

    # ---- mathematics ----

    def _through(self, element: DataType, expr: Call) -> str:
        """The call in another type, rounded back."""
        wide = element.with_lanes(expr.dtype.lanes)
        args = tuple(
            Cast(element.with_lanes(arg.dtype.lanes), arg) if arg.dtype.is_float else arg
            for arg in expr.args
        )
        result = self.expr(Call(wide, expr.op, args))
        return convert.cast(self.writer, wide, expr.dtype, result)

    def _math(self, expr: Call) -> str:
        """A function that is computed from basic operations, written once per vector length."""
        dtype = expr.dtype
        if not dtype.is_float:
            raise ValueError(f"'{expr.op}' of {dtype}: it takes floating-point numbers")
        if expr.op == "nextafter" and dtype.bits <= 8:
            raise ValueError(f"'nextafter' of {dtype}: the LLVM code generator has none")
        inner = math.computed_in(expr.op, dtype.element)
        if inner != dtype.element:
            return self._through(inner, expr)
        arguments = [self.typed(arg) for arg in expr.args]
        # A vector wider than the registers would only make LLVM cut the same polynomial up.
        lanes = dtype.lanes
        name = f"sterna.{expr.op}.f{dtype.bits}" + (f"x{lanes}" if lanes > 1 else "")
        target = self.module.helper(name, lambda: self._write_math(expr, name))
        return self.writer.value(f"call {value_type(dtype)} {target}({', '.join(arguments)})")

    def _write_math(self, expr: Call, name: str) -> str:
        params = tuple(Var(f"x{i}", arg.dtype) for i, arg in enumerate(expr.args))
        emitter = CallEmitter(self.module)
        for i, param in enumerate(params):
            emitter.bind(param, f"%x{i}")
        text = math.special_text(expr.op, expr.dtype)
        kind = value_type(expr.dtype)
        listed = ", ".join(f"{value_type(p.dtype)} %x{i}" for i, p in enumerate(params))
        kept = COLD if expr.op in math.OUT_OF_LINE else INLINE
        signature = f"define internal {kind} {symbol(name)}({listed}) {kept}"
        if text is not None:
            return emitter.scalarized(signature, text, expr)
        body = math.expand(expr.op, params, self.module.options)
        emitter._hide_constants(body)
        emitter.writer.emit(f"ret {kind} {emitter.expr(body)}")
        return emitter.writer.text(signature)

    def scalarized(self, signature: str, text: str, expr: Call) -> str:
        """A function given as text for one lane, applied to each."""
        dtype = expr.dtype
        element = element_type(dtype)
        scalar = self.module.helper(f"sterna.{expr.op}.f{dtype.bits}.one", lambda: text)
        lanes = []
        for lane in range(dtype.lanes):
            arguments = ", ".join(
                f"{element} {self.lane(dtype, f'%x{i}', lane)}" for i in range(len(expr.args))
            )
            lanes.append(self.writer.value(f"call {element} {scalar}({arguments})"))
        self.writer.emit(f"ret {value_type(dtype)} {self.gathered(dtype, lanes)}")
        return self.writer.text(signature)

    def _inverse_estimate(self, expr: Call) -> str:
        """About 1/x, by an instruction that takes a whole register."""
        estimate = self.module.options.instructions.reciprocal_estimate
        assert estimate is not None
        lanes, width = expr.dtype.lanes, estimate.lanes
        register = expr.dtype.with_lanes(width)
        kind = value_type(register)
        operand = self.expr(expr.args[0])
        found = []
        for start in range(0, lanes, width):
            part = operand
            if lanes == 1:
                part = self.splat(register, operand, width)
            elif width == 1:
                part = self.lane(expr.dtype, operand, start)
            elif lanes != width:
                picks = [min(lane, lanes - 1) for lane in range(start, start + width)]
                part = self.shuffle(expr.dtype, operand, None, picks)
            found.append((register, self.writer.intrinsic(
                estimate.intrinsic, kind, f"{kind} {part}", *estimate.operands
            )))
        while len(found) > 1:
            found = [self.joined(found[i : i + 2]) for i in range(0, len(found), 2)]
        whole, result = found[0]
        if lanes == 1:
            return self.lane(whole, result, 0)
        if lanes == whole.lanes:
            return result
        return self.shuffle(whole, result, None, list(range(lanes)))

    def _hide_constants(self, body: Expr) -> None:
        """Constants of which several lie in a register, where multiply-adds take a lane of it.

        LLVM may not see them: it would give each a whole register, again and again in a loop.
        """
        instructions = self.module.options.instructions
        if not instructions.provides("by_element_fma"):
            return

        def hide(node: Node) -> None:
            if not isinstance(node, Call) or node.op != "one_of":
                return
            numbers, width = node.args[:-1], instructions.vector_registers.bits // node.dtype.bits
            key = _values_of(numbers)
            if not len(numbers) <= width <= node.dtype.lanes or key in self.hidden:
                return
            filled = [*numbers, *[numbers[-1]] * (width - len(numbers))]
            kind = value_type(node.dtype.with_lanes(width))
            listed = ", ".join(map(self.typed, filled))
            self.hidden[key] = self.writer.value(
                f'call {kind} asm "", "=w,0"({kind} <{listed}>)'
            ), node.dtype.with_lanes(width)

        post_order(body, hide)

    def _one_of(self, expr: Call) -> str:
        """A constant, or the lane of a register in which it lies."""
        *numbers, place = expr.args
        assert isinstance(place, IntImm)
        lanes, held = expr.dtype.lanes, self.hidden.get(_values_of(numbers))
        if held is None:
            return self.splat(expr.dtype, self.expr(numbers[place.value]), lanes)
        return self.shuffle(held[1], held[0], None, [place.value] * lanes)

    def _table(self, expr: Call) -> str:
        """A word of one of the tables of math.py."""
        name, index = expr.args
        assert isinstance(name, StringImm)
        words = math.TABLES[name.value]
        table = f"@sterna.table.{name.value}"
        listed = ", ".join(f"i64 {word}" for word in words)
        line = f"{table} = internal unnamed_addr constant [{len(words)} x i64] [{listed}]"
        if line not in self.module.globals:
            self.module.globals.append(line)
        lanes = index.dtype.lanes
        operand = self.expr(index)
        found = []
        for lane in range(lanes):
            one = self.lane(index.dtype, operand, lane)
            address = self.writer.value(
                f"getelementptr inbounds i64, ptr {table}, {element_type(index.dtype)} {one}"
            )
            found.append(self.writer.value(f"load i64, ptr {address}, align 8"))
        return self.gathered(expr.dtype, found)

    # ---- memory ----

    def _loaded_address(self, expr: Call) -> str:
        load = expr.args[0]
        if not isinstance(load, BufferLoad):
            raise InternalError(f"{expr.op} takes an element of a buffer, not {load!r}")
        offset = flat_index(load.buffer, load.indices)
        return self.address(load.buffer, offset)

    def _prefetch(self, expr: Call) -> str:
        target = self.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        address = self._loaded_address(expr)
        self.writer.emit(f"call void {target}(ptr {address}, i32 0, i32 3, i32 1)")
        return convert.zero(expr.dtype)

    def _store_bits(self, expr: Call) -> str:
        address = self._loaded_address(expr)
        mask, bits = self.expr(expr.args[1]), self.expr(expr.args[2])
        keep = self.writer.value(f"xor i8 {mask}, -1")
        if self.module.atomics:
            self.writer.emit(f"atomicrmw and ptr {address}, i8 {keep} monotonic")
            self.writer.emit(f"atomicrmw or ptr {address}, i8 {bits} monotonic")
        else:  # such loops run in one thread
            before = self.writer.value(f"load i8, ptr {address}, align 1")
            kept = self.writer.value(f"and i8 {before}, {keep}")
            after = self.writer.value(f"or i8 {kept}, {bits}")
            self.writer.emit(f"store i8 {after}, ptr {address}, align 1")
        return "0"

    def _load_shared(self, expr: Call) -> str:
        address = self._loaded_address(expr)
        return self.writer.value(f"load atomic i8, ptr {address} unordered, align 1")

    # ---- other functions ----

    def _call_extern(self, expr: Call) -> str:
        name = expr.args[0]
        if not isinstance(name, StringImm):
            raise ValueError("call_extern needs the function's name as its first argument")
        arguments = [(_abi(arg.dtype), self.expr(arg)) for arg in expr.args[1:]]
        kinds = ", ".join(kind for kind, _ in arguments)
        result = value_type(expr.dtype)
        target = self.module.declare(name.value, result, kinds)
        listed = ", ".join(f"{kind} {operand}" for kind, operand in arguments)
        return self.writer.value(f"call {result} {target}({listed})")

    def _call_llvm(self, expr: Call) -> str:
        name = expr.args[0]
        assert isinstance(name, StringImm)
        arguments = ", ".join(self.typed(arg) for arg in expr.args[1:])
        # Without a declaration: LLVM finds the overload by the types.
        if expr.op == "call_llvm_void":
            self.writer.emit(f"call void {symbol(name.value)}({arguments})")
            return convert.zero(expr.dtype)
        return self.writer.value(f"call {value_type(expr.dtype)} {symbol(name.value)}({arguments})")

    def call_packed(self, expr: Call, is_used: bool) -> str:
        """A call by name; packed.py: it needs statements around it."""
        raise NotImplementedError

    # ---- packed arguments ----

    def _any_member(self, expr: Call, member: int, kind: str) -> str:
        args, number = expr.args
        step = f"{element_type(number.dtype)} {self.expr(number)}"
        address = self.writer.value(
            f"getelementptr inbounds {ANY}, ptr {self.expr(args)}, {step}, i32 {member}"
        )
        return self.writer.value(f"load {kind}, ptr {address}")

    def _any_type(self, expr: Call) -> str:
        return self._any_member(expr, 0, "i32")

    def _any_value(self, expr: Call) -> str:
        dtype = expr.dtype
        if dtype.kind == "handle" or dtype == "float64":
            return self._any_member(expr, 2, value_type(dtype))
        if dtype.is_float:
            double = self._any_member(expr, 2, "double")
            return convert.cast(self.writer, small_floats.FLOAT64, dtype, double)
        return convert.cast(self.writer, DataType("int64"), dtype,
                            self._any_member(expr, 2, "i64"))

    def _any_tensor(self, expr: Call) -> str:
        kind = self._any_member(expr, 0, "i32")
        start = self._any_member(expr, 2, "ptr")
        inside = self.writer.value(f"getelementptr i8, ptr {start}, i32 {_OBJECT_BYTES}")
        is_array = self.writer.value(f"icmp eq i32 {kind}, {_NDARRAY}")
        return self.writer.value(f"select i1 {is_array}, ptr {inside}, ptr {start}")

    def _tensor_member(self, expr: Call, member: int, kind: str) -> str:
        address = self.writer.value(
            f"getelementptr inbounds {TENSOR}, ptr {self.expr(expr.args[0])}, i32 0, i32 {member}"
        )
        return self.writer.value(f"load {kind}, ptr {address}")

    def _tensor_data(self, expr: Call) -> str:
        slot = self.data_slots.get(id(expr.args[0]))
        if slot is not None:
            return self.writer.value(f"load ptr, ptr {slot}")
        data = self._tensor_member(expr, _DATA, "ptr")
        offset = self._tensor_member(expr, _OFFSET, "i64")
        return self.writer.value(f"getelementptr i8, ptr {data}, i64 {offset}")

    def _tensor_int(self, expr: Call) -> str:
        member = {"tensor_ndim": _NDIM, "tensor_device": _DEVICE}[expr.op]
        return self._tensor_member(expr, member, "i32")

    def _tensor_dtype(self, expr: Call) -> str:
        # code, bits and lanes lie one after the other: together they are one little-endian word.
        return self._tensor_member(expr, _NDIM + 1, "i32")

    def _tensor_has_strides(self, expr: Call) -> str:
        strides = self._tensor_member(expr, _STRIDES, "ptr")
        return self.writer.value(f"icmp ne ptr {strides}, null")

    def _tensor_entry(self, expr: Call) -> str:
        member = _SHAPE if expr.op == "tensor_shape" else _STRIDES
        numbers = self._tensor_member(expr, member, "ptr")
        number = expr.args[1]
        address = self.writer.value(
            f"getelementptr inbounds i64, ptr {numbers}, "
            f"{element_type(number.dtype)} {self.expr(number)}"
        )
        loaded = self.writer.value(f"load i64, ptr {address}, align 8")
        return convert.cast(self.writer, DataType("int64"), expr.dtype, loaded)

    def _try_call(self, expr: Call) -> str:
        raise NotImplementedError  # a statement's matter: stmt.py

    def _check_array(self, expr: Call) -> str:
        raise NotImplementedError  # likewise


def _abi(dtype: DataType) -> str:
    """The type of an argument in C, which leaves no bits of a register undefined."""
    kind = value_type(dtype)
    if dtype.lanes > 1 or not (dtype.is_integer or dtype.is_bool) or dtype.bits > 32:
        return kind
    return f"{kind} {'zeroext' if not dtype.is_int and dtype.bits < 32 else 'signext'}"


def is_harmless(expr: Expr) -> bool:
    """Whether it can be evaluated where it is not needed, at little cost."""
    harmless = True
    size = 0

    def look(node: Node) -> None:
        nonlocal harmless, size
        size += 1
        if isinstance(node, (BufferLoad, Call)) or type(node).__name__ in _DIVISIONS:
            harmless = harmless and isinstance(node, Call) and node.op in _CHEAP

    post_order(expr, look)
    return harmless and size <= 16


_DIVISIONS = {"FloorDiv", "FloorMod", "TruncDiv", "TruncMod"}
_CHEAP = {"likely", "bitwise_and", "bitwise_or", "bitwise_xor", "reinterpret", "abs"}

def _values_of(numbers: Sequence[Expr]) -> tuple[float, ...]:
    return tuple(number.value for number in numbers if isinstance(number, FloatImm))


_CALLS: dict[str, Callable[[CallEmitter, Call], str]] = {
    "if_then_else": lambda emitter, expr: emitter._if_then_else(expr),
    "likely": CallEmitter._likely, "exact": CallEmitter._exact,
    "any_lane": CallEmitter._any_lane, "table": CallEmitter._table,
    "inverse_estimate": CallEmitter._inverse_estimate, "one_of": CallEmitter._one_of,
    "shift_right": CallEmitter._shift_right, "bitwise_not": CallEmitter._bitwise_not,
    "popcount": CallEmitter._count_bits, "clz": CallEmitter._count_bits,
    "fmod": CallEmitter._math,
    "isnan": CallEmitter._is_kind, "isinf": CallEmitter._is_kind,
    "isfinite": CallEmitter._is_kind,
    "saturate": CallEmitter._saturate, "reinterpret": CallEmitter._reinterpret,
    "dot4": CallEmitter._dot,
    "dot2": CallEmitter._dot_in_words,
    "add_pairs": CallEmitter._fold,
    "round_bfloat16": CallEmitter._round_bfloat16,
    "address_of": CallEmitter._loaded_address, "prefetch": CallEmitter._prefetch,
    "store_bits": CallEmitter._store_bits, "load_shared": CallEmitter._load_shared,
    "call_extern": CallEmitter._call_extern, "call_pure_extern": CallEmitter._call_extern,
    "call_packed": lambda emitter, expr: emitter.call_packed(expr, True),
    "call_llvm_intrin": CallEmitter._call_llvm, "call_llvm_pure_intrin": CallEmitter._call_llvm,
    "call_llvm_void": CallEmitter._call_llvm,
    "try_call": lambda emitter, expr: emitter._try_call(expr),
    "check_array": lambda emitter, expr: emitter._check_array(expr),
    "any_type": CallEmitter._any_type, "any_value": CallEmitter._any_value,
    "any_tensor": CallEmitter._any_tensor, "tensor_data": CallEmitter._tensor_data,
    "tensor_ndim": CallEmitter._tensor_int, "tensor_device": CallEmitter._tensor_int,
    "tensor_dtype": CallEmitter._tensor_dtype,
    "tensor_has_strides": CallEmitter._tensor_has_strides,
    "tensor_shape": CallEmitter._tensor_entry, "tensor_stride": CallEmitter._tensor_entry,
    **{name: write_tile_call for name in INTRINSICS if name.startswith("tile_")},
}
