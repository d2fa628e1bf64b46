"""The options that projects of all platforms have."""

from collections.abc import Iterable

from sterna.micro.project_api.server import BUILD, FLASH, GENERATE, OPEN, ProjectOption

EXAMPLE, HOST_DRIVEN = "example_project", "host_driven"
PROJECT_TYPES = (EXAMPLE, HOST_DRIVEN)


def common_options(
    boards: Iterable[str], project_types: Iterable[str] = PROJECT_TYPES
) -> list[ProjectOption]:
    """What every platform takes; project_type and board must be said when a project is made."""
    return [
        ProjectOption(
            "project_type", "what the program does: run once on sample inputs, or obey the host",
            choices=list(project_types), required=[GENERATE],
        ),
        ProjectOption("board", "the board", choices=list(boards), required=[GENERATE]),
        *more_options(),
    ]


def more_options() -> list[ProjectOption]:
    """What every platform takes, and what need not be said."""
    return [
        ProjectOption(
            "verbose", "show the commands that are run", "bool", False,
            optional=[GENERATE, BUILD, FLASH, OPEN],
        ),
        ProjectOption(
            "cmsis_path", "a folder of CMSIS, whose headers extra files may include",
            optional=[GENERATE, BUILD],
        ),
        ProjectOption(
            "warning_as_error", "stop at the compiler's warnings", "bool", False,
            optional=[GENERATE, BUILD],
        ),
        ProjectOption(
            "compile_definitions", "definitions for the compiler, such as -DNAME=1", "list", [],
            optional=[GENERATE, BUILD],
        ),
        ProjectOption(
            "extra_files_tar", "an archive of files that are added to the project's sources",
            optional=[GENERATE],
        ),
        ProjectOption(
            "sample_inputs", "an .npz file with the example's inputs by name; random if not given",
            optional=[GENERATE],
        ),
    ]
