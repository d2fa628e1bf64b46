"""The parts that the RPC server in C stands on, each alone: hashes, files, archives, streams."""

import ctypes
import hashlib
import hmac
import io
import itertools
import os
import socket
import struct
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.contrib import cc
from sterna.support import native
from sterna.support.dtype import DataType
from sterna.testing.fuzz import wire
from tests.support import ROOT, require_program

SOURCES = ROOT / "runtime" / "rpc"
SHARED = ROOT / "runtime" / "src"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


class Bytes(ctypes.Structure):
    """sterna_bytes"""

    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


class Workspace(ctypes.Structure):
    """workspace"""

    _fields_ = (
        ("folder", ctypes.c_int),
        ("parts", ctypes.c_int),
        ("path", ctypes.c_char * 1024),
    )


class Stream(ctypes.Structure):
    """stream"""

    _fields_ = (
        ("input", ctypes.c_int),
        ("output", ctypes.c_int),
        ("deadline", ctypes.c_uint64),
    )


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All of the server but its main, as a library."""
    gcc = require_program("gcc")
    path = tmp_path_factory.mktemp("parts") / "parts.so"
    own = [p for p in sorted(SOURCES.glob("*.c")) if p.stem != "main"]
    sources = [SHARED / "sha256.c", *own]
    options = [*WARNINGS, f"-I{SHARED}", "-lpthread", "-ldl"]
    cc.create_shared(path, [*sources, native.runtime_source()], options, cc=gcc)
    library = ctypes.CDLL(str(path))
    library.sterna_last_error.restype = ctypes.c_char_p
    library.sterna_last_error_kind.restype = ctypes.c_char_p
    library.clock_after.restype = ctypes.c_uint64
    library.clock_after.argtypes = [ctypes.c_double]
    return library


def check(parts: Any, failed: int) -> None:
    """Raises what the library says."""
    if failed:
        kind, text = parts.sterna_last_error_kind().decode(), parts.sterna_last_error().decode()
        raise RuntimeError(f"{kind}: {text}")


# ---- hashes ----


@given(pieces=st.lists(st.binary(max_size=150), max_size=6))
@settings(max_examples=100)
def test_sha256_is_hashlibs(parts: Any, pieces: list[bytes]) -> None:
    state, out = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    parts.sha256_begin(state)
    for piece in pieces:
        parts.sha256_add(state, piece, ctypes.c_size_t(len(piece)))
    parts.sha256_end(state, out)
    assert out.raw == hashlib.sha256(b"".join(pieces)).digest()


@given(key=st.binary(max_size=200), pieces=st.lists(st.binary(max_size=150), max_size=4))
@settings(max_examples=100)
def test_hmac_is_hmacs(parts: Any, key: bytes, pieces: list[bytes]) -> None:
    state, out = ctypes.create_string_buffer(512), ctypes.create_string_buffer(32)
    parts.hmac_begin(state, key, ctypes.c_size_t(len(key)))
    for piece in pieces:
        parts.hmac_add(state, piece, ctypes.c_size_t(len(piece)))
    parts.hmac_end(state, out)
    assert out.raw == hmac.digest(key, b"".join(pieces), "sha256")


def test_secrets_are_compared_whole(parts: Any) -> None:
    secret = os.urandom(32)
    assert parts.secret_equal(secret, bytes(secret), ctypes.c_size_t(32)) == 1
    for at in range(32):
        other = bytearray(secret)
        other[at] ^= 1
        assert parts.secret_equal(secret, bytes(other), ctypes.c_size_t(32)) == 0


def test_random_bytes_differ(parts: Any) -> None:
    seen = set()
    for _ in range(50):
        buffer = ctypes.create_string_buffer(16)
        check(parts, parts.random_bytes(buffer, ctypes.c_size_t(16)))
        seen.add(buffer.raw)
    assert len(seen) == 50


# ---- the session's folder ----


@pytest.fixture
def folder(parts: Any) -> Iterator[tuple[Workspace, Path]]:
    """A session's folder and its path."""
    made = Workspace()
    check(parts, parts.workspace_create(ctypes.byref(made)))
    path = Path(os.fsdecode(made.path))
    yield made, path / "files"
    parts.workspace_remove(ctypes.byref(made))
    assert not path.exists()


def text(name: str | bytes) -> Bytes:
    data = name.encode() if isinstance(name, str) else name
    return Bytes(data, len(data))


def write(parts: Any, made: Workspace, name: str | bytes, data: bytes) -> None:
    number = ctypes.c_int()
    check(parts, parts.workspace_begin_part(ctypes.byref(made), 3, ctypes.byref(number)))
    os.write(number.value, data)
    os.close(number.value)
    check(parts, parts.workspace_name_part(ctypes.byref(made), 3, text(name)))


def read(parts: Any, made: Workspace, name: str) -> bytes:
    number, size = ctypes.c_int(), ctypes.c_uint64()
    where = (ctypes.byref(made), text(name), ctypes.byref(size), ctypes.byref(number))
    check(parts, parts.workspace_open(*where))
    with open(number.value, "rb") as file:
        content = file.read()
    assert len(content) == size.value
    return content


def test_files_go_into_the_folder(parts: Any, folder: tuple[Workspace, Path]) -> None:
    made, path = folder
    write(parts, made, "model.so", b"one")
    write(parts, made, "model.so", b"other")
    write(parts, made, "deep/er/params.bin", bytes(100_000))
    assert (path / "model.so").read_bytes() == b"other" == read(parts, made, "model.so")
    assert (path / "deep" / "er" / "params.bin").stat().st_size == 100_000
    room = ctypes.create_string_buffer(2048)
    size = ctypes.c_size_t(2048)
    check(parts, parts.workspace_path(ctypes.byref(made), text("model.so"), room, size))
    assert Path(os.fsdecode(room.value)) == path / "model.so"
    check(parts, parts.workspace_delete(ctypes.byref(made), text("deep")))
    assert os.listdir(path) == ["model.so"]
    with pytest.raises(RuntimeError, match="FileNotFoundError: the file 'gone'"):
        check(parts, parts.workspace_delete(ctypes.byref(made), text("gone")))


@pytest.mark.parametrize(
    "name,reason",
    [
        ("", "is empty"),
        ("/etc/passwd", "is absolute"),
        ("..", r"'\.\.'"),
        ("a/../../b", r"'\.\.'"),
        (".", "the session's folder itself"),
        ("a\\b", "is one of Windows"),
        ("c:a", "is one of Windows"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a\0b", "holds a zero"),
        ("x" * 600, "too long"),
        ("a/" * 40 + "b", "too deep"),
        ("link", "is a link"),
        ("out/file", "File|directory|link"),
        ("pipe", "no plain file|No such device"),
        ("twin", "a file with other names"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(
    parts: Any, folder: tuple[Workspace, Path], tmp_path: Path, name: str, reason: str
) -> None:
    made, path = folder
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (path / "link").symlink_to(secret)
    (path / "out").symlink_to(tmp_path)
    os.mkfifo(path / "pipe")
    os.link(secret, path / "twin")
    with pytest.raises(RuntimeError, match=reason):
        read(parts, made, name)
    if name not in {"link", "pipe", "twin"}:  # these are replaced, not written through
        with pytest.raises(RuntimeError):
            write(parts, made, name, b"x")
    else:
        write(parts, made, name, b"x")
    assert secret.read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["secret"]


@given(name=st.text(alphabet="ab./\\", max_size=12))
@settings(max_examples=100)
def test_no_name_leads_out(parts: Any, name: str) -> None:
    made = Workspace()
    check(parts, parts.workspace_create(ctypes.byref(made)))
    path = Path(os.fsdecode(made.path))
    beside = set(os.listdir(path.parent))
    kept = [part for part in name.split("/") if part != "."]
    inside = bool(kept) and not {"", ".."} & set(kept) and "\\" not in name
    try:
        write(parts, made, name, b"x")
        assert inside and (path / "files" / name).read_bytes() == b"x"
    except RuntimeError:
        assert not inside
    parts.workspace_remove(ctypes.byref(made))
    left = set(os.listdir(path.parent)) - beside
    assert not path.exists() and not {n for n in left if set(n) <= set("ab./\\")}


# ---- archives ----


def archive(members: dict[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as made:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def find(parts: Any, path: Path, name: bytes) -> tuple[int, int, int]:
    file = os.open(path, os.O_RDONLY)
    offset, size = ctypes.c_uint64(), ctypes.c_uint64()
    found = parts.tar_find(file, name, ctypes.byref(offset), ctypes.byref(size))
    os.close(file)
    return found, offset.value, size.value


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_archives(parts: Any, tmp_path: Path, form: int) -> None:
    long = "long/" * 40 + "name"
    members = {"a.o": b"x" * 700, "lib.so": os.urandom(1000), "empty": b""}
    if form != tarfile.USTAR_FORMAT:
        members = {long: b"1", **members}
    path = tmp_path / "m.tar"
    path.write_bytes(archive(members, form))
    found, offset, size = find(parts, path, b"lib.so")
    assert found == 1
    assert path.read_bytes()[offset : offset + size] == members["lib.so"]
    assert find(parts, path, b"lib")[0] == 0 and find(parts, path, b"empty")[0::2] == (1, 0)


def test_broken_archives_are_refused(parts: Any, tmp_path: Path) -> None:
    whole = archive({"a.o": b"x" * 700, "lib.so": os.urandom(1000)})
    path = tmp_path / "m.tar"
    for left in range(0, 3000, 37):
        path.write_bytes(whole[:left])
        found, offset, size = find(parts, path, b"lib.so")
        assert found == -1 or offset + size <= left
    for at in range(0, 512, 7):
        broken = bytearray(whole)
        broken[at] ^= 0x55
        path.write_bytes(bytes(broken))
        assert find(parts, path, b"lib.so")[0] == -1


# ---- heads of frames ----


@given(data=st.binary(max_size=60))
@settings(max_examples=100)
def test_text_is_checked_as_python_does(parts: Any, data: bytes) -> None:
    try:
        data.decode()
        is_text = True
    except UnicodeDecodeError:
        is_text = False
    assert parts.is_utf8(data, ctypes.c_size_t(len(data))) == is_text


@given(text=st.text(max_size=30))
@settings(max_examples=100)
def test_all_text_is_text(parts: Any, text: str) -> None:
    data = text.encode("utf-8", "ignore")
    assert parts.is_utf8(data, ctypes.c_size_t(len(data))) == 1


@given(data=st.binary(max_size=80))
@settings(max_examples=100)
def test_no_head_is_read_past_its_end(parts: Any, data: bytes) -> None:
    tags = ctypes.create_string_buffer(4)
    parts.check_form.restype = ctypes.c_int64
    count = parts.check_form(data, ctypes.c_size_t(len(data)), tags, 4)
    assert -1 <= count <= len(data)


def test_types_are_those_of_the_server_in_python(parts: Any) -> None:
    parts.check_form.restype = ctypes.c_int64
    tags = ctypes.create_string_buffer(4)
    for code, bits, lanes in itertools.product(range(20), range(256), (0, 1, 4, 65535)):
        body = struct.pack("<BBH", code, bits, lanes)
        array = wire.array(3, (2,))
        heads = [
            b"\x07" + body, wire.listed(b"\x07" + body), array.replace(wire.FLOAT32[1:], body, 1)
        ]
        try:
            DataType.from_parts(code, bits, lanes)
            is_type = True
        except ValueError:
            is_type = False
        for head in heads:
            count = parts.check_form(head, ctypes.c_size_t(len(head)), tags, 4)
            assert count == (1 if is_type else -1), (code, bits, lanes)
        assert not is_type or (bits and lanes)


# ---- streams ----


def opened(parts: Any, end: socket.socket, seconds: float) -> Stream:
    made = Stream()
    number = os.dup(end.fileno())
    check(parts, parts.stream_open(ctypes.byref(made), number, number))
    made.deadline = parts.clock_after(seconds)
    return made


def test_streams_carry_bytes_and_keep_deadlines(parts: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = opened(parts, ours, 0.2)
        theirs.sendall(b"hello")
        buffer = ctypes.create_string_buffer(5)
        check(parts, parts.stream_read(ctypes.byref(stream), buffer, ctypes.c_size_t(5)))
        assert buffer.raw == b"hello"
        theirs.sendall(b"he")
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="TimeoutError"):
            check(parts, parts.stream_read(ctypes.byref(stream), buffer, ctypes.c_size_t(5)))
        assert time.monotonic() - start < 5
        big = bytes(1 << 24)  # more than the system takes without a reader
        with pytest.raises(RuntimeError, match="TimeoutError"):
            check(parts, parts.stream_write(ctypes.byref(stream), big, ctypes.c_size_t(len(big))))
        parts.stream_close(ctypes.byref(stream))


def test_streams_tell_that_the_peer_is_gone(parts: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        stream = opened(parts, ours, 5)
        theirs.close()
        buffer = ctypes.create_string_buffer(5)
        assert parts.stream_wait(ctypes.byref(stream)) == 0
        with pytest.raises(RuntimeError, match="ConnectionError"):
            check(parts, parts.stream_read(ctypes.byref(stream), buffer, ctypes.c_size_t(5)))
        parts.stream_close(ctypes.byref(stream))
