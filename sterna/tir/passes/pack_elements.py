"""Sub-byte packing: put elements of less than a byte into bytes, several to each."""

from collections.abc import Callable

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import Call, Cast, Expr, Let, Ramp, Shuffle, Var
from sterna.ir.node import nodes_of
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.tir.shared_bytes import shared_in
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)

UINT8, UINT16, INT64 = DataType("uint8"), DataType("uint16"), DataType("int64")


def pack_elements(func: PrimFunc) -> PrimFunc:
    """x = A[i] of int4   ->   x = int4(A[i // 2] >> i % 2 * 4) of uint8

    The first element of a byte has its lowest bits. A store reads the byte and writes it back with
    some bits changed; a vector that fills whole bytes just writes them. Where iterations of a
    parallel loop may write into one byte, store_bits changes their own bits alone.
    """
    held = (*[b for b in func.buffers if b is not None], *nodes_of(func, Buffer))
    if not any(buffer.dtype.is_packed for buffer in held):
        return func
    packer = _Packer(func.name)
    buffers = tuple(None if b is None else packer.bytes_of(b) for b in func.buffers)
    params = tuple(
        old if buffer is None else buffer.data
        for old, buffer in zip(func.params, buffers, strict=True)
    )
    attrs = {"declared": func.buffers, **func.attrs}
    return PrimFunc(func.name, params, buffers, packer.rewrite(func.body), attrs)


class _Packer(Rewriter):
    def __init__(self, function: str) -> None:
        self.function = function
        self.known: dict[Buffer, Buffer] = {}
        self.typed: dict[Buffer, Buffer] = {}
        self.addresses: dict[Var, Var] = {}
        self.analyzer = Analyzer()
        self.in_parallel = False
        self.shared: set[Buffer] = set()

    # ---- buffers ----

    def bytes_of(self, buffer: Buffer) -> Buffer:
        """The bytes that a buffer's elements lie in; any other buffer itself."""
        if not buffer.dtype.is_packed:
            return buffer
        made = self.known.get(buffer)
        if made is None:
            if len(buffer.shape) != 1 or buffer.strides:
                raise ValueError(
                    f"{self.function}: the elements of {buffer.name} are {buffer.dtype}, several "
                    "to a byte, which a buffer of one dimension without gaps can hold"
                )
            last = _byte_of(buffer.dtype, buffer.shape[0] - 1, last=True)
            size = self.analyzer.simplify(last + 1)
            made = Buffer(buffer.name, UINT8, (size,), buffer.scope, (), buffer.alignment)
            self.known[buffer] = made
            self.addresses[buffer.data] = made.data
        return made

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.bytes_of(buffer)

    def visit_Var(self, var: Var) -> Var:
        return self.addresses.get(var, var)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        return Allocate(self.bytes_of(allocate.buffer), self.rewrite(allocate.body))

    def visit_Call(self, call: Call) -> Expr:
        """Those who take addresses are told the type, and get the address of the byte."""
        load = call.args[0] if call.args else None
        takes_address = call.op in ("address_of", "view_of", "prefetch")
        kept: Expr
        if not takes_address or not isinstance(load, BufferLoad) or not load.buffer.dtype.is_packed:
            kept = self.rewrite_children(call)
            return kept
        (index,) = load.indices
        if call.op != "prefetch" and not self.starts_byte(load.buffer.dtype, index):
            raise ValueError(f"{self.function}: {load} has no address: it may lie within a byte")
        view = self.typed.get(load.buffer)
        if view is None:
            view = Buffer(load.buffer.name, load.buffer.dtype, load.buffer.shape)
            view.data = self.bytes_of(load.buffer).data
            self.typed[load.buffer] = view
        rest = tuple(self.rewrite(arg) for arg in call.args[1:])
        return Call(call.dtype, call.op, (BufferLoad(view, (self.rewrite(index),)), *rest))

    def starts_byte(self, dtype: DataType, index: Expr) -> bool:
        """Whether an element certainly begins with the lowest bit of a byte."""
        step, rest = self.analyzer.modular(index)
        return step * dtype.bits % 8 == 0 and rest * dtype.bits % 8 == 0

    # ---- what is known ----

    def visit_For(self, loop: For) -> Stmt:
        outer = self.in_parallel, self.shared
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        # A parallel loop inside another one runs in one thread; those of a GPU all run at once.
        if loop.kind == "thread" or (loop.kind == "parallel" and not self.in_parallel):
            self.in_parallel = loop.kind == "parallel"
            self.shared = self.shared | shared_in(loop, self.analyzer)
        kept: Stmt = self.rewrite_children(loop)
        self.in_parallel, self.shared = outer
        self.analyzer.unbind(loop.var)
        return kept

    # ---- loads ----

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        dtype = load.buffer.dtype
        if not dtype.is_packed:
            kept: Expr = self.rewrite_children(load)
            return kept
        index: Expr = self.rewrite(load.indices[0])
        whole = self.whole_bytes(dtype, index)
        held = self.bytes_of(load.buffer)
        if whole is not None:
            return Call(load.dtype, "reinterpret", (BufferLoad(held, (whole,)),))
        shared = load.buffer in self.shared

        def read(byte: Expr) -> Expr:
            there = BufferLoad(held, (byte,))
            return Call(UINT8, "load_shared", (there,)) if shared else there

        lanes = range(index.dtype.lanes)
        if not shared or len(lanes) == 1:
            return _with_index(index, lambda i: _element(dtype, read, i))
        return _with_index(index, lambda i: Shuffle(
            tuple(_element(dtype, read, _lane(i, n)) for n in lanes), tuple(lanes)
        ))

    def whole_bytes(self, dtype: DataType, index: Expr) -> Expr | None:
        """The indices of the bytes that a vector of elements fills, if it fills bytes."""
        if not isinstance(index, Ramp) or not build.is_const(index.stride, 1):
            return None
        bits = index.lanes * dtype.bits
        if bits % 8 or not self.starts_byte(dtype, index.base):
            return None
        first = self.analyzer.simplify(_byte_of(dtype, index.base))
        return first if bits == 8 else Ramp(first, build.const(1, first.dtype), bits // 8)

    # ---- stores ----

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        dtype = store.buffer.dtype
        value, index = self.rewrite(store.value), self.rewrite(store.indices[0])
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        held = self.bytes_of(store.buffer)
        if not dtype.is_packed:
            indices = tuple(self.rewrite(i) for i in store.indices)
            return BufferStore(held, value, indices, predicate)
        whole = self.whole_bytes(dtype, index) if predicate is None else None
        if whole is not None:
            kind = UINT8.with_lanes(whole.dtype.lanes)
            return BufferStore(held, Call(kind, "reinterpret", (value,)), (whole,))
        shared = store.buffer in self.shared
        if index.dtype.lanes == 1:
            return _put(held, dtype, value, index, predicate, shared)
        kept, places = Var("value", value.dtype), Var("index", index.dtype)
        holds = None if predicate is None else Var("holds", predicate.dtype)
        each = [
            _put(held, dtype, _lane(kept, n), _lane(places, n),
                 None if holds is None else _lane(holds, n), shared)
            for n in range(index.dtype.lanes)
        ]
        body = LetStmt(kept, value, LetStmt(places, index, seq(*each)))
        if holds is None:
            return body
        assert predicate is not None
        return LetStmt(holds, predicate, body)


def _lane(vector: Expr, lane: int) -> Expr:
    return Shuffle((vector,), (lane,))


def _with_index(index: Expr, make: Callable[[Expr], Expr]) -> Expr:
    """An expression of an index that is used more than once."""
    if isinstance(index, (Var, Ramp)) or not index.children():
        return make(index)
    var = Var("index", index.dtype)
    return Let(var, index, make(var))


# ---- where elements lie ----


def _fits_bytes(dtype: DataType) -> bool:
    return 8 % dtype.bits == 0


def _bit_of(dtype: DataType, index: Expr) -> Expr:
    """The number of an element's first bit, which may need more bits than its index."""
    return build.cast(INT64.with_lanes(index.dtype.lanes), index) * dtype.bits


def _byte_of(dtype: DataType, index: Expr, last: bool = False) -> Expr:
    """The byte of an element's first bit, or of its last one."""
    if _fits_bytes(dtype):
        return index // (8 // dtype.bits)
    bit = _bit_of(dtype, index)
    return (bit + (dtype.bits - 1) if last else bit) // 8


def _shift_of(dtype: DataType, index: Expr, kind: DataType) -> Expr:
    """How far an element lies above the lowest bit of its byte."""
    if _fits_bytes(dtype):
        shift = index % (8 // dtype.bits) * dtype.bits
    else:
        shift = _bit_of(dtype, index) % 8
    return build.cast(kind.with_lanes(index.dtype.lanes), shift)


def _call(op: str, *args: Expr) -> Expr:
    return Call(args[0].dtype, op, args)


def _element(dtype: DataType, read: Callable[[Expr], Expr], index: Expr) -> Expr:
    """An element, or several, taken out of bytes."""
    lanes = index.dtype.lanes
    word = read(_byte_of(dtype, index))
    if not _fits_bytes(dtype):
        wide = UINT16.with_lanes(lanes)
        above = build.cast(wide, read(_byte_of(dtype, index, last=True)))
        word = _call("bitwise_or", build.cast(wide, word),
                     _call("shift_left", above, build.const(8, wide)))
    shift = _shift_of(dtype, index, word.dtype.element)
    code = Cast(_code_type(dtype).with_lanes(lanes), _call("shift_right", word, shift))
    target = dtype.with_lanes(lanes)
    if dtype.is_uint:
        return code
    return Cast(target, code) if dtype.is_int else Call(target, "reinterpret", (code,))


def _code_type(dtype: DataType) -> DataType:
    return DataType(f"uint{dtype.bits}")


def _put(
    held: Buffer, dtype: DataType, value: Expr, index: Expr, predicate: Expr | None, shared: bool
) -> Stmt:
    """The statement that changes an element's bits."""
    place, code = Var("place", index.dtype), Var("code", _code_type(dtype))
    if dtype.is_int:
        value = Cast(code.dtype, value)
    elif not dtype.is_uint:
        value = Call(code.dtype, "reinterpret", (value,))
    kind = UINT8 if _fits_bytes(dtype) else UINT16
    shift = _shift_of(dtype, place, kind)
    mask = _call("shift_left", build.const((1 << dtype.bits) - 1, kind), shift)
    bits = _call("shift_left", Cast(kind, code), shift)
    steps = [_change(held, _byte_of(dtype, place), mask, bits, shared)]
    if not _fits_bytes(dtype):
        mask, bits = (_call("shift_right", part, build.const(8, kind)) for part in (mask, bits))
        steps.append(_change(held, _byte_of(dtype, place, last=True), mask, bits, shared))
    done: Stmt = LetStmt(place, index, LetStmt(code, value, seq(*steps)))
    return done if predicate is None else IfThenElse(predicate, done)


def _change(held: Buffer, byte: Expr, mask: Expr, bits: Expr, shared: bool) -> Stmt:
    mask, bits = build.cast(UINT8, mask), build.cast(UINT8, bits)
    there = BufferLoad(held, (byte,))
    if shared:
        return Evaluate(Call(DataType("int32"), "store_bits", (there, mask, bits)))
    kept = _call("bitwise_and", there, _call("bitwise_not", mask))
    return BufferStore(held, _call("bitwise_or", kept, bits), (byte,))
