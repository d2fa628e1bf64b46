"""What stands on the client for things on a server: memory, arrays, functions, modules."""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sterna.rpc import frames
from sterna.rpc.errors import RPCError, RPCProtocolError, RPCSessionTimeoutError
from sterna.rpc.peer import Peer
from sterna.rpc.remote_memory import OFFSET_MASK, Block, RemoteMemory
from sterna.rpc.streams import Stream, StreamEnded
from sterna.rpc.values import MODULE, RECEIVERS, Handle
from sterna.runtime import (
    BenchmarkResult,
    Device,
    Module,
    NDArray,
    PackedFunc,
    _core,
)
from sterna.runtime.device import REMOTE_DEVICES
from sterna.runtime.timing import expect_no_preparation
from sterna.support.architecture import Architecture
from sterna.support.dtype import DataType

# A client waits this much longer than the session lasts: the server ends it first.
GRACE_S = 5.0

_log = logging.getLogger("sterna.rpc")

T = TypeVar("T")


class ClientPeer(Peer):
    """The client's side of a session. It ends when nothing of the server's is used any more."""

    def __init__(
        self,
        stream: Stream,
        where: str,
        most_head_there: int = frames.MOST_HEAD,
        timeout_s: float = 0,
        started: float = 0,
        logs: bool = False,
    ) -> None:
        super().__init__(stream, frames.MOST_HEAD, most_head_there)
        self.where, self.timeout_s, self.started = where, timeout_s, started
        self._logs = logs
        self._wants_block = False
        self._is_overdue = False
        self._info: dict[str, Any] | None = None
        self.memory = RemoteMemory(self)
        self.number = _core.add_machine(self.memory)
        self._base = REMOTE_DEVICES * (self.number + 1)
        if timeout_s:
            stream.set_deadline(started + timeout_s + GRACE_S)

    def __repr__(self) -> str:
        return self.where

    def close(self) -> None:
        """End the session in good order."""
        if self.ended is None:
            with contextlib.suppress(StreamEnded, TimeoutError):
                self.stream.send(frames.pack(frames.CLOSE))
            self.end("it was closed here")

    def end(self, why: str) -> None:
        """End the session at once."""
        super().end(why)
        _core.remove_machine(self.number)

    def __del__(self) -> None:
        if hasattr(self, "_base") and self.ended is None:
            self.close()

    def request(
        self,
        kind: int,
        head: bytes | bytearray = b"",
        bulk: memoryview | None = None,
        into: memoryview | None = None,
    ) -> Any:
        """Send a request and give its answer; an exception of the other side is raised here."""
        if not self._logs:
            return super().request(kind, head, bulk, into)
        start = time.perf_counter()
        try:
            return super().request(kind, head, bulk, into)
        finally:
            took = (time.perf_counter() - start) * 1e3
            data = len(bulk or into or b"")
            _log.warning("%s: kind %d, %d + %d bytes, %.3f ms", self, kind, len(head), data, took)

    def _lost(self, error: Exception) -> Exception:
        self.end(str(error))
        self._is_overdue = 0 < self.timeout_s <= time.monotonic() - self.started
        if self._is_overdue:
            return self._ended_error()
        if isinstance(error, RPCProtocolError):
            return RPCProtocolError(f"{self} broke the protocol: {error}")
        return RPCError(
            f"the session with {self} has ended while an answer was waited for: {error}. The "
            "server was stopped, or what ran there crashed or took too much memory"
        )

    def _ended_error(self) -> Exception:
        if not self._is_overdue:
            return super()._ended_error()
        return RPCSessionTimeoutError(
            f"the session with {self} was ended after session_timeout={self.timeout_s:g} seconds; "
            "ask for more when you connect"
        )

    def expect(self, kind: type[T], name: str, *args: Any) -> T:
        """What one of the server's own functions gives, which must be of this type."""
        found = self.call(name, *args)
        if not isinstance(found, kind):
            raise RPCProtocolError(f"{self} gave {type(found).__name__} as the result of {name}")
        return found

    def architecture(self) -> Architecture | None:
        """What the server loads, if it says so; asked once."""
        if self._info is None:
            try:
                self._info = dict(self.expect(list, "rpc.server_info"))
            except (TypeError, ValueError):
                raise RPCProtocolError(f"{self} does not say what it is") from None
        found = self._info.get("architecture")
        try:
            return Architecture(*found) if found else None
        except TypeError:
            raise RPCProtocolError(f"{self} does not say what it is") from None

    # ---- what stands for things ----

    def device(self, device_type: int, device_id: int) -> Device:
        """A device of the server's."""
        return Device(self._base + device_type, device_id)

    def send_device(self, device: Device) -> Device:
        """The device as the server knows it."""
        kind = device.device_type - self._base
        if 0 < kind < REMOTE_DEVICES:
            return Device(kind, device.device_id)
        raise TypeError(
            f"{device} is no device of {self}; use one of the session's, like remote.cpu(0)"
        )

    def take_device(self, device_type: int, device_id: int) -> Device:
        """The device that the other side means."""
        if not 0 < device_type < REMOTE_DEVICES:
            raise RPCProtocolError(f"the server named a device of type {device_type}")
        return self.device(device_type, device_id)

    def send_array(self, array: NDArray) -> tuple[int, int, int, Device]:
        """Owner, handle, byte offset, and the device as the server knows it."""
        device = array.device
        kind = device.device_type - self._base
        if not 0 < kind < REMOTE_DEVICES:
            raise TypeError(
                f"an array on {device} cannot be passed to a function of {self}, which could not "
                "write to it; copy it over: tvm.nd.array(values, remote.cpu(0))"
            )
        handle, offset = self.memory.find(array.data_ptr())
        return RECEIVERS, handle, offset, Device(kind, device.device_id)

    def blocks_only(self) -> "_WantsBlock":
        """While this is entered, an array that comes is its bare memory."""
        return _WantsBlock(self)

    def take_array(
        self, owner: int, handle: int, offset: int, device: tuple[int, int], dtype: DataType,
        shape: tuple[int, ...],
    ) -> Any:
        """An array of the server's."""
        count = 1
        for extent in shape:
            count *= extent
        if owner == RECEIVERS or offset or dtype.bytes_of(count) > OFFSET_MASK:
            raise RPCProtocolError("the server sent an array that cannot be")
        block = Block(self, handle)
        if self._wants_block:
            return block
        return _core.array_over(shape, dtype, self.take_device(*device), block.address, block)

    def send_module(self, module: Module) -> tuple[int, int, int]:
        """Tag, owner and handle of a module."""
        own = module._implementation
        if isinstance(own, ServersModule) and own.peer is self:
            return MODULE, RECEIVERS, own.handle
        raise TypeError(
            f"a module of this machine cannot be passed to a function of {self}; export it, upload "
            "the file and load it there: remote.load_module"
        )

    def take_module(self, handle: int) -> Module:
        """A module of the server's."""
        made: Module = _core.make_module(RemoteModule, ServersModule(self, handle))
        return made


class _WantsBlock:
    def __init__(self, peer: ClientPeer) -> None:
        self._peer = peer

    def __enter__(self) -> None:
        self._peer._lock.acquire()
        self._peer._wants_block = True

    def __exit__(self, *exception: object) -> None:
        self._peer._wants_block = False
        self._peer._lock.release()


class ServersModule:
    """What finds the functions of a module on a server."""

    __slots__ = ("_found", "handle", "peer")

    def __init__(self, peer: ClientPeer, handle: int) -> None:
        self.peer, self.handle = peer, handle
        self._found: dict[tuple[str, bool], PackedFunc] = {}

    def __del__(self) -> None:
        self.peer.free_later(self.handle)

    def find(self, name: str, query_imports: bool = False) -> PackedFunc | None:
        """A function by its name, or None; what was found once is remembered."""
        key = name, query_imports
        if key not in self._found:
            function = self.expect(object, "rpc.module_function", name, query_imports)
            if function is None:
                return None
            if not isinstance(function, PackedFunc):
                raise RPCProtocolError(f"{self.peer} gave no function")
            self._found[key] = function
        return self._found[key]

    def expect(self, kind: type[T], name: str, *args: Any) -> T:
        """What one of the server's own functions gives for the module."""
        return self.peer.expect(kind, name, Handle(MODULE, self.handle), *args)


class RemoteModule(Module):
    """A module on a server. Its functions run there, on arrays that are there."""

    __slots__ = ()

    @property
    def _server(self) -> ServersModule:
        server: ServersModule = self._implementation
        return server

    @property
    def kind(self) -> str:
        """What sort of module it is."""
        return "rpc"

    @property
    def remote_kind(self) -> str:
        """What sort of module it is on the server."""
        return self._server.expect(str, "rpc.module_kind")

    @property
    def home(self) -> Device:
        """The processor whose memory its functions work on."""
        return self._server.peer.device(1, 0)

    def _get_function(self, name: str, query_imports: bool, /) -> PackedFunc | None:
        return self._server.find(name, query_imports)

    def _find_global(self, name: str) -> PackedFunc:
        function = self._server.peer.call("rpc.get_function", name)
        if not isinstance(function, PackedFunc):
            raise ValueError(f"{self._server.peer} has no function '{name}'")
        return function

    @property
    def imported_modules(self) -> list[Any]:
        """The modules that it imports."""
        return self._server.expect(list, "rpc.module_imports")

    def import_module(self, module: _core.Module, /) -> None:
        """Add a module of the same server whose functions this one may use."""
        self._server.expect(object, "rpc.import_module", module)

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that times one of the module's functions there, by the server's clock."""
        expect_no_preparation(cache_flush_bytes, f_preproc, "on a server")
        evaluate = self._server.peer.expect(
            PackedFunc, "rpc.time_evaluator", self.get_function(func_name), dev, number, repeat,
            min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown,
        )
        return lambda *args: BenchmarkResult(self._times(evaluate(*args)))

    def _times(self, found: Any) -> list[float]:
        if not isinstance(found, list) or {type(each) for each in found} != {float}:
            raise RPCProtocolError(f"{self._server.peer} gave no times")
        return found
