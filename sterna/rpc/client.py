"""Sessions: what a client does on a server."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sterna.rpc import frames, values
from sterna.rpc.addresses import CONNECT_S, open_stream
from sterna.rpc.errors import RPCError
from sterna.rpc.handshake import (
    SESSION,
    Hello,
    ServerBusy,
    Verdict,
    run_client_side,
    to_milliseconds,
)
from sterna.rpc.remote import ClientPeer
from sterna.rpc.streams import SocketStream, StreamEnded
from sterna.runtime import Device, Module, PackedFunc, device
from sterna.support.architecture import architectures_of
from sterna.support.classic import classic_names
from sterna.support.options import options

PIECE = 4 << 20
CODE_SUFFIXES = frozenset({".so", ".o", ".a", ".tar", ".dylib", ".dll"})
RETRY_S = 0.1


class RPCSession:
    """A session on a server: upload, load, run there.

    It ends when it and all that came out of it are no longer used, or by close, or as a context.
    """

    def __init__(self, peer: ClientPeer) -> None:
        self._peer = peer

    def close(self) -> None:
        """End the session now; what came out of it is of no use afterwards."""
        self._peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RPCSession({self._peer})"

    # ---- files ----

    def upload(self, data: Any, target: str | None = None) -> None:
        """Put a file, or bytes under a name, into the session's folder."""
        if isinstance(data, bytes | bytearray | memoryview):
            if target is None:
                raise ValueError("bytes are uploaded under a name: upload(data, target='net.so')")
            self._upload(memoryview(data).cast("B"), target)
            return
        path = Path(data)
        self._check_architecture(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise type(error)(f"cannot upload '{path}': {error.strerror}") from None
        self._upload(memoryview(content), target or path.name)

    def _check_architecture(self, path: Path) -> None:
        """Refuse code that the server cannot load, before it travels."""
        if path.suffix not in CODE_SUFFIXES or not path.is_file():
            return
        machine = self._peer.architecture()
        try:
            found = architectures_of(path)
        except ValueError:
            return  # what it is, is for its loader to say
        if machine is not None and not any(each.runs_on(machine) for each in found):
            raise ValueError(
                f"'{path}' is built for {found[0]}, and {self._peer} is {machine}; build it for "
                "that machine's target"
            )

    def _upload(self, data: memoryview, name: str) -> None:
        piece = max(1024, min(PIECE, self._peer._most_head_there // 2))
        at = 0
        while True:
            part = data[at : at + piece]
            is_last = at + len(part) == len(data)
            self._peer.call("rpc.upload", name, at, part, is_last)
            at += len(part)
            if is_last:
                return

    def download(self, path: str) -> bytearray:
        """A file of the session's folder."""
        content = bytearray()
        while part := self._peer.expect(bytes, "rpc.download", path, len(content), PIECE):
            content += part
        return content

    def remove(self, path: str) -> None:
        """Remove a file or folder of the session's folder."""
        self._peer.call("rpc.remove", path)

    def listdir(self, path: str = "") -> list[str]:
        """The names in the session's folder, or in a folder in it."""
        return self._peer.expect(list, "rpc.listdir", path)

    # ---- code ----

    def get_function(self, name: str) -> PackedFunc:
        """A registered function of the server's."""
        function = self._peer.call("rpc.get_function", name)
        if not isinstance(function, PackedFunc):
            raise AttributeError(f"{self._peer} has no function '{name}'")
        return function

    def load_module(self, path: str) -> Module:
        """Load a file that was uploaded; its functions run there."""
        return self._module("rpc.load_module", path)

    def system_lib(self, prefix: str = "") -> Module:
        """The functions that are linked into the server."""
        return self._module("rpc.system_lib", prefix)

    def _module(self, function: str, argument: str) -> Module:
        return self._peer.expect(Module, function, argument)

    def download_linked_module(self, path: str) -> bytearray:
        """The shared library of an uploaded file, linked there if it is not one yet."""
        return self.download(self._peer.expect(str, "rpc.link", path))

    # ---- devices ----

    def device(self, dev_type: str | int | Device, dev_id: int = 0) -> Device:
        """A device of the server's, by a name like "cpu" or "cuda:1", or by its number."""
        local = dev_type if isinstance(dev_type, Device) else device(dev_type, dev_id)
        return self._peer.device(local.device_type, local.device_id)

    def cpu(self, dev_id: int = 0) -> Device:
        """The server's processor."""
        return self.device("cpu", dev_id)

    def cuda(self, dev_id: int = 0) -> Device:
        """An NVIDIA GPU of the server's."""
        return self.device("cuda", dev_id)

    def cl(self, dev_id: int = 0) -> Device:
        """An OpenCL device of the server's."""
        return self.device("opencl", dev_id)

    def vulkan(self, dev_id: int = 0) -> Device:
        """A Vulkan device of the server's."""
        return self.device("vulkan", dev_id)

    def metal(self, dev_id: int = 0) -> Device:
        """An Apple GPU of the server's."""
        return self.device("metal", dev_id)

    def rocm(self, dev_id: int = 0) -> Device:
        """An AMD GPU of the server's."""
        return self.device("rocm", dev_id)

    def ext_dev(self, dev_id: int = 0) -> Device:
        """A device of somebody else's making at the server."""
        return self.device("ext_dev", dev_id)

    def hexagon(self, dev_id: int = 0) -> Device:
        """A Hexagon DSP of the server's."""
        return self.device("hexagon", dev_id)

    def webgpu(self, dev_id: int = 0) -> Device:
        """A GPU of the server's behind WebGPU."""
        return self.device("webgpu", dev_id)


def connect(
    url: str,
    port: int,
    key: str = "",
    session_timeout: float = 0,
    session_constructor_args: Sequence[Any] | None = None,
    enable_logging: bool = False,
    *,
    tls_ca: str | None = None,
) -> RPCSession:
    """A session on a server, which ends it after session_timeout seconds if that is not 0.

    The server may allow less. Whatever it does, the client waits no longer than either says.

    The secret that the server wants is STERNA_RPC_SECRET; a wrong one is a PermissionError.
    session_constructor_args make another session behind it: ["rpc.Connect", host, port, key].
    tls_ca, else STERNA_RPC_TLS_CA, is a file of certificates to know the server by, over TLS.
    """
    hello = Hello(SESSION, key, to_milliseconds(session_timeout))
    end = time.monotonic() + CONNECT_S
    was_busy = False
    while True:
        started = time.monotonic()
        if was_busy and started >= end:
            raise busy(url, port)
        stream = open_stream(url, port, tls_ca, end - started)
        try:
            verdict = shake_hands(stream, hello)
            break
        except ServerBusy:
            stream.close()
            was_busy = True
            time.sleep(RETRY_S)
        except BaseException as error:
            stream.close()
            if was_busy and isinstance(error, TimeoutError):
                raise busy(url, port) from None
            raise named(error, f"{url}:{port}") from None
    stream.set_deadline(None)
    name = f"{url}:{port}" + (f" ({verdict.name})" if verdict.name else "")
    peer = ClientPeer(
        stream, name, verdict.most_head, verdict.lasts(hello), started, enable_logging
    )
    construct(peer, session_constructor_args or ())
    return RPCSession(peer)


def busy(url: str, port: int) -> RPCError:
    """What to say when a server stays busy."""
    return RPCError(f"{url}:{port} was busy for {CONNECT_S:g} seconds")


def shake_hands(stream: SocketStream, hello: Hello) -> Verdict:
    """A client's handshake, and once more behind a proxy."""
    verdict = run_client_side(stream, hello, options.rpc_secret)
    if verdict.is_proxied:
        verdict = run_client_side(stream, hello, options.rpc_secret)
    return verdict


def named(error: BaseException, where: str) -> BaseException:
    """An exception that says where it happened."""
    if isinstance(error, StreamEnded):
        return RPCError(f"{where}: {error} during the handshake")
    if isinstance(error, TimeoutError):
        return RPCError(f"{where} did not answer the handshake within {CONNECT_S:g} seconds")
    if isinstance(error, RPCError | PermissionError):
        return type(error)(f"{where}: {error}")
    return error


def construct(peer: ClientPeer, args: Sequence[Any]) -> None:
    """Let the server make another session behind this one."""
    if not args:
        return
    head = bytearray()
    for value in args:
        values.encode(head, _content(value), peer)
    peer.request(frames.INIT, head)


def _content(value: Any) -> Any:
    """A program that is named by a path goes over as its bytes."""
    return Path(value).read_bytes() if isinstance(value, os.PathLike) else value


__getattr__ = classic_names(__name__)
