"""Errors of files that are written aside name the file that was asked for."""

import errno
import os
import threading
from pathlib import Path

import pytest

from sterna.support.write_aside import umask, write_aside, write_text_aside


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


def test_devices_and_pipes_are_written_to_and_stay(tmp_path: Path) -> None:
    write_text_aside(os.devnull, "terns")
    assert Path(os.devnull).is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_text_aside(pipe, "terns")
    reader.join()
    assert got == ["terns"] and pipe.is_fifo()


def test_a_file_has_the_permissions_that_the_user_gives(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text_aside(tmp_path / "records", "terns")
        assert umask() == 0o077
    finally:
        os.umask(before)
    assert (tmp_path / "records").stat().st_mode & 0o777 == 0o600
