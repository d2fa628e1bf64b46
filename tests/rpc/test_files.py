"""The folder of a session, alone."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.rpc.files import SessionFolder, split_name


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SessionFolder]:
    made = tmp_path / "session"
    made.mkdir()
    yield SessionFolder(1 << 20, str(made))


@given(st.text(max_size=12) | st.text("./\\:ab\0", max_size=8))
def test_a_name_is_refused_or_stays_inside(name: str) -> None:
    try:
        parts = split_name(name)
    except ValueError:
        return
    inside = os.path.normpath(os.path.join("/folder", *parts))
    assert inside.startswith("/folder/") and len(parts) == inside.count("/") - 1


def test_a_full_disk_leaves_no_file_and_is_told_by_name(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a", 0, b"first", False)

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device: uploading 'a'") as caught:
        folder.write("a", 5, b"second", True)
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(folder.path) == []


def test_pieces_follow_each_other(folder: SessionFolder) -> None:
    folder.write("a", 0, b"one", False)
    assert folder.names_in("") == []
    with pytest.raises(ValueError, match="does not follow 3"):
        folder.write("a", 7, b"two", True)
    with pytest.raises(FileNotFoundError):
        folder.write("a", 3, b"two", True)
    folder.write("a", 0, b"one", False)
    folder.write("a", 3, b"two", True)
    assert folder.names_in("") == ["a"] and folder.read("a", 0, 100) == b"onetwo"
    assert folder.read("a", 4, 1) == b"w" and folder.read("a", 10, 5) == b""
    with pytest.raises(ValueError, match="no -1 bytes at 0"):
        folder.read("a", 0, -1)


def test_what_is_no_plain_file_is_refused(folder: SessionFolder) -> None:
    os.mkfifo(folder.path / "pipe")
    (folder.path / "sub").mkdir()
    for name in ("pipe", "sub"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            folder.read(name, 0, 1)
    with pytest.raises(TypeError, match="named by text, not by int"):
        folder.read(3, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="no folder 'none'"):
        folder.names_in("none")
    with pytest.raises(FileNotFoundError, match="no file 'none'"):
        folder.remove("none")
