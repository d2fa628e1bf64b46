"""How rows of an image and blocks of its channels are shared among threads."""

from dataclasses import dataclass

from sterna.schedule.choose import choose

# What a piece of work costs before its first row, in rows.
START = 0.05
# Pieces of a thread's work, of which others take some when they are done before it.
PIECES = 4


@dataclass(frozen=True, slots=True)
class Share:
    """A piece of work: some rows, and all blocks of channels or a part of them."""

    rows: int
    groups: int = 1
    """Into how many parts the blocks are cut."""

    def __str__(self) -> str:
        """7 rows, channels in 2 parts"""
        parts = f", channels in {self.groups} parts" if self.groups > 1 else ""
        return f"{self.rows} rows{parts}"


@dataclass(frozen=True, slots=True)
class RowCosts:
    """What rows cost beside computing them, in rows that are computed."""

    shared: float = 0.0
    """The rows that a piece reads and its neighbour too."""
    fetched: float = 0.0
    """A row that another thread has written, where each has written a part of all rows."""


FREE = RowCosts()


def share_rows(
    height: int, images: int, blocks: int, threads: int, most: int, cut_blocks: bool,
    costs: RowCosts = FREE,
) -> Share:
    """Pieces with which the last thread ends soonest; among equals those with the most rows.

    most: pieces of more rows leave the inner cache, and twice as many is too much. cut_blocks:
    pieces that compute a part of the channels do no work twice.
    """
    rows = range(1, min(height, 2 * most if threads > 1 else most) + 1)
    parts = [n for n in range(1, blocks + 1) if blocks % n == 0] if cut_blocks else [1]
    found = [Share(row, groups) for groups in parts for row in reversed(rows)]
    return choose("share", found, lambda share: _end(share, height, images, threads, costs))


def cut_finer(share: Share, bands: int, blocks: int, threads: int) -> Share:
    """The same rows in so many pieces that a thread that is done finds some of another's.

    Pieces keep two blocks at the least: with one the weights of the next come closer.
    """
    wanted = PIECES * threads if threads > 1 else 1
    parts = [n for n in range(share.groups, blocks // 2 + 1) if blocks % n == n % share.groups == 0]
    found = [Share(share.rows, n) for n in parts or [share.groups]]
    return choose("pieces", found, lambda s: _imbalance(bands * s.groups, wanted))


def _imbalance(pieces: int, wanted: int) -> int:
    """Pieces that are missing weigh more than those that are too many."""
    return pieces - wanted if pieces >= wanted else (wanted - pieces) << 20


def _end(share: Share, height: int, images: int, threads: int, costs: RowCosts = FREE) -> float:
    """When the last thread ends, in rows of all channels."""
    bands = images * -(-height // share.rows)
    turns = -(-bands * share.groups // threads)
    foreign = max(0.0, 1 - bands / threads)
    row = (1 + costs.fetched * foreign) / share.groups
    return turns * (row * (share.rows + costs.shared) + START)


def row_groups(height: int, pieces: int, threads: int) -> int:
    """Rows that each of so many pieces is cut into: all, or fewer if threads would wait."""
    shares = [Share(rows) for rows in range(height, 0, -1)]
    return choose("rows", shares, lambda share: _end(share, height, pieces, threads)).rows
