"""One side of a session: sends requests, waits for answers and meanwhile serves the other side."""

import os
import struct
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from sterna.rpc import frames, values
from sterna.rpc.errors import RPCError, RPCProtocolError, remote_exception
from sterna.rpc.streams import Stream, StreamEnded
from sterna.rpc.values import FUNCTION, MODULE, RECEIVERS, SENDERS, RemoteError
from sterna.runtime import Device, Module, NDArray, PackedFunc
from sterna.support.dtype import DataType

MOST_NESTED_CALLS = 64
MOST_HANDLES = 1 << 20
MOST_TRACEBACK = 1 << 16

_target = struct.Struct("<BBQ")


class RemoteFunction:
    """A function of the other side's."""

    __slots__ = ("handle", "peer")

    def __init__(self, peer: "Peer", handle: int) -> None:
        self.peer, self.handle = peer, handle

    def __call__(self, *args: Any) -> Any:
        return self.peer.call_handle(self.handle, args)

    def __del__(self) -> None:
        self.peer.free_later(self.handle)

    def __repr__(self) -> str:
        return f"function {self.handle} of {self.peer}"


class Peer:
    """What clients and servers have in common; both have a table of what the other side may use."""

    def __init__(self, stream: Stream, most_head_here: int, most_head_there: int) -> None:
        self.stream = stream
        self.ended: str | None = None
        self._most_head_here, self._most_head_there = most_head_here, most_head_there
        self._exports: dict[int, Any] = {}
        self._last_handle = 0
        self._freed: deque[int] = deque()
        self._lock = threading.RLock()
        self._nested = 0
        self._process = os.getpid()

    # ---- requests ----

    def call_handle(self, handle: int, args: tuple[Any, ...]) -> Any:
        """Call a function of the other side's table."""
        return self._call(bytearray(_target.pack(FUNCTION, RECEIVERS, handle)), args)

    def call(self, name: str, *args: Any) -> Any:
        """Call a function of the other side's by name."""
        head = bytearray()
        values.encode(head, name, self)
        return self._call(head, args)

    def _call(self, head: bytearray, args: tuple[Any, ...]) -> Any:
        before = self._last_handle
        try:
            for value in args:
                values.encode(head, value, self)
        except BaseException:
            for handle in range(before + 1, self._last_handle + 1):
                self._exports.pop(handle, None)
            raise
        return self.request(frames.CALL, head)

    def request(
        self,
        kind: int,
        head: bytes | bytearray = b"",
        bulk: memoryview | None = None,
        into: memoryview | None = None,
    ) -> Any:
        """Send a request and give its answer; an exception of the other side is raised here."""
        if len(head) > self._most_head_there:
            raise ValueError(
                f"the arguments take {len(head)} bytes; the other side takes at most "
                f"{self._most_head_there}: upload a file instead"
            )
        with self._lock:
            if self.ended is not None:
                raise self._ended_error()
            if self._nested == MOST_NESTED_CALLS:
                raise RecursionError(f"more than {MOST_NESTED_CALLS} calls between machines nest")
            self._nested += 1
            data = frames.pack(kind, head, 0 if bulk is None else len(bulk))
            try:
                self.stream.send(self._free_frame() + data if self._freed else data, bulk)
                answer = self._wait(into)
            except (StreamEnded, TimeoutError, RPCProtocolError) as error:
                raise self._lost(error) from None
            except BaseException:
                self.end("a call was interrupted, so its answer could not be waited for")
                raise
            finally:
                self._nested -= 1
        if type(answer) is RemoteError:
            raise remote_exception(answer.kind, answer.message, answer.traceback)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, into: memoryview | None) -> Any:
        while True:
            kind, head, bulk = frames.read(self.stream, self._most_head_here)
            if kind == frames.RETURN or kind == frames.EXCEPTION:
                return self._take_answer(kind, head, bulk, into)
            self._serve(kind, head, bulk)

    def _take_answer(self, kind: int, head: bytes, bulk: int, into: memoryview | None) -> Any:
        try:
            found = values.decode_all(head, self)
        except RPCProtocolError:
            raise
        except Exception as error:  # it names what is not there; the session can go on
            if bulk:
                raise RPCProtocolError(f"an answer has data, but {error}") from None
            return error
        if len(found) != 1 or (type(found[0]) is RemoteError) != (kind == frames.EXCEPTION):
            raise RPCProtocolError("an answer has not one value")
        wanted = len(into) if into is not None and kind == frames.RETURN else 0
        if bulk != wanted:
            raise RPCProtocolError(f"an answer has {bulk} bytes of data; {wanted} were asked for")
        if into is not None and bulk:
            self.stream.receive_into(into)
        return found[0]

    def _lost(self, error: Exception) -> Exception:
        """The session cannot go on; what to tell the caller."""
        self.end(str(error))
        return RPCError(str(error))

    def _ended_error(self) -> Exception:
        """What to tell a caller who comes after the end."""
        return RPCError(f"the session has ended: {self.ended}")

    def end(self, why: str) -> None:
        """End the session at once."""
        if self.ended is None:
            self.ended = why
            if os.getpid() == self._process:  # a fork shares the connection; it is not its to end
                self.stream.close()
            self._exports.clear()

    # ---- serving ----

    def _serve(self, kind: int, head: bytes, bulk: int) -> None:
        """Do what the other side asks for and answer."""
        if kind == frames.CALL:
            self._answer(lambda: self._called(head))
        elif kind == frames.FREE:
            for handle in values.decode_numbers(head):
                self._free(handle)
        elif kind == frames.PING:
            self._answer(lambda: None)
        else:
            raise RPCProtocolError(f"a frame of kind {kind} came where none is expected")

    def _called(self, head: bytes) -> Any:
        function, *args = values.decode_all(head, self) or [None]
        return self._find_target(function)(*args)

    def _find_target(self, target: Any) -> Callable[..., Any]:
        if isinstance(target, PackedFunc):
            return target
        raise RPCProtocolError("only functions that were passed to the other side can be called")

    def _answer(self, work: Callable[[], Any]) -> None:
        """Send what work gives, or its exception."""
        head, freed = bytearray(), b""
        try:
            result = work()
            freed = self._free_frame()  # before the result's own handles may be freed
            values.encode(head, result, self)
            if len(head) > self._most_head_there:
                raise ValueError(f"the result takes {len(head)} bytes, which are too many")
        except (RPCProtocolError, StreamEnded):
            raise
        except (Exception, SystemExit) as error:
            self._refuse(error, freed)
            return
        self.stream.send(freed + frames.pack(frames.RETURN, head))

    def _refuse(self, error: BaseException, freed: bytes = b"") -> None:
        """Answer with an exception."""
        head = bytearray()
        values.encode(head, describe(error), self)
        self.stream.send(freed + frames.pack(frames.EXCEPTION, head))

    # ---- handles ----

    def free_later(self, handle: int) -> None:
        """Tell the other side, with the next frame, that one of its things is no longer used."""
        if self.ended is None:
            self._freed.append(handle)

    def _free_frame(self) -> bytes:
        if not self._freed:
            return b""
        head = bytearray()
        while self._freed and len(head) < self._most_head_there - 9:
            values.encode(head, self._freed.popleft(), self)
        return frames.pack(frames.FREE, head)

    def _free(self, handle: int) -> None:
        self._exports.pop(handle, None)

    def export(self, thing: Any) -> int:
        """Give the other side a handle of a thing."""
        if len(self._exports) >= MOST_HANDLES:
            raise MemoryError(f"the session holds {MOST_HANDLES} things; let go of some")
        self._last_handle += 1
        self._exports[self._last_handle] = thing
        return self._last_handle

    def lookup(self, handle: int, kind: type) -> Any:
        """What the other side means by a handle of ours."""
        found = self._exports.get(handle)
        if not isinstance(found, kind):
            raise ValueError(f"the session has no {kind.__name__} with the handle {handle}")
        return found

    # ---- what stands for functions; the rest is for the two sides to say ----

    def send_object(self, value: Any) -> tuple[int, int, int]:
        """Tag, owner and handle of a function or module."""
        if isinstance(value, Module):
            return self.send_module(value)
        function = PackedFunc(value)
        own = function._callable
        if isinstance(own, RemoteFunction) and own.peer is self:
            return FUNCTION, RECEIVERS, own.handle
        return FUNCTION, SENDERS, self.export(function)

    def take_object(self, tag: int, owner: int, handle: int) -> Any:
        """The function or module that the other side means."""
        if owner == RECEIVERS:
            return self.lookup(handle, PackedFunc if tag == FUNCTION else Module)
        if tag == MODULE:
            return self.take_module(handle)
        return PackedFunc(RemoteFunction(self, handle))

    def send_module(self, module: Module) -> tuple[int, int, int]:
        """Tag, owner and handle of a module."""
        raise NotImplementedError

    def take_module(self, handle: int) -> Module:
        """A module of the other side's."""
        raise NotImplementedError

    def send_array(self, array: NDArray) -> tuple[int, int, int, Device]:
        """Owner, handle, byte offset, and the device as the server knows it."""
        raise NotImplementedError

    def take_array(
        self, owner: int, handle: int, offset: int, device: tuple[int, int], dtype: DataType,
        shape: tuple[int, ...],
    ) -> NDArray:
        """The array that the other side means."""
        raise NotImplementedError

    def send_device(self, device: Device) -> Device:
        """The device as the server knows it."""
        raise NotImplementedError

    def take_device(self, device_type: int, device_id: int) -> Device:
        """The device that the other side means."""
        raise NotImplementedError


def describe(error: BaseException) -> RemoteError:
    """An exception as it travels."""
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    lines = traceback.format_exception(error)
    return RemoteError(type(error).__name__, message, "".join(lines)[-MOST_TRACEBACK:])
