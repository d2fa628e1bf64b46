"""The reference interpreter: slow and plain, it does what stmt.py and expr.py say.

Integers are Python ints wrapped to their type, floats are rounded to their type after each
operation (a double is wide enough for the result to be the one that the type's own arithmetic
gives), vectors are lists. Loops whose order is free run in a shuffled one; memory begins as
garbage; And, Or and Select evaluate all their operands: what only works by luck shall fail here.
"""

import ctypes
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sterna.ir import expr as E
from sterna.ir.build import wrap_int
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node
from sterna.runtime import get_global_func
from sterna.support.dtype import DataType
from sterna.support.errors import make_exception
from sterna.tir import stmt as S
from sterna.tir.external import explicit_view
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.memory import (
    PackedArgs,
    Pointer,
    Tensor,
    array_view,
    as_type,
    fault_of,
    flat_memory,
    from_bits,
    garbage,
    storage_type,
    tensor_property,
    to_bits,
)
from sterna.tir.numbers import BINARY, clamp, dots, folded, ldexp, pairs_in_words
from sterna.tir.stmt import Buffer, PrimFunc, Stmt
from sterna.tir.tile_registers import TileRegisters
from sterna.tir.wanted_array import WantedArray

_INT64 = DataType("int64")

Value = Any
"""An int, a float, a list of them (a vector), or a handle: Pointer, Tensor, PackedArgs, 0."""


def run(
    func: PrimFunc,
    *args: Any,
    functions: Iterable[PrimFunc] = (),
    externs: Mapping[str, Callable[..., Any]] | None = None,
    seed: int = 0,
) -> None:
    """Run a function on NumPy arrays, which it changes, and Python numbers.

    functions: those that it may try_call; externs: what call_extern and call_packed find by name,
    the latter before registered functions; seed: of the order in which parallel loops run.
    """
    # A packed function may have the name of the one that it calls; its symbol tells them apart.
    known = {("__tvm_ffi_" if f.attrs.get("packed") else "") + f.name: f for f in functions}
    _Interpreter(known, dict(externs or {}), seed).call(func, args)


class _Interpreter:
    def __init__(
        self, functions: dict[str, PrimFunc], externs: dict[str, Callable[..., Any]], seed: int
    ) -> None:
        self.functions = functions
        self.externs = externs
        self.random = random.Random(seed)
        self.values: dict[int, Value] = {}
        self.current: Node | None = None
        self.caller = ""
        self.tiles = TileRegisters()

    # ---- functions ----

    def call(self, func: PrimFunc, args: tuple[Any, ...]) -> None:
        outer, self.values = self.values, {}
        outer_caller, self.caller = self.caller, func.name
        is_forwarded = len(args) == 4 and isinstance(args[1], PackedArgs)
        if func.attrs.get("packed") and not is_forwarded:
            args = (0, PackedArgs(args), len(args), 0)
        if len(args) != len(func.params):
            raise TypeError(f"{func.name} takes {len(func.params)} arguments, not {len(args)}")
        pairs = list(zip(func.params, func.buffers, args, strict=True))
        for var, buffer, arg in pairs:
            if buffer is None:
                self.values[id(var)] = _scalar(arg, var)
        for var, buffer, arg in pairs:
            if buffer is not None:
                pointer = self._buffer_argument(buffer, arg)
                self.values[id(var)] = self.values[id(buffer.data)] = pointer
        self.stmt(func.body)
        self.values, self.caller = outer, outer_caller

    def _buffer_argument(self, buffer: Buffer, arg: Any) -> Pointer:
        if isinstance(arg, Pointer):
            return arg
        dtype = buffer.dtype
        if isinstance(arg, np.ndarray) and (dtype.is_packed or arg.dtype.itemsize == dtype.bytes):
            arg = Tensor(arg.view(storage_type(dtype)), dtype)
        if not isinstance(arg, Tensor) or arg.dtype != dtype:
            kind = arg.dtype if isinstance(arg, np.ndarray | Tensor) else type(arg).__name__
            raise TypeError(f"{buffer.name} is an array of {dtype}, not {kind}")
        array, whole = arg.array, arg.extents
        if len(whole) == len(buffer.shape):
            for extent, number in zip(buffer.shape, whole, strict=True):
                if isinstance(extent, Var):
                    self.values.setdefault(id(extent), number)
        shape = tuple(self.expr(extent) for extent in buffer.shape)
        if dtype.is_packed:  # its bytes have no shape of their own
            fits = array.size == dtype.bytes_of(math.prod(shape)) and arg.shape in (None, shape)
        else:
            same = len(whole) != len(shape) or whole == shape
            fits = math.prod(shape) == array.size and same
        if not fits:
            raise ValueError(f"{buffer.name} has the shape {shape}, not {whole}")
        if not buffer.strides and not array.flags.c_contiguous:
            raise ValueError(f"{buffer.name} must be an array without gaps")
        return arg.pointer()

    # ---- statements ----

    def stmt(self, stmt: Stmt) -> None:
        outer, self.current = self.current, stmt
        _STMTS[type(stmt)](self, stmt)
        self.current = outer

    def loop(self, stmt: S.For) -> None:
        start, extent = self.expr(stmt.min), self.expr(stmt.extent)
        order = list(range(start, start + extent))
        if stmt.kind in ("parallel", "vectorized", "thread"):
            self.random.shuffle(order)
        for number in order:
            self.values[id(stmt.var)] = number
            self.stmt(stmt.body)

    def store(self, stmt: S.BufferStore) -> None:
        value, indices = self.expr(stmt.value), [self.expr(index) for index in stmt.indices]
        holds = True if stmt.predicate is None else self.expr(stmt.predicate)
        lanes = max((index.dtype.lanes for index in stmt.indices), default=1)
        for lane in range(lanes):
            if _lane(holds, lane):
                at = self.element(stmt.buffer, [_lane(index, lane) for index in indices])
                at.store(_lane(value, lane), stmt.buffer.dtype)

    def evaluate(self, stmt: S.Evaluate) -> None:
        if isinstance(stmt.value, E.Call) and stmt.value.op == "call_packed":
            self.call_by_name(stmt.value)  # whatever it returns is dropped
        else:
            self.expr(stmt.value)

    def sequence(self, stmt: S.SeqStmt) -> None:
        for inner in stmt.stmts:
            self.stmt(inner)

    def branch(self, stmt: S.IfThenElse) -> None:
        if self.expr(stmt.condition):
            self.stmt(stmt.then)
        elif stmt.otherwise is not None:
            self.stmt(stmt.otherwise)

    def let(self, stmt: S.LetStmt) -> None:
        self.values[id(stmt.var)] = self.expr(stmt.value)
        self.stmt(stmt.body)

    def check(self, stmt: S.AssertStmt) -> None:
        if not self.expr(stmt.condition):
            values = [str(self.expr(value)) for value in stmt.values]
            parts = zip(stmt.texts(), [*values, ""], strict=True)
            raise make_exception(stmt.kind, "".join(text + value for text, value in parts))

    def allocate(self, stmt: S.Allocate) -> None:
        shape = [self.expr(extent) for extent in stmt.buffer.shape]
        count = math.prod(shape)
        if stmt.buffer.strides:
            strides = [self.expr(stride) for stride in stmt.buffer.strides]
            count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        self.values[id(stmt.buffer.data)] = garbage(count, stmt.buffer.dtype)
        self.stmt(stmt.body)

    def attribute(self, stmt: S.AttrStmt) -> None:
        self.stmt(stmt.body)

    def prefetch(self, stmt: S.Prefetch) -> None:
        pass

    def tensorized(self, stmt: S.Tensorized) -> None:
        self.stmt(stmt.meaning)

    # ---- memory ----

    def element(self, buffer: Buffer, indices: list[int]) -> Pointer:
        """The address of an element that must exist."""
        shape = [self.expr(extent) for extent in buffer.shape]
        for at, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            if not 0 <= index < extent:
                raise self.outside(buffer, indices, f"index {at} is {index} of {extent}")
        if buffer.strides:
            strides = [self.expr(stride) for stride in buffer.strides]
            offset = sum(i * s for i, s in zip(indices, strides, strict=True))
        else:
            offset = 0
            for index, extent in zip(indices, shape, strict=True):
                offset = offset * extent + index
        start = self.values[id(buffer.data)]
        start = start.viewed_as(buffer.dtype)
        offset += start.offset
        if not 0 <= offset < start.count:
            raise self.outside(buffer, indices, f"its memory has {start.count} elements")
        return Pointer(start.memory, offset, start.packed)

    def outside(self, buffer: Buffer, indices: list[int], reason: str) -> IndexError:
        place = f"{buffer.name}[{', '.join(map(str, indices))}]"
        text = str(self.current).splitlines()[0] if self.current is not None else "?"
        return IndexError(f"{place} is outside the buffer ({reason}), in: {text}")

    def load(self, expr: S.BufferLoad) -> Value:
        indices = [self.expr(index) for index in expr.indices]
        dtype = expr.buffer.dtype
        found = []
        for lane in range(expr.dtype.lanes):
            at = self.element(expr.buffer, [_lane(index, lane) for index in indices])
            found.append(at.load(dtype))
        return found if expr.dtype.lanes > 1 else found[0]

    # ---- expressions ----

    def expr(self, expr: Expr) -> Value:
        """The value of an expression."""
        method = _EXPRS.get(type(expr))
        if method is not None:
            return method(self, expr)
        if isinstance(expr, E.BinaryExpr):
            return self.binary(expr)
        raise TypeError(f"the interpreter has no {type(expr).__name__}")

    def variable(self, expr: Var) -> Value:
        if id(expr) not in self.values:
            raise NameError(f"the variable {expr.name} has no value, in: {self.current}")
        return self.values[id(expr)]

    def binary(self, expr: E.BinaryExpr) -> Value:
        compute, dtype = BINARY[type(expr)], expr.dtype.element
        a, b = self.expr(expr.a), self.expr(expr.b)
        if isinstance(a, list):
            return [as_type(compute(x, y), dtype) for x, y in zip(a, b, strict=True)]
        if expr.dtype.kind == "bool":
            return int(compute(a, b))
        return as_type(compute(a, b), dtype)

    def negation(self, expr: E.Not) -> Value:
        return self.each(lambda a: int(not a), expr.dtype, expr.a)

    def each(self, compute: Callable[..., Any], dtype: DataType, *args: Expr) -> Value:
        """A function of each lane, rounded to the type."""
        values = [self.expr(arg) for arg in args]
        if dtype.lanes == 1:
            return as_type(compute(*values), dtype)
        lanes = ([_lane(value, lane) for value in values] for lane in range(dtype.lanes))
        return [as_type(compute(*lane), dtype.element) for lane in lanes]

    def select(self, expr: E.Select) -> Value:
        holds, a, b = map(self.expr, (expr.condition, expr.then, expr.otherwise))
        if expr.dtype.lanes == 1:
            return a if holds else b
        return [
            _lane(a, lane) if _lane(holds, lane) else _lane(b, lane)
            for lane in range(expr.dtype.lanes)
        ]

    def cast(self, expr: E.Cast) -> Value:
        return self.each(lambda value: value, expr.dtype, expr.value)

    def let_in(self, expr: E.Let) -> Value:
        self.values[id(expr.var)] = self.expr(expr.value)
        return self.expr(expr.body)

    def ramp(self, expr: E.Ramp) -> Value:
        base, stride = self.expr(expr.base), self.expr(expr.stride)
        element = expr.dtype.element
        return [as_type(base + lane * stride, element) for lane in range(expr.lanes)]

    def broadcast(self, expr: E.Broadcast) -> Value:
        return [self.expr(expr.value)] * expr.lanes

    def shuffle(self, expr: E.Shuffle) -> Value:
        lanes: list[Value] = []
        for vector in expr.vectors:
            value = self.expr(vector)
            lanes += value if isinstance(value, list) else [value]
        picked = [lanes[index] for index in expr.indices]
        return picked if len(picked) > 1 else picked[0]

    # ---- calls ----

    def call_expr(self, expr: E.Call) -> Value:
        special = _CALLS.get(expr.op)
        if special is not None:
            return special(self, expr)
        row = INTRINSICS.get(expr.op)
        if row is None or row.compute is None:
            raise NotImplementedError(f"the interpreter has no {expr.op}")
        return self.each(row.compute, expr.dtype, *expr.args)

    def lazy(self, expr: E.Call) -> Value:
        holds = self.expr(expr.args[0])
        if not isinstance(holds, list):
            return self.expr(expr.args[1 if holds else 2])
        # Each lane takes its own branch; a branch that no lane takes is not evaluated.
        a = self.expr(expr.args[1]) if any(holds) else [0] * len(holds)
        b = self.expr(expr.args[2]) if not all(holds) else [0] * len(holds)
        return [x if c else y for c, x, y in zip(holds, a, b, strict=True)]

    def saturate(self, expr: E.Call) -> Value:
        return self.each(lambda x: clamp(x, expr.dtype.element), expr.dtype, *expr.args)

    def reinterpret(self, expr: E.Call) -> Value:
        source, target = expr.args[0].dtype.element, expr.dtype.element
        if "handle" in (source.kind, target.kind):
            return self.expr(expr.args[0])
        value = self.expr(expr.args[0])
        lanes = value if isinstance(value, list) else [value]
        # The first lane has the lowest bits, as in the memory of a little-endian machine.
        bits = sum(to_bits(lane, source) << source.bits * i for i, lane in enumerate(lanes))
        mask = (1 << target.bits) - 1
        found = [
            as_type(from_bits(bits >> target.bits * i & mask, target), target)
            for i in range(expr.dtype.lanes)
        ]
        return found if expr.dtype.lanes > 1 else found[0]

    def dot(self, expr: E.Call) -> Value:
        args = [self.expr(arg) for arg in expr.args]
        if expr.op == "dot2":
            return pairs_in_words(*args)
        totals, *rest = args
        lanes = totals if isinstance(totals, list) else [totals]
        sums = dots(len(lanes), *rest) if expr.op == "dot4" else folded(*rest)
        found = [as_type(x + y, expr.dtype.element) for x, y in zip(lanes, sums, strict=True)]
        return found if expr.dtype.lanes > 1 else found[0]

    def bit_not(self, expr: E.Call) -> Value:
        flip: Callable[[int], int] = (lambda a: 1 - a) if expr.dtype.is_bool else (lambda a: ~a)
        return self.each(flip, expr.dtype, *expr.args)

    def bit_count(self, expr: E.Call) -> Value:
        bits = expr.args[0].dtype.bits
        mask = (1 << bits) - 1
        if expr.op == "popcount":
            return self.each(lambda a: (a & mask).bit_count(), expr.dtype, *expr.args)
        return self.each(lambda a: bits - (a & mask).bit_length(), expr.dtype, *expr.args)

    def scale(self, expr: E.Call) -> Value:
        return self.each(ldexp, expr.dtype, *expr.args)

    def next_after(self, expr: E.Call) -> Value:
        if expr.dtype.kind != "float":
            raise NotImplementedError(f"the interpreter has no nextafter of {expr.dtype}")
        kind = storage_type(expr.dtype.element).type
        return self.each(lambda a, b: float(np.nextafter(kind(a), kind(b))), expr.dtype, *expr.args)

    def address(self, expr: E.Call) -> Value:
        load = expr.args[0]
        if not isinstance(load, S.BufferLoad):
            raise TypeError(f"{expr} takes the address of what is no element")
        return self.element(load.buffer, [self.expr(index) for index in load.indices])

    def store_bits(self, expr: E.Call) -> Value:
        load, mask, bits = expr.args
        assert isinstance(load, S.BufferLoad)
        at = self.element(load.buffer, [self.expr(index) for index in load.indices])
        kept = int(at.load(load.buffer.dtype)) & ~self.expr(mask)
        at.store(kept | self.expr(bits) & self.expr(mask), load.buffer.dtype)
        return 0

    def load_shared(self, expr: E.Call) -> Value:
        return self.expr(expr.args[0])

    def nothing(self, expr: E.Call) -> Value:
        return 0

    def try_call(self, expr: E.Call) -> Value:
        name = _text(expr.args[0])
        if name not in self.functions:
            raise NameError(f"there is no function '{name}' to call, in: {self.current}")
        self.call(self.functions[name], tuple(self.expr(arg) for arg in expr.args[1:]))
        return 0

    def extern(self, expr: E.Call) -> Value:
        name = _text(expr.args[0])
        if name not in self.externs:
            raise NameError(f"there is no external function '{name}', in: {self.current}")
        result = self.externs[name](*[self.expr(arg) for arg in expr.args[1:]])
        number = isinstance(result, (int, float)) and expr.dtype.kind != "handle"
        return as_type(result, expr.dtype) if number else (0 if result is None else result)

    def call_by_name(self, expr: E.Call) -> Any:
        name = _text(expr.args[0])
        function = self.externs.get(name) or get_global_func(name, allow_missing=True)
        if function is None:
            raise ValueError(
                f"{self.caller} calls '{name}', but no function of that name is registered or "
                "among the imports of its module"
            )
        return function(*[_packed_value(self.expr(arg), arg.dtype) for arg in expr.args[1:]])

    def call_packed(self, expr: E.Call) -> Value:
        result, dtype = self.call_by_name(expr), expr.dtype
        wanted: tuple[type, ...] = (int, float) if dtype.is_float else (int,)
        if dtype.kind == "handle":
            if not isinstance(result, Pointer | ctypes.c_void_p | None):
                raise self.no_result(expr, result)
            return 0 if result is None else result
        if not isinstance(result, wanted):
            raise self.no_result(expr, result)
        value = as_type(result, dtype)
        if isinstance(result, int) and not dtype.is_float and not dtype.is_bool and value != result:
            raise OverflowError(f"{self.said(expr)} a number that does not fit in {dtype}")
        return value

    def said(self, expr: E.Call) -> str:
        return f"{self.caller} calls '{_text(expr.args[0])}', which returned"

    def no_result(self, expr: E.Call, result: Any) -> TypeError:
        return TypeError(f"{self.said(expr)} {type(result).__name__} instead of {expr.dtype}")

    def view(self, expr: E.Call) -> Value:
        first, *parts = explicit_view(expr)
        shape, strides = ([self.expr(e) for e in part] for part in parts)
        if 0 in shape:  # it has no first element
            start = self.values[id(first.buffer.data)]
        else:
            start = self.element(first.buffer, [self.expr(index) for index in first.indices])
        return array_view(start, first.buffer.dtype, shape, strides)

    def llvm(self, expr: E.Call) -> Value:
        raise NotImplementedError(f"the interpreter has no {_text(expr.args[0])} of LLVM")

    def tile(self, expr: E.Call) -> Value:
        return self.tiles.run(expr.op, [self.expr(arg) for arg in expr.args])

    def packed(self, expr: E.Call) -> Value:
        args, index = self.expr(expr.args[0]), self.expr(expr.args[1])
        if expr.op == "any_type":
            return args.type_index(index)
        return args.tensor(index) if expr.op == "any_tensor" else args.payload(index, expr.dtype)

    def check_array(self, expr: E.Call) -> Value:
        args, index = self.expr(expr.args[0]), self.expr(expr.args[1])
        wanted = WantedArray.of(expr)
        fault = fault_of(wanted, args, index)
        if fault is not None:
            (kind, words), end = fault
            raise make_exception(kind, wanted.function + wanted.argument + words + end)
        return 0

    def tensor(self, expr: E.Call) -> Value:
        tensor = self.expr(expr.args[0])
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{expr} asks what is no tensor")
        index = self.expr(expr.args[1]) if len(expr.args) > 1 else 0
        return tensor_property(expr.op, tensor, index)


def _lane(value: Value, lane: int) -> Value:
    return value[lane] if isinstance(value, list) else value


def _scalar(arg: Any, var: Var) -> Value:
    if isinstance(arg, np.generic):
        arg = arg.item()
    if var.dtype.kind == "handle" or not isinstance(arg, (int, float)):
        if isinstance(arg, np.ndarray):
            return Pointer(flat_memory(arg))
        if var.dtype.kind != "handle":
            raise TypeError(f"{var.name} is a number, not {type(arg).__name__}")
        return arg
    return as_type(arg, var.dtype)


def _packed_value(value: Value, dtype: DataType) -> Any:
    """A value as a packed function gets it: integers have 64 bits and a sign."""
    return bool(value) if dtype.is_bool else wrap_int(value, _INT64) if dtype.is_uint else value


def _text(expr: Expr) -> str:
    if not isinstance(expr, E.StringImm):
        raise TypeError(f"a function is called by name, not by {expr}")
    return expr.value


_EXPRS: dict[type[Expr], Callable[[_Interpreter, Any], Value]] = {
    Var: _Interpreter.variable,
    E.IntImm: lambda self, expr: expr.value,
    E.FloatImm: lambda self, expr: expr.value,
    E.StringImm: lambda self, expr: expr.value,
    E.Not: _Interpreter.negation,
    E.Select: _Interpreter.select,
    E.Cast: _Interpreter.cast,
    E.Call: _Interpreter.call_expr,
    E.Let: _Interpreter.let_in,
    E.Ramp: _Interpreter.ramp,
    E.Broadcast: _Interpreter.broadcast,
    E.Shuffle: _Interpreter.shuffle,
    S.BufferLoad: _Interpreter.load,
}

_STMTS: dict[type[Stmt], Callable[[_Interpreter, Any], None]] = {
    S.For: _Interpreter.loop,
    S.BufferStore: _Interpreter.store,
    S.Evaluate: _Interpreter.evaluate,
    S.SeqStmt: _Interpreter.sequence,
    S.IfThenElse: _Interpreter.branch,
    S.LetStmt: _Interpreter.let,
    S.AssertStmt: _Interpreter.check,
    S.Allocate: _Interpreter.allocate,
    S.AttrStmt: _Interpreter.attribute,
    S.Prefetch: _Interpreter.prefetch,
    S.Tensorized: _Interpreter.tensorized,
}

_CALLS: dict[str, Callable[[_Interpreter, E.Call], Value]] = {
    "if_then_else": _Interpreter.lazy,
    "saturate": _Interpreter.saturate,
    "reinterpret": _Interpreter.reinterpret,
    "dot4": _Interpreter.dot,
    "dot2": _Interpreter.dot,
    "add_pairs": _Interpreter.dot,
    "bitwise_not": _Interpreter.bit_not,
    "popcount": _Interpreter.bit_count,
    "clz": _Interpreter.bit_count,
    "ldexp": _Interpreter.scale,
    "nextafter": _Interpreter.next_after,
    "address_of": _Interpreter.address,
    "prefetch": _Interpreter.nothing,
    "store_bits": _Interpreter.store_bits,
    "load_shared": _Interpreter.load_shared,
    "try_call": _Interpreter.try_call,
    "call_extern": _Interpreter.extern,
    "call_pure_extern": _Interpreter.extern,
    "call_llvm_intrin": _Interpreter.llvm,
    "call_llvm_pure_intrin": _Interpreter.llvm,
    "call_llvm_void": _Interpreter.llvm,
    "call_packed": _Interpreter.call_packed,
    "view_of": _Interpreter.view,
    "any_type": _Interpreter.packed,
    "any_value": _Interpreter.packed,
    "any_tensor": _Interpreter.packed,
    "check_array": _Interpreter.check_array,
    "storage_sync": lambda _interpreter, _expr: 0,  # one thread has nobody to wait for
    **{name: _Interpreter.tile for name in INTRINSICS if name.startswith("tile_")},
    **{name: _Interpreter.tensor for name in INTRINSICS if name.startswith("tensor_")},
}
