"""How large a network is as a program for a microcontroller, linked with all that it needs."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sterna.driver.aot_factory import AOTProgram
from sterna.micro.elf import read_program
from sterna.micro.platforms import arm
from sterna.micro.platforms.tools import run_tool

LIBC = Path(__file__).parent / "templates" / "baremetal" / "libc"
START = "sterna_start"
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a linked program that does nothing but run a network."""

    cpu: str
    toolchain: str
    code: int
    """Everything that is kept and is no weight: the network's code, the compiler's and the C
    library's functions that it needs, their tables, and the caller."""
    weights: int
    ram: int
    """Intermediate results, inputs and outputs, and the variables of libraries."""
    libraries: dict[str, int]
    """By symbol, what is not the network's and not the caller's."""
    runtime: int = 0
    """The part that every network would need: there is none."""

    def __str__(self) -> str:
        largest = sorted(self.libraries.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{name} {size}" for name, size in largest[:SHOWN]) or "none"
        listed += f", {len(largest) - SHOWN} more" if len(largest) > SHOWN else ""
        return (
            f"{self.cpu}, {self.toolchain}: code {self.code} bytes, of which libraries "
            f"{sum(self.libraries.values())} ({listed}), runtime {self.runtime}; weights "
            f"{self.weights}, RAM {self.ram}"
        )


def sizes(
    program: AOTProgram, cpu: str = "cortex-m4", toolchain: str | None = None,
    options: Sequence[str] = ("-Os",),
) -> Sizes:
    """Compile and link a network for a processor, and measure what came of it.

    program: what relay.build gives for Executor("aot") with a C interface and Runtime("crt").
    toolchain: "gcc" (arm-none-eabi-gcc) or "zig"; without one, the one that is there.
    """
    if not isinstance(program, AOTProgram) or not program.has_header:
        raise TypeError(
            "sizes are of programs in C: build the network for the target c with "
            'Executor("aot", {"interface-api": "c", "unpacked-api": True}) and Runtime("crt")'
        )
    if cpu not in arm.PROCESSORS:
        raise ValueError(f"unknown processor {cpu}; known are {', '.join(arm.PROCESSORS)}")
    chosen = arm.choose_toolchain(toolchain)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "network.c").write_text(program.get_lib().get_source(), "utf-8")
        (folder / f"{program.interface.prefix}.h").write_text(program.get_c_header(), "utf-8")
        (folder / "start.c").write_text(_caller(program))
        command = [
            *arm.compile_command(chosen, cpu, str(LIBC)), *options, "-g", "-nostartfiles",
            f"-Wl,--entry={START}", "network.c", "start.c", *arm.libraries(chosen), "-o", "program",
        ]
        run_tool(command, folder)
        return _measured(folder / "program", program.interface.prefix, cpu, chosen)


def _caller(program: AOTProgram) -> str:
    """C that runs the network once, with memory of its own for whatever the network is given."""
    interface = program.interface
    prefix, lines, args = interface.prefix, [], []
    members: list[tuple[str, list[str]]] = []
    if not interface.holds_operands:
        for what, operands in (("inputs", interface.inputs), ("outputs", interface.outputs)):
            lines += [f"static uint64_t {what}_{at}[{operand.bytes // 8 + 1}];"
                      for at, operand in enumerate(operands)]
            members.append((what, [f"{what}_{at}" for at in range(len(operands))] or ["0"]))
    if interface.takes_pools:
        arrays = []
        names = interface.members(interface.given_pools, "memory pools")
        for name, pool in zip(names, interface.given_pools, strict=True):
            if pool.data is None:
                arrays.append(f"{prefix}_pool_{name}")
                lines.append(f"static uint8_t {arrays[-1]}[{max(1, pool.bytes)}];")
            else:
                arrays.append(f"{prefix}_constant_pool_{name}")
                macro = f"{interface.macro}_{name.upper()}_CONSTANT_POOL"
                lines.append(f"static const uint8_t {arrays[-1]}[{macro}_SIZE] = {macro}_DATA;")
        members.append(("workspace_pools", arrays))
    body = []
    for what, names in members:
        values = ", ".join(f"(void *){name}" for name in names)
        body.append(f"  struct {prefix}_{what} {what} = {{{values}}};")
        args.append(f"&{what}")
    return "\n".join([
        f'#include "{prefix}.h"', *lines, f"void {START}(void);", f"void {START}(void) {{", *body,
        f"  (void){prefix}_run({', '.join(args)});", "  for (;;) {", "  }", "}", "",
    ])


def _measured(path: Path, prefix: str, cpu: str, toolchain: str) -> Sizes:
    made = read_program(path)
    own = {name for name in made.symbols if name.startswith((prefix, "sterna_"))}
    weights = sum(made.symbols[n] for n in own if n.startswith(f"{prefix}_constant_"))
    ours = {*own, *(n for n in made.symbols if n.startswith(("inputs_", "outputs_")))}
    libraries = {name: size for name, size in made.symbols.items() if name not in ours}
    code = made.stored_bytes - weights
    return Sizes(cpu, toolchain, code, weights, made.variable_bytes, libraries)
