"""What the calls of kernels mean in the interpreter: those of warpgroups.py, register_products.py
and fragments.py.

Calls that threads make together are done when the last one has come. Copies and products that run
beside the threads are done at once or as late as it may be: whoever does not wait for them, or
overwrites what they read, gets wrong numbers with some seed.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.tir import device_products as products
from sterna.tir import fragments as F
from sterna.tir.device_blocks import (
    GROUP,
    BarrierInMemory,
    Groups,
    Machine,
    address_in,
    bytes_of,
    elements,
)
from sterna.tir.device_threads import Given, Meeting, Stop, Until
from sterna.tir.fragments import WARP
from sterna.tir.memory import Pointer, to_bits
from sterna.tir.stmt import Stmt

Wait = Generator[Stop, Any, Any]


@dataclass(frozen=True, slots=True)
class Collective:
    """What neighbouring threads do together."""

    threads: int
    perform: Callable[[Machine, Call, Given], list[Any] | None]


COLLECTIVES = {
    **{name: Collective(WARP, products.fragments) for name in F.FRAGMENTS_OF},
    F.PTX_MMA: Collective(WARP, products.ptx_mma),
    F.PTX_LDMATRIX: Collective(WARP, products.ptx_ldmatrix),
    "mma": Collective(WARP, products.mma),
    "ldmatrix": Collective(WARP, products.ldmatrix),
    "stmatrix": Collective(WARP, products.stmatrix),
    "first_lane": Collective(WARP, products.first_lane),
    "warp_sync": Collective(WARP, products.nothing),
    "wgmma": Collective(GROUP, products.wgmma),
    "wgmma_registers": Collective(GROUP, products.wgmma_registers),
    "wgmma_commit": Collective(GROUP, products.commit_products),
    "wgmma_wait": Collective(GROUP, products.wait_for_products),
}


def cluster_of(body: Stmt) -> int:
    """How many blocks a kernel lets run together."""
    sizes = [1]

    def look(node: Node) -> None:
        if isinstance(node, Call) and node.op == "cluster_size":
            sizes.append(build.int_value(node.args[0]) or 1)

    post_order(body, look)
    return sizes[-1]


# ---- barriers ----


def _begin_barrier(machine: Machine, address: int, arrivals: int) -> None:
    block, place = machine.thread.block.owner(address)
    block.barriers[place] = BarrierInMemory(arrivals, arrivals)


def _expect(machine: Machine, address: int, size: int) -> None:
    machine.thread.block.barrier_at(address).arrive(size)


def _arrive(machine: Machine, address: int) -> None:
    machine.thread.block.barrier_at(address).arrive()


def _wait_for_barrier(machine: Machine, call: Call) -> Wait:
    address, parity = (machine.expr(arg) for arg in call.args)
    barrier = machine.thread.block.barrier_at(address)
    yield Until(lambda: barrier.phase != parity, f"phase {parity} of the barrier at {address}")


def _named(machine: Machine, call: Call) -> Meeting:
    number, threads = (machine.expr(arg) for arg in call.args)
    key = (machine.thread.block.number, "named", number)
    return Meeting(key, threads, f"the named barrier {number}", "block")


def _wait_for_named(machine: Machine, call: Call) -> Wait:
    yield _named(machine, call)


def _arrive_at_named(machine: Machine, call: Call) -> int:
    machine.threads.arrive(_named(machine, call))
    return 0


def _arrive_in_cluster(machine: Machine) -> None:
    thread = machine.thread
    arrivals = thread.block.cluster[0].arrivals
    arrivals[thread] = arrivals.get(thread, 0) + 1


def _wait_for_cluster(machine: Machine, call: Call) -> Wait:
    """Threads that have arrived wait until all others of the cluster have."""
    cluster = machine.thread.block.cluster
    arrivals, own = cluster[0].arrivals, cluster[0].arrivals[machine.thread]
    count = sum(each.threads for each in cluster)
    yield Until(
        lambda: len(arrivals) == count and min(arrivals.values()) >= own, "a cluster's threads"
    )


def _wait_for_count(machine: Machine, call: Call) -> Wait:
    count, wanted = (machine.expr(arg) for arg in call.args)
    yield Until(lambda: int(elements(count, 1)[0]) >= wanted, f"a count of {wanted}")


def _add_count(machine: Machine, call: Call, lanes: Given) -> None:
    elements(lanes[0][1][0], 1)[0] += 1


def _take_ticket(machine: Machine, to: Pointer, count: Pointer) -> None:
    elements(to, 1)[0] = elements(count, 1)[0]
    elements(count, 1)[0] += 1


# ---- copies ----


def _load_box(machine: Machine, to: int, barrier: int, map_: Any, *at: int) -> None:
    _load(machine, to, barrier, map_, map_.tile(at))


def _load_windows(machine: Machine, to: int, barrier: int, map_: Any, *at: int) -> None:
    _load(machine, to, barrier, map_, map_.windows(at[:4], at[4:]))


def _load(machine: Machine, to: int, barrier: int, map_: Any, found: Any) -> None:
    block, place = machine.thread.block.owner(to)
    waits = machine.thread.block.barrier_at(barrier)
    machine.threads.run_beside(lambda: waits.come(map_.load(block.shared, place, found)))


def _groups(machine: Machine, what: str) -> Groups:
    thread = machine.thread
    found: Groups = thread.block.groups_of(what, thread.number)
    return found


def _store_box(machine: Machine, map_: Any, source: int, *at: int) -> None:
    block, place = machine.thread.block.owner(source)
    found = map_.tile(at)
    _groups(machine, "stores").add(lambda: map_.store(block.shared, place, found), machine.random)


def _copy_in(machine: Machine, to: int, source: Pointer, size: int) -> None:
    block = machine.thread.block

    def copy() -> None:
        copied = np.zeros(16, np.uint8)
        copied[:size] = bytes_of(source, size)
        block.bytes_at(to, 16)[:] = copied

    _groups(machine, "copies").add(copy, machine.random)


def _cp_async(
    machine: Machine, to: Pointer, offset: int, source: Pointer, behind: int, size: int,
    wanted: int = 1,
) -> None:
    if size not in (4, 8, 16):
        raise ValueError(f"ptx_cp_async copies 4, 8 or 16 bytes, not {size}")

    def copy() -> None:
        found = bytes_of(products.moved_by(source, behind), size) if wanted else 0
        bytes_of(products.moved_by(to, offset), size)[:] = found

    _groups(machine, "copies").add(copy, machine.random)


def _commit(what: str) -> Callable[[Machine], None]:
    return lambda machine: _groups(machine, what).commit()


def _wait(what: str) -> Callable[[Machine, int], None]:
    return lambda machine, left: _groups(machine, what).wait(left)


# ---- words and numbers ----


def _words_at(machine: Machine, address: int, count: int) -> Any:
    return machine.thread.block.bytes_at(address, 4 * count).view(np.float32)


def _keep_pair(machine: Machine, to: int, a: float, b: float) -> None:
    _words_at(machine, to, 2)[:] = a, b


def _load_quad(machine: Machine, to: Pointer, source: int) -> None:
    bytes_of(to, 16)[:] = machine.thread.block.bytes_at(source, 16)


def _load_float(machine: Machine, to: Pointer, source: int) -> None:
    bytes_of(to, 4)[:] = machine.thread.block.bytes_at(source, 4)


def _load_pair(machine: Machine, to: Pointer, source: int) -> None:
    bytes_of(to, 8)[:] = machine.thread.block.bytes_at(source, 8)


def _fetch_quad(machine: Machine, to: Pointer, source: Pointer) -> None:
    bytes_of(to, 16)[:] = bytes_of(source, 16)


def _keep_words(machine: Machine, to: int, *words: int) -> None:
    machine.thread.block.bytes_at(to, 16)[:] = np.array(words, np.uint32).view(np.uint8)


def _store_words(machine: Machine, to: Pointer, *words: int) -> None:
    bytes_of(to, 4 * len(words))[:] = np.array(words, np.uint32).view(np.uint8)


def _copy_chunk(machine: Machine, to: Pointer, source: int) -> None:
    bytes_of(to, 16)[:] = machine.thread.block.bytes_at(source, 16)


def _store_pair(machine: Machine, to: Pointer, a: float, b: float) -> None:
    bytes_of(to, 8)[:] = np.array([a, b], np.float32).view(np.uint8)


def _send_quad(machine: Machine, to: int, source: Pointer, barrier: int) -> None:
    block = machine.thread.block
    sent, waits = bytes_of(source, 16).copy(), block.barrier_at(barrier)

    def send() -> None:
        block.bytes_at(to, 16)[:] = sent
        waits.come(16)

    machine.threads.run_beside(send)


def _multiply_quads(
    machine: Machine, sums: Pointer, a: Pointer, b: Pointer, rows: int, columns: int, by_steps: int
) -> None:
    left = elements(a, 4 * rows).reshape(rows, 4)
    right = elements(b, 4 * columns)
    right = right.reshape(4, columns) if by_steps else right.reshape(columns, 4).T
    total = elements(sums, rows * columns)
    total += (left.astype(np.float64) @ right.astype(np.float64)).T.reshape(-1).astype(np.float32)


def _pack_pair(machine: Machine, low: float, high: float, kind: str) -> int:
    dtype = DataType(kind)
    if kind == "float16":
        halves = np.array([low, high], np.float16).view(np.uint16)
        return int(halves[0]) | int(halves[1]) << 16
    return to_bits(low, dtype) | to_bits(high, dtype) << 16


def _does(function: Callable[..., Any]) -> Callable[[Machine, Call], Any]:
    """A function of the values of a call's arguments."""

    def call(machine: Machine, expr: Call) -> Any:
        made = function(machine, *[machine.expr(arg) for arg in expr.args])
        return 0 if made is None else made

    return call


def _idle(machine: Machine, expr: Call) -> int:
    """What changes no number."""
    return 0


CALLS: dict[str, Callable[[Machine, Call], Any]] = {
    **dict.fromkeys(
        ("tma_prefetch", "mbarrier_ready", "async_fence", "launch_dependents", "wait_for_grids",
         "registers", "blocks_at_once", "cluster_size", "settle", "wgmma_fence"), _idle
    ),
    "shared_address": _does(lambda machine, at: machine.thread.block.address_of(at)),
    "cluster_rank": _does(lambda machine: machine.thread.block.rank),
    "cluster_address": _does(lambda machine, address, rank: address_in(rank, address)),
    "cluster_arrive": _does(_arrive_in_cluster),
    "mbarrier_init": _does(_begin_barrier),
    "mbarrier_expect": _does(_expect),
    "mbarrier_arrive": _does(_arrive),
    "named_arrive": _arrive_at_named,
    "take_ticket": _does(_take_ticket),
    "tma_load": _does(_load_box),
    "tma_load_im2col": _does(_load_windows),
    "tma_store": _does(_store_box),
    "tma_commit": _does(_commit("stores")),
    "tma_wait_read": _does(_wait("stores")),
    "copy_in": _does(_copy_in),
    "copy_in_commit": _does(_commit("copies")),
    "copy_in_wait": _does(_wait("copies")),
    F.PTX_CP_ASYNC: _does(_cp_async),
    F.COMMIT: _does(_commit("copies")),
    F.WAIT: _does(_wait("copies")),
    "keep_pair": _does(_keep_pair),
    "load_quad": _does(_load_quad),
    "load_float": _does(_load_float),
    "load_pair": _does(_load_pair),
    "fetch_quad": _does(_fetch_quad),
    "fetch_once": _does(_fetch_quad),
    "keep_words": _does(_keep_words),
    "store_words": _does(_store_words),
    "store_word": _does(_store_words),
    "store_pair": _does(_store_pair),
    "copy_chunk": _does(_copy_chunk),
    "send_quad": _does(_send_quad),
    "multiply_quads": _does(_multiply_quads),
    "pack_pair": _does(_pack_pair),
}
COLLECTIVES["add_count"] = Collective(WARP, _add_count)
WAITS: dict[str, Callable[[Machine, Call], Wait]] = {
    "mbarrier_wait": _wait_for_barrier,
    "named_barrier": _wait_for_named,
    "cluster_wait": _wait_for_cluster,
    "await_count": _wait_for_count,
}
