"""Give every buffer the dimensions that its memory has: one, unless separators ask for more."""

import itertools

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.external import explicit_view, view_at
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, PrimFunc, Stmt, row_major


def flatten_buffer(func: PrimFunc) -> PrimFunc:
    """C[i, j] of a (4, 8) buffer   ->   C[i*8 + j] of a (32,) buffer

    D[i, j, k] of a (4, 8, 2) buffer with a separator before k   ->   D[i*8 + j, k] of a (32, 2) one

    attrs["declared"] keeps the parameters' buffers as they were, for the checks of their callers.
    """
    flattener = _Flattener()
    buffers = tuple(None if b is None else flattener.flat(b) for b in func.buffers)
    params = tuple(
        old if buffer is None else buffer.data
        for old, buffer in zip(func.params, buffers, strict=True)
    )
    body = flattener.rewrite(func.body)
    attrs = {"declared": func.buffers, **func.attrs}
    return PrimFunc(func.name, params, buffers, body, attrs)


class _Flattener(Rewriter):
    def __init__(self) -> None:
        self.known: dict[Buffer, Buffer] = {}
        self.addresses: dict[Var, Var] = {}
        self.analyzer = Analyzer()

    def flat(self, buffer: Buffer) -> Buffer:
        made = self.known.get(buffer)
        if made is None:
            if buffer.strides and buffer.shape:
                sizes = [buffer.strides[0] * buffer.shape[0]]
            else:
                sizes = [_product(buffer.shape[part]) for part in _parts(buffer)]
            shape = tuple(self.analyzer.simplify(size) for size in sizes)
            separators = tuple(range(1, len(shape)))
            made = Buffer(
                buffer.name, buffer.dtype, shape, buffer.scope, (), buffer.alignment, separators
            )
            self.known[buffer] = made
            self.addresses[buffer.data] = made.data
        return made

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.flat(buffer)

    def visit_Var(self, var: Var) -> Expr:
        return self.addresses.get(var, var)

    def visit_Call(self, call: Call) -> Expr:
        kept: Expr
        if call.op != "view_of":
            kept = self.rewrite_children(call)
            return kept
        # The shape goes with the buffer: from here on the view itself says it.
        kept = self.rewrite_children(view_at(*explicit_view(call)))
        return kept

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        indices = tuple(self.rewrite(i) for i in load.indices)
        return BufferLoad(self.flat(load.buffer), _offsets(load.buffer, indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.rewrite(i) for i in store.indices)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        value = self.rewrite(store.value)
        offsets = _offsets(store.buffer, indices)
        return BufferStore(self.flat(store.buffer), value, offsets, predicate)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        return Allocate(self.flat(allocate.buffer), self.rewrite(allocate.body))


def _parts(buffer: Buffer) -> list[slice]:
    """The dimensions that lie in each dimension of the memory."""
    places = (0, *buffer.axis_separators, len(buffer.shape))
    return [slice(begin, end) for begin, end in itertools.pairwise(places)]


def _offsets(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of an element in the memory."""
    if buffer.strides:
        return (buffer.offset_of(indices),)
    return tuple(row_major(buffer.shape[part], indices[part]) for part in _parts(buffer))


def _product(extents: tuple[Expr, ...]) -> Expr:
    size: Expr = build.const(1)
    for extent in extents:
        size = size * extent
    return size
