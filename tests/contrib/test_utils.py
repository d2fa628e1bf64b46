"""Folders for a while."""

from pathlib import Path

import pytest

from sterna.contrib import utils


def test_a_folder_lasts_as_long_as_it_is_used() -> None:
    folder = utils.tempdir()
    path = Path(folder.relpath("a.txt"))
    path.write_text("text")
    assert folder.listdir() == ["a.txt"] and folder / "a.txt" == path
    folder.remove()
    assert not folder.path.exists()
    folder = utils.tempdir()
    path = folder.path
    del folder
    assert not path.exists()
    file = utils.tempdir().relpath("b.txt")
    Path(file).write_text("a path of it is a use")
    folder_of_file = Path(file).parent
    del file
    assert not folder_of_file.exists()


def test_a_block_removes_its_folder_and_one_may_be_kept(tmp_path: Path) -> None:
    with utils.tempdir(tmp_path / "a" / "b") as folder:
        assert folder.path == tmp_path / "a" / "b" and folder.path.is_dir()
    assert not folder.path.exists()
    kept = utils.tempdir(tmp_path / "kept", keep_for_debug=True)
    del kept
    assert (tmp_path / "kept").is_dir()
    with pytest.raises(FileExistsError, match="kept"):
        utils.tempdir(tmp_path / "kept")
