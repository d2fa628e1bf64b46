"""Seals: a digest, and if wanted a signature, behind the content of a compiled file.

Loaders and linkers read what a file's headers speak of, and so not what stands behind it; a
WebAssembly module gets the seal as a section of its own. runtime/src/seal.c has the layout, and
checks the digest of a shared library before it is mapped. What is not sealed comes from elsewhere.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sterna.support import ed25519
from sterna.support.file_view import BrokenFileError, FileView
from sterna.support.keys import File, read_public_key
from sterna.support.options import options

MARK, END = b"sterna-sealed-1\n", b"-sterna\n"
SIZE = 160
_DIGEST, _KEY, _SIGNATURE = slice(24, 56), slice(56, 88), slice(88, 152)
_UNSIGNED = bytes(ed25519.KEY_SIZE + ed25519.SIGNATURE_SIZE)

# Contents are filled up with zeros to a multiple of this, so that archivers have nothing to add.
_ALIGNMENT = 16
_PIECE = 1 << 20
# Where a seal is looked for: some of it may be missing, or something may stand behind it.
_WINDOW = 512

_WASM = b"\0asm"
_WASM_SECTION = b"sterna"


class DamagedFileError(BrokenFileError):
    """A sealed file has another content than it was sealed with."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose signatures are believed: public keys, and the names of their files."""

    keys: dict[bytes, str]

    @staticmethod
    def of(files: File | Sequence[File]) -> "Trust":
        """From the files of public keys."""
        several = [files] if isinstance(files, str | os.PathLike) else files
        if not several:
            raise ValueError("trust names no key: then nothing could be loaded")
        return Trust({read_public_key(path): os.fspath(path) for path in several})

    def require(self, seal: bytes) -> None:
        """A BrokenFileError unless one of them signed."""
        names = ", ".join(f"'{name}'" for name in self.keys.values())
        if not any(seal[_KEY]):
            raise BrokenFileError(f"it is not signed, and only files of {names} are trusted")
        key = bytes(seal[_KEY])
        if key not in self.keys:
            raise BrokenFileError(f"it is signed by another key than {names}")
        if not ed25519.verify(key, seal[: _DIGEST.stop], seal[_SIGNATURE]):
            raise BrokenFileError(f"its signature is not that of {names}: it is changed or forged")


def seal(path: Path, secret: bytes | None = None) -> None:
    """Seal a file that was just written, and sign it if there is a secret key; once is enough."""
    with open(path, "r+b") as file:
        view = view_of(file)
        size = view.size
        if _find(view) is not None:
            size -= SIZE
            file.truncate(size)
        else:
            is_wasm = view.head(len(_WASM)) == _WASM
            file.seek(size)
            file.write(_wasm_section() if is_wasm else bytes(-size % _ALIGNMENT))
            size = file.tell()
        digest = _digest(FileView(file, 0, size))
        file.seek(size)
        file.write(_encode(size, digest, secret))


def check(view: FileView, trust: Trust | None = None) -> bool:
    """Whether a file is sealed; a BrokenFileError if it is not what it was sealed as.

    Where it must be trusted it is checked whatever STERNA_CHECK_SEALS says.
    """
    found = _find(view)
    if trust is not None and found is None:
        raise BrokenFileError("it has no seal, and only signed files are trusted")
    if found is None:
        return False
    if trust is not None:
        trust.require(found)
    if trust is not None or options.check_seals:
        size = view.size - SIZE
        if int.from_bytes(found[16:24], "little") != size:
            raise _damaged()
        if _digest(view.part(0, size)) != found[_DIGEST]:
            raise _damaged()
    return True


def check_file(path: Path, trust: Trust | None = None) -> bool:
    """The same for a file by its name, as a ValueError that names it."""
    try:
        with open(path, "rb") as file:
            return check(view_of(file), trust)
    except BrokenFileError as error:
        raise ValueError(f"cannot load '{path}': {error}") from None


def find_seal(path: Path) -> bool:
    """Whether there is a seal, without a look at the content; a ValueError if it is broken."""
    try:
        with open(path, "rb") as file:
            return _find(view_of(file)) is not None
    except BrokenFileError as error:
        raise ValueError(f"cannot load '{path}': {error}") from None


def is_sealed(path: Path) -> bool:
    """Whether there is a seal, whole or not, without a look at the content."""
    with open(path, "rb") as file:
        try:
            return _find(view_of(file)) is not None
        except BrokenFileError:
            return True


def view_of(file: IO[bytes]) -> FileView:
    """All of an open file."""
    return FileView(file, 0, os.fstat(file.fileno()).st_size)


def _find(view: FileView) -> bytes | None:
    size = min(_WINDOW, view.size)
    tail = view.read(view.size - size, size)
    if tail.endswith(END) and tail[-SIZE:].startswith(MARK):
        return tail[-SIZE:]
    if tail.endswith(END) or MARK in tail:
        raise _damaged()
    return None


def _damaged() -> DamagedFileError:
    return DamagedFileError(
        "the file is damaged: it is not what it was sealed as; copy or export it anew"
    )


def _encode(size: int, digest: bytes, secret: bytes | None) -> bytes:
    head = MARK + size.to_bytes(8, "little") + digest
    signed = _UNSIGNED
    if secret is not None:
        signed = ed25519.public_key(secret) + ed25519.sign(secret, head)
    return head + signed + END


def _digest(view: FileView) -> bytes:
    """SHA-256, piece by piece: files may be larger than memory."""
    made = hashlib.sha256()
    for at in range(0, view.size, _PIECE):
        made.update(view.read(at, min(_PIECE, view.size - at)))
    return made.digest()


def _wasm_section() -> bytes:
    """The head of a custom section, which engines skip, for a seal to be the rest of."""
    name = bytes([len(_WASM_SECTION)]) + _WASM_SECTION
    size = len(name) + SIZE
    return bytes([0, size & 0x7F | 0x80, size >> 7]) + name
