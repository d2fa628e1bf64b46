"""Archives of files, which are the same bytes for the same files."""

import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sterna.support.plain_tar import extract, files_in, open_plain_tar
from sterna.support.write_aside import write_aside

StrPath = str | os.PathLike[str]


def tar(output: StrPath, files: StrPath | Sequence[StrPath]) -> None:
    """Write an archive of files, each by its name without a folder."""
    listed = [files] if isinstance(files, str | os.PathLike) else list(files)
    names = [Path(file).name for file in listed]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two of the files of {output} are named {min(twice)}; rename one")
    write_aside(Path(output), lambda aside: _pack(aside, dict(zip(names, listed, strict=True))))


def _pack(output: Path, files: Mapping[str, StrPath]) -> None:
    with tarfile.open(output, "w") as archive:
        for name, file in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = Path(file).stat().st_size, 0o644
            with open(file, "rb") as content:
                archive.addfile(info, content)


tar.output_format = "tar"  # type: ignore[attr-defined]


def untar(tar_file: StrPath, directory: StrPath) -> None:
    """Take the plain files of an archive out into a folder, none of them anywhere else."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with open_plain_tar(Path(tar_file)) as archive:
        for name, info in files_in(archive).items():
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ValueError(f"{tar_file} has a file '{name}', which lies outside of a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            extract(archive, info, path)
