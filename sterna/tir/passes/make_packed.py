"""Give a function the packed calling convention: check its arguments, take them apart, call it."""

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, IntImm, StringImm, Var
from sterna.support.dtype import DataType
from sterna.tir.stmt import AssertStmt, Buffer, Evaluate, IfThenElse, LetStmt, PrimFunc, Stmt, seq

INT64 = DataType("int64")
FLOAT64 = DataType("float64")

# The type indices of the calling convention.
_INT, _BOOL, _FLOAT, _POINTER, _TENSOR_VIEW, _NDARRAY, _CPU = 1, 2, 3, 4, 7, 70, 1


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
            self.check_array(buffer, tensor)
        values = [StringImm(self.func.name), *[self.values[p] for p in self.func.params]]
        body: Stmt = Evaluate(Call(INT32, "try_call", tuple(values)))
        body = self.join(body)
        handles = (Var("self", HANDLE), self.args, count, Var("ret", HANDLE))
        return PrimFunc(self.func.name, handles, (None,) * 4, body, {"packed": True})

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
        kind = self.let(f"{buffer.name}.type", self.call(INT32, "any_type", self.args, index))
        is_array = build.logical_or(build.equal(kind, _NDARRAY), build.equal(kind, _TENSOR_VIEW))
        self.require(is_array, "TypeError", f"argument {buffer.name} must be an array")
        tensor = self.let(buffer.name, self.call(HANDLE, "any_tensor", self.args, index))
        ndim = len(buffer.shape)
        has_ndim = build.equal(self.call(INT32, "tensor_ndim", tensor), ndim)
        self.require(
            has_ndim, "ValueError", f"argument {buffer.name} must have {ndim} dimensions"
        )
        return tensor

    def bind_shape(self, buffer: Buffer, tensor: Var) -> None:
        """The first array that has a variable as an extent says what it is."""
        for dim, extent in enumerate(buffer.shape):
            if isinstance(extent, Var) and extent not in self.values:
                value = self.call(INT64, "tensor_shape", tensor, dim)
                self.values[extent] = self.let(extent.name, build.cast(extent.dtype, value))

    def check_array(self, buffer: Buffer, tensor: Var) -> None:
        name = buffer.name
        dtype = buffer.dtype
        code = dtype.type_code | dtype.bits << 8 | dtype.lanes << 16
        has_type = build.equal(self.call(INT32, "tensor_dtype", tensor), code)
        self.require(has_type, "TypeError", f"argument {name} must be of type {dtype}")
        for dim, extent in enumerate(buffer.shape):
            wanted = substitute(extent, self.values)
            self.check_bound(buffer, wanted)
            size = self.call(INT64, "tensor_shape", tensor, dim)
            fits = build.equal(size, build.cast(INT64, wanted))
            self.require(
                fits, "ValueError",
                f"argument {name} has a wrong shape: {name}.shape[{dim}] must be {extent}",
            )
        on_cpu = build.equal(self.call(INT32, "tensor_device", tensor), _CPU)
        self.require(on_cpu, "ValueError", f"argument {name} must be on the CPU")
        self.check_compact(buffer, tensor)
        self.values[self.parameter(buffer)] = self.let(
            f"{name}.data", self.call(HANDLE, "tensor_data", tensor)
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

    def check_compact(self, buffer: Buffer, tensor: Var) -> None:
        """Strides, if the caller gives any, must be those of an array without gaps."""
        checks: list[Stmt] = []
        message = f"{self.signature}: argument {buffer.name} must be contiguous"
        stride: Expr = IntImm(INT64, 1)
        for dim in reversed(range(len(buffer.shape))):
            size = self.call(INT64, "tensor_shape", tensor, dim)
            given = self.call(INT64, "tensor_stride", tensor, dim)
            fits = build.logical_or(build.equal(size, 1), build.equal(given, stride))
            checks.append(AssertStmt(fits, "ValueError", message))
            stride = stride * size
        if checks:
            strided = self.call(DataType("bool"), "tensor_has_strides", tensor)
            self.steps.append(IfThenElse(strided, seq(*checks)))

    def parameter(self, buffer: Buffer) -> Var:
        return next(
            p for p, b in zip(self.func.params, self.buffers, strict=True) if b is buffer
        )
