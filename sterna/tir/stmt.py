"""Loops: the IR from which code is generated.

Grammar (expressions: see sterna/ir/expr.py)
    e    += BufferLoad(buffer, indices)
    stmt := For(var, min, extent, kind, body, thread, annotations)
          | BufferStore(buffer, value, indices, predicate?) | Evaluate(value)
          | SeqStmt(stmts) | IfThenElse(condition, then, otherwise?)
          | LetStmt(var, value, body) | AssertStmt(condition, kind, message, values)
          | Allocate(buffer, body) | AttrStmt(key, node?, value, body)
          | Prefetch(buffer, mins, extents) | Tensorized(name, body, meaning)
    func := PrimFunc(name, params, buffers, body, attrs)

Meaning
    For        Runs body for var = min, min+1, ..., min+extent-1; not at all if extent <= 0.
               kind: serial, in this order; parallel, in any order and at once; unrolled, as serial;
               vectorized, as parallel, though never in several threads; thread, each iteration is
               the thread of that name on a GPU, and in a loop over the same thread it does the
               same whichever iteration of that one it is in.
    Buffers    A rectangle of elements; indices start at 0 and must be inside. Without strides the
               last index runs fastest and there are no gaps. Two buffers of one function never
               overlap. Reading what was never written has no meaning. Elements of less than a byte
               lie several to a byte, the first one in its lowest bits; parallel iterations may
               still write each its own.
    Vectors    An index of several lanes loads or stores that many elements. A store with a
               predicate stores the lanes where it holds; a load has none, and reads all its lanes.
    Allocate   The buffer exists while body runs, once per iteration of the loops around it, and in
               each thread for itself.
    Assert     Ends the function with an error of that kind and message if the condition is false.
               If there are values, which are integers, each {} in the message stands for one; they
               are evaluated only then.
    Prefetch   A hint that a rectangle of a buffer, which may stick out of it, will soon be read.
    Tensorized What the loops in meaning do, done by body in a machine's or a library's own way.
               Code is made from body; what it does is known from meaning.
    PrimFunc   Parameter i is a scalar if buffers[i] is None, else the address of that buffer's
               first element. It returns 0, or -1 after an error. Variables in the shapes of the
               buffers are parameters too. With attrs["packed"] its parameters are those of a packed
               function instead (self, args, n, ret: three handles and an int32), the buffers are
               bound inside it, and code generators export it as __tvm_ffi_<name>.

A variable is bound once (by a loop, a let or a parameter) and used only inside what binds it.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

from sterna.ir import build
from sterna.ir.expr import HANDLE, Call, Expr, ExprLike, Ramp, Var
from sterna.ir.node import Node, node
from sterna.ir.structural import binds, has_identity
from sterna.support.dtype import DataType

# An annotation of loops that compilers shall not write out: their bodies fill the registers, or
# there are too many of them.
STAYS_ROLLED = "stays_rolled"
# An annotation of loops whose ranges end at a border: no reason to split the loops around them.
CLIPPED = "clipped"
# An annotation of loops whose iterations load for the next one, where compilers shall leave it.
LOADS_AHEAD = "loads_ahead"
# An attribute of functions: the nodes of a model that a kernel computes, for code that people read.
COMPUTES = "computes"
# An attribute of a function that several layers call, which compilers shall not copy into its
# callers: by the places of parameters that are numbers, how small and how large these are.
SHARED = "shared"
LoopKind = Literal["serial", "parallel", "unrolled", "vectorized", "thread"]


class ForKind:
    """The kinds of loops, by their classic names."""

    SERIAL: LoopKind = "serial"
    PARALLEL: LoopKind = "parallel"
    VECTORIZED: LoopKind = "vectorized"
    UNROLLED: LoopKind = "unrolled"
    THREAD_BINDING: LoopKind = "thread"


@node
class Buffer(Node):
    """A rectangle of elements in memory. Each object is a buffer of its own."""

    name: str
    dtype: DataType
    shape: tuple[Expr, ...]
    scope: str = "global"
    strides: tuple[Expr, ...] = ()
    """In elements; empty for a buffer without gaps."""
    alignment: int = 0
    """Bytes that divide the address; 0: those of one element."""
    axis_separators: tuple[int, ...] = ()
    """Dimensions before which another dimension of the memory begins; empty: it has only one."""
    data: Var = field(init=False)
    """The address, as a value."""

    def __post_init__(self) -> None:
        self.data = Var(self.name, HANDLE)

    @property
    def known_bytes(self) -> int | None:
        """The memory that its elements take without gaps; None if only the run tells."""
        extents = [build.int_value(extent) for extent in self.shape]
        known = [extent for extent in extents if extent is not None]
        return self.dtype.bytes_of(math.prod(known)) if len(known) == len(extents) else None

    def offset_of(self, indices: tuple[Expr, ...]) -> Expr:
        """How many elements from the first one an element lies."""
        if self.strides:
            offset: Expr = build.const(0)
            for index, stride in zip(indices, self.strides, strict=True):
                offset = offset + index * stride
            return offset
        return row_major(self.shape, indices)

    # ---- what users write ----

    @property
    def elem_offset(self) -> Expr:
        """How many elements after its address a buffer begins: it begins there."""
        return build.const(0)

    __iter__: ClassVar[None] = None  # else Python would ask for elements 0, 1, ... without an end

    def __getitem__(self, indices: Any) -> "BufferLoad":
        given = indices if isinstance(indices, tuple | list) else (indices,)
        if len(given) != len(self.shape):
            raise ValueError(
                f"the buffer {self.name} has {len(self.shape)} dimensions, not {len(given)}"
            )
        return BufferLoad(self, tuple(build.as_expr(index) for index in given))

    def vload(self, begin: Any, dtype: str | None = None) -> "BufferLoad":
        """An element, or with a type such as float32x4 as many as that from there on."""
        kind = self.dtype if dtype is None else DataType(dtype)
        if kind.element != self.dtype:
            raise ValueError(f"{kind} cannot be loaded from {self.name}, a buffer of {self.dtype}")
        return _widened(self[begin], kind.lanes)

    def vstore(self, begin: Any, value: ExprLike) -> "BufferStore":
        """Puts a value there; a vector goes into as many elements."""
        stored = build.as_expr(value, Var("like", self.dtype))
        if stored.dtype.element != self.dtype:
            raise ValueError(
                f"{stored.dtype} cannot be stored into {self.name}, a buffer of {self.dtype}"
            )
        return BufferStore(self, stored, _widened(self[begin], stored.dtype.lanes).indices)

    def access_ptr(
        self,
        access_mask: str | int,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> Expr:
        """The address of the element that lies offset elements after the first.

        What is done there, and with how many elements, is for the reader to know.
        """
        if access_mask not in ("r", "w", "rw", "wr", 1, 2, 3):
            raise ValueError(f"access_ptr of {self.name}: the mask is r, w or rw")
        return Call(HANDLE, "address_of", (BufferLoad(self, self.indices_of(offset)),))

    def indices_of(self, offset: ExprLike) -> tuple[Expr, ...]:
        """The indices of the element that lies offset elements after the first."""
        rest = build.as_expr(offset)
        if self.strides and not build.is_const(rest, 0):
            raise ValueError(f"the buffer {self.name} has strides: name its elements by indices")
        indices: list[Expr] = []
        for extent in reversed(self.shape[1:]):
            length = build.const(1, extent.dtype) if build.is_const(extent, 0) else extent
            indices.insert(0, build.floormod(rest, length))
            rest = build.floordiv(rest, length)
        return (rest, *indices) if self.shape else ()


def row_major(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Expr:
    """The place of an element among all, the last index running fastest."""
    place = indices[0] if indices else build.const(0)
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        place = place * extent + index
    return place


@node
class BufferLoad(Expr):
    """An element of a buffer, or several."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        lanes = 1
        for index in self.indices:
            if index.dtype.lanes > lanes:
                lanes = index.dtype.lanes
        self.dtype = self.buffer.dtype.with_lanes(lanes)


def _widened(load: BufferLoad, lanes: int) -> BufferLoad:
    """The load of that many elements, one after the other."""
    if lanes == 1:
        return load
    *outer, last = load.indices
    return BufferLoad(load.buffer, (*outer, Ramp(last, build.const(1, last.dtype), lanes)))


class Stmt(Node):
    """Something that is done."""

    __slots__ = ()

    IS_STATEMENT = True


@node
class For(Stmt):
    """A loop."""

    var: Var
    min: Expr
    extent: Expr
    kind: LoopKind
    body: Stmt
    thread: str = ""
    """For kind thread: blockIdx.x, threadIdx.x, ..., vthread."""
    annotations: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.min, Expr):
            self.min = build.const(self.min, self.var.dtype)
        if not isinstance(self.extent, Expr):
            self.extent = build.const(self.extent, self.var.dtype)

    @property
    def loop_var(self) -> Var:
        """The variable, by its classic name."""
        return self.var

    def with_body(self, body: Stmt, kind: LoopKind | None = None) -> "For":
        """The same loop around another body; the same object if nothing changes."""
        kind = kind or self.kind
        if body is self.body and kind == self.kind:
            return self
        return For(self.var, self.min, self.extent, kind, body, self.thread, self.annotations)


@node
class BufferStore(Stmt):
    """Puts a value into a buffer."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    def __post_init__(self) -> None:
        if type(self.indices) is not tuple:
            self.indices = tuple(build.as_expr(index) for index in self.indices)
        if not isinstance(self.value, Expr):
            self.value = build.const(self.value, self.buffer.dtype)


@node
class Evaluate(Stmt):
    """A call for its effect."""

    value: Expr

    def __post_init__(self) -> None:
        if not isinstance(self.value, Expr):
            self.value = build.as_expr(self.value)


@node
class SeqStmt(Stmt):
    """One after the other."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        if type(self.stmts) is not tuple:
            self.stmts = tuple(self.stmts)

    @property
    def seq(self) -> tuple[Stmt, ...]:
        """The statements, by their classic name."""
        return self.stmts


@node
class IfThenElse(Stmt):
    """One of two, or nothing."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None

    @property
    def then_case(self) -> Stmt:
        """The one, by its classic name."""
        return self.then

    @property
    def else_case(self) -> Stmt | None:
        """The other, by its classic name."""
        return self.otherwise


@node
class LetStmt(Stmt):
    """body, where var stands for value."""

    var: Var
    value: Expr
    body: Stmt


@node
class AssertStmt(Stmt):
    """Ends the function with an error unless the condition holds."""

    condition: Expr
    kind: str
    message: str
    values: tuple[Expr, ...] = ()

    def texts(self) -> list[str]:
        """The parts of the message between which the values stand."""
        return self.message.split("{}") if self.values else [self.message]


@node
class Allocate(Stmt):
    """A buffer that lives while body runs."""

    buffer: Buffer
    body: Stmt


@node
class AttrStmt(Stmt):
    """Says something about body: a pragma, a hint, a storage property."""

    key: str
    node: Node | None
    value: Expr
    body: Stmt

    @property
    def attr_key(self) -> str:
        """The key, by its classic name."""
        return self.key


@node
class Prefetch(Stmt):
    """A hint that the elements from mins on, extents of them, will soon be read."""

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...]


@node
class Tensorized(Stmt):
    """body, which an intrinsic gave in the place of the loops in meaning."""

    name: str
    body: Stmt
    meaning: Stmt


@node
class PrimFunc(Node):
    """A function of loops."""

    name: str
    params: tuple[Var, ...]
    buffers: tuple[Buffer | None, ...]
    body: Stmt
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def buffer_map(self) -> dict[Var, Buffer]:
        """The buffers by their parameters."""
        pairs = zip(self.params, self.buffers, strict=True)
        return {param: buffer for param, buffer in pairs if buffer is not None}

    @property
    def ret_type(self) -> None:
        """It returns nothing."""
        return None

    def with_body(self, body: Stmt) -> "PrimFunc":
        """The same function with another body; the same object if nothing changes."""
        if body is self.body:
            return self
        return PrimFunc(self.name, self.params, self.buffers, body, self.attrs)

    def with_attr(self, name: str | Mapping[str, Any], value: Any = None) -> "PrimFunc":
        """The same function with an attribute, or several; global_symbol is its name."""
        attrs = {**self.attrs, **({name: value} if isinstance(name, str) else name)}
        symbol = str(attrs.pop("global_symbol", self.name))
        return PrimFunc(symbol, self.params, self.buffers, self.body, attrs)

    def without_attr(self, name: str) -> "PrimFunc":
        """The same function without an attribute."""
        attrs = {known: value for known, value in self.attrs.items() if known != name}
        return PrimFunc(self.name, self.params, self.buffers, self.body, attrs)

    def script(self) -> str:
        """Its text, which tir.parse reads."""
        return str(self)


has_identity(Buffer, owned=("data",))
binds(For, "var")
binds(LetStmt, "var")
binds(Allocate, "buffer")
binds(PrimFunc, "params", deep=("buffers",))


def statements_in(root: Stmt) -> list[Stmt]:
    """All statements in one, and it itself as the last; what expressions hold is not looked at."""
    found, stack = [], [root]
    while stack:
        stmt = stack.pop()
        found.append(stmt)
        if not isinstance(stmt, (BufferStore, Evaluate)):
            stack.extend([part for part in stmt.children() if isinstance(part, Stmt)])
    found.reverse()
    return found


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order, flattened, without those that do nothing."""
    flat: list[Stmt] = []
    for stmt in stmts:
        flat.extend(stmt.stmts if isinstance(stmt, SeqStmt) else [stmt])
    kept = [stmt for stmt in flat if not is_nothing(stmt)]
    if not kept:
        return nothing()
    return kept[0] if len(kept) == 1 else SeqStmt(tuple(kept))


def nothing() -> Stmt:
    """A statement that does nothing."""
    return Evaluate(build.const(0))


def is_nothing(stmt: Stmt) -> bool:
    """Whether a statement is that one."""
    return isinstance(stmt, Evaluate) and build.is_const(stmt.value, 0)
