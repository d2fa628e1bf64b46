"""The cache on disk believes nothing that somebody else may have put there."""

import os
import random
import stat
from pathlib import Path

import pytest

from sterna.support import cache_folder
from sterna.support.cache import Cache


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a place for the user's key."""
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache" / "here"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(cache_folder, "_said", set())
    return tmp_path / "cache" / "here"


def entry_of(root: Path) -> Path:
    """The file of the only entry."""
    (found,) = [path for path in root.rglob("*") if not path.is_dir()]
    return found


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_all(root: Path) -> None:
    """A folder that all users share."""
    root.mkdir(parents=True)
    root.chmod(0o1777)


def become(user: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Be somebody else, who owns no file here yet and has a key of his own."""
    monkeypatch.setattr(cache_folder, "_user", lambda: user)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / f"config of {user}"))


def test_folders_are_for_their_user_alone(root: Path) -> None:
    before = os.umask(0)
    try:
        Cache("kernels").put("key", b"value")
    finally:
        os.umask(before)
    assert bytes(Cache("kernels").get("key") or b"") == b"value"
    assert mode_of(root.parent) == mode_of(root) == mode_of(root / "kernels") == 0o700
    assert mode_of(entry_of(root)) == 0o600 and mode_of(entry_of(root).parent) == 0o700


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "socket", "device"])
def test_what_is_no_file_is_no_entry(root: Path, tmp_path: Path, kind: str) -> None:
    Cache("kernels").put("key", b"value")
    entry = entry_of(root)
    content = entry.read_bytes()
    entry.unlink()
    if kind == "fifo":
        os.mkfifo(entry)
    elif kind == "folder":
        entry.mkdir()
    elif kind == "device":
        entry.symlink_to("/dev/zero")
    elif kind == "socket":
        os.mknod(entry, stat.S_IFSOCK | 0o600)
    else:
        (tmp_path / "elsewhere").write_bytes(content)
        entry.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert Cache("kernels").get("key") is None
    if kind != "folder":
        Cache("kernels").put("key", b"value")
        assert bytes(Cache("kernels").get("key") or b"") == b"value"


def test_a_body_of_another_entry_is_a_miss(root: Path) -> None:
    cache = Cache("kernels")
    cache.put("one", b"1" * 100)
    one = entry_of(root).read_bytes()
    entry_of(root).unlink()
    cache.put("two", b"2" * 100)
    two = entry_of(root)
    two.write_bytes(two.read_bytes()[:-132] + one[-132:])  # with the digest that it had there
    with pytest.warns(RuntimeWarning, match="damaged, or another user's"):
        assert cache.get("two") is None
    two.write_bytes(one)
    assert cache.get("two") is None


def test_a_body_that_cannot_be_read_is_a_miss() -> None:
    cache = Cache("kernels")
    cache.put("key", b"no number")
    with pytest.warns(RuntimeWarning, match="holds something else .*ValueError"):
        assert cache.read("key", lambda body: int(bytes(body))) is None


@pytest.mark.filterwarnings("ignore:the cache's entry")
def test_no_change_of_an_entry_is_believed(root: Path) -> None:
    cache, chance = Cache("kernels"), random.Random(0)
    cache.put("key", b"value" * 20)
    entry = entry_of(root)
    whole = entry.read_bytes()
    for _ in range(300):
        content = bytearray(whole)
        at = chance.randrange(len(content))
        what = chance.randrange(3)
        if what == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del content[at:]
        else:
            content[at:at] = chance.randbytes(chance.randrange(1, 40))
        entry.write_bytes(content)
        assert cache.get("key") is None


def test_an_entry_larger_than_the_cache_is_not_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache("kernels").put("key", b"value")
    with open(entry_of(root), "ab") as file:
        file.truncate(1 << 40)
    with pytest.warns(RuntimeWarning, match="more than the whole cache"):
        assert Cache("kernels").get("key") is None


# ---- folders of several users ----


def test_users_of_one_folder_do_not_see_each_other(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all(root)
    mine = Cache("kernels")
    mine.put("key", b"mine")
    assert bytes(Cache("kernels").get("key") or b"") == b"mine"
    assert f"user-{os.geteuid()}" in entry_of(root).parts
    key = tmp_path / "config" / "sterna" / "cache.key"
    assert mode_of(key) == 0o600 and len(key.read_bytes()) == 32


def test_entries_of_another_user_are_not_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all(root)
    Cache("kernels").put("key", b"planted")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another's"))  # with another key
    with pytest.warns(RuntimeWarning, match="another user's work"):
        assert Cache("kernels").get("key") is None


def test_plain_digests_do_not_count_where_others_write(root: Path) -> None:
    Cache("kernels").put("key", b"planted")
    planted = entry_of(root).read_bytes()
    root.chmod(0o777)
    cache = Cache("kernels")
    assert cache.get("key") is None
    cache.put("key", b"mine")
    (mine,) = [p for p in (root / "kernels").glob("user-*/*/*") if p.is_file()]
    mine.write_bytes(planted)
    with pytest.warns(RuntimeWarning, match="another user's work"):
        assert cache.get("key") is None


def test_a_folder_of_another_user_is_not_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache("kernels").put("key", b"theirs")
    become(os.geteuid() + 1, monkeypatch, tmp_path)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        cache = Cache("kernels")
    assert cache.folder is None and cache.get("key") is None
    cache.put("key", b"mine")
    cache.trim()


@pytest.mark.parametrize("fault", ["open", "short", "link", "folder"])
def test_a_key_that_others_may_know_is_not_used(root: Path, tmp_path: Path, fault: str) -> None:
    open_to_all(root)
    key = tmp_path / "config" / "sterna" / "cache.key"
    key.parent.mkdir(parents=True)
    if fault == "folder":
        key.mkdir()
    elif fault == "link":
        (tmp_path / "real").write_bytes(bytes(32))
        key.symlink_to(tmp_path / "real")
    else:
        key.write_bytes(bytes(32 if fault == "open" else 5))
        key.chmod(0o644 if fault == "open" else 0o600)
    with pytest.warns(RuntimeWarning, match="nothing is cached"):
        assert Cache("kernels").folder is None


def test_a_file_in_place_of_the_folder_is_said(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "kernels").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="is no folder"):
        assert Cache("kernels").folder is None
