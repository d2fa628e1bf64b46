"""The template crt: the project is a program for this machine, by its own C compiler."""

from typing import Any

from sterna.micro.platforms.boards import Board
from sterna.micro.platforms.handler import FirmwareHandler, Project, compiler_flags
from sterna.micro.platforms.options import HOST_DRIVEN, PROJECT_TYPES, more_options
from sterna.micro.platforms.streams import ProcessStream, Stream
from sterna.micro.platforms.tools import run_tool
from sterna.micro.project_api.server import GENERATE, ProjectOption
from sterna.support.toolchain import MissingToolError, find_c_compiler

PROGRAM = "build/program"


class HostHandler(FirmwareHandler):
    """The template crt, and projects made of it."""

    platform = "crt"

    def known_boards(self) -> dict[str, Board]:
        """None: it is for this machine."""
        return {}

    def known_options(self) -> list[ProjectOption]:
        """Those of all platforms; nothing must be said."""
        kind = ProjectOption(
            "project_type", "what the program does: run once on sample inputs, or obey the host",
            default=HOST_DRIVEN, choices=list(PROJECT_TYPES), optional=[GENERATE],
        )
        return [kind, *more_options()]

    def fill(self, project: Project) -> None:
        """A main program."""
        self.copy(project, ["src/main.c"])

    def compile(self, project: Project, options: dict[str, Any]) -> None:
        """One command makes the program."""
        compiler = find_c_compiler()
        if compiler is None:
            raise MissingToolError(
                "no C compiler was found; install gcc or clang, or: pip install ziglang"
            )
        run_tool(
            [*compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Isrc", *compiler_flags(options),
             *project.source_files(), "-o", PROGRAM, "-lm"],
            project.folder, options["verbose"],
        )

    def load(self, project: Project, options: dict[str, Any]) -> None:
        """Nothing: the program is here."""
        project.built(PROGRAM)

    def connect(self, project: Project, options: dict[str, Any]) -> Stream:
        """The program's standard input and output."""
        return ProcessStream([str(project.built(PROGRAM))], project.folder)
