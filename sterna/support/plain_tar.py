"""Archives of tar that came from elsewhere: plain ones, whose members are in them byte for byte.

What is taken out of them is never larger than they are: they may not be compressed, and members
that stand for more bytes than they have, as links and sparse files do, are none.
"""

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class BrokenTarError(ValueError):
    """A file is no tar archive, not all of one, or a compressed one."""


@contextmanager
def open_plain_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive to read from; what is wrong with it is a BrokenTarError, also in the block."""
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise BrokenTarError(
            f"it is no complete tar file, which may not be compressed ({error})"
        ) from None


def files_in(archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """The plain files of an archive by name; of several with one name the last.

    An archive ends with a block of zeros: one that was cut between two members has none.
    """
    found = {info.name: info for info in archive if info.isreg() and not info.issparse()}
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its end is missing")
    return found


def extract(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    """Write a plain file to a path, piece by piece."""
    file = archive.extractfile(info)
    assert file is not None, info.name
    with open(path, "wb") as output:
        shutil.copyfileobj(file, output, 1 << 20)
        if output.tell() != info.size:
            raise tarfile.ReadError(f"'{info.name}' is cut off")


def content_of(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    """The bytes of a plain file."""
    file = archive.extractfile(info)
    assert file is not None, info.name
    content = file.read()
    if len(content) != info.size:
        raise tarfile.ReadError(f"'{info.name}' is cut off")
    return content
