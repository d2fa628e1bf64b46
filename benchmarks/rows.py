"""Tables of measured things and their bounds, for people and for a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

HEAD = ("what", "measured", "bound", "holds", "beside")


@dataclass(frozen=True)
class Row:
    """One measured thing, its unit, and the least or most it may be."""

    what: str
    value: float
    unit: str
    bound: float
    at_most: bool = False
    beside: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value is within its bound."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def cells(self) -> tuple[str, ...]:
        """The row of a table; what has no bound is only shown."""
        bound = f"{'<=' if self.at_most else '>='} {self.bound:g}"
        judged = (bound, "yes" if self.holds else "NO") if math.isfinite(self.bound) else ("", "")
        return (self.what, f"{self.value:.2f} {self.unit}", *judged, self.beside)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of a page."""
    rows = (head, ["---"] * len(head), *lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def show(title: str, head: Sequence[str], lines: Sequence[Sequence[str]], page: bool) -> None:
    """Print a table, for people or for a page."""
    if page:
        print(markdown(head, lines))
        return
    table = Table(*head, title=title)
    for line in lines:
        table.add_row(*line)
    Console(width=130).print(table)


def show_rows(title: str, rows: Sequence[Row], page: bool) -> int:
    """Print what was measured; 1 if a bound was missed, for the shell."""
    show(title, HEAD, [row.cells() for row in rows], page)
    return 0 if all(row.holds for row in rows) else 1
