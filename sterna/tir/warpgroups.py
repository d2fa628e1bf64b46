"""What warps of a GPU do together: Tensor Cores, and copies that run beside the threads.

Shared memory is named by addresses of 32 bits in it. A *tensor map* says how an array lies in
memory and how large the boxes are that are copied out of it. A *barrier in memory* counts arrivals
and bytes; each time all have come its phase changes from even to odd or back.

    tensor_map(address, line)  handle: the map of the array at an address. The line says what it
                               holds, as runtime/gpu/kernels.h describes it; a kernel gets the map
                               as a parameter
    shared_address(address)    int32: the address in shared memory of an element there
    tma_prefetch(map)          copies will need a map soon
    tma_load(to, barrier, map, coordinate ...)
                               a box, from its coordinates on, into shared memory; its bytes count
                               on the barrier. What is outside of the array is zero
    tma_load_im2col(to, barrier, map, c, w, h, n, tap across, tap down)
                               the same of the pixels that windows read, as columns
    tma_store(map, from, coordinate ...), tma_commit(), tma_wait_read(n)
                               a box from shared memory into the array; what was stored so far is a
                               group; wait until all but n groups were read
    mbarrier_init(barrier, n), mbarrier_ready(), mbarrier_expect(barrier, bytes)
                               a barrier for n arrivals; all see it; arrive, and bytes will come too
    mbarrier_arrive(barrier), mbarrier_wait(barrier, parity)
                               arrive; wait until the phase of that parity is over
    wgmma(kind, columns, sums, a, b, adds, a_along_rows, b_along_rows)
                               sums = a times b, plus sums if adds: 64 rows and so many columns in
                               the registers of four warps, from matrices in shared memory that
                               descriptors name. kind: the type of a and b
    wgmma_fence(), wgmma_commit(), wgmma_wait(n)
                               registers are ready; products so far are a group; wait until all but
                               n groups are done
    stmatrix(to, transposed, a, b ...)
                               two or four matrices of 8 x 8 numbers of 16 bits from the registers
                               of a warp into shared memory; lane l names the place of row l
    copy_in(to, address, size) 16 bytes into shared memory, of which so many come from the device's
                               and the others are zero
    copy_in_commit(), copy_in_wait(n)
                               copies so far are a group; wait until all but n groups are done
    ldmatrix(to, from)         four matrices of 8 x 8 numbers of 16 bits from shared memory into
                               words of the registers of a warp; lane l names the place of row l
    mma(kind, sums, a, b)      sums += a times b: 16 rows, 8 columns and 16 steps in the registers
                               of a warp; of float32 8 steps, and ten bits of each fraction count
    pack_pair(low, high)       uint32: two floats as numbers of 16 bits of the type that `as` names
    copy_chunk(address, from)  16 bytes from shared memory into the device's
    store_word(address, word)  4 bytes into the device's memory
    store_pair(address, a, b)  two numbers of float32 into the device's memory
    keep_pair(to, a, b)        the same into shared memory
    load_quad(to, from)        four numbers of 4 bytes from shared memory
    multiply_quads(sums, a, b, rows, columns, b_by_steps)
                               sums[column][row] += a[row] times b[column], four steps of each; b
                               may have its columns side by side instead: b[step][column]
    blocks_at_once(n)          registers are given such that a processor has n blocks at once
    cluster_size(n)            n neighbouring blocks run together and reach each other's shared
                               memory
    cluster_rank()             int32: the number of a block among them
    cluster_address(x, rank)   int32: the address in another block's shared memory of what is at x
                               here
    cluster_arrive(), cluster_wait()
                               threads of all these blocks wait for each other
    send_quad(to, from, barrier)
                               four numbers of 4 bytes into another block's shared memory; their
                               bytes count on a barrier there
    registers(n, more)         four warps go on with n registers for each thread, more than they
                               had or fewer
    first_lane(x)              int32: what the first lane of the warp has
    warp_sync(), named_barrier(number, threads), named_arrive(number, threads), async_fence()
                               lanes, or so many threads, wait for each other; arrive, but do not
                               wait; copies see what threads have put into shared memory
    launch_dependents(), wait_for_grids()
                               the next kernel may start (programmatic dependent launch); wait for
                               the kernels before this one
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, ExprLike, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import address_of
from sterna.tir.intrinsics import Intrinsic, register_intrinsic
from sterna.tir.stmt import BufferLoad

TENSOR_MAP = "tensor_map"

# Names, numbers of arguments (-1: any).
_ARITIES = {
    "tma_prefetch": 1, "tma_load": -1, "tma_load_im2col": 9, "tma_store": -1, "tma_commit": 0,
    "tma_wait_read": 1,
    "mbarrier_init": 2, "mbarrier_ready": 0, "mbarrier_expect": 2, "mbarrier_arrive": 1,
    "mbarrier_wait": 2, "wgmma": 8, "wgmma_fence": 0, "wgmma_commit": 0, "wgmma_wait": 1,
    "copy_in": 3, "copy_in_commit": 0, "copy_in_wait": 1, "ldmatrix": 2, "mma": 4,
    "stmatrix": -1, "copy_chunk": 2, "warp_sync": 0, "named_barrier": 2, "named_arrive": 2,
    "async_fence": 0,
    "store_word": 2, "store_pair": 3, "keep_pair": 3, "load_quad": 2, "cluster_size": 1,
    "blocks_at_once": 1,
    "cluster_arrive": 0, "cluster_wait": 0, "send_quad": 3, "registers": 2,
    "multiply_quads": 6, "first_lane": 1,
    "launch_dependents": 0, "wait_for_grids": 0,
}
_ROWS = (
    *[Intrinsic(name, arity, None, has_effect=True, result="int32")
      for name, arity in _ARITIES.items()],
    Intrinsic(TENSOR_MAP, 2, None, result="handle"),
    Intrinsic("shared_address", 1, None, result="int32"),
    Intrinsic("cluster_rank", 0, None, result="int32"),
    Intrinsic("cluster_address", 2, None, result="int32"),
    Intrinsic("pack_pair", 3, None, result="uint32"),
)
for _row in _ROWS:
    register_intrinsic(_row)
WARPGROUP_OPS = frozenset(row.name for row in _ROWS)
"""The names of all of them."""


def _do(name: str, *args: ExprLike) -> Call:
    return Call(INT32, name, tuple(build.as_expr(arg) for arg in args))


def tensor_map(array: BufferLoad, line: str) -> Expr:
    """The map of an array, whose first element is given."""
    return Call(HANDLE, TENSOR_MAP, (address_of(array), StringImm(line)))


def shared_address(element: BufferLoad) -> Expr:
    """Where an element of shared memory is."""
    return _do("shared_address", address_of(element))


def tma_prefetch(map_: Expr) -> Expr:
    """Bring a map near, before the first copy needs it."""
    return _do("tma_prefetch", map_)


def tma_load(to: Expr, barrier: Expr, map_: Expr, at: Sequence[ExprLike]) -> Expr:
    """Copy a box into shared memory."""
    return _do("tma_load", to, barrier, map_, *at)


def tma_load_im2col(
    to: Expr, barrier: Expr, map_: Expr, at: Sequence[ExprLike], tap: Sequence[ExprLike]
) -> Expr:
    """Copy the pixels that windows read at one of their taps (across, down)."""
    return _do("tma_load_im2col", to, barrier, map_, *at, *tap)


def tma_store(map_: Expr, source: Expr, at: Sequence[ExprLike]) -> Expr:
    """Copy a box out of shared memory."""
    return _do("tma_store", map_, source, *at)


def tma_commit() -> Expr:
    """What was stored so far is a group."""
    return _do("tma_commit")


def tma_wait_read(groups: int) -> Expr:
    """Wait until all but some groups of stores have read shared memory."""
    return _do("tma_wait_read", groups)


def mbarrier_init(barrier: Expr, arrivals: int) -> Expr:
    """Begin a barrier."""
    return _do("mbarrier_init", barrier, arrivals)


def mbarrier_ready() -> Expr:
    """Let copies see barriers that were begun."""
    return _do("mbarrier_ready")


def mbarrier_expect(barrier: Expr, size: ExprLike) -> Expr:
    """Arrive, and let a barrier wait for so many bytes."""
    return _do("mbarrier_expect", barrier, size)


def mbarrier_arrive(barrier: Expr) -> Expr:
    """Arrive at a barrier."""
    return _do("mbarrier_arrive", barrier)


def mbarrier_wait(barrier: Expr, parity: Expr) -> Expr:
    """Wait until the phase of a parity is over."""
    return _do("mbarrier_wait", barrier, parity)


def wgmma(
    kind: DataType | str, columns: int, sums: BufferLoad, a: Expr, b: Expr, adds: ExprLike,
    a_along_rows: bool = False, b_along_rows: bool = False,
) -> Expr:
    """Multiply 64 rows with so many columns; sums: the first of this thread's own."""
    return _do(
        "wgmma", StringImm(str(kind)), columns, address_of(sums), a, b, adds,
        int(a_along_rows), int(b_along_rows),
    )


def wgmma_fence() -> Expr:
    """Sums in registers are ready for products."""
    return _do("wgmma_fence")


def wgmma_commit() -> Expr:
    """The products so far are a group."""
    return _do("wgmma_commit")


def wgmma_wait(groups: int) -> Expr:
    """Wait until all but some groups of products are done."""
    return _do("wgmma_wait", groups)


def stmatrix(to: Expr, parts: Sequence[Expr], transposed: bool = False) -> Expr:
    """Store two or four matrices of 8 x 8 numbers."""
    return _do("stmatrix", to, int(transposed), *parts)


def copy_in(to: Expr, element: BufferLoad, size: Expr) -> Expr:
    """Copy 16 bytes into shared memory, of which those behind some are zero."""
    return _do("copy_in", to, address_of(element), size)


def copy_in_commit() -> Expr:
    """Copies so far are a group."""
    return _do("copy_in_commit")


def copy_in_wait(groups: int) -> Expr:
    """Wait until all but some groups of copies are done."""
    return _do("copy_in_wait", groups)


def ldmatrix(first: BufferLoad, source: Expr) -> Expr:
    """Load four matrices of 8 x 8 numbers into words, from one on."""
    return _do("ldmatrix", address_of(first), source)


def mma(kind: DataType | str, sums: BufferLoad, a: BufferLoad, b: BufferLoad) -> Expr:
    """Multiply 16 rows with 8 columns; the first of each thread's own are given."""
    return _do("mma", StringImm(str(kind)), *[address_of(each) for each in (sums, a, b)])


def pack_pair(kind: DataType | str, low: Expr, high: Expr) -> Expr:
    """Two floats as one word of two numbers of 16 bits."""
    return Call(DataType("uint32"), "pack_pair", (low, high, StringImm(str(kind))))


def copy_chunk(element: BufferLoad, source: Expr) -> Expr:
    """Copy 16 bytes from shared memory to where an element is."""
    return _do("copy_chunk", address_of(element), source)


def store_word(element: BufferLoad, word: Expr) -> Expr:
    """Put 4 bytes where an element is."""
    return _do("store_word", address_of(element), word)


def store_pair(element: BufferLoad, a: Expr, b: Expr) -> Expr:
    """Put two numbers of float32 where an element and the next one are."""
    return _do("store_pair", address_of(element), a, b)


def keep_pair(to: Expr, a: Expr, b: Expr) -> Expr:
    """Put two numbers of float32 into shared memory."""
    return _do("keep_pair", to, a, b)


def load_quad(first: BufferLoad, source: Expr) -> Expr:
    """Load four numbers of 4 bytes from shared memory, from an element of private memory on."""
    return _do("load_quad", address_of(first), source)


def send_quad(to: Expr, first: BufferLoad, barrier: Expr) -> Expr:
    """Send four numbers of 4 bytes to another block of the cluster."""
    return _do("send_quad", to, address_of(first), barrier)


def multiply_quads(
    sums: BufferLoad, a: BufferLoad, b: BufferLoad, rows: int, columns: int, b_by_steps: bool
) -> Expr:
    """Add four products to each of the sums of some rows and columns, in private memory."""
    firsts = [address_of(each) for each in (sums, a, b)]
    return _do("multiply_quads", *firsts, rows, columns, int(b_by_steps))


def blocks_at_once(blocks: int) -> Expr:
    """A processor is to have so many blocks at once."""
    return _do("blocks_at_once", blocks)


def cluster_size(blocks: int) -> Expr:
    """So many neighbouring blocks run together."""
    return _do("cluster_size", blocks)


def cluster_rank() -> Expr:
    """The number of a block among those that run together."""
    return _do("cluster_rank")


def cluster_address(address: Expr, rank: ExprLike) -> Expr:
    """Where another block of the cluster has what is at an address here."""
    return _do("cluster_address", address, rank)


def cluster_arrive() -> Expr:
    """Arrive where threads of all blocks of a cluster wait for each other."""
    return _do("cluster_arrive")


def cluster_wait() -> Expr:
    """Wait until all threads of a cluster have arrived."""
    return _do("cluster_wait")


def registers(count: int, more: bool) -> Expr:
    """Go on with so many registers, more or fewer than before."""
    return _do("registers", count, int(more))


def first_lane(value: Expr) -> Expr:
    """What the first lane of a warp has: one number for all of its lanes."""
    return _do("first_lane", value)


def warp_sync() -> Expr:
    """The lanes of a warp wait for each other."""
    return _do("warp_sync")


def named_barrier(number: ExprLike, threads: int) -> Expr:
    """So many threads wait for each other."""
    return _do("named_barrier", number, threads)


def named_arrive(number: ExprLike, threads: int) -> Expr:
    """Arrive where so many threads are waited for."""
    return _do("named_arrive", number, threads)


def async_fence() -> Expr:
    """Copies see what threads have put into shared memory."""
    return _do("async_fence")


def launch_dependents() -> Expr:
    """The kernel behind this one may start."""
    return _do("launch_dependents")


def wait_for_grids() -> Expr:
    """Wait until the kernels before this one are done."""
    return _do("wait_for_grids")
