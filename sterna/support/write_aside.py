"""Files that are whole or not there at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_aside(path: Path, fill: Callable[[Path], object]) -> None:
    """Fill a file aside and move it into place, so that nobody sees half of it.

    What goes wrong with the file aside is told of the file that was asked for. What is no file,
    such as /dev/stdout or a pipe, is written to when all is there.
    """
    if _is_stream(path):
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, path.name)
            fill(whole)
            with errors_of(path), open(whole, "rb") as source, open(path, "wb") as stream:
                shutil.copyfileobj(source, stream)
        return
    aside = None
    try:
        with errors_of(path):
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            os.close(handle)
            aside = Path(name)
            fill(aside)
            os.chmod(aside, 0o666 & ~umask())
            os.replace(aside, path)
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def write_text_aside(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of text that is whole or not there at all."""
    write_aside(Path(path), lambda aside: aside.write_text(text, "utf-8"))


def umask() -> int:
    """The permissions that files which this process makes are without."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _is_stream(path: Path) -> bool:
    """Whether a path is no file to be replaced: a device, a pipe, what stands for an open file."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")) and path.exists():
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


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
