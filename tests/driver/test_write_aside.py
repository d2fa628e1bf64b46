"""Errors of files that are written aside name the file that was asked for."""

import errno
import os
from pathlib import Path

import pytest

from sterna.support.write_aside import write_aside


def full(_: Path) -> None:
    """What a full disk answers to a write."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_of_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_aside(tmp_path / "model.tar", full)
    assert caught.value.filename == str(tmp_path / "model.tar")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_told_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_aside(tmp_path / "nowhere" / "model.so", lambda place: place.write_bytes(b""))
    assert caught.value.filename == str(tmp_path / "nowhere" / "model.so")


def test_errors_of_other_files_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_aside(tmp_path / "model.so", lambda _: (tmp_path / "weights").read_bytes())
    assert caught.value.filename == str(tmp_path / "weights")
