"""The server's side of one session: its arrays, its functions by name, its files."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.rpc import frames, values
from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.files import SessionFolder
from sterna.rpc.own_functions import own_functions
from sterna.rpc.peer import Peer
from sterna.rpc.streams import Stream, StreamEnded
from sterna.rpc.values import MODULE, RECEIVERS, SENDERS
from sterna.runtime import (
    Device,
    Module,
    NDArray,
    get_global_func,
    ndarray,
)
from sterna.support.dtype import DataType

# The most that is read and dropped of a request that failed, where arrays have no limit.
MOST_DROPPED = 1 << 30

# DLPack's types of memory that the host reads and writes itself.
ON_HOST = frozenset({1, 3, 11, 13})


def host_view(array: NDArray) -> memoryview | NDArray:
    """The memory of an array of bytes, if the host can use it; else the array."""
    if array.device.device_type not in ON_HOST:
        return array
    return np.from_dlpack(array).data if array.nbytes else memoryview(b"")


class ServerPeer(Peer):
    """Serves a client until it leaves."""

    def __init__(
        self,
        stream: Stream,
        folder: SessionFolder,
        most_head_there: int = frames.MOST_HEAD,
        most_bytes: int = 0,
        construct: Callable[[list[Any]], Callable[[], None]] | None = None,
    ) -> None:
        """construct makes what serves another session over the stream, if the first frame asks."""
        super().__init__(stream, frames.MOST_HEAD, most_head_there)
        self._construct = construct
        self.folder = folder
        self.most_bytes = most_bytes
        self._bytes: dict[int, int] = {}
        self._just_made: NDArray | None = None
        self._own = own_functions(folder)

    def serve(self) -> None:
        """Serve until the client closes the session or is gone."""
        is_first = True
        try:
            while True:
                kind, head, bulk = frames.read(self.stream, self._most_head_here)
                if kind == frames.INIT and is_first and self._construct is not None:
                    if self._pass_on(head):
                        return
                    continue
                is_first = False
                if kind == frames.CLOSE:
                    self.end("the client closed it")
                    return
                self._serve(kind, head, bulk)
        except StreamEnded as error:
            self.end(str(error))
        except RPCProtocolError as error:
            self._complain(error)

    def _pass_on(self, head: bytes) -> bool:
        """Let another session take over; False if it could not be made."""
        assert self._construct is not None
        try:
            relay = self._construct(values.decode_all(head, self))
        except RPCProtocolError:
            raise
        except Exception as error:
            self._refuse(error)
            return False
        self._answer(lambda: None)
        relay()
        self.end("another session took over")
        return True

    def _complain(self, error: RPCProtocolError) -> None:
        head = bytearray()
        values.encode(head, values.RemoteError(type(error).__name__, str(error), ""), self)
        with contextlib.suppress(StreamEnded, TimeoutError):
            self.stream.send(frames.pack(frames.EXCEPTION, head))
        self.end(str(error))

    def __repr__(self) -> str:
        return "the client"

    # ---- requests ----

    def _serve(self, kind: int, head: bytes, bulk: int) -> None:
        if kind == frames.ALLOC:
            self._with_bulk(bulk, lambda: self._allocate(head, bulk))
        elif kind == frames.COPY_TO:
            self._with_bulk(bulk, lambda: self._copy_to(head, bulk))
        elif kind == frames.COPY_FROM:
            self._copy_from(head)
        elif kind == frames.COPY_WITHIN:
            self._answer(lambda: self._copy_within(head))
        else:
            super()._serve(kind, head, bulk)

    def _find_target(self, target: Any) -> Callable[..., Any]:
        if isinstance(target, str):
            return self._own.get(target) or get_global_func(target)
        return super()._find_target(target)

    def _numbers(self, head: bytes, count: int) -> list[int]:
        found = values.decode_numbers(head)
        if len(found) != count:
            raise RPCProtocolError(f"{count} numbers were expected")
        return found

    def _with_bulk(self, bulk: int, work: Callable[[], tuple[Any, memoryview | NDArray]]) -> None:
        """Answer what work gives, once the bulk has come into the memory that it gives."""

        def receive() -> Any:
            received = False
            try:
                answer, room = work()
                if bulk:
                    received = True
                    self._receive_bulk(room, bulk)
                return answer
            except (RPCProtocolError, StreamEnded):
                raise
            except Exception:
                if not received:
                    self._drop(bulk)
                raise

        self._answer(receive)

    def _receive_bulk(self, room: memoryview | NDArray, bulk: int) -> None:
        if isinstance(room, memoryview):
            self.stream.receive_into(room)
            return
        staged = np.empty(bulk, np.uint8)
        self.stream.receive_into(staged.data)
        room._copy_from_buffer(staged)

    def _drop(self, bulk: int) -> None:
        if bulk > (self.most_bytes or MOST_DROPPED):
            raise RPCProtocolError(f"{bulk} bytes were announced, which are too many")
        scratch = memoryview(bytearray(min(bulk, 1 << 20)))
        while bulk:
            part = min(bulk, len(scratch))
            self.stream.receive_into(scratch[:part])
            bulk -= part

    def _allocate(self, head: bytes, bulk: int) -> tuple[Any, memoryview | NDArray]:
        found = values.decode_all(head, self)
        if [type(value) for value in found] != [Device, DataType, tuple]:
            raise RPCProtocolError("a device, a type and a shape were expected")
        device, dtype, shape = found
        if any(extent < 0 for extent in shape) or len(shape) > values.MOST_DIMENSIONS:
            raise RPCProtocolError(f"an array cannot have the shape {shape}")
        count = 1
        for extent in shape:
            count *= extent
        nbytes = dtype.bytes_of(count)
        if bulk not in (0, nbytes):
            raise RPCProtocolError(f"{bulk} bytes cannot fill an array of {nbytes}")
        taken = sum(self._bytes.values())
        if self.most_bytes and taken + nbytes > self.most_bytes:
            raise MemoryError(
                f"an array of {nbytes} bytes does not fit: the session's arrays may take "
                f"{self.most_bytes} bytes and take {taken}"
            )
        self._just_made = ndarray.empty(shape, dtype, device)
        return self._just_made, host_view(self._just_made._view((nbytes,), "uint8", 0))

    def _part(self, handle: int, offset: int, nbytes: int) -> NDArray:
        array: NDArray = self.lookup(handle, NDArray)
        if not 0 <= offset <= offset + nbytes <= array.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} do not lie in {array.nbytes} bytes")
        part: NDArray = array._view((nbytes,), "uint8", offset)
        return part

    def _copy_to(self, head: bytes, bulk: int) -> tuple[Any, memoryview | NDArray]:
        handle, offset = self._numbers(head, 2)
        part = self._part(handle, offset, bulk)
        if part.is_read_only:
            raise ValueError("the array is read-only")
        return None, host_view(part)

    def _copy_from(self, head: bytes) -> None:
        try:
            handle, offset, nbytes = self._numbers(head, 3)
            room = host_view(self._part(handle, offset, nbytes))
            if not isinstance(room, memoryview):
                staged = np.empty(nbytes, np.uint8)
                room._copy_to_buffer(staged)
                room = staged.data
        except RPCProtocolError:
            raise
        except Exception as error:
            self._refuse(error)
            return
        self.stream.send(frames.pack(frames.RETURN, bytes([values.NONE]), len(room)), room)

    def _copy_within(self, head: bytes) -> None:
        to, to_offset, source, source_offset, nbytes = self._numbers(head, 5)
        target = self._part(to, to_offset, nbytes)
        target._copy_from_array(self._part(source, source_offset, nbytes))

    # ---- what stands for things ----

    def _free(self, handle: int) -> None:
        super()._free(handle)
        self._bytes.pop(handle, None)

    def send_array(self, array: NDArray) -> tuple[int, int, int, Device]:
        """Owner, handle, byte offset, and the device as the server knows it."""
        handle = self.export(array)
        if array is self._just_made:
            self._bytes[handle] = array.nbytes
            self._just_made = None
        return SENDERS, handle, 0, array.device

    def take_array(
        self, owner: int, handle: int, offset: int, device: tuple[int, int], dtype: DataType,
        shape: tuple[int, ...],
    ) -> NDArray:
        """An array of the session, or a view of one."""
        if owner != RECEIVERS:
            raise RPCProtocolError("clients own no arrays")
        array: NDArray = self.lookup(handle, NDArray)
        if offset == 0 and array.shape == shape and array.dtype == dtype:
            return array
        view: NDArray = array._view(shape, dtype, offset)
        return view

    def send_module(self, module: Module) -> tuple[int, int, int]:
        """Tag, owner and handle of a module."""
        return MODULE, SENDERS, self.export(module)

    def take_module(self, handle: int) -> Module:
        """A module of the other side's."""
        raise RPCProtocolError("clients own no modules")

    def send_device(self, device: Device) -> Device:
        """The device as the server knows it."""
        return device

    def take_device(self, device_type: int, device_id: int) -> Device:
        """The device that the other side means."""
        return Device(device_type, device_id)
