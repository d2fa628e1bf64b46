"""Loads and stores of scalars and vectors."""

import math

from sterna.codegen.llvm.byte_lookup import byte_of, looked_up
from sterna.codegen.llvm.expr import ExprEmitter
from sterna.codegen.llvm.ranges import as_ramp, lanes_from_base
from sterna.codegen.llvm.types import memory_type, splat_literal, value_type, vector_type
from sterna.ir import build
from sterna.ir.expr import Add, Expr, IntImm
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.stmt import Buffer, BufferLoad

# Rows of registers whose elements are brought together by shuffles of two.
MOST_ROWS = 4
# Lanes so far apart that none share a row are loaded one by one, if they are so few.
FEW_LANES = 4
# What a cache holds together where lines are fetched before they are stored.
LINE_BYTES = 64
# The place where a row begins, and how many elements it has.
Row = tuple[int, int]
_SHORT = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The offset of an element, in elements."""
    if len(indices) == 1 and not buffer.strides:
        return indices[0]
    return buffer.offset_of(indices)


def _constant_step(offset: Expr) -> tuple[Expr, int]:
    """An offset as the part that varies and a constant after it."""
    if isinstance(offset, Add) and isinstance(offset.b, IntImm) and offset.dtype.lanes == 1:
        return offset.a, offset.b.value
    return offset, 0


def _picks(places: dict[int, int], lanes: int) -> str:
    """What a shuffle takes for each lane; nothing for those that have no place."""
    return ", ".join(
        f"i32 {places[lane]}" if lane in places else "i32 poison" for lane in range(lanes))


def _rows_apart(wanted: list[int]) -> list[Row]:
    """The few rows that have all elements, from the first to the last of each; none."""
    lanes = len(wanted)
    found: list[list[int]] = []
    for place in sorted(set(wanted)):
        if found and place - found[-1][0] < lanes:
            found[-1][1] = place
        else:
            found.append([place, place])
    rows = [(first, last - first + 1) for first, last in found]
    near = len(rows) <= MOST_ROWS and sum(count for _, count in rows) <= 2 * lanes
    return rows if near else []


def _rows_held(buffer: Buffer, base: Expr, wanted: list[int]) -> list[Row]:
    """The few whole rows, as long as the result, that have all elements of registers; none."""
    lanes, first = len(wanted), build.int_value(base)
    size = math.prod(build.int_value(extent) or 0 for extent in buffer.shape)
    if first is None or not 0 <= first + min(wanted) <= first + max(wanted) < size // lanes * lanes:
        return []
    begins = sorted({(first + place) // lanes * lanes - first for place in wanted})
    return [(begin, lanes) for begin in begins] if len(begins) <= MOST_ROWS else []


class MemoryEmitter(ExprEmitter):
    """Expressions that read memory, and what writes it."""

    # ---- addresses ----

    def alignment(self, buffer: Buffer, offset: Expr) -> int:
        """Bytes that certainly divide the address of an element."""
        size = buffer.dtype.bytes
        if not buffer.alignment:
            return size
        step = self.ranges.divisor(offset) * size
        align = buffer.alignment & -buffer.alignment
        return max(size, min(align, step & -step) if step else align)

    def index(self, expr: Expr) -> str:
        """An index as wide as an address."""
        with self.exact():
            operand = self.expr(expr)
            known_sign = self.ranges.non_negative(expr)
        dtype, wide = expr.dtype, self.module.index_type
        if dtype.bits == self.module.pointer_bits or (isinstance(expr, IntImm)):
            return operand
        target = vector_type(wide, dtype.lanes)
        kind = value_type(dtype)
        if dtype.bits > self.module.pointer_bits:
            return self.writer.value(f"trunc {kind} {operand} to {target}")
        name = "zext" if dtype.is_uint else "zext nneg" if known_sign else "sext"
        return self.writer.value(f"{name} {kind} {operand} to {target}")

    def pointer(self, buffer: Buffer) -> str:
        """The address of a buffer's first element."""
        operand = self.env.get(id(buffer.data))
        if operand is None:
            raise InternalError(f"the buffer {buffer.name} is used where nothing binds it")
        return operand

    def address(self, buffer: Buffer, offset: Expr) -> str:
        """The address of an element, or a vector of addresses."""
        if build.is_const(offset, 0) and offset.dtype.lanes == 1:
            return self.pointer(buffer)
        element = "i8" if buffer.dtype.is_packed else memory_type(buffer.dtype)
        if buffer.dtype.is_packed:  # the element begins a byte: pack_elements has made sure
            offset = build.cast("int64", offset) * buffer.dtype.bits // 8
        base, step = _constant_step(offset)
        if step and not isinstance(base, IntImm):
            inside = "inbounds " if step > 0 and self.ranges.non_negative(base) else ""
            start = self._element(buffer, element, base, inside)
            return self.writer.value(
                f"getelementptr {inside}{element}, ptr {start}, {self.module.index_type} {step}"
            )
        return self._element(buffer, element, offset, "inbounds ")

    def _element(self, buffer: Buffer, element: str, offset: Expr, inside: str) -> str:
        kind = vector_type(self.module.index_type, offset.dtype.lanes)
        return self.writer.value(
            f"getelementptr {inside}{element}, ptr {self.pointer(buffer)}, "
            f"{kind} {self.index(offset)}"
        )

    # ---- bool is i1 in values and i8 in memory ----

    def _from_memory(self, dtype: DataType, operand: str) -> str:
        if not dtype.is_bool:
            return operand
        kind = vector_type("i8", dtype.lanes)
        return self.writer.value(f"icmp ne {kind} {operand}, zeroinitializer")

    def _to_memory(self, dtype: DataType, operand: str) -> str:
        if not dtype.is_bool:
            return operand
        kind = vector_type("i8", dtype.lanes)
        return self.writer.value(f"zext {value_type(dtype)} {operand} to {kind}")

    # ---- loads ----

    def _load(self, expr: BufferLoad) -> str:
        buffer, dtype = expr.buffer, expr.dtype
        offset = flat_index(buffer, expr.indices)
        if dtype.lanes == 1:
            return self._from_memory(dtype, self._load_scalar(buffer, offset))
        ramp = as_ramp(offset)
        stride = build.int_value(ramp[1]) if ramp else None
        scattered = ramp is None or (stride not in (0, 1, -1) and buffer.scope == "local")
        based = lanes_from_base(offset) if scattered and self.mask is None else None
        known = self._load_known(buffer, *based) if based is not None else None
        if known is None and self.mask is None:
            known = self._look_up(buffer, offset)
        if known is not None:
            raw = known
        elif ramp is None or stride is None or not self._reads_rows(stride, dtype):
            raw = self._load_far(buffer, offset)
        elif stride == 0:
            one = self._load_scalar(buffer, ramp[0])
            return self.splat(dtype, self._from_memory(dtype.element, one), dtype.lanes)
        elif stride == 1:
            raw = self._load_row(buffer, ramp[0], dtype.lanes, self._mask_for(dtype.lanes))
        elif self._mask_for(dtype.lanes) is not None:
            raw = self._gather(buffer, offset)
        elif stride == -1:
            raw = self._load_reversed(buffer, ramp[0], dtype.lanes)
        else:
            raw = self._load_apart(buffer, ramp[0], stride, dtype.lanes)
        return self._from_memory(dtype, raw)

    def _look_up(self, buffer: Buffer, offset: Expr) -> str | None:
        """Bytes of a table of all, where the processor keeps such in registers; None."""
        row = self.module.options.instructions.byte_lookup
        found = byte_of(buffer, offset) if row else None
        if row is None or found is None:
            return None
        index, signed = found
        lanes, table = offset.dtype.lanes, self.pointer(buffer)
        return looked_up(self.writer, row, table, lanes, self.expr(index), signed)

    def _load_known(self, buffer: Buffer, base: Expr, lanes: list[int]) -> str | None:
        """Elements at known distances from a base, where that is better than a gather; None."""
        if 0 < max(lanes) - min(lanes) < 2 * len(lanes):
            return self._load_picked(buffer, base, lanes)
        held = buffer.scope == "local"
        rows = _rows_held(buffer, base, lanes) if held else _rows_apart(lanes)
        if rows:
            return self._from_rows(buffer, base, rows, lanes)
        return self._load_one_by_one(buffer, base, lanes) if held else None

    def _load_far(self, buffer: Buffer, offset: Expr) -> str:
        """Elements that share no rows: by themselves if they are a few at known distances."""
        ramp, lanes = as_ramp(offset), offset.dtype.lanes
        stride = build.int_value(ramp[1]) if ramp else None
        if ramp is None or stride is None or lanes > FEW_LANES or self.mask is not None:
            return self._gather(buffer, offset)
        places = [lane * stride for lane in range(lanes)]
        return self._load_one_by_one(buffer, ramp[0], places)

    def _reads_rows(self, stride: int, dtype: DataType) -> bool:
        """Whether elements so far apart are picked from the rows that hold them."""
        if stride in (0, 1, -1, 2):
            return True
        instructions = self.module.options.instructions
        most = dtype.lanes // 2 if instructions.provides("picks_from_rows") else 0
        return dtype.bits == 32 and 2 < stride <= most

    def _mask_for(self, lanes: int) -> str | None:
        return self.mask[0] if self.mask is not None and self.mask[1] == lanes else None

    def _load_scalar(self, buffer: Buffer, offset: Expr) -> str:
        kind = memory_type(buffer.dtype)
        align = self.alignment(buffer, offset)
        if self.mask is None:
            address = self.address(buffer, offset)
            return self.writer.value(f"load {kind}, ptr {address}, align {align}")
        # Nothing may be read unless some lane wants it.
        mask, lanes = self.mask
        writer = self.writer
        wanted = writer.intrinsic(
            f"llvm.vector.reduce.or.v{lanes}i1", "i1", f"<{lanes} x i1> {mask}"
        )
        address = self.address(buffer, offset)
        before, read, after = writer.block, writer.label("read"), writer.label("after")
        writer.branch(wanted, read, after)
        writer.start(read)
        value = writer.value(f"load {kind}, ptr {address}, align {align}")
        writer.jump(after)
        writer.start(after)
        return writer.value(f"phi {kind} [ {value}, %{read} ], [ zeroinitializer, %{before} ]")

    def _load_row(self, buffer: Buffer, base: Expr, lanes: int, mask: str | None) -> str:
        element = memory_type(buffer.dtype)
        kind = vector_type(element, lanes)
        address = self.address(buffer, base)
        align = self.alignment(buffer, base)
        if mask is None:
            return self.writer.value(f"load {kind}, ptr {address}, align {align}")
        name = f"llvm.masked.load.v{lanes}{_SHORT.get(element, element)}.p0"
        target = self.module.declare(name, kind, f"ptr, <{lanes} x i1>, {kind}")
        return self.writer.value(
            f"call {kind} {target}(ptr align {align} {address}, <{lanes} x i1> {mask}, "
            f"{kind} zeroinitializer)"
        )

    def _load_reversed(self, buffer: Buffer, base: Expr, lanes: int) -> str:
        first = build.sub(base, build.const(lanes - 1, base.dtype))
        row = self._load_row(buffer, first, lanes, None)
        return self._reverse(memory_type(buffer.dtype), row, lanes)

    def _reverse(self, element: str, operand: str, lanes: int) -> str:
        kind = vector_type(element, lanes)
        picks = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
        return self.writer.value(
            f"shufflevector {kind} {operand}, {kind} poison, <{lanes} x i32> <{picks}>"
        )

    def _load_apart(self, buffer: Buffer, base: Expr, stride: int, lanes: int) -> str:
        """Every so manyth element: from rows, of which the last ends where the last lane does."""
        begins = [*(row * lanes for row in range(stride - 1)), (lanes - 1) * (stride - 1)]
        rows = [(begin, lanes) for begin in begins]
        return self._from_rows(buffer, base, rows, [lane * stride for lane in range(lanes)])

    def _from_rows(
        self, buffer: Buffer, base: Expr, rows: list[Row], wanted: list[int]
    ) -> str:
        """Elements in any order from rows that have them, none longer than the result.

        Each shuffle puts what two of them have, or what others have put together, side by side.
        """
        lanes, element = len(wanted), memory_type(buffer.dtype)
        kind = vector_type(element, lanes)
        held: list[tuple[str, dict[int, int]]] = []
        for begin, count in rows:
            known = {lane for _, places in held for lane in places}
            own = {lane: place - begin for lane, place in enumerate(wanted)
                   if lane not in known and begin <= place < begin + count}
            if own:
                at = build.add(base, build.const(begin, base.dtype))
                held.append(self._spread(self._load_row(buffer, at, count, None), element, count,
                                         lanes, own))
        while len(held) > 1:
            (one, left), (other, right), *rest = held
            found = left | {lane: lanes + place for lane, place in right.items()}
            both = self.writer.value(
                f"shufflevector {kind} {one}, {kind} {other}, <{lanes} x i32> "
                f"<{_picks(found, lanes)}>")
            held = [*rest, (both, {lane: lane for lane in found})]
        ((made, places),) = held
        if all(lane == place for lane, place in places.items()):
            return made
        return self.writer.value(
            f"shufflevector {kind} {made}, {kind} poison, <{lanes} x i32> "
            f"<{_picks(places, lanes)}>")

    def _spread(
        self, row: str, element: str, count: int, lanes: int, own: dict[int, int]
    ) -> tuple[str, dict[int, int]]:
        """A row as long as the result, and where in it the elements of some lanes are."""
        if count == lanes:
            return row, own
        if count == 1:
            kind = vector_type(element, lanes)
            first = self.writer.value(f"insertelement {kind} poison, {element} {row}, i64 0")
            return first, dict.fromkeys(own, 0)
        short = vector_type(element, count)
        made = self.writer.value(
            f"shufflevector {short} {row}, {short} poison, <{lanes} x i32> <{_picks(own, lanes)}>")
        return made, {lane: lane for lane in own}

    def _load_picked(self, buffer: Buffer, base: Expr, lanes: list[int]) -> str:
        """Elements that lie near each other, in any order: the row that has them, and a shuffle."""
        first, element = min(lanes), memory_type(buffer.dtype)
        count = max(lanes) - first + 1
        row = self._load_row(buffer, build.add(base, build.const(first, base.dtype)), count, None)
        picks = ", ".join(f"i32 {lane - first}" for lane in lanes)
        whole = vector_type(element, count)
        return self.writer.value(
            f"shufflevector {whole} {row}, {whole} poison, <{len(lanes)} x i32> <{picks}>"
        )

    def _load_one_by_one(self, buffer: Buffer, base: Expr, lanes: list[int]) -> str:
        """Elements by themselves: of registers, LLVM shuffles these once the memory is gone."""
        whole, element = "poison", memory_type(buffer.dtype)
        for order, lane in enumerate(lanes):
            place = build.add(base, build.const(lane, base.dtype))
            one = self._load_scalar(buffer, place)
            whole = self.writer.value(
                f"insertelement {vector_type(element, len(lanes))} {whole}, {element} {one}, "
                f"i64 {order}"
            )
        return whole

    def _gather(self, buffer: Buffer, offset: Expr) -> str:
        lanes = offset.dtype.lanes
        element = memory_type(buffer.dtype)
        kind, pointers = vector_type(element, lanes), f"<{lanes} x ptr>"
        mask = self._mask_for(lanes) or splat_literal("i1", "true", lanes)
        row = self.module.options.instructions.gathers
        words = element in ("float", "i32") and offset.dtype.element == "int32"
        if row and words and lanes in row.intrinsics and as_ramp(offset) is None:
            return self._gather_words(buffer, offset, row.intrinsics[lanes], mask)
        name = f"llvm.masked.gather.v{lanes}{_SHORT.get(element, element)}.v{lanes}p0"
        target = self.module.declare(name, kind, f"{pointers}, <{lanes} x i1>, {kind}")
        align = self.alignment(buffer, build.const(1))
        fill = "zeroinitializer" if self._mask_for(lanes) else "poison"
        return self.writer.value(
            f"call {kind} {target}({pointers} align {align} {self._addresses(buffer, offset)}, "
            f"<{lanes} x i1> {mask}, {kind} {fill})"
        )

    def _gather_words(self, buffer: Buffer, offset: Expr, name: str, mask: str) -> str:
        """By the instruction itself, which takes indices of 32 bits; LLVM would make addresses."""
        lanes, writer = offset.dtype.lanes, self.writer
        floats, element = f"<{lanes} x float>", memory_type(buffer.dtype)
        with self.exact():
            indices = self.expr(offset)
        made = writer.intrinsic(
            name, floats, f"{floats} zeroinitializer", f"ptr {self.pointer(buffer)}",
            f"<{lanes} x i32> {indices}", f"<{lanes} x i1> {mask}", "i32 4",
        )
        kind = vector_type(element, lanes)
        return made if kind == floats else writer.value(f"bitcast {floats} {made} to {kind}")

    def _addresses(self, buffer: Buffer, offset: Expr) -> str:
        """Those of the lanes; of a ramp they are constants behind the first."""
        ramp = as_ramp(offset)
        stride = build.int_value(ramp[1]) if ramp else None
        if ramp is None or stride is None or self.mask is not None or buffer.dtype.is_packed:
            return self.address(buffer, offset)
        index = self.module.index_type
        steps = ", ".join(f"{index} {lane * stride}" for lane in range(offset.dtype.lanes))
        return self.writer.value(
            f"getelementptr {memory_type(buffer.dtype)}, ptr {self.address(buffer, ramp[0])}, "
            f"{vector_type(index, offset.dtype.lanes)} <{steps}>"
        )

    # ---- stores ----

    def store(self, buffer: Buffer, offset: Expr, value: Expr, predicate: Expr | None) -> None:
        """Writes a value, where the predicate holds."""
        lanes = max(offset.dtype.lanes, value.dtype.lanes)
        operand = self._to_memory(value.dtype, self.expr(value))
        element = memory_type(buffer.dtype)
        if lanes > 1 and value.dtype.lanes == 1:
            operand = self._splat_raw(element, operand, lanes)
        if lanes == 1:
            self._store_scalar(buffer, offset, f"{element} {operand}", predicate)
            return
        mask = None if predicate is None else self._mask_operand(predicate, lanes)
        ramp = as_ramp(offset) if offset.dtype.lanes > 1 else None
        stride = build.int_value(ramp[1]) if ramp else None
        if ramp is not None and stride == 1:
            self._store_row(buffer, ramp[0], element, operand, lanes, mask)
        elif ramp is not None and stride == -1 and mask is None:
            first = build.sub(ramp[0], build.const(lanes - 1, ramp[0].dtype))
            reverse = self._reverse(element, operand, lanes)
            self._store_row(buffer, first, element, reverse, lanes, None)
        else:
            self._scatter(buffer, offset, element, operand, lanes, mask)

    def _splat_raw(self, element: str, operand: str, lanes: int) -> str:
        kind = vector_type(element, lanes)
        first = self.writer.value(f"insertelement {kind} poison, {element} {operand}, i64 0")
        return self.writer.value(
            f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

    def _mask_operand(self, predicate: Expr, lanes: int) -> str:
        operand = self.expr(predicate)
        scalar = predicate.dtype.lanes == 1
        return self.splat(predicate.dtype, operand, lanes) if scalar else operand

    def _store_scalar(
        self, buffer: Buffer, offset: Expr, typed: str, predicate: Expr | None
    ) -> None:
        writer, align = self.writer, self.alignment(buffer, offset)
        if predicate is None:
            writer.emit(f"store {typed}, ptr {self.address(buffer, offset)}, align {align}")
            return
        put, after = writer.label("put"), writer.label("after")
        writer.branch(self.expr(predicate), put, after)
        writer.start(put)
        writer.emit(f"store {typed}, ptr {self.address(buffer, offset)}, align {align}")
        writer.jump(after)
        writer.start(after)

    def _store_row(
        self, buffer: Buffer, base: Expr, element: str, operand: str, lanes: int, mask: str | None
    ) -> None:
        kind = vector_type(element, lanes)
        align = self.alignment(buffer, base)
        address = self.address(buffer, base)
        if mask is None:
            size = lanes * buffer.dtype.bytes
            fetches = self.module.options.fetches_stored_lines and size % LINE_BYTES == 0
            if fetches and self.ranges.step(base) == lanes:
                self._fetch_next(address, size)
            self.writer.emit(f"store {kind} {operand}, ptr {address}, align {align}")
            return
        name = f"llvm.masked.store.v{lanes}{_SHORT.get(element, element)}.p0"
        target = self.module.declare(name, "void", f"{kind}, ptr, <{lanes} x i1>")
        self.writer.emit(
            f"call void {target}({kind} {operand}, ptr align {align} {address}, "
            f"<{lanes} x i1> {mask})"
        )

    def _fetch_next(self, address: str, size: int) -> None:
        """Prefetch the lines behind those that a store fills, for the next iteration."""
        target = self.module.declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        for first in range(size, 2 * size, LINE_BYTES):
            line = self.writer.value(f"getelementptr i8, ptr {address}, i64 {first}")
            self.writer.emit(f"call void {target}(ptr {line}, i32 0, i32 3, i32 1)")

    def _scatter(
        self, buffer: Buffer, offset: Expr, element: str, operand: str, lanes: int, mask: str | None
    ) -> None:
        """Lane by lane in order, so that the last of equal indices wins."""
        kind, pointers = vector_type(element, lanes), f"<{lanes} x ptr>"
        name = f"llvm.masked.scatter.v{lanes}{_SHORT.get(element, element)}.v{lanes}p0"
        target = self.module.declare(name, "void", f"{kind}, {pointers}, <{lanes} x i1>")
        every = mask or splat_literal("i1", "true", lanes)
        self.writer.emit(
            f"call void {target}({kind} {operand}, {pointers} align {buffer.dtype.bytes} "
            f"{self.address(buffer, offset)}, <{lanes} x i1> {every})"
        )
