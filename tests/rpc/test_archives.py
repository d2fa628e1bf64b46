"""Archives that unpack to more than they are: servers and loaders refuse them."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import sterna as tvm
from sterna import rpc
from tests.rpc.support import limited, serving

MOST_FILES = 8 << 20
LARGE = 64 << 20


def archive(size: int = 1000, kind: bytes = tarfile.REGTYPE) -> bytes:
    """An archive of a lib.so of zeros, or of something else with that name."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("lib.so")
        info.size, info.type, info.linkname = size, kind, "lib.so"
        tar.addfile(info, io.BytesIO(bytes(size)) if kind == tarfile.REGTYPE else None)
    return made.getvalue()


def sparse() -> bytes:
    """A lib.so of a terabyte that has no byte in the archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("lib.so")
        info.pax_headers = {
            "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
            "GNU.sparse.size": str(1 << 40), "GNU.sparse.name": "lib.so",
        }
        tar.addfile(info)
    return made.getvalue()


def claims_more() -> bytes:
    """A lib.so that is said to be larger than the archive."""
    content = bytearray(archive())
    content[124:136] = b"77777777777\0"
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


HOSTILE = {
    "gz": gzip.compress(archive(LARGE)),
    "bz2": bz2.compress(archive(LARGE)),
    "xz": lzma.compress(archive(LARGE), preset=0),
    "sparse": sparse(),
    "claims": claims_more(),
    "link": archive(kind=tarfile.LNKTYPE, size=0),
    "symlink": archive(kind=tarfile.SYMTYPE, size=0),
    "folder": archive(kind=tarfile.DIRTYPE, size=0),
    "fifo": archive(kind=tarfile.FIFOTYPE, size=0),
    "device": archive(kind=tarfile.CHRTYPE, size=0),
    "cut off": archive(size=100_000)[:2000],
    "empty": b"",
}


@pytest.fixture(scope="module")
def remote() -> Iterator[rpc.RPCSession]:
    with (
        serving(limits=limited(disk_bytes=MOST_FILES, memory_bytes=8 << 30)) as server,
        server.connect() as session,
    ):
        yield session


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_server_refuses_them(remote: rpc.RPCSession, kind: str) -> None:
    remote.upload(HOSTILE[kind], target="net.tar")
    for use in (remote.load_module, remote.download_linked_module):
        with pytest.raises(ValueError, match=r"net\.tar' ?(holds no|: it )"):
            use("net.tar")
    assert remote.listdir() == ["net.tar"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_loaders_refuse_them(tmp_path: Path, kind: str) -> None:
    (tmp_path / "net.tar").write_bytes(HOSTILE[kind])
    with pytest.raises(ValueError, match=r"cannot load '.*net\.tar': it (is no|holds)"):
        tvm.runtime.load_module(tmp_path / "net.tar")


def test_what_is_unpacked_counts_as_files(remote: rpc.RPCSession) -> None:
    remote.upload(archive(size=MOST_FILES * 5 // 8), target="net.tar")
    for use in (remote.load_module, remote.download_linked_module):
        with pytest.raises(ValueError, match="does not fit"):
            use("net.tar")
    remote.remove("net.tar")


def test_no_change_of_an_archive_makes_it_larger(remote: rpc.RPCSession) -> None:
    choose = random.Random(0)
    whole = [*HOSTILE.values(), archive()]
    for _ in range(60):
        content = bytearray(choose.choice(whole)[:4096])
        for _ in range(choose.randrange(1, 6) if content else 0):
            content[choose.randrange(min(600, len(content)))] = choose.randrange(256)
        remote.upload(bytes(content), target="net.tar")
        with pytest.raises(ValueError, match=r"net\.tar"):
            remote.load_module("net.tar")
    assert remote.listdir() == ["net.tar"]
