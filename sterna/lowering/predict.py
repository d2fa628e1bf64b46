"""What a kernel's loops will take on a processor, and the least that it allows: in cycles.

The prediction is a static throughput model over the final loops: vector operations, loads, stores
and instructions of a body share the core's ports, a sum that is carried from one iteration to the
next waits for its latency, parallel loops are shared among threads. Address arithmetic is free, and
caches send what is asked for, so that a prediction far above the bound tells of scalar code, of
strided access or of sums without enough chains, not of traffic. The bound is a roofline: operations
and bytes at the rates of the processor's description.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from sterna.arith import Analyzer
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Ramp,
    Select,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node
from sterna.ir.types import flatten_type
from sterna.isa.processor import Processor
from sterna.lowering.work import Work, work_of
from sterna.relay.expr import Function
from sterna.support.dtype import DataType
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    Tensorized,
)

# Vector instructions of a function of elements, and of a division.
FUNCTIONS = {"exp": 9, "tanh": 13, "erf": 15, "log": 12, "sqrt": 4, "pow": 25, "sin": 15, "cos": 15}
DIVISION, INTEGER_DIVISION = 4, 10
# What small integers are summed in.
SUMS = DataType("int32")
# Bytes that come from behind the second cache in a cycle, for each thread.
STREAMED = 8
# Functions that loops only call: what these take nobody can read off the loops.
OPAQUE_CALLS = ("call_extern", "call_pure_extern", "call_packed", "try_call", "tile_")
# These move nothing and compute nothing.
FREE_CALLS = ("likely", "exact", "prefetch", "reinterpret", "address_of")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Cycles of the thread that ends last, and the fewest that the processor needs."""

    cycles: float
    bound: float


@dataclass(slots=True)
class _Use:
    """What statements use of a core; cycles are those of loops that were summed up."""

    operations: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    overhead: float = 0.0
    cycles: float = 0.0
    carried: bool = False

    def add(self, other: "_Use", times: float = 1.0) -> None:
        """Do the other one too, so many times."""
        self.operations += times * other.operations
        self.loads += times * other.loads
        self.stores += times * other.stores
        self.overhead += times * other.overhead
        self.cycles += times * other.cycles
        self.carried = self.carried or other.carried


class _Unknown(Exception):
    """Loops of which only the run tells how long they are, or calls of what is elsewhere."""


def predict(function: Function, loops: PrimFunc, processor: Processor) -> Prediction | None:
    """The cycles of a kernel by its final loops; None where only the run tells them."""
    given = [kind for param in function.params for kind in flatten_type(param.checked_type)]
    results = flatten_type(function.body.checked_type)
    if not all(kind.is_static for kind in (*given, *results)):
        return None
    meter = _Meter(processor)
    try:
        use = meter.statement(loops.body)
    except _Unknown:
        return None
    # What is multiplied: bytes, where there are any beside wider biases and results.
    kind = min((each.dtype for each in (*given, *results)), key=lambda dtype: dtype.bits)
    bound = bound_of(work_of(function), kind, processor)
    return Prediction(max(meter.cycles(use), bound), bound)


def bound_of(work: Work, kind: DataType, processor: Processor) -> float:
    """The longest of a kernel's operations, its results and all its bytes, at their rates."""
    rates = processor.throughput
    width = processor.vector_bits / 8
    lanes = processor.lanes(SUMS if kind.is_integer and kind.bits < 32 else kind)
    products = 4 if kind.is_integer and kind.bits == 8 and processor.has_dot4 else 1
    operations = work.flops - work.spared_flops
    vectors = operations / (2 * lanes * products) + work.function_steps / lanes
    streamed = work.bytes / STREAMED if work.bytes > processor.l2_bytes else 0.0
    needs = (
        vectors / rates.multiply_adds, work.written_bytes / width,
        (work.bytes - work.written_bytes) / (width * rates.loads), streamed, 1.0,
    )
    return max(needs) / processor.threads


class _Meter:
    """Walks through loops for what they use."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.analyzer = Analyzer()
        self.held: set[Buffer] = set()
        """Buffers that live in registers."""
        self.seen: dict[Buffer, set[Hashable]] = {}
        """Loads of the straight code around by their indices, which are done once."""

    def cycles(self, use: _Use) -> float:
        """What takes longest, where all ports work at once."""
        rates = self.processor.throughput
        issued = use.operations + use.loads + use.stores + use.overhead
        return use.cycles + max(
            use.operations / rates.multiply_adds, use.loads / rates.loads, use.stores,
            issued / rates.issue_width,
        )

    # ---- statements ----

    def statement(self, stmt: Stmt) -> _Use:
        """What a statement uses."""
        if isinstance(stmt, For):
            return self._loop(stmt)
        if isinstance(stmt, BufferStore):
            return self._store(stmt)
        use = _Use()
        if isinstance(stmt, SeqStmt):
            for each in stmt.stmts:
                use.add(self.statement(each))
        elif isinstance(stmt, IfThenElse):
            branches = [self.statement(each) for each in (stmt.then, stmt.otherwise) if each]
            use.add(max(branches, key=self.cycles))
        elif isinstance(stmt, Allocate):
            size = stmt.buffer.known_bytes
            room = self.processor.vector_registers * self.processor.vector_bits // 8
            if size is not None and size <= room:
                self.held.add(stmt.buffer)
            use.add(self.statement(stmt.body))
        elif isinstance(stmt, LetStmt):
            if _is_address(stmt.value):
                self.analyzer.bind_value(stmt.var, _inexact(stmt.value))
            else:
                self._value(stmt.value, use)
            use.add(self.statement(stmt.body))
        elif isinstance(stmt, Evaluate):
            self._value(stmt.value, use)
        elif isinstance(stmt, (AttrStmt, Tensorized)):
            use.add(self.statement(stmt.body))
        return use

    def _loop(self, loop: For) -> _Use:
        if loop.kind == "thread":
            raise _Unknown
        extent = self._extent(loop)
        around, self.seen = self.seen, {}
        body = self.statement(loop.body)
        self.seen = around
        if loop.kind in ("unrolled", "vectorized"):
            use = _Use()
            use.add(body, extent)
            return use
        rates = self.processor.throughput
        body.overhead += rates.loop_overhead
        once = max(self.cycles(body), rates.latency if body.carried else 0.0)
        if loop.kind == "parallel":
            extent = -(-extent // self.processor.threads)
        return _Use(cycles=extent * once)

    def _extent(self, loop: For) -> int:
        """The most iterations that a loop can have."""
        most = self.analyzer.bound(loop.extent).high
        if not isinstance(most, int):
            raise _Unknown
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        return max(0, most)

    def _store(self, store: BufferStore) -> _Use:
        use = _Use()
        self._value(store.value, use)
        if store.buffer not in self.held:
            use.stores += self._moved(store.indices, store.value.dtype)
        own = [
            part for part in _parts(store.value)
            if isinstance(part, BufferLoad) and part.buffer is store.buffer
        ]
        use.carried = bool(own) and _key(store.indices) in [_key(part.indices) for part in own]
        self.seen.pop(store.buffer, None)
        return use

    # ---- values ----

    def _value(self, value: Expr, use: _Use) -> None:
        """Count what computes a value; a product that is added is one multiply-add."""
        added: set[int] = set()
        pending = [value]
        while pending:
            part = pending.pop()
            if isinstance(part, BufferLoad):
                self._load(part, use)
                continue
            if isinstance(part, (Var, IntImm, FloatImm, Ramp)) or _is_address(part):
                continue
            if isinstance(part, Add):
                product = next((each for each in (part.a, part.b) if isinstance(each, Mul)), None)
                added.update([id(product)] if product is not None else [])
            if id(part) not in added:
                use.operations += self._operations(part)
            pending.extend([child for child in part.children() if isinstance(child, Expr)])

    def _operations(self, part: Expr) -> float:
        vectors = self._vectors(part.dtype)
        if isinstance(part, Call):
            if part.op.startswith(OPAQUE_CALLS):
                raise _Unknown
            return 0.0 if part.op in FREE_CALLS else vectors * FUNCTIONS.get(part.op, 1)
        if isinstance(part, (FloorDiv, FloorMod, TruncDiv, TruncMod)):
            return INTEGER_DIVISION * part.dtype.lanes
        if isinstance(part, Div):
            return DIVISION * vectors
        if isinstance(part, Cast):
            inner = next(child for child in part.children() if isinstance(child, Expr))
            return max(vectors, self._vectors(inner.dtype))
        return vectors if isinstance(part, (BinaryExpr, Select)) else 0.0

    def _load(self, load: BufferLoad, use: _Use) -> None:
        for index in load.indices:
            for part in _parts(index):
                if isinstance(part, BufferLoad):
                    use.loads += part.dtype.lanes
        if load.buffer in self.held:
            return
        place, seen = _key(load.indices), self.seen.setdefault(load.buffer, set())
        if place not in seen:
            seen.add(place)
            use.loads += self._moved(load.indices, load.dtype)

    def _moved(self, indices: tuple[Expr, ...], kind: DataType) -> float:
        """Loads or stores of one access: one for every lane where lanes lie apart."""
        last = indices[-1] if indices else None
        together = kind.lanes == 1 or isinstance(last, Broadcast)
        if isinstance(last, Ramp) and build.int_value(last.stride) == 1:
            together = True
        return self._vectors(kind) if together else kind.lanes

    def _vectors(self, kind: DataType) -> float:
        bits = kind.lanes * max(8, kind.bits)
        return max(1.0, bits / self.processor.vector_bits)


def _is_address(value: Expr) -> bool:
    """Whether it is arithmetic on single integers, which serves addresses and conditions."""
    inner = _inexact(value)
    return inner.dtype.lanes == 1 and inner.dtype.is_integer and not isinstance(inner, (Call, Let))


def _inexact(value: Expr) -> Expr:
    """A value without the mark that its integers do not wrap."""
    return value.args[0] if isinstance(value, Call) and value.op == "exact" else value


def _key(value: Any) -> Hashable:
    """Equal for expressions, or tuples of them, that are written alike."""
    if isinstance(value, tuple):
        return tuple([_key(part) for part in value])
    if isinstance(value, (Var, Buffer)):
        return id(value)
    if isinstance(value, Node):
        if value.IS_PAIR:
            a, b = value.child_values(value)
            return type(value), _key(a), _key(b)
        return type(value), *[_key(getattr(value, name)) for name in value.FIELDS]
    return id(value) if isinstance(value, dict) else value


def _parts(value: Expr) -> list[Expr]:
    found, pending = [], [value]
    while pending:
        part = pending.pop()
        found.append(part)
        pending.extend([child for child in part.children() if isinstance(child, Expr)])
    return found
