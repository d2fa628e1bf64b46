"""Kernels as LLVM functions: those of processors, with threads, barriers and spaces of memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sterna.codegen.llvm.stmt import StmtEmitter
from sterna.codegen.llvm.types import memory_type, symbol, value_type
from sterna.codegen.nvptx.architecture import Needs
from sterna.codegen.nvptx.intrinsics import DEVICE_INTRINSICS
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.node import Node
from sterna.tir.in_place import overlapping
from sterna.tir.passes.split_host_device import launch_of
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    Stmt,
)
from sterna.tir.threads import is_shared

if TYPE_CHECKING:
    from sterna.codegen.nvptx.module import DeviceModule

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}
_LEAST_ALIGNMENT = 16
"""Of private and shared memory, in bytes: the widest that one thread reads or writes at once."""
_UNROLLED_STEPS = 1024
"""Iterations of loops that are written out so that what they index gets into registers."""


class KernelEmitter(StmtEmitter):
    """Writes one kernel.

    Addresses are generic, and LLVM finds out the spaces that they are in.
    """

    module: "DeviceModule"

    def __init__(self, module: "DeviceModule", name: str) -> None:
        super().__init__(module, {}, name)
        self.unrolled = 1
        """Iterations of the loops around that are written out."""

    def kernel(self, function: PrimFunc) -> str:
        """The text of a kernel."""
        self.noalias = bool(function.attrs.get("noalias", True))
        self.overlapping = overlapping(function)
        written = written_buffers(function.body)
        params = []
        for i, (var, buffer) in enumerate(zip(function.params, function.buffers, strict=True)):
            operand = f"%p{i}"
            if buffer is None:
                params.append(f"{value_type(var.dtype)} {operand}")
                self.bind(var, operand)
                continue
            params.append(f"{self._address(buffer, written)} {operand}")
            generic = self.writer.value(f"addrspacecast ptr addrspace(1) {operand} to ptr")
            self.bind(var, generic)
            self.bind(buffer.data, generic)
        self.stmt(function.body)
        self.writer.emit("ret void")
        head = f"define ptx_kernel void {symbol(function.name)}({', '.join(params)})"
        return self.writer.text(f'{head} nounwind "no-builtins"{_block_size(function)}')

    def _address(self, buffer: Buffer, written: set[Buffer]) -> str:
        alone = self.noalias and id(buffer.data) not in self.overlapping
        words = ["ptr addrspace(1)"]
        if alone:
            words.append("noalias")
        if buffer not in written:
            words.append("readonly")
        if buffer.alignment > 1:
            words.append(f"align {buffer.alignment}")
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
        count = build.int_value(stmt.extent)
        steps = self.unrolled * (count or 1)
        if count is None or steps > _UNROLLED_STEPS or not _indexes_registers(stmt):
            super().stmt(stmt)
            return
        before, self.unrolled = self.unrolled, steps
        hint = self.module.metadata('!{!"llvm.loop.unroll.full"}')
        self._serial(stmt.var, stmt.min, stmt.extent, hint, lambda: self.stmt(stmt.body))
        self.unrolled = before

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
        self.stmt(stmt.body)

    # ---- memory ----

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
        if is_shared(buffer.scope):
            self.bind(buffer.data, self._shared(buffer, kind))
        else:
            self.bind(buffer.data, self.writer.alloca(kind, _LEAST_ALIGNMENT))
        self.stmt(stmt.body)

    def _shared(self, buffer: Buffer, kind: str) -> str:
        name = symbol(f"{self.name}.{buffer.name}.{len(self.module.globals)}")
        align = max(buffer.alignment, _LEAST_ALIGNMENT)
        self.module.globals.append(
            f"{name} = internal addrspace(3) global {kind} poison, align {align}"
        )
        return f"addrspacecast (ptr addrspace(3) {name} to ptr)"

    def check(self, stmt: AssertStmt) -> None:
        """An assertion, which a kernel cannot make."""
        raise ValueError(
            f"{self.name}: a kernel on a device cannot end with an error, as it should unless "
            f"{stmt.condition}: {stmt.message}"
        )

    # ---- calls ----

    def _call(self, expr: Call) -> str:
        row = DEVICE_INTRINSICS.get(expr.op)
        if row is not None:
            self.need(row.needs, expr.op)
            return row.write(self, expr)
        if expr.op in _OF_THE_HOST:
            raise ValueError(
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
    For: KernelEmitter.loop,
    Allocate: KernelEmitter.allocate,
    AssertStmt: KernelEmitter.check,
}
_OF_THE_HOST = frozenset({"call_packed", "call_extern", "call_pure_extern", "try_call"})


def written_buffers(body: Stmt) -> set[Buffer]:
    """The buffers that a statement may write to."""
    found: set[Buffer] = set()
    _note_written(body, found)
    return found


def _note_written(node: Node, found: set[Buffer]) -> None:
    if isinstance(node, BufferStore):
        found.add(node.buffer)
    elif isinstance(node, Call):
        # Whoever is given an element's address may write there.
        found.update(arg.buffer for arg in node.args if isinstance(arg, BufferLoad))
    for child in node.children():
        _note_written(child, found)


def _indexes_registers(loop: For) -> bool:
    """Whether a loop's variable says which private element is meant somewhere in it."""
    return _finds(loop.body, loop.var)


def _finds(node: Node, var: Var) -> bool:
    is_private = isinstance(node, BufferLoad | BufferStore) and node.buffer.scope == "local"
    if is_private and any(_uses(index, var) for index in node.indices):
        return True
    return any(_finds(child, var) for child in node.children())


def _uses(node: Node, var: Var) -> bool:
    return node is var or any(_uses(child, var) for child in node.children())


def _block_size(function: PrimFunc) -> str:
    sizes = [build.int_value(extent) for extent in launch_of(function).block]
    if None in sizes:
        return ""
    return f' "nvvm.reqntid"="{",".join(map(str, sizes))}"'
