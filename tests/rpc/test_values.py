"""Values as bytes."""

import contextlib
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.rpc import values
from sterna.rpc.async_side import _NoStream
from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.files import SessionFolder
from sterna.rpc.plain_peer import PlainPeer
from sterna.rpc.serving import ServerPeer
from sterna.support.dtype import DataType

PLAIN = PlainPeer(_NoStream())

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary()
    | st.sampled_from(["float32", "int8x4", "bool", "float8_e4m3fn", "bfloat16"]).map(DataType)
)
trees = st.recursive(scalars, lambda each: st.lists(each, max_size=4), max_leaves=20)


def encoded(*items: Any) -> bytes:
    """The bytes of values."""
    out = bytearray()
    for item in items:
        values.encode(out, item, PLAIN)
    return bytes(out)


@given(st.lists(trees, max_size=5))
def test_what_is_written_is_read(items: list[Any]) -> None:
    found = values.decode_all(encoded(*items), PLAIN)
    assert found == items
    assert [type(value) for value in found] == [type(value) for value in items]


def test_the_bytes_are_those_of_the_protocol() -> None:
    assert encoded(None, False, True) == b"\0\1\2"
    assert encoded(-2, 1.5) == b"\3" + struct.pack("<q", -2) + b"\4" + struct.pack("<d", 1.5)
    assert encoded("é", b"z") == b"\5\2\0\0\0\xc3\xa9" + b"\6\1\0\0\0z"
    assert encoded(DataType("float32"), [1]) == b"\7\2\x20\1\0" + b"\x0a\1\0\0\0\3" + bytes(
        [1, 0, 0, 0, 0, 0, 0, 0]
    )


@given(st.lists(trees, min_size=1, max_size=3), st.randoms())
def test_changed_bytes_are_read_or_refused(items: list[Any], chance: random.Random) -> None:
    data = bytearray(encoded(*items))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    data = data[: chance.randint(0, len(data))]
    with contextlib.suppress(RPCProtocolError):
        values.decode_all(bytes(data), PLAIN)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_a_server(data: bytes) -> None:
    peer = ServerPeer(_NoStream(), SessionFolder(0, "/nonexistent"))
    with contextlib.suppress(RPCProtocolError, ValueError):
        values.decode_all(data, peer)


@pytest.mark.parametrize(
    "data",
    [b"\x0f", b"\3\0", b"\5\xff\xff\xff\xff", b"\x0a\xff\xff\xff\x7f", b"\x09\xff\xff\xff\xff",
     b"\5\1\0\0\0\xff", b"\x0a\1\0\0\0" * 40 + b"\0", b"\7\xee\xee\xee\xee"],
)
def test_lengths_and_tags_are_not_believed(data: bytes) -> None:
    with pytest.raises(RPCProtocolError):
        values.decode_all(data, PLAIN)


def test_integers_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(OverflowError, match="does not fit in 64 bits"):
        encoded(2**63)
