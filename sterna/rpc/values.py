"""Values as bytes; docs/rpc_protocol.md has the table."""

import functools
import struct
from collections.abc import Callable
from typing import Any, Protocol

from sterna.rpc.errors import RPCProtocolError
from sterna.runtime import Device, Module, NDArray, PackedFunc
from sterna.support.dtype import DataType

NONE, FALSE, TRUE, INT, FLOAT, STR, BYTES, DTYPE, DEVICE, SHAPE, LIST = range(11)
ARRAY, FUNCTION, MODULE, ERROR = range(11, 15)

SENDERS, RECEIVERS = 0, 1  # whose table a handle is of

MOST_DIMENSIONS = 32
MOST_HANDLE = (1 << 63) - 1  # handles are freed as integers
MOST_NESTED = 16

_int = struct.Struct("<Bq")
_float = struct.Struct("<Bd")
_length = struct.Struct("<BI")
_dtype = struct.Struct("<BBBH")
_device = struct.Struct("<Bii")
_object = struct.Struct("<BBQ")
_array = struct.Struct("<BBQQiiBBHI")

_i64 = struct.Struct("<q")
_f64 = struct.Struct("<d")
_u32 = struct.Struct("<I")
_dtype_body = struct.Struct("<BBH")
_device_body = struct.Struct("<ii")
_object_body = struct.Struct("<BQ")
_array_body = struct.Struct("<BQQiiBBHI")


class ObjectsOfASession(Protocol):
    """What stands for arrays, functions, modules and devices on one side of a session."""

    def send_array(self, array: NDArray) -> tuple[int, int, int, Device]:
        """Owner, handle, byte offset, and the device as the server knows it."""

    def send_object(self, value: Any) -> tuple[int, int, int]:
        """Tag, owner and handle of a function or module."""

    def send_device(self, device: Device) -> Device:
        """The device as the server knows it."""

    def take_array(
        self, owner: int, handle: int, offset: int, device: tuple[int, int], dtype: DataType,
        shape: tuple[int, ...],
    ) -> NDArray:
        """The array that the other side means."""

    def take_object(self, tag: int, owner: int, handle: int) -> Any:
        """The function or module that the other side means."""

    def take_device(self, device_type: int, device_id: int) -> Device:
        """The device that the other side means."""


class Handle:
    """A thing of the receiver's, by its tag and number."""

    __slots__ = ("number", "tag")

    def __init__(self, tag: int, number: int) -> None:
        self.tag, self.number = tag, number


class RemoteError:
    """An error as it travels."""

    __slots__ = ("kind", "message", "traceback")

    def __init__(self, kind: str, message: str, traceback: str) -> None:
        self.kind, self.message, self.traceback = kind, message, traceback


def encode(out: bytearray, value: Any, objects: ObjectsOfASession, depth: int = 0) -> None:
    """Append a value."""
    kind = type(value)
    if value is None:
        out.append(NONE)
    elif kind is int:
        try:
            out += _int.pack(INT, value)
        except struct.error:
            raise OverflowError(f"the integer {value} does not fit in 64 bits") from None
    elif isinstance(value, NDArray):
        _encode_array(out, value, objects)
    elif kind is bool:
        out.append(TRUE if value else FALSE)
    elif kind is float:
        out += _float.pack(FLOAT, value)
    elif isinstance(value, DataType):
        out += _dtype.pack(DTYPE, value.type_code, value.bits, value.lanes)
    elif isinstance(value, str):
        _encode_text(out, STR, value.encode())
    elif isinstance(value, bytes | bytearray | memoryview):
        _encode_text(out, BYTES, value)
    elif isinstance(value, Device):
        device = objects.send_device(value)
        out += _device.pack(DEVICE, device.device_type, device.device_id)
    elif kind is tuple and all(type(extent) is int for extent in value):
        encode_shape(out, value)  # what the runtime gives as a shape is a tuple
    elif isinstance(value, list | tuple):
        if depth == MOST_NESTED:
            raise ValueError(f"lists that go to a remote machine nest at most {MOST_NESTED} deep")
        out += _length.pack(LIST, len(value))
        for item in value:
            encode(out, item, objects, depth + 1)
    elif kind is Handle:
        out += _object.pack(value.tag, RECEIVERS, value.number)
    elif isinstance(value, PackedFunc | Module) or callable(value):
        tag, owner, handle = objects.send_object(value)
        out += _object.pack(tag, owner, handle)
    elif isinstance(value, RemoteError):
        out.append(ERROR)
        for text in (value.kind, value.message, value.traceback):
            data = text.encode(errors="replace")
            out += _u32.pack(len(data)) + data
    else:
        raise TypeError(
            f"{kind.__name__} cannot go to a remote machine; numbers, text, bytes, types, devices, "
            "arrays, functions, modules and lists of these can"
        )


def encode_shape(out: bytearray, shape: tuple[int, ...]) -> None:
    """Append a shape."""
    out += struct.pack(f"<BI{len(shape)}q", SHAPE, len(shape), *shape)


def _encode_text(out: bytearray, tag: int, data: bytes | bytearray | memoryview) -> None:
    if len(data) >= 1 << 32:
        raise ValueError(f"{len(data)} bytes are too many for one value; use upload")
    out += _length.pack(tag, len(data))
    out += data


def _encode_array(out: bytearray, array: NDArray, objects: ObjectsOfASession) -> None:
    owner, handle, offset, device = objects.send_array(array)
    dtype, shape = array.dtype, array.shape
    out += _array.pack(
        ARRAY, owner, handle, offset, device.device_type, device.device_id,
        dtype.type_code, dtype.bits, dtype.lanes, len(shape),
    )
    out += struct.pack(f"<{len(shape)}q", *shape)


def decode_all(head: bytes | bytearray, objects: ObjectsOfASession) -> list[Any]:
    """The values that fill a head; an RPCProtocolError says what is wrong with other bytes."""
    reader = Reader(head, objects)
    values = []
    while reader.at < len(head):
        values.append(reader.value())
    return values


def decode_numbers(head: bytes | bytearray) -> list[int]:
    """The integers that fill a head; nothing else is looked up, and is an RPCProtocolError."""
    if len(head) % _int.size or any(tag != INT for tag in head[:: _int.size]):
        raise RPCProtocolError("numbers were expected")
    return [number for _, number in _int.iter_unpack(head)]


class Reader:
    """Reads the values of a head, one after the other."""

    __slots__ = ("at", "depth", "head", "objects")

    def __init__(self, head: bytes | bytearray, objects: ObjectsOfASession) -> None:
        self.head, self.objects, self.at, self.depth = head, objects, 0, 0

    def value(self) -> Any:
        """The next one."""
        try:
            tag = self.head[self.at]
            self.at += 1
            return _READERS[tag](self)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise RPCProtocolError(f"a frame's head does not decode: {error}") from None

    def _unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        found = layout.unpack_from(self.head, self.at)
        self.at += layout.size
        return found

    def _bytes(self) -> bytes:
        (length,) = self._unpack(_u32)
        end = self.at + length
        if end > len(self.head):
            raise RPCProtocolError("text or bytes end behind the frame's head")
        data = bytes(self.head[self.at : end])
        self.at = end
        return data

    def text(self) -> str:
        """Text, behind its tag."""
        return self._bytes().decode()

    def _dimensions(self, most: int) -> tuple[int, ...]:
        (count,) = self._unpack(_u32)
        if count > most or self.at + 8 * count > len(self.head):
            raise RPCProtocolError(f"a shape of {count} dimensions is too long")
        found: tuple[int, ...] = struct.unpack_from(f"<{count}q", self.head, self.at)
        self.at += 8 * count
        return found

    def _list(self) -> list[Any]:
        (count,) = self._unpack(_u32)
        if count > len(self.head) - self.at or self.depth == MOST_NESTED:
            raise RPCProtocolError(f"a list of {count} is too long or nests too deep")
        self.depth += 1
        found = [self.value() for _ in range(count)]
        self.depth -= 1
        return found

    def _dtype(self) -> DataType:
        return _dtype_of(*self._unpack(_dtype_body))

    def _device(self) -> Device:
        return self.objects.take_device(*self._unpack(_device_body))

    def _array(self) -> NDArray:
        owner, handle, offset, kind, number, code, bits, lanes, _ndim = (
            _array_body.unpack_from(self.head, self.at)
        )
        self.at += _array_body.size - 4
        shape = self._dimensions(MOST_DIMENSIONS)
        if owner > 1 or handle > MOST_HANDLE or any(extent < 0 for extent in shape):
            raise RPCProtocolError(f"owner {owner} and shape {shape} of an array make no sense")
        dtype = _dtype_of(code, bits, lanes)
        return self.objects.take_array(owner, handle, offset, (kind, number), dtype, shape)

    def _function(self) -> Any:
        return self._take(FUNCTION)

    def _module(self) -> Any:
        return self._take(MODULE)

    def _take(self, tag: int) -> Any:
        owner, handle = self._unpack(_object_body)
        if owner > 1 or handle > MOST_HANDLE:
            raise RPCProtocolError(f"a handle {handle} of the owner {owner} makes no sense")
        return self.objects.take_object(tag, owner, handle)


@functools.lru_cache(1024)
def _dtype_of(code: int, bits: int, lanes: int) -> DataType:
    try:
        return DataType.from_parts(code, bits, lanes)
    except ValueError as error:
        raise RPCProtocolError(str(error)) from None


_READERS: list[Callable[[Reader], Any]] = [
    lambda reader: None,
    lambda reader: False,
    lambda reader: True,
    lambda reader: reader._unpack(_i64)[0],
    lambda reader: reader._unpack(_f64)[0],
    Reader.text,
    Reader._bytes,
    Reader._dtype,
    Reader._device,
    lambda reader: reader._dimensions(len(reader.head)),
    Reader._list,
    Reader._array,
    Reader._function,
    Reader._module,
    lambda reader: RemoteError(reader.text(), reader.text(), reader.text()),
]
