"""Foreign calls: C functions, LLVM's intrinsics and packed functions, and byte dot products."""

from collections.abc import Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import HANDLE, INT32, Call, Expr, IntImm, StringImm
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.stmt import Buffer, BufferLoad


def call_packed(*args: Any, dtype: str = "int32") -> Expr:
    """Calls a packed function: its name, then numbers, text, pointers and whole buffers.

    The name is looked up at the first call, among what the module imports and then among the
    registered functions, and remembered. What the function returns must be a number (or, for the
    dtype handle, a pointer or nothing), unless the call stands alone as a statement.
    """
    first = args[0] if args else None
    name = first.value if isinstance(first, StringImm) else first
    if not isinstance(name, str) or not name:
        raise ValueError("call_packed takes the function's name, which is text, first")
    kind = DataType(dtype)
    if kind.lanes != 1:
        raise ValueError(f"call_packed of '{name}' gives one value, not {kind}")
    given = (view_of(arg) if isinstance(arg, Buffer) else build.as_expr(arg) for arg in args[1:])
    call = Call(kind, "call_packed", (StringImm(name), *given))
    for arg in call.args:
        if isinstance(arg, StringImm) and "\0" in arg.value:
            raise ValueError(f"call_packed of {name!r}: the text {arg.value!r} has a zero in it")
        if arg.dtype.lanes != 1:
            raise TypeError(f"call_packed of '{name}': {arg} of {arg.dtype} is no single value")
    return call


def view_of(buffer: Buffer) -> Expr:
    """A buffer as an array that a packed function takes."""
    return Call(HANDLE, "view_of", (_first_element(buffer),))


def explicit_view(view: Call) -> tuple[BufferLoad, tuple[Expr, ...], tuple[Expr, ...]]:
    """The first element of a view_of, its shape and its strides."""
    first = view.args[0]
    if not isinstance(first, BufferLoad):
        raise TypeError(f"{view} is a view of what is no element")
    if len(view.args) == 1:
        return first, first.buffer.shape, strides_of(first.buffer)
    ndim = build.int_value(view.args[1])
    numbers = view.args[2:]
    if ndim is None or len(numbers) != 2 * ndim:
        raise TypeError(f"{view} does not say its dimensions, extents and strides")
    return first, numbers[:ndim], numbers[ndim:]


def view_at(first: BufferLoad, shape: Sequence[Expr], strides: Sequence[Expr]) -> Call:
    """The view_of an array that begins at an element and has this shape and these strides."""
    return Call(HANDLE, "view_of", (first, build.const(len(shape)), *shape, *strides))


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of a buffer, also of one without gaps."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = []
    step: Expr = build.const(1, "int64")
    for extent in reversed(buffer.shape):
        strides.insert(0, step)
        step = build.mul(step, build.cast("int64", extent))
    return tuple(strides)


def call_extern(dtype: str, func_name: str, *args: Any) -> Expr:
    """Calls the C function of that name; a buffer is passed as its address."""
    return _call_c("call_extern", dtype, func_name, args)


def call_pure_extern(dtype: str, func_name: str, *args: Any) -> Expr:
    """The same for a function without effects, whose result depends on its arguments alone."""
    return _call_c("call_pure_extern", dtype, func_name, args)


def _call_c(op: str, dtype: str, name: str, args: tuple[Any, ...]) -> Expr:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{op} takes the result's type and the function's name first")
    given = (address_of(arg) if isinstance(arg, Buffer) else build.as_expr(arg) for arg in args)
    return Call(DataType(dtype), op, (StringImm(name), *given))


def call_llvm_intrin(dtype: str, name: str, *args: Any) -> Expr:
    """Calls what LLVM knows by a name that starts with llvm, such as llvm.x86.sse2.pause.

    dtype is that of its result; "void" if it has none.
    """
    if dtype == "void":
        return _call_llvm("call_llvm_void", "int32", name, args)
    return _call_llvm("call_llvm_intrin", dtype, name, args)


def call_llvm_pure_intrin(dtype: str, name: str, *args: Any) -> Expr:
    """The same for what has no effect, such as llvm.fma."""
    return _call_llvm("call_llvm_pure_intrin", dtype, name, args)


def _call_llvm(op: str, dtype: str, name: str, args: tuple[Any, ...]) -> Expr:
    if not isinstance(name, str) or not name.startswith("llvm."):
        raise ValueError(f"{op} takes a name that starts with 'llvm.' second, not {name!r}")
    given = [build.as_expr(arg) for arg in args]
    # How many arguments the overload depends on, in the classic API; LLVM finds that out itself.
    if given and isinstance(given[0], IntImm) and given[0].dtype == "uint32":
        del given[0]
    return Call(DataType(dtype), op, (StringImm(name), *given))


def call_intrin(dtype: str, func_name: str, *args: Any) -> Expr:
    """Calls one of the functions in sterna/tir/intrinsics.py, whose name may start with tir.

    dtype is "" or "void" where nothing comes of the call.
    """
    name = _CLASSIC.get(func_name.removeprefix("tir."), func_name.removeprefix("tir."))
    row = INTRINSICS.get(name)
    if row is None:
        raise ValueError(f"there is no intrinsic '{func_name}'")
    if row.arity not in (-1, len(args)):
        raise ValueError(f"{func_name} takes {row.arity} arguments, not {len(args)}")
    kind = INT32 if dtype in ("", "void") else DataType(dtype)
    return Call(kind, name, tuple(build.as_expr(arg) for arg in args))


# What the classic interface calls by another name.
_CLASSIC = {"tvm_storage_sync": "storage_sync"}


def reinterpret(dtype: str, value: Any) -> Expr:
    """The bits of a value as another type."""
    expr, target = build.as_expr(value), DataType(dtype)
    sizes = [kind.bits * kind.lanes for kind in (expr.dtype, target)]
    if sizes[0] != sizes[1]:
        raise ValueError(f"{expr.dtype} has {sizes[0]} bits, {target} has {sizes[1]}")
    return Call(target, "reinterpret", (expr,))


def dot4(total: Any, a: Any, b: Any) -> Expr:
    """total, of type int32, plus four products of bytes of a and b in each lane."""
    x, first, second = (build.as_expr(part) for part in (total, a, b))
    if x.dtype.element != "int32":
        raise TypeError(f"dot4 adds to int32, not to {x.dtype}")
    for part, lanes in ((first, {4, 4 * x.dtype.lanes}), (second, {4 * x.dtype.lanes})):
        if not part.dtype.is_integer or part.dtype.bits != 8 or part.dtype.lanes not in lanes:
            wanted = " or ".join(str(count) for count in sorted(lanes))
            raise TypeError(f"dot4 takes {wanted} bytes to add to {x.dtype}, not {part.dtype}")
    return Call(x.dtype, "dot4", (x, first, second))


def dot2(a: Any, b: Any) -> Expr:
    """Two products of bytes of a and b in each lane of int16, held within its range."""
    first, second = build.as_expr(a), build.as_expr(b)
    bytes_given = second.dtype.lanes
    for part, lanes in ((second, {bytes_given}), (first, {4, bytes_given})):
        if not part.dtype.is_integer or part.dtype.bits != 8 or part.dtype.lanes not in lanes:
            raise TypeError(f"dot2 takes as many bytes twice, not {first.dtype} and {second.dtype}")
    if bytes_given % 4:
        raise TypeError(f"dot2 takes bytes in groups of four, not {second.dtype}")
    return Call(DataType(f"int16x{bytes_given // 2}"), "dot2", (first, second))


def add_pairs(total: Any, pairs: Any) -> Expr:
    """total, of type int32, plus two numbers of type int16 in each lane."""
    x, words = build.as_expr(total), build.as_expr(pairs)
    if x.dtype.element != "int32":
        raise TypeError(f"add_pairs adds to int32, not to {x.dtype}")
    wanted = DataType(f"int16x{2 * x.dtype.lanes}")
    if words.dtype != wanted:
        raise TypeError(f"add_pairs takes {wanted} to add to {x.dtype}, not {words.dtype}")
    return Call(x.dtype, "add_pairs", (x, words))


def address_of(element: BufferLoad | Buffer) -> Expr:
    """The address of an element, or of a buffer's first one."""
    load = _first_element(element) if isinstance(element, Buffer) else element
    if not isinstance(load, BufferLoad):
        raise TypeError(f"address_of takes an element of a buffer, not {element!r}")
    return Call(HANDLE, "address_of", (load,))


def _first_element(buffer: Buffer) -> BufferLoad:
    return BufferLoad(buffer, (build.const(0),) * len(buffer.shape))
