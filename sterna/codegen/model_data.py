"""A model's data: its graph and parameters as one piece that the runtime uses where it lies.

The layout is that of runtime/src/model_data.c.
"""

import mmap
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import numpy as np

from sterna.runtime import NDArray
from sterna.support.once import computed_once

MAGIC = b"sterna.m"
VERSION = 1
BYTE_ORDER_MARK = 0x01020304
BOUNDARY = 64
# What is larger does not go through linkers, whose code reaches 2 GiB, but behind what they link.
MOST_LINKED = 1 << 30

_HEADER = struct.Struct("<8sII8Q")
_SUMMED_FROM = 40  # behind the checksum
_PARAM = struct.Struct("<QQQiBBHQQ")


def _copy(array: NDArray, room: mmap.mmap, at: int) -> None:
    array._copy_to_buffer(np.frombuffer(room, np.uint8, array.nbytes, at))


def _up(size: int) -> int:
    return -(-size // BOUNDARY) * BOUNDARY


@dataclass(frozen=True)
class ModelData:
    """What goes into a file beside the code."""

    name: str
    graph_json: str
    params: Mapping[str, NDArray]
    level: str = ""
    """The level of an architecture that it is made for, where a file holds it for several."""

    @property
    def symbol(self) -> str:
        """What names it among others in a file."""
        return f"{self.name}.{self.level}" if self.level else self.name

    @computed_once
    def _places(self) -> list[int]:
        """Where each parameter's values begin, and where the last ones end."""
        places = [_up(self._head_size)]
        for array in self.params.values():
            places.append(_up(places[-1] + array.nbytes))
        return places

    @computed_once
    def _texts(self) -> list[bytes]:
        return [self.name.encode(), *(name.encode() for name in self.params),
                self.graph_json.encode()]

    @computed_once
    def _shapes_begin(self) -> int:
        return _HEADER.size + len(self.params) * _PARAM.size

    @computed_once
    def _texts_begin(self) -> int:
        return self._shapes_begin + 8 * sum(array.ndim for array in self.params.values())

    @property
    def _head_size(self) -> int:
        return self._texts_begin + sum(map(len, self._texts))

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._places[-1]

    @property
    def is_large(self) -> bool:
        """Whether it is put behind a linked library instead of being linked."""
        return self.size > MOST_LINKED

    @computed_once
    def head(self) -> bytes:
        """Everything but the parameters' values."""
        at = [self._texts_begin]
        for text in self._texts:
            at.append(at[-1] + len(text))
        sizes = [len(text) for text in self._texts]
        index, shapes, shape_at = [], [], self._shapes_begin
        for i, array in enumerate(self.params.values()):
            dtype = array.dtype
            index.append(_PARAM.pack(
                at[1 + i], sizes[1 + i], shape_at, array.ndim, dtype.type_code, dtype.bits,
                dtype.lanes, self._places[i], array.nbytes,
            ))
            shapes.append(struct.pack(f"<{array.ndim}q", *array.shape))
            shape_at += 8 * array.ndim
        body = b"".join([*index, *shapes, *self._texts])
        fields = [at[0], sizes[0], at[-2], sizes[-1], len(self.params)]
        checksum = zlib.adler32(struct.pack("<5Q", *fields) + body)
        return _HEADER.pack(
            MAGIC, BYTE_ORDER_MARK, VERSION, self.size, self._head_size, checksum, *fields
        ) + body

    def write_into(self, buffer: bytearray, at: int = 0) -> None:
        """Put it into a buffer of zeros."""
        buffer[at : at + len(self.head)] = self.head
        for place, array in zip(self._places, self.params.values(), strict=False):
            if array.nbytes:
                array._copy_to_buffer(np.frombuffer(buffer, np.uint8, array.nbytes, at + place))

    def write_to(self, file: IO[bytes], at: int) -> None:
        """Write it into a file, one parameter after the other, so that none is twice in memory."""
        file.seek(at)
        file.write(self.head)
        file.truncate(at + self.size)
        file.flush()
        for place, array in zip(self._places, self.params.values(), strict=False):
            if array.nbytes:
                begin = at + place
                before = begin % mmap.ALLOCATIONGRANULARITY
                with mmap.mmap(file.fileno(), before + array.nbytes, offset=begin - before) as room:
                    _copy(array, room, before)

    def to_bytes(self) -> bytearray:
        """It as bytes."""
        made = bytearray(self.size)
        self.write_into(made)
        return made
