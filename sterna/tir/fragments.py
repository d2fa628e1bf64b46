"""Tensor Cores as the classic interface names them: fragments of warps, and products in registers.

A *fragment* is a matrix that the 32 lanes of a warp hold together, in memory of the scope
wmma.matrix_a, wmma.matrix_b or wmma.accumulator. Which lane has which number is the GPU's affair:
only these calls touch fragments, and all lanes of a warp make them together. data: the address of
fragments, which lie behind each other; index: the number of one of them, counted from there.

    tvm_fill_fragment(data, m, n, k, index, value)
                               all numbers of a fragment become one
    tvm_load_matrix_sync(data, m, n, k, index, from, stride, layout)
                               a fragment from memory; layout: row_major or col_major, with so many
                               numbers from one row or column to the next
    tvm_store_matrix_sync(data, m, n, k, index, to, stride, layout)
                               a fragment of sums into memory
    tvm_mma_sync(d, index, a, index, b, index, c, index)
                               d = a times b plus c: m rows, n columns, sums of k products

and as PTX names its instructions; the offsets behind addresses count elements:

    ptx_mma(shape, a_layout, b_layout, a_type, b_type, c_type, a, offset, b, offset, c, offset,
            saturate[, operator])
                               c += a times b in private memory: m16n8k8, m16n8k16, m16n8k32, m8n8k4
    ptx_ldmatrix(transposed, count, type, to, offset, from, offset)
                               one, two or four matrices of 8 x 8 numbers of 16 bits; lane l names
                               the place of row l
    ptx_cp_async(to, offset, from, offset, bytes[, condition])
                               4, 8 or 16 bytes into shared memory, beside the threads
    ptx_commit_group(), ptx_wait_group(n)
                               copies so far are a group; wait until all but n groups are done
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir.expr import HANDLE, Call, Expr, StringImm, Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.tir.external import address_of
from sterna.tir.intrinsics import Intrinsic, register_intrinsic
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, PrimFunc, Stmt

MATRIX_A, MATRIX_B, ACCUMULATOR = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
SCOPES = (MATRIX_A, MATRIX_B, ACCUMULATOR)
WARP = 32
"""The lanes that hold a fragment."""

FILL, LOAD, STORE = "tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_store_matrix_sync"
MULTIPLY = "tvm_mma_sync"
PTX_MMA, PTX_LDMATRIX, PTX_CP_ASYNC = "ptx_mma", "ptx_ldmatrix", "ptx_cp_async"
COMMIT, WAIT = "ptx_commit_group", "ptx_wait_group"

_ARITIES = {
    FILL: 6, LOAD: 8, STORE: 8, MULTIPLY: 8, PTX_MMA: -1, PTX_LDMATRIX: 7, PTX_CP_ASYNC: -1,
    COMMIT: 0, WAIT: 1,
}
for _name, _arity in _ARITIES.items():
    register_intrinsic(Intrinsic(_name, _arity, None, has_effect=True, result="int32"))

FRAGMENT_OPS = frozenset(_ARITIES)
"""The names of all of them."""
OF_WARPS = frozenset({FILL, LOAD, STORE, MULTIPLY, PTX_MMA, PTX_LDMATRIX})
"""What the lanes of a warp do together."""
WRITES = {FILL: (0,), LOAD: (0,), STORE: (5,), MULTIPLY: (0,), PTX_MMA: (10,), PTX_LDMATRIX: (3,),
          PTX_CP_ASYNC: (0,)}
"""By names: the places of the addresses that are written to. What the others name is read."""
FRAGMENTS_OF = {
    FILL: ((0, 4),), LOAD: ((0, 4),), STORE: ((0, 4),), MULTIPLY: ((0, 1), (2, 3), (4, 5), (6, 7)),
}
"""By names: the places of the addresses of fragments, and of the numbers counted from there."""
NUMBERED = {**FRAGMENTS_OF, PTX_MMA: ((6, 7), (8, 9), (10, 11)), PTX_LDMATRIX: ((3, 4),)}
"""The same of private memory, which registers may hold."""


def is_fragment(buffer: Buffer) -> bool:
    """Whether lanes of a warp hold a buffer together."""
    return buffer.scope in SCOPES


def bytes_of_a_thread(buffer: Buffer) -> int | None:
    """What each thread has of private memory or of a fragment, if that is known."""
    size = buffer.known_bytes
    return -(-size // WARP) if size is not None and is_fragment(buffer) else size


@dataclass(frozen=True, slots=True)
class Fragment:
    """The matrices that an array of fragments holds."""

    scope: str
    dtype: DataType
    shape: tuple[int, int, int]
    """m, n and k of the products."""
    layout: str = "row_major"
    """How the matrices of its loads lie in memory."""

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns."""
        m, n, k = self.shape
        return {MATRIX_A: (m, k), MATRIX_B: (k, n), ACCUMULATOR: (m, n)}[self.scope]

    @property
    def size(self) -> int:
        """The numbers of one matrix."""
        return self.sides[0] * self.sides[1]


def element_of(address: Expr) -> BufferLoad:
    """The element whose address an argument is."""
    if isinstance(address, Call) and address.op == "address_of":
        load = address.args[0]
        if isinstance(load, BufferLoad):
            return load
    raise ValueError(f"{address} is no address of an element: give a buffer's data or access_ptr")


def tile_number(call: Call, place: int, fragment: Fragment) -> Expr:
    """The number of a fragment in its array."""
    load = element_of(call.args[place])
    behind = dict(FRAGMENTS_OF[call.op])[place]
    offset = build.cast("int32", load.buffer.offset_of(load.indices))
    first = build.floordiv(offset, fragment.size)
    beside = build.floordiv(build.floormod(offset, fragment.size), fragment.sides[1])
    return build.add(build.add(first, beside), build.cast("int32", call.args[behind]))


def tile_at(offset: int, fragment: Fragment) -> int:
    """The same, by the place of its first element: fragments lie behind each other, or beside each
    other in rows of a matrix that is made of them."""
    return offset // fragment.size + offset % fragment.size // fragment.sides[1]


def fragments_in(body: Stmt) -> dict[Buffer, Fragment]:
    """What the fragments of a kernel hold, by its calls that say so."""
    found: dict[Buffer, Fragment] = {}

    def look(node: Node) -> None:
        if not isinstance(node, Call) or node.op not in (FILL, LOAD, STORE):
            return
        buffer = element_of(node.args[0]).buffer
        if not is_fragment(buffer):
            raise ValueError(
                f"{node.op} is given {buffer.name}, which lies in {buffer.scope or 'global'} "
                f"memory: fragments have the scope {', '.join(SCOPES)}"
            )
        sizes = [build.int_value(size) for size in node.args[1:4]]
        if None in sizes:
            raise ValueError(f"{node.op} of {buffer.name}: m, n and k must be numbers")
        m, n, k = (int(size) for size in sizes if size is not None)
        before = found.get(buffer)
        layout = _text(node, 7) if node.op == LOAD else before.layout if before else "row_major"
        made = Fragment(buffer.scope, buffer.dtype, (m, n, k), layout)
        if before is not None and (before.shape != made.shape or (
            node.op == LOAD and buffer.scope != ACCUMULATOR and before.layout != layout
        )):
            raise ValueError(
                f"{buffer.name} holds fragments of m, n, k = {before.shape}, {before.layout}, and "
                f"{node.op} takes them as {made.shape}, {layout}"
            )
        found[buffer] = made

    post_order(body, look)
    return found


def _text(call: Call, place: int) -> str:
    said = call.args[place]
    if not isinstance(said, StringImm) or said.value not in ("row_major", "col_major"):
        raise ValueError(f"{call.op}: a layout is 'row_major' or 'col_major', not {said}")
    return said.value


def with_addresses(func: PrimFunc) -> PrimFunc:
    """tvm_mma_sync(C.data, ...)   ->   tvm_mma_sync(address_of(C[0]), ...)"""
    buffers = {buffer.data: buffer for buffer in func.buffers if buffer is not None}

    def look(node: Node) -> None:
        if isinstance(node, Allocate):
            buffers[node.buffer.data] = node.buffer

    post_order(func.body, look)
    return func.with_body(_Addresses(buffers).rewrite(func.body))


class _Addresses(Rewriter):
    def __init__(self, buffers: dict[Var, Buffer]) -> None:
        self.buffers = buffers

    def visit_Call(self, call: Call) -> Expr:
        made: Expr = self.rewrite_children(call)
        if not isinstance(made, Call) or call.op not in _ARITIES:
            return made
        args = tuple(
            address_of(self.buffers[arg]) if isinstance(arg, Var) and arg in self.buffers else arg
            for arg in made.args
        )
        same = all(new is old for new, old in zip(args, made.args, strict=True))
        return made if same else Call(made.dtype, made.op, args)


def touched(call: Call) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers that a call reads and those that it writes."""
    written = WRITES[call.op]
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    for place, arg in enumerate(call.args):
        if isinstance(arg, Call) and arg.op == "address_of":
            (writes if place in written else reads).append(element_of(arg).buffer)
    return reads, writes


# ---- the calls by their names ----


def _maker(name: str) -> Callable[..., Expr]:
    def make(*args: Any) -> Expr:
        """One of the calls above; a type may stand before the arguments, as TVMScript has it."""
        given: Iterable[Any] = args
        if name.startswith("ptx_") and _takes_type(name, args):
            given = args[1:]
        exprs = [
            address_of(arg) if isinstance(arg, Buffer) else build.as_expr(arg) for arg in given
        ]
        if _ARITIES[name] not in (-1, len(exprs)):
            raise ValueError(f"{name} takes {_ARITIES[name]} arguments, not {len(exprs)}")
        return Call(HANDLE, name, tuple(exprs))

    make.__name__ = make.__qualname__ = name
    return make


def _takes_type(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the first argument is the type that tir.op's functions take before all others."""
    if not args or not isinstance(args[0], str) or name == WAIT:
        return False
    return name != PTX_MMA or (isinstance(args[1], str) and args[1].startswith("m"))


tvm_fill_fragment = _maker(FILL)
tvm_load_matrix_sync = _maker(LOAD)
tvm_store_matrix_sync = _maker(STORE)
tvm_mma_sync = _maker(MULTIPLY)
ptx_mma = _maker(PTX_MMA)
ptx_ldmatrix = _maker(PTX_LDMATRIX)
ptx_cp_async = _maker(PTX_CP_ASYNC)
ptx_commit_group = _maker(COMMIT)
ptx_wait_group = _maker(WAIT)
