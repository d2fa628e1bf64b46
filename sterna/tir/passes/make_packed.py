"""Give a function the packed calling convention: check its arguments, take them apart, call it."""

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, StringImm, Var
from sterna.support.dtype import DataType
from sterna.tir.stmt import (
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)
from sterna.tir.threads import ON_HOST
from sterna.tir.wanted_array import WantedArray

INT64 = DataType("int64")
FLOAT64 = DataType("float64")

# The type indices of the calling convention.
_INT, _BOOL, _FLOAT, _POINTER = 1, 2, 3, 4


def make_packed(func: PrimFunc, arguments: int) -> PrimFunc:
    """A packed function that calls func, whose first parameters are the caller's arguments.

    The other parameters are variables of the arrays' shapes, and are read from the arrays.
    """
    return _Wrapper(func, arguments).make()


class _Wrapper:
    def __init__(self, func: PrimFunc, arguments: int) -> None:
        self.func = func
        self.count = arguments
        self.buffers: tuple[Buffer | None, ...] = func.attrs.get("declared", func.buffers)
        self.args = Var("args", HANDLE)
        self.steps: list[tuple[Var, Expr] | Stmt] = []
        self.values: dict[Var, Expr] = {}
        # What other functions write through addresses stands in an attribute, by its place.
        named = {func.buffers[place] for place in func.attrs.get("written", ())}
        self.written = _stored_in(func.body) | named
        self.signature = f"{func.name}({', '.join(map(self.describe, range(arguments)))})"

    def describe(self, index: int) -> str:
        """An argument as its user knows it: its name, type and shape."""
        buffer, var = self.buffers[index], self.func.params[index]
        if buffer is None:
            return f"{var.name}: {var.dtype}"
        return f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"

    # ---- building blocks ----

    def require(self, condition: Expr, kind: str, message: str) -> None:
        self.steps.append(AssertStmt(condition, kind, f"{self.signature}: {message}"))

    def let(self, name: str, value: Expr) -> Var:
        var = Var(name, value.dtype)
        self.steps.append((var, value))
        return var

    @staticmethod
    def call(dtype: DataType, op: str, *args: Expr | int) -> Expr:
        return Call(dtype, op, tuple(build.as_expr(arg) for arg in args))

    # ---- the wrapper ----

    def make(self) -> PrimFunc:
        count = Var("n", INT32)
        self.require(
            build.equal(count, self.count), "TypeError", f"expected {self.count} arguments"
        )
        tensors: list[tuple[int, Buffer, Var]] = []
        for index in range(self.count):
            buffer = self.buffers[index]
            if buffer is None:
                self.take_scalar(index)
            else:
                tensors.append((index, buffer, self.take_array(index, buffer)))
        for _, buffer, tensor in tensors:
            self.bind_shape(buffer, tensor)
        for _, buffer, tensor in tensors:
            self.check_open_extents(buffer, tensor)
        values = [StringImm(self.func.name), *[self.values[p] for p in self.func.params]]
        body: Stmt = Evaluate(Call(INT32, "try_call", tuple(values)))
        body = self.join(body)
        handles = (Var("self", HANDLE), self.args, count, Var("ret", HANDLE))
        kept = {key: value for key, value in self.func.attrs.items() if key == ON_HOST}
        return PrimFunc(self.func.name, handles, (None,) * 4, body, {"packed": True, **kept})

    def join(self, last: Stmt) -> Stmt:
        body = last
        for step in reversed(self.steps):
            body = LetStmt(*step, body) if isinstance(step, tuple) else seq(step, body)
        return body

    def take_scalar(self, index: int) -> None:
        var = self.func.params[index]
        kind = self.let(f"{var.name}.type", self.call(INT32, "any_type", self.args, index))
        whole = build.logical_or(build.equal(kind, _INT), build.equal(kind, _BOOL))
        integer = self.call(INT64, "any_value", self.args, index)
        if var.dtype.is_float:
            number = build.logical_or(whole, build.equal(kind, _FLOAT))
            self.require(number, "TypeError", f"argument {var.name} must be a number")
            real = self.call(FLOAT64, "any_value", self.args, index)
            both = build.if_then_else(build.equal(kind, _FLOAT), real, build.cast(FLOAT64, integer))
            self.values[var] = self.let(var.name, build.cast(var.dtype, both))
        elif var.dtype == HANDLE:
            pointer = build.equal(kind, _POINTER)
            self.require(pointer, "TypeError", f"argument {var.name} must be a pointer")
            self.values[var] = self.let(var.name, self.call(HANDLE, "any_value", self.args, index))
        else:
            self.require(whole, "TypeError", f"argument {var.name} must be an integer")
            self.values[var] = self.let(var.name, build.cast(var.dtype, integer))

    def take_array(self, index: int, buffer: Buffer) -> Var:
        extents = (build.int_value(extent) for extent in buffer.shape)
        known = tuple(-1 if extent is None else extent for extent in extents)
        is_written = self.func.buffers[index] in self.written
        wanted = WantedArray(self.signature, buffer.name, buffer.dtype, known, is_written)
        self.steps.append(Evaluate(wanted.check(self.args, index)))
        tensor = self.let(buffer.name, self.call(HANDLE, "any_tensor", self.args, index))
        self.values[self.func.params[index]] = self.let(
            f"{buffer.name}.data", self.call(HANDLE, "tensor_data", tensor)
        )
        return tensor

    def bind_shape(self, buffer: Buffer, tensor: Var) -> None:
        """The first array that has a variable as an extent says what it is."""
        for dim, extent in enumerate(buffer.shape):
            if isinstance(extent, Var) and extent not in self.values:
                value = self.call(INT64, "tensor_shape", tensor, dim)
                self.values[extent] = self.let(extent.name, build.cast(extent.dtype, value))

    def check_open_extents(self, buffer: Buffer, tensor: Var) -> None:
        """Extents that depend on variables must be what the first arrays make of them."""
        for dim, extent in enumerate(buffer.shape):
            if build.int_value(extent) is not None:
                continue
            wanted = substitute(extent, self.values)
            self.check_bound(buffer, wanted)
            size = self.call(INT64, "tensor_shape", tensor, dim)
            self.require(
                build.equal(size, build.cast(INT64, wanted)), "ValueError",
                f"argument {buffer.name} has a wrong shape: "
                f"{buffer.name}.shape[{dim}] must be {extent}",
            )

    def check_bound(self, buffer: Buffer, extent: Expr) -> None:
        known = {id(v) for v in self.values.values()}
        stack: list[Expr] = [extent]
        while stack:
            item = stack.pop()
            if isinstance(item, Var) and id(item) not in known:
                raise ValueError(
                    f"{self.func.name}: the shape of {buffer.name} has the variable {item.name}, "
                    "which no argument says; add it to the arguments"
                )
            stack.extend(c for c in item.children() if isinstance(c, Expr))


def _stored_in(body: Stmt) -> set[Buffer | None]:
    """The buffers that a statement puts values into."""
    stored: set[Buffer | None] = set()
    stack = [body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, BufferStore):
            stored.add(stmt.buffer)
        elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call):
            stored |= _stored_by(stmt.value)
        stack.extend(child for child in stmt.children() if isinstance(child, Stmt))
    return stored


def _stored_by(call: Call) -> set[Buffer | None]:
    """Those that a call for its effect does."""
    if call.op not in ("store_bits", "tile_store"):
        return set()
    places = (
        arg.args[0] if isinstance(arg, Call) and arg.op == "address_of" else arg
        for arg in call.args
    )
    return {place.buffer for place in places if isinstance(place, BufferLoad)}
