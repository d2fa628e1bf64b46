"""Boards, from a platform's boards.json: processor, memory, and what else its templates need."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
WITH_BOARDS = ("baremetal", "zephyr", "arduino")
"""The platforms that have boards; one that several have is taken from the first."""


class BoardTooSmallError(ValueError):
    """A program takes more memory than the board has."""


@dataclass(frozen=True, slots=True)
class Board:
    """A board. flash and ram are bytes; more holds what only its platform knows."""

    name: str
    cpu: str
    flash: int
    ram: int
    more: Mapping[str, Any]


def load_boards(folder: Path) -> dict[str, Board]:
    """The boards of a template, by name."""
    known = ("cpu", "flash", "ram")
    listed = json.loads((folder / "boards.json").read_text("utf-8"))
    return {
        name: Board(
            name, row["cpu"], row["flash"], row["ram"],
            MappingProxyType({key: row[key] for key in row if key not in known}),
        )
        for name, row in sorted(listed.items())
    }


def find_board(name: str, platform: str | None = None) -> tuple[str, Board]:
    """A board by its name, and the platform that it is built for."""
    known = {p: load_boards(TEMPLATES / p) for p in WITH_BOARDS if platform in (None, p)}
    for found, boards in known.items():
        if name in boards:
            return found, boards[name]
    near = difflib.get_close_matches(name, [n for boards in known.values() for n in boards], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    listed = "; ".join(f"{p}: {', '.join(boards)}" for p, boards in known.items())
    raise ValueError(f"there is no board '{name}'; {hint}there are, {listed}")


def check_room(board: Board, flash: int, ram: int, what: str) -> None:
    """Refuse what a board has no memory for."""
    for kind, needed, there in (("flash", flash, board.flash), ("RAM", ram, board.ram)):
        if needed > there:
            raise BoardTooSmallError(
                f"{board.name} is too small: {what} needs {needed} bytes of {kind}, and it has "
                f"{there}"
            )
