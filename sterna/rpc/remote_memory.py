"""A server's memory as the runtime of the client sees it."""

import itertools
import weakref
from typing import TYPE_CHECKING

from sterna.rpc import frames, values
from sterna.rpc.errors import RPCError, RPCProtocolError
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.rpc.remote import ClientPeer

# An address of remote memory: the number of the block, and in the low bits the place in it.
OFFSET_BITS = 38
OFFSET_MASK = (1 << OFFSET_BITS) - 1
MOST_BLOCKS = 1 << 62 - OFFSET_BITS


class Addresses:
    """The numbers of blocks, of all sessions: what one session had, no other one mistakes for its.

    A number is used again when the array over it is gone, which may be long after its session.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[object, int]] = {}
        self._unused: list[int] = []
        self._last = itertools.count(1)

    def take(self, owner: object, handle: int) -> int:
        """A new address for a handle of an owner's."""
        number = self._unused.pop() if self._unused else next(self._last)
        if number >= MOST_BLOCKS:
            raise MemoryError(f"there are {MOST_BLOCKS} remote arrays")
        self._blocks[number] = owner, handle
        return number << OFFSET_BITS

    def give_back(self, address: int) -> None:
        """Nothing refers to an address any more."""
        number = address >> OFFSET_BITS
        if self._blocks.pop(number, None) is not None:
            self._unused.append(number)

    def find(self, owner: object, address: int) -> tuple[int, int]:
        """Handle and offset that an address stands for."""
        its, handle = self._blocks.get(address >> OFFSET_BITS, (None, 0))
        if its is not owner:
            raise RPCError("the array belongs to a session that has ended")
        return handle, address & OFFSET_MASK


ADDRESSES = Addresses()


class Block:
    """Memory on a server, which lives as long as this does."""

    __slots__ = ("address", "handle", "is_unused", "peer")

    def __init__(self, peer: "ClientPeer", handle: int) -> None:
        self.peer, self.handle = peer, handle
        self.address = ADDRESSES.take(peer.memory, handle)
        self.is_unused = True  # when this ends, no array has the address

    def __del__(self) -> None:
        if self.is_unused:
            ADDRESSES.give_back(self.address)
        self.peer.free_later(self.handle)


class RemoteMemory:
    """A server's memory, for the runtime."""

    def __init__(self, peer: "ClientPeer") -> None:
        self._peer = weakref.ref(peer)
        self._allocated: dict[int, Block] = {}
        self._known: dict[tuple[int, int], bool] = {}

    def peer(self) -> "ClientPeer":
        """The session, which lives while any of its memory does."""
        peer = self._peer()
        if peer is None:
            raise RPCError("the session of the remote device has ended")
        return peer

    def find(self, address: int) -> tuple[int, int]:
        """Handle and offset that an address stands for."""
        return ADDRESSES.find(self, address)

    # ---- what the runtime calls ----

    def exists(self, device_type: int, device_id: int) -> bool:
        """Whether the server has a device; asked once."""
        device = device_type, device_id
        if device not in self._known:
            peer = self.peer()
            self._known[device] = peer.expect(bool, "rpc.device_exists", peer.device(*device))
        return self._known[device]

    def allocate(self, device_type: int, device_id: int, nbytes: int) -> int:
        """The address of new memory."""
        peer = self.peer()
        if nbytes > OFFSET_MASK:
            raise MemoryError(f"a remote array of {nbytes} bytes is too large")
        head = bytearray()
        values.encode(head, peer.device(device_type, device_id), peer)
        values.encode(head, DataType("uint8"), peer)
        values.encode_shape(head, (nbytes,))
        with peer.blocks_only():
            block = peer.request(frames.ALLOC, head)
        if not isinstance(block, Block):
            raise RPCProtocolError(f"{peer} gave no memory")
        block.is_unused = False  # the runtime has it, until it calls release
        self._allocated[block.address] = block
        return block.address

    def release(self, address: int) -> None:
        """Memory that allocate gave is no longer used."""
        block = self._allocated.pop(address, None)
        if block is not None:
            block.is_unused = True

    def copy_to(self, address: int, source: memoryview) -> None:
        """Fill memory there from memory here."""
        peer = self.peer()
        head = bytearray()
        for number in self.find(address):
            values.encode(head, number, peer)
        peer.request(frames.COPY_TO, head, bulk=source)

    def copy_from(self, address: int, target: memoryview) -> None:
        """Fill memory here from memory there."""
        peer = self.peer()
        head = bytearray()
        for number in (*self.find(address), len(target)):
            values.encode(head, number, peer)
        peer.request(frames.COPY_FROM, head, into=target)

    def copy_within(self, to: int, source: int, nbytes: int) -> None:
        """Copy memory there."""
        peer = self.peer()
        head = bytearray()
        for number in (*self.find(to), *self.find(source), nbytes):
            values.encode(head, number, peer)
        peer.request(frames.COPY_WITHIN, head)

    def sync(self, device_type: int, device_id: int) -> None:
        """Wait until all work on a device is done."""
        peer = self.peer()
        peer.call("rpc.device_sync", peer.device(device_type, device_id))
