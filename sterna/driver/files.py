"""Objects and archives from sources: the same bytes for the same input."""

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from sterna.support import toolchain


def as_objects(files: Sequence[Path], folder: Path, cc: str | None) -> list[Path]:
    """Sources and objects, with the C sources compiled."""
    done = []
    for path in files:
        if path.suffix == ".c":
            made = folder / f"{path.stem}.o"
            toolchain.compile_object(made, path, cc=cc)
            path = made
        done.append(path)
    return done


def write_object(output: Path, files: Sequence[Path], folder: Path, cc: str | None) -> None:
    """One object file from sources and objects."""
    objects = as_objects(files, folder, cc)
    if len(objects) == 1:
        shutil.copyfile(objects[0], output)
    else:
        toolchain.link_relocatable(output, objects, cc)


def plain_member(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member of a tar that tells nothing of the machine and the hour that it was made at."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() else 0o644
    return info


def pack(output: Path, members: Sequence[Path]) -> None:
    """A tar whose bytes depend on nothing but its members."""
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member in members:
            archive.add(member, member.name, filter=plain_member)
