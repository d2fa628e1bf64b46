"""Statements and functions as C."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sterna.codegen.c.expr import OTHER, UNARY, Lookup
from sterna.codegen.c.helpers import Helpers
from sterna.codegen.c.repack import RepackWriter, fills_bytes
from sterna.codegen.c.types import (
    CodegenError,
    Names,
    declare,
    is_small,
    storage_type,
    string_literal,
    value_type,
)
from sterna.codegen.c.vectors import HAVE, WORDS, NoVectorError, VectorWriter
from sterna.codegen.symbols import LIBRARY_CONTEXT
from sterna.ir import expr as E
from sterna.ir.build import int_value
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node, post_order
from sterna.ir.structural import structural_equal
from sterna.tir import stmt as S
from sterna.tir.effects import calls, has_effect
from sterna.tir.in_place import overlapping
from sterna.tir.stmt import Buffer, BufferLoad, PrimFunc, Stmt
from sterna.tir.threads import LAUNCHED

# Larger allocations come from the host: stacks are small.
MAX_LOCAL_BYTES = 16384

_SIMPLE = re.compile(r"\w+")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_UNUSED = re.compile(r"\s*\(void\)(\w+);")


@dataclass(slots=True)
class ModuleState:
    """What the functions of a file share."""

    helpers: Helpers = field(default_factory=Helpers)
    externs: dict[str, str] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    functions: dict[str, PrimFunc] = field(default_factory=dict)
    c_names: dict[str, str] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    slots: dict[str, None] = field(default_factory=dict)
    aligned: bool = False
    is_program: bool = False
    """Whether it is part of a program, and no loader's."""
    vectors: bool = False
    """Whether vectors of words are written with MVE's intrinsics, beside plain C."""

    def for_another_part(self) -> "ModuleState":
        """The same file, but functions that do not see those before."""
        return ModuleState(
            self.helpers, self.externs, self.imported, names=self.names, slots=self.slots,
            is_program=self.is_program, vectors=self.vectors,
        )


def known_as(func: PrimFunc) -> str:
    """How others call it: a packed function by its symbol, since a kernel may share its name."""
    return f"__tvm_ffi_{func.name}" if func.attrs.get("packed") else func.name


def restrict(func: PrimFunc, buffer: Buffer) -> str:
    """What C is told about the address of a buffer that does not overlap with others."""
    alone = func.attrs.get("noalias", True) and id(buffer.data) not in overlapping(func)
    return "restrict " if alone else ""


class FunctionWriter(RepackWriter):
    """Writes one function, and the task functions of its parallel loops before it."""

    def __init__(self, module: ModuleState, func: PrimFunc) -> None:
        super().__init__(module.helpers, Names([*module.c_names.values(), *module.imported]))
        self.module = module
        self.func = func
        self.caller = func.name
        self.slots = module.slots
        self.externs = module.externs
        self.imported = module.imported
        self.tasks: list[str] = []
        self.in_task = False
        self.kernels = 0
        self.blocks: list[str] = []
        # Addresses that are bound inside a packed function have the type of their buffer.
        self.buffer_of: dict[int, Buffer] = {}
        post_order(func, self._find_buffer)

    def _find_buffer(self, node: Node) -> None:
        if isinstance(node, (BufferLoad, S.BufferStore)) and not node.buffer.dtype.is_packed:
            self.buffer_of[id(node.buffer.data)] = node.buffer

    # ---- functions ----

    def kernel(self, static: bool) -> str:
        """A plain function's definition."""
        params = []
        ranges = self.func.attrs.get(S.SHARED, {})
        for place, var in enumerate(self.func.params):
            buffer = self.func.buffers[place]
            self.ranges.set(var, ranges.get(place))
            if buffer is None:
                name, c_type = self.names.make(var.name), value_type(var.dtype)
                params.append(declare(c_type, name))
            else:
                name, c_type = self.names.make(buffer.name), f"{storage_type(buffer.dtype)} *"
                params.append(f"{c_type}{restrict(self.func, buffer)}{name}")
                self.known[id(buffer.data)] = Lookup(name, c_type)
            self.known[id(var)] = Lookup(name, c_type)
            self.mark_unused(name)
        link = "static" if static else "STERNA_EXPORT"
        if S.SHARED in self.func.attrs:
            self.helpers.fixed("shared")
            link = f"{link} STERNA_SHARED"
        head = f"{link} int32_t {self.module.c_names[known_as(self.func)]}"
        return self._finish(f"{head}({', '.join(params) or 'void'})")

    def packed(self) -> str:
        """A packed function's definition."""
        params = []
        for var, c_type in zip(
            self.func.params, ("void *", "const void *", "int32_t", "void *"), strict=True
        ):
            name = self.names.make(var.name)
            params.append(declare(c_type, name))
            self.known[id(var)] = Lookup(name, c_type)
            self.mark_unused(name)
        head = f"STERNA_EXPORT int32_t {self.module.c_names[known_as(self.func)]}"
        return self._finish(f"{head}({', '.join(params)})")

    def _finish(self, head: str) -> str:
        self.stmt(self.func.body)
        if self.kernels:
            self.line("STERNA_BEGINS(-1);")
        self.line("return 0;")
        body = "\n".join([f"{head} {{", *_settled(self.lines), "}"])
        return "\n\n".join([*self.tasks, body])

    def function_name(self, name: str, count: int) -> str:
        callee = self.module.functions.get(name)
        if callee is None:
            raise CodegenError(f"{self.func.name} calls {name}, which is no function beside it")
        if len(callee.params) != count:
            raise CodegenError(f"{self.func.name} calls {name} with {count} arguments")
        return self.module.c_names[name]

    def kernel_begins(self) -> None:
        if "sources" in self.func.attrs and self.module.is_program:
            self.helpers.fixed("begins")
            self.line(f"STERNA_BEGINS({self.kernels});")
            self.kernels += 1

    def context(self) -> str:
        return self.module.c_names[LIBRARY_CONTEXT]

    def fail(self, value: str = "-1") -> None:
        for block in reversed(self.blocks):
            self.line(f"sterna_release_block({block});")
        self.line(f"return {value};")

    # ---- statements ----

    def stmt(self, stmt: Stmt) -> None:
        """Write a statement."""
        write = _STMTS.get(type(stmt))
        if write is None:
            raise CodegenError(f"C has no {type(stmt).__name__}: {stmt}")
        write(self, stmt)

    def block(self, head: str, write: Callable[[], None], tail: str = "}") -> None:
        """Lines in braces."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        write()
        self.depth -= 1
        self.line(tail)

    def sequence(self, stmt: S.SeqStmt) -> None:
        for inner in stmt.stmts:
            self.stmt(inner)

    def simple(self, expr: Expr, name: str) -> str:
        """An expression that is evaluated again and again: a name or a number."""
        text = self.text(expr, index=True)
        if _SIMPLE.fullmatch(text):
            return text
        made = self.names.make(name)
        self.line(f"const {declare(value_type(expr.dtype), made)} = {text};")
        return made

    def loop(self, stmt: S.For) -> None:
        if stmt.kind == "thread" and stmt.thread in LAUNCHED:
            raise CodegenError(f"{self.func.name}: a loop over {stmt.thread} needs a GPU")
        low, extent = self.ranges.of(stmt.min), self.ranges.of(stmt.extent)
        assert low is not None and extent is not None, "loops run over integers"
        if extent[1] <= 0:
            return
        self.ranges.set(stmt.var, (low[0], low[1] + extent[1] - 1))
        if stmt.kind == "parallel" and not self.in_task:
            self._parallel(stmt)
            return
        var = self.names.make(stmt.var.name)
        start = self.ranges.constant(stmt.min)
        if start == 0:
            end = self.simple(stmt.extent, f"{stmt.var.name}_end")
            first = "0"
        else:
            first = self.simple(stmt.min, f"{stmt.var.name}_begin")
            end = self.simple(stmt.min + stmt.extent, f"{stmt.var.name}_end")
        self._loop(stmt, var, first, end)

    def _loop(self, stmt: S.For, var: str, first: str, end: str) -> None:
        c_type = value_type(stmt.var.dtype)
        self.known[id(stmt.var)] = Lookup(var, c_type)
        note = f"  /* {stmt.kind} */" if stmt.kind in ("unrolled", "vectorized") else ""
        if note:
            self.line(note.strip())
        head = f"for ({c_type} {var} = {first}; {var} < {end}; {var}++)"
        self.block(head, lambda: self.stmt(stmt.body))

    def store(self, stmt: S.BufferStore) -> None:
        lanes = max((index.dtype.lanes for index in stmt.indices), default=1)
        if lanes == 1:
            self._store_lane(stmt, self._stored(stmt, stmt.value, ""), "")
            return
        stored: Expr = stmt.value
        if _reads_other_lanes(stmt) or fills_bytes(stored):
            # All lanes are read, and bytes filled, before the first is written.
            kept = Var("value", stored.dtype)
            self.bind(kept, stored)
            stored = kept
        vector = self._vector(stmt, lanes) if self.module.vectors and stored is stmt.value else []
        if vector:
            self.lines += [HAVE, *vector, "#else"]
        lane = self.names.make("lane")
        self.block(
            f"for (int32_t {lane} = 0; {lane} < {lanes}; {lane}++)",
            lambda: self._store_lane(stmt, self._stored(stmt, stored, lane), lane),
        )
        if vector:
            self.lines.append("#endif")

    def _vector(self, stmt: S.BufferStore, lanes: int) -> list[str]:
        """The lines that store lanes four by four; none if that cannot be said."""
        at, predicate = self.names.make("lane"), ""
        if lanes % WORDS:
            predicate = self.names.make("some")

        def four() -> None:
            if predicate:
                self.line(f"mve_pred16_t {predicate} = vctp32q({lanes} - {at});")
            VectorWriter(self, at, predicate).store(stmt)

        def loop() -> None:
            self.block(f"for (int32_t {at} = 0; {at} < {lanes}; {at} += {WORDS})", four)

        depth = self.depth
        try:
            return self.capture(loop)[1]
        except NoVectorError:
            self.depth = depth
            return []

    def _stored(self, stmt: S.BufferStore, value: Expr, lane: str) -> Callable[[], str]:
        dtype = stmt.buffer.dtype

        def write() -> str:
            text = self.text(value, OTHER, lane)
            return f"{self.helpers.small('bits', dtype)}({text})" if is_small(dtype) else text

        return write

    def _store_lane(self, stmt: S.BufferStore, value: Callable[[], str], lane: str) -> None:
        def assign() -> None:
            text = value()
            self.line(f"{self.element(stmt.buffer, stmt.indices, lane)} = {text};")

        if stmt.predicate is None:
            assign()
        else:
            self.block(f"if ({self.text(stmt.predicate, OTHER, lane)})", assign)

    def evaluate(self, stmt: S.Evaluate) -> None:
        if not has_effect(stmt.value):
            return
        if isinstance(stmt.value, E.Call) and stmt.value.op == "call_packed":
            self.call_packed(stmt.value, is_used=False)
            return
        text = self.text(stmt.value, UNARY)
        if text != "0":
            self.line(f"(void){text};")

    def branch(self, stmt: S.IfThenElse) -> None:
        condition = self.text(stmt.condition)
        tail = "}" if stmt.otherwise is None else "} else {"
        self.block(f"if ({condition})", lambda: self.stmt(stmt.then), tail)
        if stmt.otherwise is not None:
            otherwise = stmt.otherwise
            self.depth += 1
            self.stmt(otherwise)
            self.depth -= 1
            self.line("}")

    def let(self, stmt: S.LetStmt) -> None:
        buffer = self.buffer_of.get(id(stmt.var))
        if buffer is None:
            self.bind(stmt.var, stmt.value)
        else:
            c_type = f"{storage_type(buffer.dtype)} *"
            text, name = self.text(stmt.value), self.names.make(buffer.name)
            self.line(f"{c_type}restrict {name} = {text};")
            self.known[id(stmt.var)] = Lookup(name, c_type)
            self.mark_unused(name)
        self.stmt(stmt.body)

    def check(self, stmt: S.AssertStmt) -> None:
        self.helpers.fixed("fail")
        error = f"sterna_fail({string_literal(stmt.kind)}, {string_literal(stmt.message)})"
        condition = self.text(stmt.condition, UNARY)
        if stmt.values:
            self.block(f"if (!{condition})", lambda: self._fail_with(stmt))
        else:
            self.block(f"if (!{condition})", lambda: self.fail(error))

    def _fail_with(self, stmt: S.AssertStmt) -> None:
        """Leave the function with a message that says values."""
        self.helpers.fixed("message")
        message, at = self.names.make("message"), self.names.make("at")
        texts = stmt.texts()
        room = sum(len(text.encode()) for text in texts) + 20 * len(stmt.values) + 1
        self.line(f"char {message}[{room}];")
        self.line(f"char *{at} = {message};")
        for i, text in enumerate(texts):
            if i:
                value = self.text(stmt.values[i - 1], UNARY)
                self.line(f"{at} = sterna_put_number({at}, (int64_t){value});")
            self.line(f"{at} = sterna_put_text({at}, {string_literal(text)});")
        self.fail(f"sterna_fail({string_literal(stmt.kind)}, {message})")

    def attribute(self, stmt: S.AttrStmt) -> None:
        self.stmt(stmt.body)

    def tensorized(self, stmt: S.Tensorized) -> None:
        self.stmt(stmt.body)

    # ---- allocation ----

    def allocate(self, stmt: S.Allocate) -> None:
        buffer = stmt.buffer
        c_type = storage_type(buffer.dtype)
        extents = [self.ranges.constant(extent) for extent in buffer.shape]
        if buffer.strides:
            raise CodegenError(f"{buffer.name} is allocated with strides")
        count = math.prod(extent or 0 for extent in extents)
        bounded = None not in extents and count * buffer.dtype.bytes <= MAX_LOCAL_BYTES
        name = self.names.make(buffer.name)
        self.known[id(buffer.data)] = Lookup(name, f"{c_type} *")
        if bounded:
            self.block("", lambda: self._local(stmt, name, c_type, max(count, 1)))
        else:
            self.block("", lambda: self._heap(stmt, name, c_type))

    def _local(self, stmt: S.Allocate, name: str, c_type: str, count: int) -> None:
        aligned = ""
        if stmt.buffer.alignment > stmt.buffer.dtype.bytes:
            self.module.aligned = True
            aligned = f"STERNA_ALIGNED({stmt.buffer.alignment}) "
        self.line(f"{aligned}{declare(c_type, name)}[{count}];")
        place = len(self.lines)
        self.stmt(stmt.body)
        # A load may be gone from the text, as a number that is known, so the text is what counts.
        store, use = re.compile(rf"^ *{name}\[.*?\] = "), re.compile(rf"\b{name}\b")
        if not any(use.search(store.sub("", line, 1)) for line in self.lines[place:]):
            self.lines.insert(place, f"{'  ' * self.depth}(void){name};  /* nothing reads it */")

    def _heap(self, stmt: S.Allocate, name: str, c_type: str) -> None:
        self.helpers.fixed("allocate")
        extents = [self.text(extent, UNARY, index=True) for extent in stmt.buffer.shape]
        parts = [f"(uint64_t){extent}" for extent in extents]
        size = "*".join([*parts, str(stmt.buffer.dtype.bytes)])
        alignment = max(stmt.buffer.alignment, 64)
        self.line(f"{c_type} *restrict {name} = ({c_type} *)sterna_allocate({size}, {alignment});")
        self.block(f"if (!{name})", self.fail)
        self.blocks.append(name)
        self.stmt(stmt.body)
        self.blocks.pop()
        self.line(f"sterna_release_block({name});")

    # ---- parallel loops ----

    def _parallel(self, stmt: S.For) -> None:
        """Write the loop as a task function, and its call through the host."""
        self.helpers.fixed("parallel")
        base = self.module.c_names[known_as(self.func)].removeprefix("__tvm_ffi_")
        task = self.module.names.make(f"{base}_task")
        first = self.simple(stmt.min, f"{stmt.var.name}_begin")
        extent = self.simple(stmt.extent, f"{stmt.var.name}_extent")
        var, begin, end = (self.names.make(f"{stmt.var.name}{s}") for s in ("", "_from", "_to"))
        body, used = self._task_body(stmt, var, begin, end)
        # What the body uses of the outside travels in a structure.
        c_type = value_type(stmt.var.dtype)
        outside = {found.name: found for found in self.known.values()}
        fields = [found for name, found in outside.items() if name in used]
        for name in dict.fromkeys((first, extent)):
            if name not in {found.name for found in fields} and not name.isdigit():
                fields.append(Lookup(name, c_type))
        shift = "" if first == "0" else f"{first} + "
        bounds = [
            f"const {c_type} {bound} = {shift}({c_type})((int64_t){extent}*{part} / sterna_tasks);"
            for bound, part in ((begin, "sterna_task"), (end, "(sterna_task + 1)"))
        ]
        shared, noalias = overlapping(self.func), self.func.attrs.get("noalias", True)
        loose = {found.name for data, found in self.known.items() if not noalias or data in shared}
        self.tasks.append(_task_function(task, fields, bounds, body, loose))
        data = "0"
        if fields:
            data = self.names.make("outside")
            values = ", ".join(found.name for found in fields)
            self.line(f"struct {task}_data {data} = {{{values}}};")
            data = f"&{data}"
        shares = calls(stmt.body, "store_bits")
        if shares:
            self.line("#if defined(STERNA_ONE_THREAD)")
            self.block(f"if ({task}(0, 1, {data}) != 0)", self.fail)
            self.line("#else")
        self.block(f"if (sterna_parallel({task}, {data}, {extent}) != 0)", self.fail)
        if shares:
            self.line("#endif")

    def _task_body(self, stmt: S.For, var: str, begin: str, end: str) -> tuple[list[str], set[str]]:
        """The loop's lines in a function of its own, and the names that they use."""
        outer = dict(self.known), self.blocks, self.depth
        self.blocks, self.depth, self.in_task = [], 1, True
        _, written = self.capture(lambda: self._loop(stmt, var, begin, end))
        self.known, self.blocks, self.depth = outer
        self.in_task = False
        lines = _settled(written)
        return lines, set(_WORD.findall("\n".join(lines)))


def _settled(lines: list[str]) -> list[str]:
    """The lines, without the marks on names that a later line uses."""
    kept: list[str] = []
    later: set[str] = set()
    for text in reversed(lines):
        mark = _UNUSED.fullmatch(text)
        if mark is None:
            later.update(_WORD.findall(text))
        if mark is None or mark[1] not in later:
            kept.append(text)
    kept.reverse()
    return kept


def _task_function(
    task: str, fields: list[Lookup], bounds: list[str], body: list[str], overlap: set[str]
) -> str:
    """A function that does one task's share of a loop. overlap: names of what may share memory."""
    struct = f"struct {task}_data"
    head = f"static int {task}(int32_t sterna_task, int32_t sterna_tasks, void *sterna_data) {{"
    if not fields:
        opening = [head, "  (void)sterna_data;"]
    else:
        members = [f"  {declare(_field_type(found), found.name)};" for found in fields]
        source = f"(const {struct} *)sterna_data"
        opening = [f"{struct} {{", *members, "};", "", head,
                   f"  const {struct} *sterna_outside = {source};"]
    for found in fields:
        kind = _field_type(found)
        is_buffer = kind.endswith("*") and not kind.startswith(("void", "const"))
        alone = "" if found.name in overlap else "restrict "
        left = f"{kind}{alone}{found.name}" if is_buffer else declare(kind, found.name)
        opening.append(f"  {left} = sterna_outside->{found.name};")
    return "\n".join([*opening, *(f"  {bound}" for bound in bounds), *body, "  return 0;", "}"])


def _field_type(found: Lookup) -> str:
    return f"const {found.c_type} *" if found.lanes > 1 else found.c_type


def _reads_other_lanes(stmt: S.BufferStore) -> bool:
    """Whether a lane's value may read what another lane writes."""
    found: list[BufferLoad] = []

    def look(node: Node) -> None:
        if isinstance(node, BufferLoad) and node.buffer.data is stmt.buffer.data:
            found.append(node)

    for part in (stmt.value, stmt.predicate, *stmt.indices):
        if part is not None:
            post_order(part, look)
    distinct = any(
        isinstance(index, E.Ramp) and int_value(index.stride) not in (None, 0)
        for index in stmt.indices
    )
    return any(not (distinct and structural_equal(load.indices, stmt.indices)) for load in found)


_STMTS: dict[type[Stmt], Callable[[FunctionWriter, Any], None]] = {
    S.For: FunctionWriter.loop,
    S.BufferStore: FunctionWriter.store,
    S.Evaluate: FunctionWriter.evaluate,
    S.SeqStmt: FunctionWriter.sequence,
    S.IfThenElse: FunctionWriter.branch,
    S.LetStmt: FunctionWriter.let,
    S.AssertStmt: FunctionWriter.check,
    S.Allocate: FunctionWriter.allocate,
    S.AttrStmt: FunctionWriter.attribute,
    S.Tensorized: FunctionWriter.tensorized,
}
