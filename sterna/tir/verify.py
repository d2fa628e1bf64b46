"""The verifier: whether a function obeys the rules at the top of stmt.py and expr.py.

Levels: "off" does nothing; "scopes" checks that everything is bound, once and before its use;
"full" checks types and lanes as well. What it finds is a bug of the compiler.
"""

from collections.abc import Callable
from typing import Any, Literal

from sterna.ir.expr import (
    BOOL,
    INT32,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir.fragments import FRAGMENT_OPS
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.printer import usual_type
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Prefetch,
    PrimFunc,
    SeqStmt,
    Stmt,
    Tensorized,
)
from sterna.tir.warpgroups import WARPGROUP_OPS

Level = Literal["off", "scopes", "full"]

LOOP_KINDS = ("serial", "parallel", "unrolled", "vectorized", "thread")

_PACKED_TYPES = ("handle", "handle", "int32", "handle")

# Intrinsics whose arguments or result follow rules of their own.
_FREE_TYPES = frozenset({
    "if_then_else", "saturate", "reinterpret", "dot4", "dot2", "add_pairs", "round_bfloat16",
    "call_extern",
    "call_pure_extern", "call_packed",
    "call_llvm_intrin", "call_llvm_pure_intrin", "call_llvm_void", "view_of", "address_of",
    "load_shared", "prefetch", "store_bits", "try_call", "any_type", "any_value", "any_tensor",
    "check_array",
    "tensor_data", "tensor_ndim", "tensor_device", "tensor_dtype", "tensor_shape",
    "tensor_has_strides", "tensor_stride", "ldexp",
    "tile_configure", "tile_zero", "tile_load", "tile_store", "tile_dot", "tile_release",
    "storage_sync", "tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down",
    "tvm_warp_shuffle_xor", "tvm_warp_activemask", "wgmma_registers", "settle",
    "load_float", "load_pair", "fetch_quad", "fetch_once", "keep_words", "store_words",
    "take_ticket",
    "add_count", "await_count",
    *WARPGROUP_OPS, *FRAGMENT_OPS,
})


_BY_NAME = frozenset({
    "call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin",
    "call_llvm_void", "call_packed", "try_call",
})


def verify(func: PrimFunc, level: Level = "full") -> PrimFunc:
    """The function itself; InternalError with the offending statement if it breaks a rule."""
    if level not in ("off", "scopes", "full"):
        raise ValueError(f"the verifier has the levels off, scopes and full, not {level!r}")
    if level != "off":
        _Verifier(func, level == "full").run()
    return func


class _Verifier:
    def __init__(self, func: PrimFunc, full: bool) -> None:
        self.func = func
        self.full = full
        self.current: Node = func
        self.scope: set[int] = set()
        self.bound: set[int] = set()

    def fail(self, reason: str) -> InternalError:
        lines = repr(self.current).splitlines()
        shown = lines if len(lines) <= 8 else [*lines[:7], "    ..."]
        text = "\n".join(f"    {line}" for line in shown)
        return InternalError(f"{self.func.name}: {reason}, in\n{text}")

    def require(self, holds: bool, reason: str, *parts: object) -> None:
        if not holds:
            raise self.fail(reason.format(*parts))

    # ---- scopes ----

    def run(self) -> None:
        func = self.func
        self.require(
            len(func.params) == len(func.buffers),
            "{} parameters but {} buffers", len(func.params), len(func.buffers),
        )
        if func.attrs.get("packed"):
            types = tuple(param.dtype for param in func.params)
            self.require(types == _PACKED_TYPES, "a packed function takes (self, args, n, ret)")
            self.require(not any(func.buffers), "a packed function binds its buffers inside")
        for param, buffer in zip(func.params, func.buffers, strict=True):
            self.bind(param)
            if buffer is not None:
                self.require(param.dtype == "handle", "the parameter {} is no handle", param)
        for buffer in func.buffers:
            if buffer is not None:
                self.bind_shape(buffer)
                self.scope.update((id(buffer), id(buffer.data)))
                self.bound.add(id(buffer))
        for buffer in func.buffers:
            if buffer is not None:
                self.check_buffer(buffer)
        self.stmt(func.body)

    def bind(self, var: Var) -> None:
        self.require(id(var) not in self.bound, "the variable {} is bound twice", var)
        self.bound.add(id(var))
        self.scope.add(id(var))

    def bind_shape(self, buffer: Buffer) -> None:
        """Variables in the shapes of a function's buffers are parameters too."""

        def add(found: Node) -> None:
            if isinstance(found, Var) and id(found) not in self.scope:
                self.bind(found)

        for part in (*buffer.shape, *buffer.strides):
            post_order(part, add)

    def check_buffer(self, buffer: Buffer) -> None:
        self.require(buffer.dtype.lanes == 1, "the buffer {} has vector elements", buffer.name)
        self.require(
            len(buffer.strides) in (0, len(buffer.shape)),
            "the buffer {} has {} dimensions but {} strides",
            buffer.name, len(buffer.shape), len(buffer.strides),
        )
        places = (0, *buffer.axis_separators, len(buffer.shape))
        self.require(
            list(places) == sorted(places) and not (buffer.strides and buffer.axis_separators),
            "the buffer {} has the axis separators {}", buffer.name, list(buffer.axis_separators),
        )
        for part in (*buffer.shape, *buffer.strides):
            self.expr(part)
            self.require(_is_index(part.dtype), "{} is no extent for {}", part, buffer.name)

    def use_buffer(self, buffer: Buffer) -> None:
        known = id(buffer) in self.scope or id(buffer.data) in self.scope
        self.require(known, "the buffer {} is used outside what binds it", buffer.name)

    # ---- statements ----

    def stmt(self, stmt: Stmt) -> None:
        outer, self.current = self.current, stmt
        check = _STMTS.get(type(stmt))
        if check is None:
            raise self.fail(f"{type(stmt).__name__} is no statement")
        check(self, stmt)
        self.current = outer

    def inside(self, stmt: Stmt, *names: Node) -> None:
        """Check a statement in which these are visible."""
        self.stmt(stmt)
        self.scope.difference_update(map(id, names))

    def loop(self, stmt: For) -> None:
        self.expr(stmt.min)
        self.expr(stmt.extent)
        self.require(stmt.kind in LOOP_KINDS, "there is no loop of kind {}", repr(stmt.kind))
        self.require(
            bool(stmt.thread) == (stmt.kind == "thread"),
            "a loop of kind thread, and no other, names its thread",
        )
        self.require(_is_index(stmt.var.dtype), "the loop variable {} is no integer", stmt.var)
        for part in (stmt.min, stmt.extent):
            self.require(
                part.dtype == stmt.var.dtype,
                "the loop variable {} is {}, its bound {}", stmt.var, stmt.var.dtype, part.dtype,
            )
        self.bind(stmt.var)
        self.inside(stmt.body, stmt.var)

    def store(self, stmt: BufferStore) -> None:
        self.use_buffer(stmt.buffer)
        self.expr(stmt.value)
        for index in stmt.indices:
            self.expr(index)
        lanes = self.indices(stmt.buffer, stmt.indices)
        expected = stmt.buffer.dtype.with_lanes(lanes)
        self.require(
            stmt.value.dtype == expected,
            "a value of type {} is stored where {} belongs", stmt.value.dtype, expected,
        )
        if stmt.predicate is not None:
            self.expr(stmt.predicate)
            self.require(
                stmt.predicate.dtype == BOOL.with_lanes(lanes),
                "the predicate has type {}, not {}", stmt.predicate.dtype, BOOL.with_lanes(lanes),
            )

    def evaluate(self, stmt: Evaluate) -> None:
        self.expr(stmt.value)

    def sequence(self, stmt: SeqStmt) -> None:
        for inner in stmt.stmts:
            self.stmt(inner)

    def branch(self, stmt: IfThenElse) -> None:
        self.condition(stmt.condition)
        self.stmt(stmt.then)
        if stmt.otherwise is not None:
            self.stmt(stmt.otherwise)

    def condition(self, condition: Expr) -> None:
        self.expr(condition)
        self.require(condition.dtype == BOOL, "a condition has type {}, not bool", condition.dtype)

    def let(self, stmt: LetStmt) -> None:
        self.expr(stmt.value)
        self.same_type(stmt.var, stmt.value)
        self.bind(stmt.var)
        self.inside(stmt.body, stmt.var)

    def same_type(self, var: Var, value: Expr) -> None:
        self.require(
            var.dtype == value.dtype,
            "the variable {} of type {} is bound to a value of type {}",
            var, var.dtype, value.dtype,
        )

    def check(self, stmt: AssertStmt) -> None:
        self.condition(stmt.condition)
        for value in stmt.values:
            self.expr(value)
            good = value.dtype.is_integer and value.dtype.lanes == 1
            self.require(good, "a message says {} of type {}", value, value.dtype)
        places = len(stmt.texts()) - 1
        self.require(
            places == len(stmt.values),
            "a message has {} places for {} values", places, len(stmt.values),
        )

    def allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        self.check_buffer(buffer)
        twice = id(buffer) in self.bound
        self.require(not twice, "the buffer {} is allocated twice", buffer.name)
        self.bound.add(id(buffer))
        self.scope.update((id(buffer), id(buffer.data)))
        self.inside(stmt.body, buffer, buffer.data)

    def attribute(self, stmt: AttrStmt) -> None:
        self.expr(stmt.value)
        if isinstance(stmt.node, Buffer):
            self.use_buffer(stmt.node)
        self.stmt(stmt.body)

    def prefetch(self, stmt: Prefetch) -> None:
        self.use_buffer(stmt.buffer)
        for part in (*stmt.mins, *stmt.extents):
            self.expr(part)
            self.require(_is_index(part.dtype), "{} is no place in {}", part, stmt.buffer.name)
        for parts in (stmt.mins, stmt.extents):
            self.indices(stmt.buffer, parts)

    def tensorized(self, stmt: Tensorized) -> None:
        self.stmt(stmt.body)
        self.stmt(stmt.meaning)

    # ---- expressions ----

    def expr(self, root: Expr) -> None:
        """Check an expression; iterative, since an expression may be deep."""
        seen: set[int] = set()
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            found, leave = stack.pop()
            if leave:
                self.scope.discard(id(found))
            elif isinstance(found, Let):
                # Its variable is visible in the body only, which comes off the stack first.
                self.expr(found.value)
                self.same_type(found.var, found.value)
                self.bind(found.var)
                stack += [(found.var, True), (found.body, False)]
            elif id(found) not in seen:
                seen.add(id(found))
                self.one(found)
                if not isinstance(found, Var):
                    inner = (child for child in found.children() if isinstance(child, Expr))
                    stack += [(child, False) for child in inner]

    def one(self, found: Expr) -> None:
        if isinstance(found, Var):
            known = id(found) in self.scope
            self.require(known, "the variable {} is used outside what binds it", found)
        elif isinstance(found, BufferLoad):
            self.use_buffer(found.buffer)
        if self.full:
            for kind in type(found).__mro__:
                if kind in _EXPRS:
                    _EXPRS[kind](self, found)
                    break

    def indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """Check indices; the number of lanes that they address."""
        self.require(
            len(indices) == len(buffer.shape),
            "{} has {} dimensions but {} indices", buffer.name, len(buffer.shape), len(indices),
        )
        lanes = max((index.dtype.lanes for index in indices), default=1)
        for index in indices:
            if not index.dtype.is_integer:
                raise self.fail(f"the index {index} has type {index.dtype}")
            if index.dtype.lanes not in (1, lanes):
                raise self.fail(f"the indices of {buffer.name} have different lanes")
        return lanes

    def load(self, found: BufferLoad) -> None:
        self.indices(found.buffer, found.indices)

    def binary(self, found: BinaryExpr) -> None:
        a, b = found.a.dtype, found.b.dtype
        self.require(a == b, "the operands of {} have the types {} and {}", found, a, b)
        if isinstance(found, (And, Or)):
            self.require(a.is_bool, "{} needs bools, not {}", found, a)
        elif isinstance(found, (FloorDiv, FloorMod, TruncDiv, TruncMod)):
            self.require(a.is_integer, "{} needs integers, not {}", found, a)
        elif isinstance(found, Div):
            self.require(a.is_float, "{} needs floats, not {}", found, a)

    def negation(self, found: Not) -> None:
        self.require(found.a.dtype.is_bool, "{} needs a bool, not {}", found, found.a.dtype)

    def select(self, found: Select) -> None:
        self.choice(found.condition, found.then, found.otherwise, found)

    def choice(self, condition: Expr, then: Expr, otherwise: Expr, found: Expr) -> None:
        a, b = then.dtype, otherwise.dtype
        self.require(a == b, "the branches of {} have the types {} and {}", found, a, b)
        good = condition.dtype.is_bool and condition.dtype.lanes in (1, a.lanes)
        self.require(good, "the condition of {} has type {}", found, condition.dtype)

    def cast(self, found: Cast) -> None:
        target, source = found.dtype, found.value.dtype
        self.require(target.lanes == source.lanes, "{} changes the lanes of {}", found, source)
        self.require("handle" not in (target.kind, source.kind), "{} casts a handle", found)

    def call(self, found: Call) -> None:
        row = INTRINSICS.get(found.op)
        if row is None:
            return
        if row.arity >= 0:
            count = len(found.args)
            self.require(
                count == row.arity, "{} takes {} arguments, not {}", found.op, row.arity, count
            )
        if found.op == "if_then_else":
            self.choice(found.args[0], found.args[1], found.args[2], found)
        if found.op in _BY_NAME:
            named = bool(found.args) and isinstance(found.args[0], StringImm)
            self.require(named, "{} does not name what it calls", found)
        if found.op == "call_packed":
            self.packed(found)
        elif found.op == "view_of":
            self.view(found)
        if found.op in _FREE_TYPES:
            return
        types = {arg.dtype for arg in found.args}
        self.require(len(types) == 1, "the arguments of {} have different types", found)
        usual = usual_type(found.op, found.args)
        self.require(found.dtype == usual, "{} has type {}, not {}", found, found.dtype, usual)

    def packed(self, found: Call) -> None:
        for value in (found, *found.args):
            self.require(value.dtype.lanes == 1, "{} takes or gives the vector {}", found, value)

    def view(self, found: Call) -> None:
        good = bool(found.args) and isinstance(found.args[0], BufferLoad)
        if good and len(found.args) > 1:
            ndim = found.args[1]
            good = isinstance(ndim, IntImm) and len(found.args) == 2 + 2 * ndim.value
        self.require(good, "{} is no element, or no array that begins there", found)
        for part in found.args[2:]:
            self.require(_is_index(part.dtype), "{} is no extent or stride of {}", part, found)

    def ramp(self, found: Ramp) -> None:
        a, b = found.base.dtype, found.stride.dtype
        self.require(a == b, "the base and the stride of {} have the types {} and {}", found, a, b)
        self.require(a.lanes == 1 and a.is_integer, "{} starts from {}", found, a)

    def broadcast(self, found: Broadcast) -> None:
        self.require(found.value.dtype.lanes == 1, "{} repeats a vector", found)

    def shuffle(self, found: Shuffle) -> None:
        elements = {vector.dtype.element for vector in found.vectors}
        self.require(len(elements) == 1, "{} mixes types", found)
        total = sum(vector.dtype.lanes for vector in found.vectors)
        good = all(0 <= index < total for index in found.indices)
        self.require(good, "{} picks from {} lanes", found, total)

    def number(self, found: IntImm) -> None:
        dtype = found.dtype
        if dtype.is_bool or not dtype.is_integer:
            self.require(dtype.is_bool and found.value in (0, 1), "{} is no {}", found, dtype)
            return
        low, high = (-1 << dtype.bits - 1, 1 << dtype.bits - 1) if dtype.is_int else (
            0, 1 << dtype.bits)
        self.require(low <= found.value < high, "{} does not fit in {}", found, dtype)


def _is_index(dtype: DataType) -> bool:
    return dtype.is_integer and dtype.lanes == 1 and dtype.bits >= INT32.bits


_EXPRS: dict[type, Callable[[_Verifier, Any], None]] = {
    BufferLoad: _Verifier.load,
    BinaryExpr: _Verifier.binary,
    Not: _Verifier.negation,
    Select: _Verifier.select,
    Cast: _Verifier.cast,
    Call: _Verifier.call,
    Ramp: _Verifier.ramp,
    Broadcast: _Verifier.broadcast,
    Shuffle: _Verifier.shuffle,
    IntImm: _Verifier.number,
}

_STMTS: dict[type[Stmt], Callable[[_Verifier, Any], None]] = {
    For: _Verifier.loop,
    BufferStore: _Verifier.store,
    Evaluate: _Verifier.evaluate,
    SeqStmt: _Verifier.sequence,
    IfThenElse: _Verifier.branch,
    LetStmt: _Verifier.let,
    AssertStmt: _Verifier.check,
    Allocate: _Verifier.allocate,
    AttrStmt: _Verifier.attribute,
    Prefetch: _Verifier.prefetch,
    Tensorized: _Verifier.tensorized,
}
