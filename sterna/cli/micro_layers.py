"""What each kernel of a network takes on a board: instructions, counted by QEMU."""

from collections.abc import Sequence
from typing import Any

from sterna.cli.failures import UsageError
from sterna.cli.micro_memory import names_of
from sterna.cli.pictures import bars
from sterna.driver.aot_factory import AOTProgram
from sterna.micro.firmware import run_counted
from sterna.micro.platforms.boards import Board
from sterna.micro.project import GeneratedProject
from sterna.support.table import lay_out

WIDTH, NAME = 20, 48


def expect_counter(board: Board, can_count: bool) -> None:
    """Refuse boards whose instructions nothing counts."""
    if "clock" not in board.more or not can_count:
        raise UsageError(
            f"--layers: QEMU counts instructions on bare boards with a SysTick that it knows, in "
            f"projects of the type example_project; {board.name} is none, or QEMU is not there"
        )


def count_layers(
    project: GeneratedProject, program: AOTProgram, board: Board, seconds: int
) -> list[dict[str, Any]]:
    """Build the program so that kernels are timed, run it, and build it again as it was."""
    _, counts = run_counted(project, board, seconds)
    project.build()
    return [
        {"kernel": name, "layers": list(layers), "instructions": count}
        for (name, layers), count in zip(program.kernels, counts, strict=True)
    ]


def layers_text(rows: Sequence[dict[str, Any]]) -> str:
    """A table with a bar for each."""
    counts = [row["instructions"] for row in rows]
    names = names_of([(row["kernel"], row["layers"]) for row in rows])
    total = sum(counts)
    return lay_out([
        ("Kernel", [name if len(name) <= NAME else f"{name[: NAME - 3]}..." for name in names]),
        ("Instructions", [f"{count:,}" for count in counts]),
        ("Share", [f"{count / max(total, 1):.1%}" for count in counts]),
        ("", bars(counts, WIDTH)),
    ], {"Kernel": "all", "Instructions": f"{total:,}"})


def used_of(used: int, there: int) -> str:
    """How much of a memory is used, as a bar."""
    filled = min(WIDTH, -(-used * WIDTH // max(there, 1)))
    return f"{'█' * filled}{'░' * (WIDTH - filled)} {used / max(there, 1):.1%} of {there}"
