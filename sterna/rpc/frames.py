"""Frames: a header of 16 bytes, a head of values, a bulk of raw bytes."""

import struct

from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.streams import Stream

CALL, RETURN, EXCEPTION, ALLOC, COPY_TO, COPY_FROM, COPY_WITHIN, FREE, PING, CLOSE, INIT = range(
    1, 12
)
KINDS = range(CALL, INIT + 1)
WITH_BULK = frozenset({RETURN, ALLOC, COPY_TO})

MAGIC = 0x4653  # "SF"
HEADER = struct.Struct("<HBBIQ")

# Without a handshake, as over a pipe, and as what this implementation takes by itself.
MOST_HEAD = 64 << 20


def pack(kind: int, head: bytes | bytearray = b"", bulk: int = 0) -> bytes:
    """A frame up to its bulk."""
    return HEADER.pack(MAGIC, kind, 0, len(head), bulk) + head


def read(stream: Stream, most_head: int) -> tuple[int, bytes, int]:
    """Kind and head of the next frame, and the length of the bulk, which is yet to be read."""
    magic, kind, zero, head, bulk = HEADER.unpack(stream.receive(HEADER.size))
    if magic != MAGIC or zero or kind not in KINDS:
        raise RPCProtocolError(f"what came is no frame: it begins with {magic:04x} {kind} {zero}")
    if head > most_head:
        raise RPCProtocolError(f"a frame's head has {head} bytes; at most {most_head} are taken")
    if bulk and kind not in WITH_BULK:
        raise RPCProtocolError(f"a frame of kind {kind} has a bulk of {bulk} bytes")
    return kind, stream.receive(head) if head else b"", bulk
