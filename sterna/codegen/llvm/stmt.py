"""Statements to LLVM's basic blocks. Meaning: sterna/tir/stmt.py."""

from collections.abc import Callable
from typing import Any

from sterna.arith import substitute
from sterna.codegen.llvm import host
from sterna.codegen.llvm.check_array import ArrayChecks, check_arrays, place_of, wanted_table
from sterna.codegen.llvm.emitter import ModuleWriter
from sterna.codegen.llvm.memory import flat_index
from sterna.codegen.llvm.packed import PackedEmitter
from sterna.codegen.llvm.slices import can_slice, reads, shuffles_in, slice_lanes
from sterna.codegen.llvm.types import memory_type, symbol, value_type
from sterna.ir import build
from sterna.ir.expr import Call, Expr, IntImm, Shuffle, StringImm, Var
from sterna.ir.node import Node
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.effects import calls
from sterna.tir.stmt import (
    LOADS_AHEAD,
    STAYS_ROLLED,
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Tensorized,
)
from sterna.tir.threads import LAUNCHED

_STACK_BYTES = 16 << 10
"""The largest buffer that lives in a function's frame."""
_FRAME_BYTES = 64 << 10
"""All of them together; the threads of a pool may have small stacks."""
_UNROLLED_CHUNKS = 8
# Of a loop with a choice and with i & mask, as i % 16 is written. LLVM 22 makes vectors of it under
# the assumption that i stays below the mask, and checks that only as far as another assumption does
# not seem to imply it; one about the address of a guarded store does.
_ONE_BY_ONE = '!{!"llvm.loop.vectorize.enable", i1 false}'


class StmtEmitter(PackedEmitter):
    """Writes the blocks of statements into a function."""

    def __init__(self, module: ModuleWriter, symbols: dict[str, str], name: str) -> None:
        super().__init__(module)
        self.symbols = symbols
        self.name = name
        self.in_parallel = False
        self.noalias = True
        """Whether the function's buffers do not overlap, but for those that are named."""
        self.overlapping: set[int] = set()
        """The identities of the variables of those."""
        self.checks: ArrayChecks | None = None
        """The checks of a packed function."""
        self.data_slots = {}
        self._checked: dict[int, str] = {}
        """Where the address of an array that was checked lies, by its argument's place."""
        self._heap: list[str] = []
        self._message: str | None = None
        self._frame = 0

    def stmt(self, stmt: Stmt) -> None:
        """Writes a statement."""
        method = _METHODS.get(type(stmt))
        if method is None:
            raise InternalError(f"the LLVM code generator does not know {type(stmt).__name__}")
        method(self, stmt)

    # ---- ends ----

    def finish(self) -> None:
        """Ends the function well."""
        self.writer.emit("ret i32 0")

    def give_up(self) -> None:
        """Ends the function after an error, giving back what it holds."""
        for block in reversed(self._heap):
            self.writer.emit(f"call void {host.release(self.module)}(ptr {block})")
        self.writer.emit("ret i32 -1")

    def _unless(self, holds: str, then: Callable[[], None]) -> None:
        """Does something that ends the function, where a condition does not hold."""
        good, bad = self.writer.label("good"), self.writer.label("bad")
        self.writer.branch(holds, good, bad, likely=True)
        self.writer.start(bad)
        then()
        self.give_up()
        self.writer.start(good)

    def unless(self, holds: str, kind: str = "", message: str = "") -> None:
        self._unless(holds, lambda: self._set_error(kind, message) if kind else None)

    def _set_error(self, kind: str, message: str) -> None:
        texts = f"ptr {self.module.string(kind)}, ptr {self.module.string(message)}"
        self.writer.emit(f"call i32 {host.fail(self.module)}({texts})")

    # ---- simple statements ----

    def _seq(self, stmt: SeqStmt) -> None:
        for each in stmt.stmts:
            self.stmt(each)

    def _evaluate(self, stmt: Evaluate) -> None:
        if isinstance(stmt.value, Call) and stmt.value.op == "call_packed":
            self.call_packed(stmt.value, is_used=False)
        elif not isinstance(stmt.value, IntImm):
            self.expr(stmt.value)

    def _attr(self, stmt: AttrStmt) -> None:
        self.stmt(stmt.body)

    def _tensorized(self, stmt: Tensorized) -> None:
        self.stmt(stmt.body)

    def _let_stmt(self, stmt: LetStmt) -> None:
        if self._is_cut(stmt.value.dtype) and _is_one_store(stmt.body):
            # The store is cut into pieces, each of which computes its own part of the vector.
            self.stmt(substitute(stmt.body, {stmt.var: stmt.value}))
            return
        if self._is_cut(stmt.value.dtype) and can_slice(stmt.value):
            whole = self._bind_pieces(stmt.var, stmt.value)
            self.stmt(substitute(stmt.body, {stmt.var: whole}))
            return
        if not self._is_only_address(stmt):
            self.bind(stmt.var, self.expr(stmt.value))
            self.ranges.bind(stmt.var, stmt.value)
        self.stmt(stmt.body)

    def _assert(self, stmt: AssertStmt) -> None:
        holds = self.expr(stmt.condition)
        if stmt.values:
            self._unless(holds, lambda: self._set_error_with(stmt))
        else:
            self._unless(holds, lambda: self._set_error(stmt.kind, stmt.message))

    def _set_error_with(self, stmt: AssertStmt) -> None:
        """Writes the message with its values into the function's frame."""
        if self._message is None:
            self._message = self.writer.alloca(f"[{host.MESSAGE_BYTES} x i8]", 1)
        room = host.MESSAGE_BYTES - host.NUMBER_BYTES * len(stmt.values) - 1
        at = self._message
        for i, text in enumerate(stmt.texts()):
            if i:
                value = build.cast(host.number_type(self.module), stmt.values[i - 1])
                number = host.put_number(self.module)
                at = self.writer.value(f"call ptr {number}(ptr {at}, {self.typed(value)})")
            kept = text.encode()[:room].decode(errors="ignore")
            room -= len(kept.encode())
            words = self.module.string(kept)
            at = self.writer.value(f"call ptr {host.put_text(self.module)}(ptr {at}, ptr {words})")
        texts = f"ptr {self.module.string(stmt.kind)}, ptr {self._message}"
        self.writer.emit(f"call i32 {host.fail(self.module)}({texts})")

    def _if(self, stmt: IfThenElse) -> None:
        condition = stmt.condition
        if condition.dtype.lanes != 1:
            raise ValueError("an IfThenElse needs one condition, not a vector of them")
        likely = True if isinstance(condition, Call) and condition.op == "likely" else None
        writer = self.writer
        then, after = writer.label("then"), writer.label("after")
        other = writer.label("else") if stmt.otherwise is not None else after
        writer.branch(self.expr(condition), then, other, likely)
        writer.start(then)
        self.stmt(stmt.then)
        writer.jump(after)
        if stmt.otherwise is not None:
            writer.start(other)
            self.stmt(stmt.otherwise)
            writer.jump(after)
        writer.start(after)

    def _try_call(self, expr: Call) -> str:
        name = expr.args[0]
        if not isinstance(name, StringImm):
            raise ValueError("try_call needs the function's name as its first argument")
        target = self.symbols.get(name.value)
        if target is None:
            raise ValueError(f"try_call of '{name.value}': the module has no such function")
        arguments = ", ".join([self.typed(arg) for arg in expr.args[1:]])
        code = self.writer.value(f"call i32 {symbol(target)}({arguments})")
        self._unless(self.writer.value(f"icmp eq i32 {code}, 0"), lambda: None)
        return "0"

    def _check_array(self, expr: Call) -> str:
        """All that a function checks in any case is checked at once, when the first is."""
        if place_of(expr) in self._checked:
            return "0"
        known = self.checks.calls if self.checks is not None else []
        checks = known if any(each is expr for each in known) else [expr]
        writer = self.writer
        found = writer.alloca(f"[{len(checks)} x ptr]", self.module.pointer_bits // 8)
        table, check = wanted_table(self.module, checks), check_arrays(self.module)
        operands = f"ptr {self.expr(expr.args[0])}, ptr {table}, i32 {len(checks)}, ptr {found}"
        code = writer.value(f"call i32 {check}({operands})")
        self._unless(writer.value(f"icmp eq i32 {code}, 0"), lambda: None)
        for row, call in enumerate(checks):
            slot = writer.value(f"getelementptr inbounds ptr, ptr {found}, i32 {row}")
            self._checked[place_of(call)] = slot
        return "0"

    def _is_only_address(self, let: LetStmt) -> bool:
        """Whether a variable is a checked array's tensor, of which only the address is read."""
        value = let.value
        if not isinstance(value, Call) or value.op != "any_tensor" or self.checks is None:
            return False
        slot = self._checked.get(place_of(value))
        if slot is None:
            return False
        self.data_slots[id(let.var)] = slot
        return id(let.var) not in self.checks.described

    # ---- stores ----

    def _store(self, stmt: BufferStore) -> None:
        buffer, value = stmt.buffer, stmt.value
        if value.dtype.element != buffer.dtype.element:
            raise InternalError(
                f"{value.dtype} is stored into the buffer {buffer.name} of {buffer.dtype}"
            )
        offset = flat_index(buffer, stmt.indices)
        lanes = max(value.dtype.lanes, offset.dtype.lanes)
        chunk = self._chunk(buffer.dtype, lanes) if lanes > 1 else lanes
        parts = [value, offset, *([stmt.predicate] if stmt.predicate is not None else [])]
        if lanes <= chunk or not all(can_slice(part) for part in parts):
            self.store(buffer, offset, value, stmt.predicate)
            return
        self._store_chunks(buffer, offset, value, stmt.predicate, lanes, chunk)

    def _chunk(self, dtype: DataType, lanes: int) -> int:
        """How many lanes LLVM handles well; it keeps vectors in memory that are no power of two."""
        register = self.module.options.instructions.whole_vector_bits // dtype.bits
        if lanes & (lanes - 1) == 0:
            return 4 * register
        return min(register, 1 << lanes.bit_length() - 1)

    def _is_cut(self, dtype: DataType) -> bool:
        return dtype.lanes > self._chunk(dtype, dtype.lanes)

    def _bind_pieces(self, var: Var, value: Expr) -> Expr:
        """Name the pieces of a vector, so that the stores that need it find theirs."""
        dtype = value.dtype
        named = []
        for start, count in _pieces(dtype.lanes, self._chunk(dtype, dtype.lanes)):
            part = slice_lanes(value, build.const(start), count)
            named.append(Var(var.name, part.dtype))
            self.bind(named[-1], self.expr(part))
        return Shuffle(tuple(named), tuple(range(dtype.lanes)))

    def _store_chunks(
        self, buffer: Buffer, offset: Expr, value: Expr, predicate: Expr | None, lanes: int,
        chunk: int,
    ) -> None:
        def piece(start: Expr, count: int, inner: Expr) -> None:
            where = slice_lanes(offset, start, count)
            test = None if predicate is None else slice_lanes(predicate, start, count)
            self.store(buffer, where, inner, test)

        pieces = _pieces(lanes, chunk)
        parts = [value, offset, *([predicate] if predicate is not None else [])]
        in_pieces = any(shuffles_in(part) for part in parts)
        if reads(value, buffer):
            # Every lane is read before any is written.
            held = []
            for start, count in pieces:
                part = slice_lanes(value, build.const(start), count)
                var = Var("part", part.dtype)
                self.bind(var, self.expr(part))
                held.append((start, count, var))
            for start, count, var in held:
                piece(build.const(start), count, var)
        elif len(pieces) > _UNROLLED_CHUNKS and lanes % chunk == 0 and not in_pieces:
            var = Var("lane")
            start_expr = var * chunk
            body = slice_lanes(value, start_expr, chunk)
            self._serial(var, build.const(0), build.const(len(pieces)), None,
                         lambda: piece(start_expr, chunk, body))
        else:
            for start, count in pieces:
                piece(build.const(start), count, slice_lanes(value, build.const(start), count))

    # ---- loops ----

    def _for(self, stmt: For) -> None:
        if stmt.kind == "thread" and stmt.thread in LAUNCHED:
            raise ValueError(
                f"the loop over {stmt.var.name} is bound to {stmt.thread}: a CPU has no such "
                "threads; use parallel instead"
            )
        if stmt.kind == "vectorized":
            raise InternalError(f"the vectorized loop over {stmt.var.name} was not lowered")
        if stmt.kind == "parallel" and not self.in_parallel and self._can_share(stmt):
            self._parallel(stmt)
            return
        hint = None
        if stmt.kind == "unrolled":
            hint = self.module.metadata('!{!"llvm.loop.unroll.full"}')
        elif stmt.annotations.get(STAYS_ROLLED):
            hint = self.module.metadata('!{!"llvm.loop.unroll.disable"}')
        self._serial(stmt.var, stmt.min, stmt.extent, hint, lambda: self._iteration(stmt))

    def _iteration(self, loop: For) -> None:
        """An iteration; past a fence, which is no instruction, LLVM moves no loads to the next."""
        self.stmt(loop.body)
        if loop.annotations.get(LOADS_AHEAD):
            self.writer.emit('fence syncscope("singlethread") release')

    def _serial(
        self, var: Var, start: Expr, extent: Expr, hint: str | None, body: Callable[[], None]
    ) -> None:
        self.ranges.bind_loop(var, start, extent)
        count = build.int_value(extent)
        with self.exact():
            first = self.expr(start)
            known = self.ranges.of(extent)[0] >= 1
            if count == 1:
                self.bind(var, first)
            else:
                end = self.expr(build.add(start, extent))
        if count == 1:
            body()
        elif count is None or count > 0:
            self.count(var, first, end, known, hint, body)

    def count(
        self, var: Var, first: str, end: str, known: bool, hint: str | None,
        body: Callable[[], None],
    ) -> None:
        """Runs body for var = first, ..., end - 1; known: there is a first time."""
        writer = self.writer
        kind, letter = value_type(var.dtype), "s" if var.dtype.is_int else "u"
        inside, after = writer.label("loop"), writer.label("after")
        if known:
            writer.jump(inside)
        else:
            test = writer.value(f"icmp {letter}lt {kind} {first}, {end}")
            writer.branch(test, inside, after)
        before = writer.block
        writer.start(inside)
        following = writer.name()
        latch = writer.label("next")
        current = writer.value(
            f"phi {kind} [ {first}, %{before} ], [ {following}, %{latch} ]"
        )
        self.bind(var, current)
        branches, masked = writer.branches, writer.masked
        body()
        hints = [] if hint is None else [hint]
        if writer.branches > branches and writer.masked > masked:
            hints.append(self.module.metadata(_ONE_BY_ONE))
        writer.jump(latch)
        writer.start(latch)
        flags = "nuw" if letter == "u" else "nuw nsw" if self.ranges.of(var)[0] >= 0 else "nsw"
        writer.emit(f"{following} = add {flags} {kind} {current}, 1")
        test = writer.value(f"icmp {letter}lt {kind} {following}, {end}")
        mark = f", !llvm.loop {self.module.distinct_loop(*hints)}" if hints else ""
        writer.emit(f"br i1 {test}, label %{inside}, label %{after}{mark}")
        writer.start(after)

    def _can_share(self, stmt: For) -> bool:
        """Whether threads that change bits of one byte would not get in each other's way."""
        return self.module.atomics or not calls(stmt.body, "store_bits")

    def _parallel(self, stmt: For) -> None:
        raise NotImplementedError  # function.py: it makes another function

    # ---- allocation ----

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        element = memory_type(buffer.dtype)
        count: int | None = 1
        for extent in buffer.shape:
            number = build.int_value(extent)
            count = None if count is None or number is None else count * number
        size = None if count is None else count * buffer.dtype.bytes
        if size is not None and size <= _STACK_BYTES and self._frame + size <= _FRAME_BYTES:
            self._frame += size
            self._on_stack(stmt, f"[{max(count or 0, 1)} x {element}]")
        else:
            self._on_heap(stmt)

    def _on_stack(self, stmt: Allocate, kind: str) -> None:
        block = self.writer.alloca(kind, 64)
        start = self.module.declare("llvm.lifetime.start.p0", "void", "ptr")
        end = self.module.declare("llvm.lifetime.end.p0", "void", "ptr")
        self.writer.emit(f"call void {start}(ptr {block})")
        self.bind(stmt.buffer.data, block)
        self.stmt(stmt.body)
        self.writer.emit(f"call void {end}(ptr {block})")

    def _on_heap(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        size: Expr = build.const(buffer.dtype.bytes, "int64")
        for extent in buffer.shape:
            size = build.mul(size, build.cast("int64", extent))
        block = self.writer.value(
            f"call noalias align 64 ptr {host.allocate(self.module)}(i64 {self.expr(size)})"
        )
        found = self.writer.value(f"icmp ne ptr {block}, null")
        message = f"no memory for the buffer {buffer.name} of {self.name}"
        self._unless(found, lambda: self._set_error("MemoryError", message))
        self.bind(buffer.data, block)
        self._heap.append(block)
        self.stmt(stmt.body)
        self._heap.pop()
        self.writer.emit(f"call void {host.release(self.module)}(ptr {block})")


def _pieces(lanes: int, chunk: int) -> list[tuple[int, int]]:
    """Where pieces begin and how long they are: whole chunks, then ever smaller powers of two."""
    found = [(start, chunk) for start in range(0, lanes - chunk + 1, chunk)]
    start = len(found) * chunk
    while start < lanes:
        count = 1 << (lanes - start).bit_length() - 1
        found.append((start, count))
        start += count
    return found


def _is_one_store(stmt: Stmt) -> bool:
    while isinstance(stmt, LetStmt):
        stmt = stmt.body
    return isinstance(stmt, BufferStore)


_METHODS: dict[type[Node], Callable[[StmtEmitter, Any], None]] = {
    SeqStmt: StmtEmitter._seq, Evaluate: StmtEmitter._evaluate, AttrStmt: StmtEmitter._attr,
    LetStmt: StmtEmitter._let_stmt, AssertStmt: StmtEmitter._assert, IfThenElse: StmtEmitter._if,
    BufferStore: StmtEmitter._store, For: StmtEmitter._for, Allocate: StmtEmitter._allocate,
    Tensorized: StmtEmitter._tensorized,
}

