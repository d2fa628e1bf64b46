"""Functions: kernels, packed functions, and the bodies of parallel loops."""

from sterna.codegen.llvm import host
from sterna.codegen.llvm.check_array import ArrayChecks
from sterna.codegen.llvm.emitter import ATTRIBUTES, ModuleWriter, Support
from sterna.codegen.llvm.machine import LLVMOptions
from sterna.codegen.llvm.stmt import StmtEmitter
from sterna.codegen.llvm.types import hex_quoted, symbol, value_type
from sterna.codegen.part import Functions, Part, as_parts
from sterna.codegen.symbols import LIBRARY_CONTEXT, LIBRARY_TABLE, PACKED_PREFIX
from sterna.ir import build
from sterna.ir.expr import Var
from sterna.ir.node import Node, post_order
from sterna.support.errors import InternalError
from sterna.tir.in_place import overlapping
from sterna.tir.passes.expand_tiles import expand_tiles
from sterna.tir.stmt import Buffer, For, PrimFunc


def generate(
    functions: Functions, options: LLVMOptions, module_name: str = "sterna", table: bytes = b"",
    support: Support = Support.OWN,
) -> str:
    """The text of an LLVM module with these functions; the same for the same input.

    table: says which modules they belong to, where these are several.
    """
    module = ModuleWriter(options, module_name, support)
    host.define_host(module)
    if table:
        export = "dllexport " if module.is_coff else ""
        module.globals.append(
            f'@{LIBRARY_TABLE} = {export}constant [{len(table)} x i8] c"{hex_quoted(table)}", '
            "align 8"
        )
    for number, part in enumerate(as_parts(functions)):
        _generate_part(module, part, f".{number}" if number else "")
    return module.text()


def _generate_part(module: ModuleWriter, part: Part, suffix: str) -> None:
    symbols: dict[str, str] = {}
    for function in part.functions:
        packed = bool(function.attrs.get("packed"))
        name = part.packed_symbol(function) if packed else symbol_of(function) + suffix
        if name in symbols.values():
            raise ValueError(f"two functions are named '{function.name}'")
        # A packed function is called by its symbol, since a kernel may have the same name.
        symbols[symbol_of(function) if packed else function.name] = name
    symbols[LIBRARY_CONTEXT] = part.context
    for function in part.functions:
        function = expand_tiles(function, module.options.matrix_tiles)
        emitter = FunctionEmitter(module, symbols, function.name)
        elsewhere = bool(function.attrs.get("external"))
        text = emitter.declaration(function) if elsewhere else emitter.function(function)
        module.functions.append(text)


def symbol_of(function: PrimFunc) -> str:
    """The symbol under which a function is compiled, where it is alone in its file."""
    if function.attrs.get("packed"):
        return PACKED_PREFIX + function.name
    # Internal functions get a suffix: LLVM would take one named exp or memcpy for the C library's.
    return function.name if function.attrs.get("export") else function.name + ".kernel"


class FunctionEmitter(StmtEmitter):
    """Writes whole functions."""

    def function(self, function: PrimFunc) -> str:
        """The text of a function."""
        if len(function.params) != len(function.buffers):
            raise InternalError(f"{function.name} has parameters without an entry in buffers")
        packed = bool(function.attrs.get("packed"))
        self.noalias = bool(function.attrs.get("noalias", True))
        self.overlapping = overlapping(function)
        self.checks = ArrayChecks(function.body) if packed else None
        params = []
        for i, (var, buffer) in enumerate(zip(function.params, function.buffers, strict=True)):
            operand = f"%p{i}"
            self.bind(var, operand)
            if buffer is not None:
                self.bind(buffer.data, operand)
            params.append(f"{self._parameter(var, buffer)} {operand}")
        export = bool(function.attrs.get("export"))
        place = "" if packed else "hidden " if export else "internal "
        if packed and self.module.is_coff:
            place = "dllexport "
        name = self.symbols[symbol_of(function) if packed else function.name]
        self.stmt(function.body)
        self.finish()
        return self.writer.text(
            f"define {place}i32 {symbol(name)}({', '.join(params)}) {ATTRIBUTES}"
        )

    def declaration(self, function: PrimFunc) -> str:
        """The text that declares a function of another file of the same program."""
        pairs = zip(function.params, function.buffers, strict=True)
        kinds = ["ptr" if buffer is not None else value_type(var.dtype) for var, buffer in pairs]
        name = symbol(self.symbols[function.name])
        return f"declare hidden i32 {name}({', '.join(kinds)})\n"

    def _parameter(self, var: Var, buffer: Buffer | None) -> str:
        if buffer is None:
            return value_type(var.dtype)
        align = f" align {buffer.alignment}" if buffer.alignment > 1 else ""
        alone = self.noalias and id(buffer.data) not in self.overlapping
        return f"ptr{' noalias' if alone else ''}{align}"

    # ---- parallel loops ----

    def _parallel(self, stmt: For) -> None:
        """Hands the body over as a function of a range, and a task that finds its range.

        The range function takes what the body uses as parameters rather than from memory, so that
        LLVM knows that buffers do not overlap.
        """
        captured = self._captured(stmt)
        with self.exact():
            first, extent = self.expr(stmt.min), self.expr(stmt.extent)
        number = len(self.module.functions)
        name = f"{self.name}.parallel.{number}"
        self.module.functions.append("")  # keeps the number for this loop
        inner = self._range_function(stmt, captured, name)
        kind = value_type(stmt.var.dtype)
        values = [(kind, first), (kind, extent),
                  *[(value_type(var.dtype), self.env[id(var)]) for var, _ in captured]]
        task = _task_function(name + ".task", name, stmt, values)
        self.module.functions[number] = inner + "\n" + task
        self._start_tasks(name + ".task", stmt, values)

    def _captured(self, stmt: For) -> list[tuple[Var, Buffer | None]]:
        """What the body uses from outside, each value once."""
        found: dict[int, tuple[Var, Buffer | None]] = {}

        def look(node: Node) -> None:
            if isinstance(node, Buffer):
                found[id(node.data)] = (node.data, node)
            elif isinstance(node, Var):
                found.setdefault(id(node), (node, None))

        post_order(stmt.body, look)
        return [pair for key, pair in found.items() if key in self.env]

    def _range_function(
        self, stmt: For, captured: list[tuple[Var, Buffer | None]], name: str
    ) -> str:
        inner = FunctionEmitter(self.module, self.symbols, self.name)
        inner.in_parallel = True
        inner.noalias, inner.overlapping = self.noalias, self.overlapping
        inner.ranges = self.ranges.copy()
        kind = value_type(stmt.var.dtype)
        params = [f"{kind} %begin", f"{kind} %end"]
        for i, (var, buffer) in enumerate(captured):
            inner.bind(var, f"%p{i}")
            params.append(f"{self._parameter(var, buffer)} %p{i}")
        inner.ranges.bind_loop(stmt.var, stmt.min, stmt.extent)
        inner.count(stmt.var, "%begin", "%end", False, None, lambda: inner.stmt(stmt.body))
        inner.finish()
        return inner.writer.text(f"define internal i32 {symbol(name)}({', '.join(params)}) #0")

    def _start_tasks(self, task: str, stmt: For, values: list[tuple[str, str]]) -> None:
        writer = self.writer
        closure = "{ " + ", ".join(kind for kind, _ in values) + " }"
        data = writer.alloca(closure, 64)
        for i, (kind, operand) in enumerate(values):
            slot = writer.value(
                f"getelementptr inbounds {closure}, ptr {data}, i32 0, i32 {i}"
            )
            writer.emit(f"store {kind} {operand}, ptr {slot}")
        with self.exact():
            wide = self.expr(build.cast("int64", stmt.extent))
        code = writer.value(
            f"call i32 {host.parallel(self.module)}(ptr {symbol(task)}, ptr {data}, i64 {wide})"
        )
        self._unless(writer.value(f"icmp eq i32 {code}, 0"), lambda: None)


def _task_function(name: str, inner: str, stmt: For, values: list[tuple[str, str]]) -> str:
    """A task: iterations [extent*task/tasks, extent*(task+1)/tasks)."""
    kind = values[0][0]
    closure = "{ " + ", ".join(each for each, _ in values) + " }"
    lines = []
    for i, (each, _) in enumerate(values):
        lines.append(
            f"  %s{i} = getelementptr inbounds {closure}, ptr %data, i32 0, i32 {i}\n"
            f"  %c{i} = load {each}, ptr %s{i}"
        )
    if kind == "i64":
        widen, begin, end = "%extent = add i64 %c1, 0", "%from", "%to"
        narrow = ""
    else:
        widen = f"%extent = {'sext' if stmt.var.dtype.is_int else 'zext'} {kind} %c1 to i64"
        narrow = f"  %f = trunc i64 %from to {kind}\n  %t = trunc i64 %to to {kind}\n"
        begin, end = "%f", "%t"
    arguments = ", ".join(
        [f"{kind} %begin", f"{kind} %end", *[f"{each} %c{i}" for i, (each, _) in
                                             enumerate(values) if i > 1]]
    )
    body = "\n".join(lines)
    return f"""\
define internal i32 {symbol(name)}(i32 %task, i32 %tasks, ptr %data) {ATTRIBUTES} {{
{body}
  {widen}
  %task.wide = sext i32 %task to i64
  %tasks.wide = sext i32 %tasks to i64
  %task.next = add i64 %task.wide, 1
  %before = mul i64 %extent, %task.wide
  %after = mul i64 %extent, %task.next
  %from = udiv i64 %before, %tasks.wide
  %to = udiv i64 %after, %tasks.wide
{narrow}  %begin = add {kind} %c0, {begin}
  %end = add {kind} %c0, {end}
  %result = call i32 {symbol(inner)}({arguments})
  ret i32 %result
}}
"""


