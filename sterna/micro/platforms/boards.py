"""Boards, from a platform's boards.json: processor, memory, and what else its templates need."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


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
    }  # fmt: skip
