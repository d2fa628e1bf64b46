"""What the interpreter knows of a block of threads: its shared memory, barriers in it, and groups
of copies and products that run beside the threads.

Addresses in shared memory are integers: the place in the block's own memory, and above it the
number of the block in its cluster plus one where another block's is meant.
"""

import random
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.support.float_format import format_of, is_small_float
from sterna.tir.device_threads import Thread, Threads
from sterna.tir.fragments import Fragment
from sterna.tir.memory import Pointer, as_type, storage_type, to_bits
from sterna.tir.stmt import Buffer

Numbers = npt.NDArray[Any]
_RANK_BITS = 24
GROUP = 128
"""The threads of four warps, which multiply together."""


class Machine(Protocol):
    """What runs kernels, as those see it who say what calls mean."""

    thread: Thread
    threads: Threads
    random: random.Random
    fragments: dict[Buffer, Fragment]

    def expr(self, expr: Expr) -> Any:
        """What an expression is for the thread at hand."""

    def touch(
        self, memory: Numbers, places: Iterable[int], buffer: Buffer, who: int, writes: bool
    ) -> None:
        """Note who reads or writes elements: a thread, or below -1 a warp."""


@dataclass(slots=True)
class BarrierInMemory:
    """Counts arrivals and bytes; when all have come, its phase changes."""

    arrivals: int
    left: int
    bytes_left: int = 0
    phase: int = 0

    def arrive(self, bytes_to_come: int = 0) -> None:
        """One of the arrivals, and bytes that will come too."""
        self.left -= 1
        self.come(-bytes_to_come)

    def come(self, size: int) -> None:
        """So many bytes have come."""
        self.bytes_left -= size
        if self.left == 0 and self.bytes_left == 0:
            self.phase ^= 1
            self.left = self.arrivals


@dataclass(slots=True)
class Groups:
    """Work that is done in order, by groups of which some may still be waited for."""

    begun: list[Callable[[], None]] = field(default_factory=list)
    groups: list[list[Callable[[], None]]] = field(default_factory=list)

    def add(self, work: Callable[[], None], order: random.Random) -> None:
        """Do something now, where nothing before it is left to do, or as late as it may be."""
        if not self.begun and not any(self.groups) and order.random() < 0.5:
            work()
        else:
            self.begun.append(work)

    def commit(self) -> None:
        """What was added is a group."""
        self.groups.append(self.begun)
        self.begun = []

    def wait(self, left: int) -> None:
        """Do all but the last groups."""
        while len(self.groups) > left:
            for work in self.groups.pop(0):
                work()


@dataclass(slots=True, eq=False)
class Block:
    """A block of threads."""

    number: int
    place: tuple[int, ...]
    cluster: list["Block"]
    """The blocks that run together with it, itself among them."""
    threads: int = 0
    shared: Numbers = field(default_factory=lambda: np.zeros(0, np.uint8))
    open: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Addresses that threads have touched since the last barrier: who, and whether it was written.
    -1: several have read it."""
    barriers: dict[int, BarrierInMemory] = field(default_factory=dict)
    groups: dict[Hashable, Groups] = field(default_factory=dict)
    """By who waits for them, and what they are."""

    arrivals: dict[Thread, int] = field(default_factory=dict)
    """Of the first block of a cluster: how often each thread of the cluster has arrived."""

    @property
    def rank(self) -> int:
        """Its number in the cluster."""
        return self.cluster.index(self)

    def groups_of(self, *key: Hashable) -> Groups:
        """Those of a thread or of some warps."""
        return self.groups.setdefault(key, Groups())

    def finish(self) -> None:
        """Do what nobody has waited for."""
        for groups in self.groups.values():
            groups.commit()
            groups.wait(0)

    def owner(self, address: int) -> tuple["Block", int]:
        """Whose shared memory an address is in, and where."""
        rank, place = address >> _RANK_BITS, address & (1 << _RANK_BITS) - 1
        return (self.cluster[rank - 1] if rank else self), place

    def bytes_at(self, address: int, size: int) -> Numbers:
        """Shared memory at an address, to read or write."""
        block, place = self.owner(address)
        if place + size > len(block.shared):
            raise IndexError(
                f"bytes {place} to {place + size} are outside of a block's {len(block.shared)} "
                "bytes of shared memory"
            )
        return block.shared[place : place + size]

    def barrier_at(self, address: int) -> BarrierInMemory:
        """A barrier that was begun."""
        block, place = self.owner(address)
        if place not in block.barriers:
            raise ValueError(f"there is no barrier at {place} in shared memory: it was not begun")
        return block.barriers[place]

    def address_of(self, at: Pointer) -> int:
        """Where an element of shared memory is."""
        start = at.memory.ctypes.data + at.offset * at.memory.itemsize
        return int(start - self.shared.ctypes.data)


def address_in(rank: int, address: int) -> int:
    """Where another block of a cluster has what is at an address in this one."""
    return rank + 1 << _RANK_BITS | address & (1 << _RANK_BITS) - 1


def elements(at: Pointer, count: int) -> Numbers:
    """Elements from an address on, to read or write."""
    found = at.memory[at.offset : at.offset + count]
    if len(found) < count:
        raise IndexError(f"{count} elements from {at.offset} on are more than the memory has")
    return found


def bytes_of(at: Pointer, size: int) -> Numbers:
    """Bytes from an element on, to read or write."""
    whole = at.memory.view(np.uint8)
    first = at.offset * at.memory.itemsize
    if first + size > len(whole):
        raise IndexError(f"{size} bytes from byte {first} on are more than the memory has")
    return whole[first : first + size]


def decoded(bits: Numbers, dtype: DataType) -> Numbers:
    """The numbers of bytes, as float64 or int64."""
    kind = storage_type(dtype)
    raw = np.ascontiguousarray(bits).view(np.uint8).view(kind)
    if str(dtype) == "bfloat16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if is_small_float(str(dtype)) and dtype.kind != "float":
        known = np.array([format_of(dtype).decode(code) for code in range(1 << dtype.bits)])
        return np.asarray(known[raw])
    return raw.astype(np.float64 if dtype.is_float else np.int64)


def encoded(numbers: Numbers, dtype: DataType) -> Numbers:
    """Numbers as the elements of an array hold them, rounded or wrapped to their type."""
    if dtype.kind == "float":
        with np.errstate(over="ignore"):
            return numbers.astype(storage_type(dtype))
    if dtype.is_float:
        kind = storage_type(dtype)
        flat = [to_bits(as_type(value, dtype), dtype) for value in numbers.reshape(-1).tolist()]
        return np.array(flat, kind).reshape(numbers.shape)
    return np.rint(numbers).astype(np.int64).astype(storage_type(dtype))


def shortened(numbers: Numbers) -> Numbers:
    """float32 as Tensor Cores take them: tf32, with 10 bits behind the point."""
    bits = numbers.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32).astype(np.float64)
