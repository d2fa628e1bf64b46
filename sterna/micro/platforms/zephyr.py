"""Zephyr's boards: an application that west builds, flashes and emulates."""

import shutil
from typing import Any

from sterna.micro.platforms.boards import Board, load_boards
from sterna.micro.platforms.handler import FirmwareHandler, Project, compiler_flags
from sterna.micro.platforms.options import common_options
from sterna.micro.platforms.streams import ProcessStream, Stream, TtyStream
from sterna.micro.platforms.tools import require_tool, run_tool
from sterna.micro.project_api.server import BUILD, FLASH, GENERATE, OPEN, ProjectOption

BAUD = 115200
WEST = (
    "pip install west, and set Zephyr up (docs.zephyrproject.org, Getting Started), or name it "
    "with the option west_cmd"
)

SETTINGS = """\
CONFIG_MAIN_STACK_SIZE={stack}
CONFIG_REQUIRES_FULL_LIBC=y
CONFIG_SERIAL=y
CONFIG_CONSOLE=y
CONFIG_UART_CONSOLE=y
CONFIG_PRINTK=y
CONFIG_INIT_STACKS=y
CONFIG_THREAD_STACK_INFO=y
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.20.0)
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project({name} C)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/*.c)
target_sources(app PRIVATE ${{sources}})
target_include_directories(app PRIVATE src)
target_compile_options(app PRIVATE -O2{flags})
"""


class ZephyrHandler(FirmwareHandler):
    """The template zephyr, and projects made of it."""

    platform = "zephyr"

    def known_boards(self) -> dict[str, Board]:
        """Those of boards.json."""
        return load_boards(self.folder)

    def known_options(self) -> list[ProjectOption]:
        """Those of all platforms, west, the stack's size, and where a real board is."""
        return [
            *common_options(self.known_boards()),
            ProjectOption(
                "west_cmd", "Zephyr's tool", default="west", optional=[BUILD, FLASH, OPEN]
            ),
            ProjectOption(
                "config_main_stack_size", "bytes of stack for the main thread", "int", 8192,
                optional=[GENERATE],
            ),
            ProjectOption(
                "port", "the serial port of a real board, such as /dev/ttyACM0", optional=[OPEN]
            ),
        ]

    def fill(self, project: Project) -> None:
        """An application of Zephyr's kind."""
        self.copy(project, ["boards.json", "src/main.c"])
        board = self._board(project)
        settings = SETTINGS.format(stack=project.options["config_main_stack_size"])
        settings += "CONFIG_FPU=y\n" if board.more["fpu"] else ""
        (project.folder / "prj.conf").write_text(settings)
        flags = "".join(f' "{flag}"' for flag in compiler_flags(project.options))
        text = CMAKE.format(name=f"sterna_{project.network.name}", flags=flags)
        (project.folder / "CMakeLists.txt").write_text(text)

    def compile(self, project: Project, options: dict[str, Any]) -> None:
        """Let west build it."""
        shutil.rmtree(project.build_folder)
        run_tool(
            [self._west(options), "build", "-b", self._board(project).more["west"], "-d", "build",
             "."],
            project.folder, options["verbose"],
        )

    def load(self, project: Project, options: dict[str, Any]) -> None:
        """Let west flash it; an emulator loads the program when it starts."""
        west = self._west(options)
        project.built("build/zephyr/zephyr.elf")
        if not self._board(project).more["emulated"]:
            run_tool([west, "flash", "-d", "build"], project.folder, options["verbose"])

    def connect(self, project: Project, options: dict[str, Any]) -> Stream:
        """A real board's port, or the emulator that west starts."""
        if options["port"] is not None:
            return TtyStream(options["port"], BAUD)
        if not self._board(project).more["emulated"]:
            raise ValueError(
                f"{project.board} is a real board: name its serial port with the option port"
            )
        project.built("build/zephyr/zephyr.elf")
        return ProcessStream([self._west(options), "build", "-d", "build", "-t", "run"],
                             project.folder)

    def _board(self, project: Project) -> Board:
        return self.known_boards()[str(project.board)]

    def _west(self, options: dict[str, Any]) -> str:
        return require_tool(options["west_cmd"], WEST)
