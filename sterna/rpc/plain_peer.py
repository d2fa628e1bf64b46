"""A side that has no arrays, devices or modules to share: that of trackers and of who asks them."""

from typing import Any

from sterna.rpc import frames
from sterna.rpc.errors import RPCProtocolError
from sterna.rpc.peer import Peer
from sterna.rpc.streams import Stream
from sterna.runtime import Device, Module, NDArray
from sterna.support.dtype import DataType

REFUSAL = "numbers, text, bytes and lists are all that is understood here"


class PlainPeer(Peer):
    """Sends and takes numbers, text, bytes and lists of these."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, frames.MOST_HEAD, frames.MOST_HEAD)

    def send_object(self, value: Any) -> tuple[int, int, int]:
        """Refused."""
        raise TypeError(REFUSAL)

    def take_object(self, tag: int, owner: int, handle: int) -> Any:
        """Refused."""
        raise RPCProtocolError(REFUSAL)

    def send_module(self, module: Module) -> tuple[int, int, int]:
        """Refused."""
        raise TypeError(REFUSAL)

    def take_module(self, handle: int) -> Module:
        """Refused."""
        raise RPCProtocolError(REFUSAL)

    def send_array(self, array: NDArray) -> tuple[int, int, int, Device]:
        """Refused."""
        raise TypeError(REFUSAL)

    def take_array(
        self, owner: int, handle: int, offset: int, device: tuple[int, int], dtype: DataType,
        shape: tuple[int, ...],
    ) -> NDArray:
        """Refused."""
        raise RPCProtocolError(REFUSAL)

    def send_device(self, device: Device) -> Device:
        """Refused."""
        raise TypeError(REFUSAL)

    def take_device(self, device_type: int, device_id: int) -> Device:
        """Refused."""
        raise RPCProtocolError(REFUSAL)
