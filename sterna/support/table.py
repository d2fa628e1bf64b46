"""Tables as plain text."""

from collections.abc import Sequence


def lay_out(
    columns: Sequence[tuple[str, Sequence[str]]], total: dict[str, str] | None = None
) -> str:
    """Columns with a rule under their titles and, if there is a total, a last row."""
    padded = []
    for title, values in columns:
        last = [] if total is None else [total.get(title, "")]
        cells = [title, "-" * len(title), *values, *last]
        width = max(map(len, cells))
        padded.append([cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))


def count(number: int, what: str) -> str:
    """1 kernel, 2 kernels"""
    return f"{number} {what}{'' if number == 1 else 's'}"


def show_bytes(size: float) -> str:
    """A size for people: 44.6 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def show_seconds(seconds: float) -> str:
    """A time for people: 3.2 ms."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds * 1e6:.3g} us"
