"""Files that are whole or not there at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_aside(path: Path, fill: Callable[[Path], object]) -> None:
    """Fill a file aside and move it into place, so that nobody sees half of it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    aside = Path(name)
    try:
        fill(aside)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
