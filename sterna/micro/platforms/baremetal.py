"""Cortex-M boards without any system: linker script, start-up code, semihosting, UART, QEMU."""

import contextlib
import re
import shlex
from typing import Any

from sterna.micro.platforms import arm
from sterna.micro.platforms.boards import Board, check_room, load_boards
from sterna.micro.platforms.handler import FirmwareHandler, Project, compiler_flags
from sterna.micro.platforms.options import EXAMPLE, common_options
from sterna.micro.platforms.streams import ProcessStream, Stream, TtyStream
from sterna.micro.platforms.tools import require_tool, run_tool
from sterna.micro.project_api.server import BUILD, FLASH, GENERATE, OPEN, ProjectOption
from sterna.support.toolchain import CompileError, MissingToolError

PROGRAM = "build/program.elf"
BAUD = 115200
LEAST_STACK = 512
FILES = ("main.c", "semihosting.c", "semihosting.h", "startup.c", "startup.h", "uart.h")
QEMU = "install QEMU's system emulator (Debian: apt install qemu-system-arm)"

LINKER_SCRIPT = """\
/* {board}: program and constants in flash, the rest in RAM. */

MEMORY {{
  FLASH (rx) : ORIGIN = {flash_origin:#x}, LENGTH = {flash:#x}
  RAM (rwx) : ORIGIN = {ram_origin:#x}, LENGTH = {ram:#x}
}}

ENTRY(reset)

SECTIONS {{
  .text : {{
    KEEP(*(.vectors))
    *(.text .text.* .rodata .rodata.*)
    . = ALIGN(8);
  }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx .ARM.exidx.*) }} > FLASH
  .data : ALIGN(8) {{
    link_data_start = .;
    *(.data .data.*)
    . = ALIGN(8);
    link_data_end = .;
  }} > RAM AT > FLASH
  link_data_source = LOADADDR(.data);
  .bss (NOLOAD) : ALIGN(8) {{
    link_bss_start = .;
    *(.bss .bss.* COMMON)
    . = ALIGN(8);
    link_bss_end = .;
  }} > RAM
  link_stack_bottom = link_bss_end;
  link_stack_top = ORIGIN(RAM) + LENGTH(RAM);
  ASSERT(link_stack_bottom + {least_stack} <= link_stack_top, "{no_stack}")
  /DISCARD/ : {{ *(.ARM.attributes.discarded .note.* .comment) }}
}}
"""

# How GNU's linker and LLVM's say that memory is full.
OVERFLOW = re.compile(r"region .(FLASH|RAM).:? overflowed by (\d+) bytes")
NO_STACK = "no RAM is left for the stack"

BOARD_HEADER = """\
/* The board that this project is for. */
#ifndef BOARD_H_
#define BOARD_H_

#define BOARD_UART_ADDRESS {address:#x}u
#define BOARD_UART_CLOCK {clock}u
#define BOARD_UART_BAUD {baud}u

#endif /* BOARD_H_ */
"""


MAKEFILE = """\
# Builds the program without Python: make; make run shows it in QEMU, make clean removes it.

CC = {compiler}
FLAGS = {flags}
SOURCES = $(shell find src -name '*.c')

build/program.elf: $(SOURCES) $(shell find src -name '*.h') link.ld
\tmkdir -p build
\t$(CC) $(FLAGS) $(SOURCES) {libraries} -Tlink.ld -o $@

.PHONY: run clean
run: build/program.elf
\tqemu-system-arm -M {machine} -display none -monitor none -serial stdio \\
\t  -semihosting-config enable=on,target=native -kernel $<

clean:
\trm -rf build
"""


class BareMetalHandler(FirmwareHandler):
    """The template baremetal, and projects made of it."""

    platform = "baremetal"

    def known_boards(self) -> dict[str, Board]:
        """Those of boards.json."""
        return load_boards(self.folder)

    def known_options(self) -> list[ProjectOption]:
        """Those of all platforms, which compiler to use, and where a real board is."""
        return [
            *common_options(self.known_boards()),
            ProjectOption(
                "toolchain", "the compiler: gcc is arm-none-eabi-gcc, zig is PyPI's ziglang; the "
                "one that is there, if not given",
                choices=list(arm.TOOLCHAINS), optional=[BUILD],
            ),
            ProjectOption(
                "goal", "how much longer code may become to be faster",
                default=arm.BALANCED, choices=list(arm.GOALS), optional=[GENERATE, BUILD],
            ),
            ProjectOption(
                "port", "the serial port of a real board, such as /dev/ttyACM0; else QEMU stands "
                "for the board", optional=[FLASH, OPEN],
            ),
            ProjectOption(
                "flash_command", "what loads the program into a real board, as words; PROGRAM "
                "stands for its file", "list", [], optional=[FLASH],
            ),
        ]

    def fill(self, project: Project) -> None:
        """Start-up code, linker script, the board's UART, and functions for bare compilers."""
        board = self.known_boards()[str(project.board)]
        uart = board.more["uart"]
        sources = [*FILES, f"uart_{uart['kind']}.c"]
        self.copy(project, [f"src/{name}" for name in sources])
        self.copy(project, ["boards.json", "libc/math.c", "libc/math.h", "libc/string.h"])
        header = BOARD_HEADER.format(address=int(uart["address"], 0), clock=uart["clock"],
                                     baud=BAUD)
        (project.sources / "board.h").write_text(header)
        script = LINKER_SCRIPT.format(
            board=board.name, flash=board.flash, ram=board.ram, least_stack=LEAST_STACK,
            no_stack=NO_STACK,            flash_origin=int(board.more["flash_origin"], 0),
            ram_origin=int(board.more["ram_origin"], 0),
        )
        (project.folder / "link.ld").write_text(script)
        compiler, *flags = arm.compile_command(
            arm.GCC, board.cpu, "libc", str(project.options["goal"])
        )
        makefile = MAKEFILE.format(
            compiler=compiler, machine=board.more.get("qemu", "none"),
            flags=shlex.join([*flags, "-Isrc", *compiler_flags(project.options)]),
            libraries=" ".join(arm.libraries(arm.GCC)),
        )
        (project.folder / "Makefile").write_text(makefile)

    def compile(self, project: Project, options: dict[str, Any]) -> None:
        """One command makes the program."""
        board = self.known_boards()[str(project.board)]
        toolchain = arm.choose_toolchain(options["toolchain"])
        command = [
            *arm.compile_command(toolchain, board.cpu, "libc", options["goal"]), "-Isrc",
            *compiler_flags(options), *project.source_files(), *arm.libraries(toolchain),
            "-Tlink.ld", "-o", PROGRAM,
        ]
        try:
            run_tool(command, project.folder, options["verbose"])
        except CompileError as error:
            _check_overflow(board, str(error))
            raise

    def load(self, project: Project, options: dict[str, Any]) -> None:
        """A real board's own command; QEMU loads the program when it starts."""
        program = project.built(PROGRAM)
        words = [str(program) if word == "PROGRAM" else str(word)
                 for word in options["flash_command"]]
        if words:
            run_tool([require_tool(words[0], "it is the first word of flash_command"), *words[1:]],
                     project.folder, options["verbose"])
        elif options["port"] is not None:
            raise ValueError(
                "a real board is loaded by its own programmer: name it with the option "
                'flash_command, such as ["openocd", "-f", "board.cfg", "-c", "program PROGRAM"]'
            )

    def connect(self, project: Project, options: dict[str, Any]) -> Stream:
        """The port of a real board, or QEMU: its semihosting, or its UART if the host drives."""
        if options["port"] is not None:
            return TtyStream(options["port"], BAUD)
        program = project.built(PROGRAM)
        board = self.known_boards()[str(project.board)]
        machine = board.more.get("qemu")
        if machine is None:
            raise ValueError(f"QEMU has no {board.name}; name the board's port with option port")
        console, serial = "chardev=host", "null"
        if project.project_type != EXAMPLE:
            console, serial = "target=native", "chardev:host"
        return ProcessStream(
            [require_tool("qemu-system-arm", QEMU), "-M", machine, "-display", "none",
             "-monitor", "none", "-chardev", "stdio,id=host,signal=off", "-serial", serial,
             "-semihosting-config", f"enable=on,{console}", "-kernel", str(program)],
            project.folder,
        )


def _check_overflow(board: Board, words: str) -> None:
    """Refuse the board if the linker found no room."""
    more = {"FLASH": 0, "RAM": 0}
    for region, size in OVERFLOW.findall(words):
        more[region] = max(more[region], int(size))
    if any(more.values()):
        check_room(
            board, board.flash + more["FLASH"], board.ram + more["RAM"], "the program at least"
        )
    if NO_STACK in words:
        check_room(board, 0, board.ram + 1, f"the program with {LEAST_STACK} bytes of stack")


def can_emulate() -> bool:
    """Whether QEMU is there to stand for a board."""
    with contextlib.suppress(MissingToolError):
        return bool(require_tool("qemu-system-arm", QEMU))
    return False
