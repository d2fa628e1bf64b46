"""Files that are whole or not there at all."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_aside(path: Path, fill: Callable[[Path], object]) -> None:
    """Fill a file aside and move it into place, so that nobody sees half of it.

    What goes wrong with the file aside is told of the file that was asked for.
    """
    aside = None
    try:
        with errors_of(path):
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            aside = Path(name)
            fill(aside)
            os.chmod(aside, 0o644)
            os.replace(aside, path)
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Errors that name no file, or one aside (.NAME. and more), name path."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not _is_aside(error.filename, path):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_aside(name: object, path: Path) -> bool:
    """Whether an error names no file, or the one aside."""
    return name is None or (
        isinstance(name, str) and Path(name).parent == path.parent
        and Path(name).name.startswith(f".{path.name}.")
    )
