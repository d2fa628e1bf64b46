"""AMX: tiles in the instructions that x86-64 has for them. Meaning: sterna/tir/tiles.py.

Linux lets a process use tiles that has asked for them once; then all of its threads may. It says no
where the processor has none. The code that needs them asks, so that a library without a runtime has
them too.
"""

from typing import Any

from sterna.codegen.llvm.convert import zero
from sterna.codegen.llvm.emitter import ATTRIBUTES, COLD, ModuleWriter
from sterna.codegen.llvm.types import hex_quoted
from sterna.ir import build
from sterna.ir.expr import Call, StringImm
from sterna.isa.capability import TileUnit
from sterna.tir.tiles import TILES

_ABSENT = (
    "{} was compiled for a processor with tiles (AMX), which this one does not have or its system "
    "does not grant; compile it for this machine, or add -mattr=-{} to its target"
)


def write_tile_call(emitter: Any, expr: Call) -> str:
    """The instruction of a tile_... call."""
    _WRITERS[expr.op](emitter, expr)
    return zero(expr.dtype)


def _unit(module: ModuleWriter) -> TileUnit:
    unit = module.options.instructions.isa.tile_unit
    assert unit is not None, "tiles are expanded where there are no instructions for them"
    return unit


def _configure(emitter: Any, expr: Call) -> None:
    """The 64 bytes that the processor reads the shapes from."""
    module, unit = emitter.module, _unit(emitter.module)
    numbers = [build.int_value(arg) or 0 for arg in expr.args]
    rows, sizes = numbers[::2], numbers[1::2]
    palette = bytes([1, *[0] * 15])
    widths = b"".join(size.to_bytes(2, "little") for size in sizes) + bytes(16)
    content = palette + widths + bytes(rows) + bytes(8)
    name = f"@tiles.{content[16 : 16 + 2 * TILES].hex()}.{bytes(rows).hex()}"
    line = f'{name} = private constant [64 x i8] c"{hex_quoted(content)}", align 64'
    if line not in module.globals:
        module.globals.append(line)
    granted = emitter.writer.value(f"call i1 {_grant(module)}()")
    emitter.unless(granted, "RuntimeError", _ABSENT.format(emitter.name, unit.feature))
    _instruction(emitter, unit.configure, f"ptr {name}")


def _release(emitter: Any, expr: Call) -> None:
    _instruction(emitter, _unit(emitter.module).release)


def _zero(emitter: Any, expr: Call) -> None:
    _instruction(emitter, _unit(emitter.module).zero, _immediate(expr, 0))


def _move(emitter: Any, expr: Call) -> None:
    unit = _unit(emitter.module)
    name = unit.load if expr.op == "tile_load" else unit.store
    address = f"ptr {emitter.expr(expr.args[1])}"
    _instruction(emitter, name, _immediate(expr, 0), address, f"i64 {emitter.expr(expr.args[2])}")


def _dot(emitter: Any, expr: Call) -> None:
    kinds = expr.args[3]
    assert isinstance(kinds, StringImm)
    name = _unit(emitter.module).dots[kinds.value]
    _instruction(emitter, name, *[_immediate(expr, place) for place in range(3)])


def _immediate(expr: Call, place: int) -> str:
    return f"i8 {build.int_value(expr.args[place])}"


def _instruction(emitter: Any, name: str, *arguments: str) -> None:
    target = emitter.writer.declare(name, "void", arguments)
    emitter.writer.emit(f"call void {target}({', '.join(arguments)})")


def _grant(module: ModuleWriter) -> str:
    """i1 (): whether this process may use tiles; asks the system until it says yes."""

    def write() -> str:
        ask = module.declare("syscall", "i64", "i64, ...", "extern_weak ")
        request = ", ".join(f"i64 {number}" for number in _unit(module).permission)
        return f"""\
@sterna.tiles.granted = internal global i8 0
define internal i1 @"sterna.tiles"() {ATTRIBUTES} {{
  %known = load atomic i8, ptr @sterna.tiles.granted monotonic, align 1
  %ready = icmp ne i8 %known, 0
  br i1 %ready, label %yes, label %unknown
yes:
  ret i1 true
unknown:
  %answer = call i1 @"sterna.ask_for_tiles"()
  %number = zext i1 %answer to i8
  store atomic i8 %number, ptr @sterna.tiles.granted monotonic, align 1
  ret i1 %answer
}}
define internal i1 @"sterna.ask_for_tiles"() {COLD} {{
  %missing = icmp eq ptr {ask}, null
  br i1 %missing, label %no, label %request
no:
  ret i1 false
request:
  %code = call i64 (i64, ...) {ask}({request})
  %granted = icmp eq i64 %code, 0
  ret i1 %granted
}}
"""

    return module.helper("sterna.tiles", write)


_WRITERS = {
    "tile_configure": _configure, "tile_release": _release, "tile_zero": _zero,
    "tile_load": _move, "tile_store": _move, "tile_dot": _dot,
}
