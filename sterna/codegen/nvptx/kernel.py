"""Kernels as LLVM functions: those of processors, with threads, barriers and spaces of memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sterna.codegen.llvm.calls import is_harmless
from sterna.codegen.llvm.stmt import StmtEmitter
from sterna.codegen.llvm.types import memory_type, symbol, value_type, vector_type
from sterna.codegen.nvptx import early
from sterna.codegen.nvptx.architecture import ALIGNMENT, STATIC_SHARED_BYTES, Needs
from sterna.codegen.nvptx.barriers import is_one_warp, of_one_warp
from sterna.codegen.nvptx.fragments import FRAGMENTS, words_of
from sterna.codegen.nvptx.intrinsics import DEVICE_INTRINSICS
from sterna.codegen.nvptx.mathematics import MATHEMATICS
from sterna.codegen.nvptx.register_products import REGISTER_PRODUCTS
from sterna.codegen.nvptx.registers import written_out
from sterna.codegen.nvptx.speculation import (
    elements_of,
    is_private,
    may_speculate,
    stores_to_speculate,
)
from sterna.codegen.nvptx.warpgroups import WARPGROUPS
from sterna.ir import build
from sterna.ir.expr import BinaryExpr, Call, Expr, Min, Select, Var
from sterna.ir.node import Node
from sterna.support.dtype import DataType
from sterna.support.errors import HostOnlyError
from sterna.tir.effects import calls
from sterna.tir.fragments import Fragment, fragments_in, is_fragment
from sterna.tir.in_place import overlapping
from sterna.tir.passes.split_host_device import (
    DYNAMIC_ALIGNMENT,
    TENSOR_MAPS,
    Launch,
    dynamic_places,
    launch_of,
)
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from sterna.tir.threads import BEGINS_EARLY, DYNAMIC, ROLLED, THREADS, is_shared

if TYPE_CHECKING:
    from sterna.codegen.nvptx.module import DeviceModule

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}
_MAXIMUM = Needs(80, 70)
_DYNAMIC = "@dynamic"
"""The shared memory that a launch gives: there is one piece of it."""


class KernelEmitter(StmtEmitter):
    """Writes one kernel.

    Addresses are generic, and LLVM finds out the spaces that they are in.
    """

    module: "DeviceModule"

    def __init__(self, module: "DeviceModule", name: str) -> None:
        super().__init__(module, {}, name)
        self.launch: Launch | None = None
        self._thread_along_x: Var | None = None
        self.cluster = 1
        """Neighbouring blocks that run together."""
        self.least_blocks = 0
        """Blocks that a processor has registers for at once."""
        self._declared = 0
        self._wanted: str | None = None
        """Whether what is computed is wanted; None: it is."""
        self._choice: str | None = None
        """The same for the index at hand, which is 0 where its element is not wanted."""
        self._row = 1
        self.writer: early.MarkedWriter = early.MarkedWriter(module)
        self._marks: dict[int, str] = {}
        """By the identities of arrays: what their loads and stores are marked with."""
        self._only_read: set[int] = set()
        self.dynamic: dict[Buffer, int] = {}
        """Where arrays begin in the shared memory that a launch gives."""
        self.fragments: dict[Buffer, Fragment] = {}
        """What lanes of warps hold together."""
        self.written_out: set[int] = set()
        """The variables of loops that index registers, which have no addresses."""

    def kernel(self, function: PrimFunc) -> str:
        """The text of a kernel."""
        self.launch = launch_of(function)
        self.fragments = fragments_in(function.body)
        self.dynamic = dynamic_places(function)
        self.noalias = bool(function.attrs.get("noalias", True))
        self.overlapping = overlapping(function)
        self.written_out = written_out(function.body)
        written = written_buffers(function.body)
        if calls(function.body, "wait_for_grids"):
            # Before that others write to what the kernel only reads.
            self.noalias, written = False, set(function.buffers)
        maps = function.attrs.get(TENSOR_MAPS, {})
        params, arrays = [], []
        for i, (var, buffer) in enumerate(zip(function.params, function.buffers, strict=True)):
            operand = f"%p{i}"
            if i in maps:
                params.append(f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" {operand}')
                self.bind(var, operand)
            elif buffer is None:
                params.append(f"{value_type(var.dtype)} {operand}")
                self.bind(var, operand)
            else:
                params.append(f"{self._address(buffer, written)} {operand}")
                arrays.append((var, buffer, operand))
        addresses = [operand for _, _, operand in arrays]
        if function.attrs.get(BEGINS_EARLY):
            addresses = self._wait(addresses, [buffer for _, buffer, _ in arrays], written)
        for (var, buffer, _), operand in zip(arrays, addresses, strict=True):
            generic = self.writer.value(f"addrspacecast ptr addrspace(1) {operand} to ptr")
            self.bind(var, generic)
            self.bind(buffer.data, generic)
        self.stmt(function.body)
        self.writer.emit("ret void")
        head = f"define ptx_kernel void {symbol(function.name)}({', '.join(params)})"
        sizes = _block_size(function)
        if self.cluster > 1:
            sizes += f' "nvvm.cluster_dim"="{self.cluster},1,1"'
        if self.least_blocks:
            sizes += f' "nvvm.minctasm"="{self.least_blocks}"'
        return self.writer.text(f'{head} nounwind "no-builtins"{sizes}')

    def _wait(
        self, addresses: list[str], buffers: list[Buffer], written: set[Buffer | None]
    ) -> list[str]:
        """Let the next kernel start and wait for those before; the addresses from there on."""
        self.need(Needs(90, 78), "a kernel that starts early")
        alone = [b for b in buffers if self.noalias and id(b.data) not in self.overlapping]
        own = zip(alone, early.marks(self.module, len(alone)), strict=True)
        self._marks = {id(buffer.data): mark for buffer, mark in own}
        self._only_read = {id(b.data) for b in alone if b not in written}
        return early.wait(self.writer, addresses)

    def _address(self, buffer: Buffer, written: set[Buffer | None]) -> str:
        alone = self.noalias and id(buffer.data) not in self.overlapping
        words = ["ptr addrspace(1)"]
        if alone:
            words.append("noalias")
        if buffer not in written:
            words.append("readonly")
        words.append(f"align {max(buffer.alignment, ALIGNMENT)}")
        return " ".join(words)

    def stmt(self, stmt: Stmt) -> None:
        method = _STMTS.get(type(stmt))
        if method is None:
            super().stmt(stmt)
        else:
            method(self, stmt)

    def need(self, needs: Needs, what: str) -> None:
        """Refuse what the GPU has not, and note the version of PTX that it takes."""
        self.module.need(needs, self.name, what)

    # ---- threads ----

    def loop(self, stmt: For) -> None:
        """A loop; one over threads is the thread of its number."""
        if stmt.kind == "thread":
            self._thread(stmt)
            return
        rolled = ROLLED in stmt.annotations
        if id(stmt.var) not in self.written_out and not rolled:
            super().stmt(stmt)
            return
        how = "disable" if rolled else "full"
        hint = self.module.metadata(f'!{{!"llvm.loop.unroll.{how}"}}')
        self._serial(stmt.var, stmt.min, stmt.extent, hint, lambda: self.stmt(stmt.body))

    def _thread(self, stmt: For) -> None:
        kind, _, axis = stmt.thread.partition(".")
        self.ranges.bind_loop(stmt.var, stmt.min, stmt.extent)
        most = self.ranges.of(stmt.extent)[1]
        facts = f"range(i32 0, {int(most)}) " if 0 < most < 1 << 31 else ""
        name = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[kind]}.{axis}"
        number = self.writer.value(f"call {facts}i32 {self.module.declare(name, 'i32', '')}()")
        if stmt.var.dtype.bits > 32:
            number = self.writer.value(f"zext nneg i32 {number} to {value_type(stmt.var.dtype)}")
        self.bind(stmt.var, number)
        if stmt.thread == THREADS[0]:
            self._thread_along_x = stmt.var
        self.stmt(stmt.body)

    @property
    def waits_in_warps(self) -> bool:
        """Whether the threads of a warp can wait for each other alone, and a block is no more."""
        able = self.module.architecture.number >= 70
        return able and self.launch is not None and is_one_warp(self.launch)

    def sequence(self, stmt: SeqStmt) -> None:
        """Statements one after the other."""
        stmts: Sequence[Stmt] = stmt.stmts
        if self.module.architecture.number >= 70 and self.launch is not None:
            stmts = of_one_warp(stmts, self.launch, self._thread_along_x)
        for each in stmts:
            self.stmt(each)

    # ---- what may be computed in vain ----

    def branch(self, stmt: IfThenElse) -> None:
        """A branch; one that only changes registers becomes selects."""
        stores = stores_to_speculate(stmt)
        if stores is None or self._wanted is not None:
            super().stmt(stmt)
            return
        wanted = Var("wanted", stmt.condition.dtype)
        self.bind(wanted, self.expr(stmt.condition))
        with self._speculating(self.env[id(wanted)]):
            for store in stores:
                kept = BufferLoad(store.buffer, store.indices)
                self.stmt(BufferStore(store.buffer, Select(wanted, store.value, kept),
                                      store.indices))

    def _if_then_else(self, expr: Call) -> str:
        condition, then, otherwise = expr.args
        able = condition.dtype.lanes == 1 and self.mask is None and self._wanted is None
        if not able or not may_speculate(then) or not is_harmless(otherwise):
            return super()._if_then_else(expr)
        with self.exact(False):
            test = self.expr(condition)
        with self._speculating(test):
            value = self.expr(then)
        return self.select(test, 1, expr.dtype, value, self.expr(otherwise))

    @contextmanager
    def _speculating(self, wanted: str) -> Iterator[None]:
        """Inside, loads take an element that is there where the wanted one may not be."""
        self._wanted = wanted
        try:
            yield
        finally:
            self._wanted = None

    def _load_row(self, buffer: Buffer, base: Expr, lanes: int, mask: str | None) -> str:
        before, self._row = self._row, lanes
        loaded = super()._load_row(buffer, base, lanes, mask)
        self._row = before
        return loaded

    def address(self, buffer: Buffer, offset: Expr) -> str:
        before, row, self._choice = self._choice, self._row, None
        if self._wanted is not None and not is_private(buffer):
            low, high = self.ranges.of(offset)
            is_there = low >= 0 and high + row <= elements_of(buffer)
            self._choice = None if is_there else self._wanted
        self._row = 1
        address = super().address(buffer, offset)
        self._choice, self._row = before, row
        array = id(buffer.data)
        self.writer.mark = self._marks.get(array, "")
        only_read = array in self._only_read
        self.writer.load_mark = early.never_written(self.module) if only_read else ""
        return address

    def index(self, expr: Expr) -> str:
        choice, self._choice = self._choice, None
        operand = super().index(expr)
        if choice is None:
            return operand
        kind = vector_type(self.module.index_type, expr.dtype.lanes)
        zero = "0" if expr.dtype.lanes == 1 else "zeroinitializer"
        return self.writer.value(f"select i1 {choice}, {kind} {operand}, {kind} {zero}")

    # ---- memory ----

    def alignment(self, buffer: Buffer, offset: Expr) -> int:
        size = buffer.dtype.bytes
        step = self.ranges.divisor(offset) * size
        whole = max(buffer.alignment & -buffer.alignment, ALIGNMENT)
        return max(size, min(whole, step & -step) if step else whole)

    def allocate(self, stmt: Allocate) -> None:
        """Memory of the block, or registers and memory of the thread."""
        buffer = stmt.buffer
        count = 1
        for extent in buffer.shape:
            number = build.int_value(extent)
            if number is None:
                raise ValueError(
                    f"{self.name}: the size of {buffer.name}, memory of "
                    f"{'a block' if is_shared(buffer.scope) else 'a thread'}, depends on the call"
                )
            count *= number
        kind = f"[{max(count, 1)} x {memory_type(buffer.dtype)}]"
        if is_fragment(buffer):
            fragment = self.fragments.get(buffer)
            words = 1 if fragment is None else -(-count // fragment.size) * words_of(fragment)
            kind = f"[{words} x i32]"
        if is_shared(buffer.scope):
            self.bind(buffer.data, self._shared(buffer, kind))
        else:
            self.bind(buffer.data, self.writer.alloca(kind, ALIGNMENT))
        self.stmt(stmt.body)

    def _shared(self, buffer: Buffer, kind: str) -> str:
        if buffer.scope == DYNAMIC:
            line = f"{_DYNAMIC} = external addrspace(3) global [0 x i8], align {DYNAMIC_ALIGNMENT}"
            if line not in self.module.globals:
                self.module.globals.append(line)
            place = f"ptr addrspace(3) {_DYNAMIC}"
            if self.dynamic[buffer]:
                place = f"ptr addrspace(3) getelementptr (i8, {place}, i32 {self.dynamic[buffer]})"
            return f"addrspacecast ({place} to ptr)"
        self._declared += buffer.known_bytes or 0
        if self._declared > STATIC_SHARED_BYTES:
            raise ValueError(
                f"{self.name} declares {self._declared} bytes of shared memory, and CUDA allows "
                f"{STATIC_SHARED_BYTES}; use smaller tiles, or the scope {DYNAMIC}"
            )
        name = symbol(f"{self.name}.{buffer.name}.{len(self.module.globals)}")
        align = max(buffer.alignment, ALIGNMENT)
        self.module.globals.append(
            f"{name} = internal addrspace(3) global {kind} poison, align {align}"
        )
        return f"addrspacecast (ptr addrspace(3) {name} to ptr)"

    def check(self, stmt: AssertStmt) -> None:
        """An assertion, which a kernel cannot make."""
        raise HostOnlyError(
            f"{self.name}: a kernel on a device cannot end with an error, as it should unless "
            f"{stmt.condition}: {stmt.message}"
        )

    # ---- numbers ----

    def _has_ieee_maximum(self, dtype: DataType) -> bool:
        """One instruction, which takes two numbers of 16 bits at once."""
        return (
            self.module.architecture.number >= _MAXIMUM.least
            and dtype.is_float and str(dtype.element) in ("float32", "float16", "bfloat16")
        )

    def _extreme_or_nan(self, expr: BinaryExpr, flags: str = "") -> str:
        self.need(_MAXIMUM, "a maximum that keeps NaN")
        if str(expr.dtype.element) != "bfloat16":
            return super()._extreme_or_nan(expr)
        lanes, bits = expr.dtype.lanes, value_type(expr.dtype)
        kind, mangled = vector_type("bfloat", lanes), f"v{lanes}bf16" if lanes > 1 else "bf16"
        name = "minimum" if isinstance(expr, Min) else "maximum"
        a, b = (
            self.writer.value(f"bitcast {self.typed(each)} to {kind}") for each in (expr.a, expr.b)
        )
        made = self.writer.intrinsic(f"llvm.{name}.{mangled}", kind, f"{kind} {a}", f"{kind} {b}")
        return self.writer.value(f"bitcast {kind} {made} to {bits}")

    # ---- calls ----

    def _call(self, expr: Call) -> str:
        row = _ROWS.get(expr.op)
        if row is not None:
            self.need(row.needs, expr.op)
            written = row.write(self, expr)
            if written is not None:
                return written
        if expr.op in _OF_THE_HOST:
            raise HostOnlyError(
                f"{self.name}: a kernel on a device cannot {expr.op}: {str(expr)[:200]}"
            )
        return super()._call(expr)

    def shared_address(self, load: Expr) -> str:
        """The address of an element of shared memory, as instructions for that space take it."""
        assert isinstance(load, BufferLoad)
        generic = self._loaded_address(Call(load.buffer.data.dtype, "address_of", (load,)))
        return self.writer.value(f"addrspacecast ptr {generic} to ptr addrspace(3)")

    def instruction(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Calls an intrinsic of LLVM; arguments are types and operands. Nothing comes of void."""
        kinds = ", ".join(kind for kind, _ in arguments)
        target = self.module.declare(name, result, kinds)
        call = f"call {result} {target}({', '.join(f'{k} {v}' for k, v in arguments)})"
        if result == "void":
            self.writer.emit(call)
            return "0"
        return self.writer.value(call)


_STMTS: dict[type[Stmt], Callable[[KernelEmitter, Any], None]] = {
    SeqStmt: KernelEmitter.sequence,
    For: KernelEmitter.loop,
    IfThenElse: KernelEmitter.branch,
    Allocate: KernelEmitter.allocate,
    AssertStmt: KernelEmitter.check,
}
_ROWS = {**DEVICE_INTRINSICS, **MATHEMATICS, **WARPGROUPS, **REGISTER_PRODUCTS, **FRAGMENTS}
# Whoever is given an element's address may write there.
_TAKES_ADDRESSES = frozenset({"address_of", "store_bits"})
_OF_THE_HOST = frozenset({"call_packed", "call_extern", "call_pure_extern", "try_call"})


def written_buffers(body: Stmt) -> set[Buffer | None]:
    """The buffers that a statement may write to."""
    found: set[Buffer | None] = set()
    _note_written(body, found)
    return found


def _note_written(node: Node, found: set[Buffer | None]) -> None:
    if isinstance(node, BufferStore):
        found.add(node.buffer)
    elif isinstance(node, Call) and node.op in _TAKES_ADDRESSES:
        found.update(arg.buffer for arg in node.args if isinstance(arg, BufferLoad))
    for child in node.children():
        _note_written(child, found)


def _block_size(function: PrimFunc) -> str:
    sizes = [build.int_value(extent) for extent in launch_of(function).block]
    if None in sizes:
        return ""
    return f' "nvvm.reqntid"="{",".join(map(str, sizes))}"'
