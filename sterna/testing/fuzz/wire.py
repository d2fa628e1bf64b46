"""The RPC protocol in bytes, written down once more: what is sent to the server in C."""

import hmac
import os
import socket
import struct

CALL, RETURN, EXCEPTION, ALLOC, COPY_TO, COPY_FROM, COPY_WITHIN, FREE, PING, CLOSE, INIT = range(
    1, 12
)

NONE, FALSE, TRUE = b"\0", b"\1", b"\2"
CPU = b"\x08" + struct.pack("<ii", 1, 0)
FLOAT32 = b"\x07" + struct.pack("<BBH", 2, 32, 1)


def integer(number: int) -> bytes:
    """A whole number."""
    return b"\3" + struct.pack("<q", number)


def real(number: float) -> bytes:
    """A floating-point number."""
    return b"\4" + struct.pack("<d", number)


def text(value: str) -> bytes:
    """Text."""
    data = value.encode()
    return b"\5" + struct.pack("<I", len(data)) + data


def raw(data: bytes) -> bytes:
    """Bytes."""
    return b"\6" + struct.pack("<I", len(data)) + data


def shape(*dims: int) -> bytes:
    """A shape."""
    return b"\x09" + struct.pack(f"<I{len(dims)}q", len(dims), *dims)


def listed(*values: bytes) -> bytes:
    """A list of values."""
    return b"\x0a" + struct.pack("<I", len(values)) + b"".join(values)


def array(handle: int, dims: tuple[int, ...], offset: int = 0, owner: int = 1) -> bytes:
    """A reference to an array."""
    head = struct.pack("<BQQ", owner, handle, offset) + CPU[1:] + FLOAT32[1:]
    return b"\x0b" + head + struct.pack(f"<I{len(dims)}q", len(dims), *dims)


def function(handle: int, owner: int = 1) -> bytes:
    """A reference to a function."""
    return b"\x0c" + struct.pack("<BQ", owner, handle)


def module(handle: int) -> bytes:
    """A reference to a module."""
    return b"\x0d" + struct.pack("<BQ", 1, handle)


def frame(kind: int, *values: bytes, bulk: bytes = b"") -> bytes:
    """A frame of any kind."""
    head = b"".join(values)
    return struct.pack("<2sBBIQ", b"SF", kind, 0, len(head), len(bulk)) + head + bulk


def call(name: str, *values: bytes) -> bytes:
    """A frame that calls a function by its name."""
    return frame(CALL, text(name), *values)


def hello(
    secret: bytes | None = None, key: str = "", version: int = 1, service: int = 1
) -> bytes:
    """The client's first words."""
    flags = 0 if secret is None else 1
    name = key.encode()
    return (
        struct.pack("<4sHBB", b"STRN", version, service, flags)
        + os.urandom(32)
        + struct.pack("<IIH", 0, 1 << 20, len(name))
        + name
    )


def receive(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or a ConnectionError."""
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("the server has closed the connection")
        data += part
    return data


def shake_hands(
    sock: socket.socket, secret: bytes | None = None, key: str = "", service: int = 1
) -> int:
    """The verdict's status; an accepted one is checked."""
    first = hello(secret, key, service=service)
    sock.sendall(first)
    second = receive(sock, 40)
    if second[6]:
        return second[6]
    proof = bytes(32)
    if secret is not None:
        proof = hmac.digest(secret, b"sterna rpc client 1\0" + first + second, "sha256")
    sock.sendall(proof)
    verdict = receive(sock, 20)
    verdict += receive(sock, struct.unpack("<H", verdict[-2:])[0])
    theirs = receive(sock, 32)
    if verdict[0] == 0 and secret is not None:
        said = b"sterna rpc server 1\0" + first + second + proof + verdict
        assert theirs == hmac.digest(secret, said, "sha256")
    return verdict[0]


def answer(sock: socket.socket) -> tuple[int, bytes, bytes]:
    """Kind, head and bulk of the next frame."""
    magic, kind, zero, head, bulk = struct.unpack("<2sBBIQ", receive(sock, 16))
    assert magic == b"SF" and zero == 0
    return kind, receive(sock, head), receive(sock, bulk)
