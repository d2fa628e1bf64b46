"""One wording for a name that is not known."""

import difflib
from collections.abc import Iterable


def unknown(name: str, known: Iterable[str], where: str) -> ValueError:
    """The error for a name; it lists the nearest names that exist, or all when they are few."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=8, cutoff=0.5)
    if not near:
        near = names if len(names) <= 64 else [*names[:12], f"... ({len(names)} in all)"]
    return ValueError(f"Cannot recognize '{name}'. Candidates are: {', '.join(near)}. {where}")
