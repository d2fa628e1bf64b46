"""Make every buffer one-dimensional."""

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.external import explicit_view
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, PrimFunc, Stmt


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """C[i, j] of a (4, 8) buffer   ->   C[i*8 + j] of a (32,) buffer

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
            size: Expr = build.const(1)
            if buffer.strides and buffer.shape:
                size = buffer.strides[0] * buffer.shape[0]
            else:
                for extent in buffer.shape:
                    size = size * extent
            made = Buffer(
                buffer.name, buffer.dtype, (self.analyzer.simplify(size),), buffer.scope, (),
                buffer.alignment,
            )  # fmt: skip
            self.known[buffer] = made
            self.addresses[buffer.data] = made.data
        return made

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.flat(buffer)

    def visit_Var(self, var: Var) -> Expr:
        return self.addresses.get(var, var)

    def visit_Call(self, call: Call) -> Expr:
        if call.op != "view_of":
            kept: Expr = self.rewrite_children(call)
            return kept
        # The shape goes with the buffer: from here on the view itself says it.
        first, shape, strides = explicit_view(call)
        return Call(call.dtype, call.op, tuple(self.rewrite(e) for e in (first, *shape, *strides)))

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        indices = tuple(self.rewrite(i) for i in load.indices)
        return BufferLoad(self.flat(load.buffer), (load.buffer.offset_of(indices),))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.rewrite(i) for i in store.indices)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        value = self.rewrite(store.value)
        offset = store.buffer.offset_of(indices)
        return BufferStore(self.flat(store.buffer), value, (offset,), predicate)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        return Allocate(self.flat(allocate.buffer), self.rewrite(allocate.body))
