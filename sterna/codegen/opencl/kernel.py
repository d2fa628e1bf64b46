"""Kernels as OpenCL C: the C of other functions, with threads, barriers and spaces of memory."""

import re
from collections.abc import Callable
from typing import Any

from sterna.codegen.c.expr import ATOM, OTHER, UNARY, Lookup, Text
from sterna.codegen.c.stmt import FunctionWriter, ModuleState, restrict
from sterna.codegen.c.types import CodegenError, declare, is_small, storage_type, value_type
from sterna.codegen.opencl.prelude import NAMES, RENAMED, STORE_BITS, half_text
from sterna.ir import build
from sterna.ir import expr as E
from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.support.errors import HostOnlyError
from sterna.tir import stmt as S
from sterna.tir.passes.split_host_device import launch_of
from sterna.tir.stmt import PrimFunc
from sterna.tir.threads import BLOCKS, THREADS, is_barrier, is_shared

_UNUSED = re.compile(r"\s*\(void\)\w+;")


class KernelWriter(FunctionWriter):
    """Writes one kernel."""

    def __init__(self, module: ModuleState, func: PrimFunc) -> None:
        super().__init__(module, func)
        for name in NAMES:
            self.names.make(name)
        self.shared: list[str] = []

    def kernel_text(self) -> str:
        """The kernel's definition."""
        params: list[str] = []
        places: list[str] = []
        for var, buffer in zip(self.func.params, self.func.buffers, strict=True):
            if buffer is None:
                name, c_type = self.names.make(var.name), value_type(var.dtype)
                params.append(declare(c_type, name))
                self.known[id(var)] = Lookup(name, c_type)
                continue
            name, c_type = self.names.make(buffer.name), storage_type(buffer.dtype)
            memory, start = self.names.make(f"{name}_memory"), self.names.make(f"{name}_start")
            alone = restrict(self.func, buffer)
            params += [f"__global {c_type} *{alone}{memory}", f"uint64_t {start}"]
            places.append(
                f"  __global {c_type} *{alone}{name} = "
                f"(__global {c_type} *)((__global uint8_t *){memory} + {start});"
            )
            self.known[id(buffer.data)] = self.known[id(var)] = Lookup(name, f"{c_type} *")
        self.stmt(self.func.body)
        lines = [line for line in self.lines if not _UNUSED.fullmatch(line)]
        head = f"__kernel {self.group_size()}void {self.func.name}({', '.join(params)}) {{"
        return "\n".join([head, *self.shared, *places, *lines, "}"])

    def group_size(self) -> str:
        """What the compiler may know of a block."""
        sizes = [build.int_value(extent) for extent in launch_of(self.func).block]
        if None in sizes:
            return ""
        return f"__attribute__((reqd_work_group_size({', '.join(map(str, sizes))})))\n"

    def stmt(self, stmt: S.Stmt) -> None:
        write = _STMTS.get(type(stmt))
        if write is None:
            super().stmt(stmt)
        else:
            write(self, stmt)

    def write(self, expr: Expr, lane: str = "", index: bool = False) -> Text:
        if isinstance(expr, E.Shuffle):
            return self._shuffle(expr, lane, index)
        return super().write(expr, lane, index)

    # ---- threads ----

    def loop(self, stmt: S.For) -> None:
        if stmt.kind != "thread":
            super().loop(stmt)
            return
        extent = self.ranges.of(stmt.extent)
        assert extent is not None, "loops run over integers"
        self.ranges.set(stmt.var, (0, max(extent[1] - 1, 0)))
        is_block = stmt.thread in BLOCKS
        number = (BLOCKS if is_block else THREADS).index(stmt.thread)
        function = "get_group_id" if is_block else "get_local_id"
        name, c_type = self.names.make(stmt.thread), value_type(stmt.var.dtype)
        self.known[id(stmt.var)] = Lookup(name, c_type)
        self.line(f"const {c_type} {name} = ({c_type}){function}({number});")
        self.stmt(stmt.body)

    def evaluate(self, stmt: S.Evaluate) -> None:
        if is_barrier(stmt):
            self.line("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);")
        else:
            super().evaluate(stmt)

    # ---- memory ----

    def allocate(self, stmt: S.Allocate) -> None:
        buffer = stmt.buffer
        if not is_shared(buffer.scope):
            super().allocate(stmt)
            return
        count, c_type = self.ranges.constant(buffer.shape[0]), storage_type(buffer.dtype)
        if count is None:
            raise CodegenError(
                f"{self.func.name}: the size of {buffer.name}, memory that threads share, depends "
                "on the call"
            )
        name = self.names.make(buffer.name)
        self.known[id(buffer.data)] = Lookup(name, f"{c_type} *")
        self.shared.append(f"  __local {c_type} {name}[{max(count, 1)}];")
        self.stmt(stmt.body)

    def _local(self, stmt: S.Allocate, name: str, c_type: str, count: int) -> None:
        self.line(f"{declare(c_type, name)}[{count}];")
        self.stmt(stmt.body)

    def _heap(self, stmt: S.Allocate, name: str, c_type: str) -> None:
        raise CodegenError(
            f"{self.func.name}: a thread has no memory for {stmt.buffer.name}, whose size is "
            f"{', '.join(map(str, stmt.buffer.shape))}"
        )

    def check(self, stmt: S.AssertStmt) -> None:
        raise HostOnlyError(
            f"{self.func.name}: a kernel on a device cannot end with an error, as it should unless "
            f"{stmt.condition}: {stmt.message}"
        )

    def _stored(self, stmt: S.BufferStore, value: Expr, lane: str) -> Any:
        dtype = stmt.buffer.dtype
        source = value.value if isinstance(value, E.Cast) else value
        narrow = dtype in ("float16", "bfloat16") and source.dtype.element in ("float32", dtype)
        if not narrow:
            return super()._stored(stmt, value, lane)
        return lambda: f"{self.narrowed(dtype)}({self.text(source, OTHER, lane)})"

    def narrowed(self, dtype: DataType) -> str:
        """The function from a float to bits of a small one."""
        return self.helpers._add(f"sterna_{dtype}_from_float", half_text(dtype))

    def rounded(self, text: str, dtype: DataType, level: int = OTHER) -> Text:
        if dtype.element in ("float16", "bfloat16"):
            value = self.helpers.small("value", dtype)
            return f"{value}({self.narrowed(dtype.element)}({text}))", ATOM
        return super().rounded(text, dtype, level)

    def convert(self, value: Expr, target: DataType, lane: str) -> Text:
        exact = value.dtype.element in ("float64", "int64", "uint64", "int32", "uint32")
        if is_small(target) and exact:  # rounded once
            rounding = self.helpers.small("round", target)
            return f"{rounding}({self.number(value, lane)})", ATOM
        return super().convert(value, target, lane)

    # ---- calls ----

    def _math(self, name: str, expr: E.Call, lane: str) -> Text:
        if name == "nextafter" and is_small(expr.dtype):
            raise HostOnlyError(f"OpenCL has no nextafter of {expr.dtype}: {expr}")
        text = f"{RENAMED.get(name, name)}({self.args(expr.args, lane)})"
        return self.rounded(text, expr.dtype, ATOM)

    def _ldexp(self, expr: E.Call, lane: str) -> Text:
        power = self.text(expr.args[1], UNARY, lane)
        text = f"ldexp({self.text(expr.args[0], OTHER, lane)}, (int){power})"
        return self.rounded(text, expr.dtype, ATOM)

    def call_function(self, expr: E.Call, lane: str) -> Text:
        if expr.op == "ldexp":
            return self._ldexp(expr, lane)
        if expr.op == "store_bits":
            return self._store_bits(expr, lane)
        if expr.op == "load_shared":
            (load,) = expr.args
            assert isinstance(load, S.BufferLoad)
            return self.element(load.buffer, load.indices, lane), ATOM
        if expr.op == "prefetch":
            return "0", ATOM
        if expr.op in ("call_packed", "call_extern", "address_of", "try_call"):
            raise HostOnlyError(
                f"{self.func.name}: a kernel on a device cannot {expr.op}: {str(expr)[:200]}"
            )
        return super().call_function(expr, lane)

    def _store_bits(self, expr: E.Call, lane: str) -> Text:
        self.helpers._add("sterna_store_bits", STORE_BITS)
        load = expr.args[0]
        assert isinstance(load, S.BufferLoad)
        byte = self.element(load.buffer, load.indices, lane)
        self.line(f"sterna_store_bits(&{byte}, {self.args(expr.args[1:], lane)});")
        return "0", ATOM

    def _shuffle(self, expr: E.Shuffle, lane: str, index: bool) -> Text:
        if len(expr.indices) == 1:
            return super()._shuffle(expr, lane, index)
        parts: list[tuple[Expr, str]] = []
        for vector in expr.vectors:
            lanes = vector.dtype.lanes
            parts += [(vector, str(number) if lanes > 1 else "") for number in range(lanes)]
        array = self.names.make("picked")
        self.line(f"{declare(value_type(expr.dtype), array)}[{len(expr.indices)}];")
        for place, picked in enumerate(expr.indices):
            vector, number = parts[picked]
            self.line(f"{array}[{place}] = {self.text(vector, OTHER, number)};")
        return f"{array}[{lane}]", ATOM


_STMTS: dict[type[S.Stmt], Callable[[KernelWriter, Any], None]] = {
    S.For: KernelWriter.loop,
    S.Evaluate: KernelWriter.evaluate,
    S.Allocate: KernelWriter.allocate,
    S.AssertStmt: KernelWriter.check,
}


def kernel_text(module: ModuleState, func: PrimFunc) -> str:
    """One kernel."""
    return KernelWriter(module, func).kernel_text()
