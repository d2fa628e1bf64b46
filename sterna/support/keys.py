"""Keys that files are signed with, in the form that OpenSSL writes them (PEM, Ed25519).

    openssl genpkey -algorithm ed25519 -out my.key
    openssl pkey -in my.key -pubout -out my.pub

make those files too, as does `sterna key my.key`.
"""

import base64
import binascii
import os
import secrets
import stat
from pathlib import Path

from sterna.support import ed25519

File = str | os.PathLike[str]

_LARGEST = 16384
_SECRET, _PUBLIC = "PRIVATE KEY", "PUBLIC KEY"
# What precedes the 32 bytes of a key: the DER of "this is Ed25519" (RFC 8410).
_HEADS = {
    _SECRET: bytes.fromhex("302e020100300506032b657004220420"),
    _PUBLIC: bytes.fromhex("302a300506032b6570032100"),
}


def read_secret_key(path: File) -> bytes:
    """The secret key in a file, to sign with."""
    return _read(path, _SECRET, "signing takes the secret key, which is another file")


def read_public_key(path: File) -> bytes:
    """The public key in a file, to check signatures with."""
    return _read(path, _PUBLIC, "checking takes the public key: openssl pkey -in KEY -pubout")


def make_keys(secret_path: File, public_path: File) -> None:
    """A new pair of keys; the file of the secret one is for its owner alone, and neither exists."""
    secret = secrets.token_bytes(ed25519.KEY_SIZE)
    _write(Path(secret_path), _SECRET, secret, 0o600)
    _write(Path(public_path), _PUBLIC, ed25519.public_key(secret), 0o644)


def _read(path: File, kind: str, hint: str) -> bytes:
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"the key '{os.fspath(path)}' is no plain file")
        text = file.read(_LARGEST).decode("latin-1")
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    body = text.partition(begin)[2].partition(end)[0]
    try:
        content = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        content = b""
    head = _HEADS[kind]
    if not content.startswith(head) or len(content) != len(head) + ed25519.KEY_SIZE:
        raise ValueError(
            f"'{os.fspath(path)}' holds no {kind.lower()} of Ed25519 in PEM form; {hint}; "
            "`sterna key my.key` makes a pair"
        )
    return content[len(head) :]


def _write(path: Path, kind: str, key: bytes, mode: int) -> None:
    body = base64.b64encode(_HEADS[kind] + key).decode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise ValueError(f"'{path}' is there already; keys are not written over others") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
