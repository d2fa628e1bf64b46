"""Statements and whole functions: C does what the interpreter does."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sterna import runtime
from sterna.codegen.c import CodegenError, generate
from sterna.codegen.symbols import TASKS_OF_A_THREAD
from sterna.ir import Expr, StringImm, Var, build, const
from sterna.ir import expr as E
from sterna.support import toolchain
from sterna.support.dtype import DataType
from sterna.tir import (
    Allocate,
    AssertStmt,
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
)
from sterna.tir.interpreter import run
from sterna.tir.verify import verify
from tests.codegen.c_harness import STRICT, Library, RecordingHost, zig
from tests.support import require_module, require_program

F32 = DataType("float32")
ZERO = const(0)


def buffer(name: str, *shape: int | Expr, dtype: str = "float32") -> Buffer:
    return Buffer(name, DataType(dtype), tuple(build.as_expr(extent) for extent in shape))


def load(source: Buffer, *indices: Expr | int) -> Expr:
    return BufferLoad(source, tuple(build.as_expr(index) for index in indices))


def store(target: Buffer, value: Expr, *indices: Expr | int) -> Stmt:
    return BufferStore(target, value, tuple(build.as_expr(index) for index in indices))


def loop(
    extent: Expr | int, body: Callable[[Var], Stmt], kind: Any = "serial", low: Expr = ZERO,
    name: str = "i",
) -> Stmt:
    var = Var(name)
    return For(var, low, build.as_expr(extent), kind, body(var))


def function(name: str, body: Stmt, *params: Buffer | Var) -> PrimFunc:
    variables = tuple(p.data if isinstance(p, Buffer) else p for p in params)
    buffers = tuple(p if isinstance(p, Buffer) else None for p in params)
    return verify(PrimFunc(name, variables, buffers, body))


def check(func: PrimFunc, *args: Any, host: RecordingHost | None = None) -> str:
    """Run C and the interpreter on copies of the arguments; the C text."""
    require_program("gcc")
    library = Library([func], ["gcc"], ["-O2"], host)
    expected, found = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args] for _ in "ab")
    run(func, *expected)
    assert library(func.name, *found) == 0
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)
    if host is not None:
        assert not host.blocks
    return library.source


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(0).uniform(-9, 9, shape).astype(dtype)


def test_vector_add_with_a_dynamic_size() -> None:
    n = Var("n", is_size=True)
    a, b, c = (buffer(name, n) for name in "ABC")
    body = loop(n, lambda i: store(c, load(a, i) + load(b, i), i))
    check(function("vecadd", body, a, b, c, n), numbers(37), numbers(37), numbers(37), 37)


def test_matmul_in_tiles() -> None:
    a, b, c = buffer("A", 10, 12), buffer("B", 12, 9), buffer("C", 10, 9)

    def tile(i: Var, j: Var, k: Var) -> Stmt:
        y, x = i // 3 * 4 + i % 3, j
        return IfThenElse(
            build.call_intrinsic("likely", build.less(y, 10)),
            store(c, load(c, y, x) + load(a, y, k) * load(b, k, x), y, x),
        )

    body = loop(9, lambda i: loop(9, lambda j: loop(12, lambda k: tile(i, j, k), name="k"),
                                  name="j"))
    text = check(function("matmul", body, a, b, c), numbers(10, 12), numbers(12, 9), numbers(10, 9))
    assert "sterna_floordiv" not in text, "i cannot be negative"


@pytest.mark.parametrize("threads", [0, 1, 3, 64])
def test_parallel_loops(threads: int) -> None:
    n = Var("n", is_size=True)
    a, c = buffer("A", n, 4), buffer("C", n, 4)
    scale = Var("scale", F32)
    low = Var("low")
    body = LetStmt(
        Var("twice", F32), const(2.0) * scale,
        loop(n - low, lambda i: loop(4, lambda j: store(c, load(a, i, j) * scale, i, j), name="j"),
             "parallel", low),
    )
    func = function("scaled", body, a, c, scale, low, n)
    host = RecordingHost(threads) if threads else None
    check(func, numbers(11, 4), numbers(11, 4), 2.5, 2, 11, host=host)
    if host is not None:
        assert host.tasks == ([] if threads == 1 else [min(threads * TASKS_OF_A_THREAD, 9)])


def test_parallel_loops_inside_each_other_and_local_arrays() -> None:
    a = buffer("data", 6, 5)
    table = buffer("table", 5)
    body = Allocate(table, SeqStmt((
        loop(5, lambda k: store(table, k.astype("float32"), k)),
        loop(6, lambda i: loop(5, lambda j: store(a, load(table, j) + i.astype("float32"), i, j),
                               "parallel"), "parallel"),
    )))
    check(function("task", body, a), numbers(6, 5), host=RecordingHost())


def test_allocations_come_from_the_host_when_they_are_large() -> None:
    n = Var("n", is_size=True)
    a = buffer("A", n)
    big, small = buffer("big", n), buffer("small", 7)
    body = Allocate(big, Allocate(small, SeqStmt((
        loop(n, lambda i: store(big, load(a, i) * const(2.0), i)),
        loop(7, lambda i: store(small, i.astype("float32"), i)),
        loop(n, lambda i: store(a, load(big, n - 1 - i) + load(small, i % 7), i)),
    ))))
    host = RecordingHost()
    check(function("reverse", body, a, n), numbers(50), 50, host=host)
    assert host.allocated == [200]


def test_a_failed_check_releases_and_reports() -> None:
    require_program("gcc")
    n = Var("n", is_size=True)
    big = buffer("big", n)
    body = Allocate(big, SeqStmt((
        store(big, const(1.0), 0),
        AssertStmt(build.less(n, 10), "ValueError", 'n is too large: "??/\n\u00e9'),
    )))
    host = RecordingHost()
    library = Library([function("f", body, n)], ["gcc"], host=host)
    assert library("f", 5) == 0
    assert library("f", 12) == -1
    assert host.errors == [("ValueError", 'n is too large: "??/\n\u00e9')]
    assert not host.blocks
    alone = Library([function("f", body, n)], ["gcc"])
    assert alone("f", 5) == -1, "without a host there is no memory"


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_vectors(kind: str) -> None:
    a, b, c = buffer("A", 32), buffer("B", 32), buffer("C", 32, dtype="float16")
    one, eight = const(1, kind), const(8, kind)
    i = Var("i", DataType(kind))
    lanes = E.Ramp(i * eight, one, 8)
    x, y = Var("x", DataType("float32x8")), Var("y", F32)
    swapped = E.Shuffle((x, E.Broadcast(const(0.5), 2)), (1, 0, 3, 2, 5, 4, 9, 6))
    total = E.Let(y, E.Shuffle((x,), (3,)), build.cast("float32x8", y) * x)
    body = For(i, const(0, kind), const(4, kind), "serial", LetStmt(
        x, load(a, lanes), SeqStmt((
            BufferStore(b, swapped + total, (lanes,)),
            BufferStore(b, load(b, E.Ramp(i * eight + const(7, kind), const(-1, kind), 8)),
                        (lanes,)),
            BufferStore(c, build.cast("float16x8", x), (lanes,),
                        build.less(lanes, build.cast(f"{kind}x8", const(21, kind)))),
        )),
    ))
    inputs = numbers(32), numbers(32), numbers(32, dtype="float16")
    check(function("vectors", body, a, b, c), *inputs)


def test_a_branch_that_is_not_taken_is_not_evaluated() -> None:
    a, c = buffer("A", 8), buffer("C", 10)
    x = Var("x", F32)

    def value(i: Var) -> Expr:
        inside = build.logical_and(build.less_equal(1, i), build.less(i, 9))
        doubled = E.Let(x, load(a, i - 1), x * x)
        return build.if_then_else(inside, doubled, const(0.0))

    text = check(
        function("pad", loop(10, lambda i: store(c, value(i), i)), a, c), numbers(8), numbers(10)
    )
    assert "chosen" in text


def test_integers_wrap_only_where_they_may() -> None:
    a = buffer("A", 16, dtype="int32")
    n = Var("n")
    body = loop(16, lambda i: store(a, load(a, i) * n + i * 3, i))
    values = np.arange(16, dtype=np.int32) * 123456789
    text = check(function("mix", body, a, n), values, 2147483647)
    assert "i*3" in text and "uint32_t" in text


def test_odd_names_and_empty_functions() -> None:
    a = buffer("float", 4)
    names = ["restrict", "i.outer", "expf", "sterna_fail", "int32_t", "9", "A"]
    params = [Var(name) for name in names]
    body = loop(4, lambda i: store(a, build.cast("float32", sum(params, ZERO)), i), name="for")
    check(function("odd", body, a, *params), numbers(4), 1, 2, 3, 4, 5, 6, 7)
    check(function("nothing", Evaluate(ZERO), a, *params), numbers(4), 1, 2, 3, 4, 5, 6, 7)
    check(function("empty", loop(0, lambda i: store(a, const(1.0), i)), a), numbers(4))


def test_external_functions_and_addresses() -> None:
    require_program("gcc")
    a = buffer("A", 4)
    call = E.Call(F32, "call_extern", (StringImm("fabsf"), load(a, 0)))
    text = E.Call(E.INT32, "call_extern", (StringImm("puts"), StringImm("")))
    copy = E.Call(E.INT32, "call_extern", (
        StringImm("memcpy"), build.call_intrinsic("address_of", load(a, 1), dtype="handle"),
        a.data, const(4, "uint64")))
    body = SeqStmt((store(a, call, 0), Evaluate(copy), Evaluate(text)))
    func = verify(PrimFunc("ext", (a.data,), (a,), body))
    library = Library([func], ["gcc"])
    values = np.array([-3, 0, 0, 0], np.float32)
    assert library("ext", values) == 0
    np.testing.assert_array_equal(values, [3, 3, 0, 0])
    assert "extern int32_t puts(const char *);" in library.source


def packed_pair() -> list[PrimFunc]:
    """add_one(x, y, n): checks its arguments and calls a kernel."""
    n = Var("n", is_size=True)
    a, c = buffer("A", n), buffer("C", n)
    kernel = function(
        "add_one_kernel", loop(n, lambda i: store(c, load(a, i) + const(1.0), i), "parallel"),
        a, c, n,
    )
    handle = DataType("handle")
    self_, args, ret = (Var(name, handle) for name in ("self", "args", "ret"))
    count, size = Var("n"), Var("size", is_size=True)
    x, y = Var("x", handle), Var("y", handle)

    def ask(op: str, *of: Any, dtype: str) -> Expr:
        return E.Call(DataType(dtype), op, tuple(build.as_expr(part) for part in of))

    source, target = buffer("source", size), buffer("target", size)
    call = ask("try_call", "add_one_kernel", source.data, target.data, size, dtype="int32")
    body: Stmt = SeqStmt((Evaluate(call), store(target, load(target, 0) * const(2.0), 0)))
    body = LetStmt(target.data, ask("tensor_data", y, dtype="handle"), body)
    body = LetStmt(source.data, ask("tensor_data", x, dtype="handle"), body)
    shape = ask("tensor_shape", x, 0, dtype="int64")
    body = LetStmt(size, shape.astype("int32"), body)
    is_float = build.equal(ask("tensor_dtype", x, dtype="int32"), 2 | 32 << 8 | 1 << 16)
    flat = build.logical_and(
        build.equal(ask("tensor_ndim", x, dtype="int32"), 1),
        build.if_then_else(
            ask("tensor_has_strides", x, dtype="bool"),
            build.equal(ask("tensor_stride", x, 0, dtype="int64"), 1),
            const(True),
        ),
    )
    on_cpu = build.equal(ask("tensor_device", x, dtype="int32"), 1)
    limit = ask("any_value", args, 2, dtype="int64")
    body = SeqStmt((
        AssertStmt(build.logical_and(is_float, on_cpu), "TypeError", "x is no float32 array"),
        AssertStmt(flat, "ValueError", "x is not flat"),
        AssertStmt(shape <= limit, "ValueError", "x is longer than the limit"),
        body,
    ))
    body = LetStmt(y, ask("any_tensor", args, 1, dtype="handle"), body)
    body = LetStmt(x, ask("any_tensor", args, 0, dtype="handle"), body)
    types = [build.equal(ask("any_type", args, 2, dtype="int32"), 1)]
    body = SeqStmt((
        AssertStmt(build.equal(count, 3), "TypeError", "add_one takes 3 arguments"),
        AssertStmt(types[0], "TypeError", "the limit is no int"), body,
    ))
    none = (None, None, None, None)
    packed = PrimFunc("add_one", (self_, args, count, ret), none, body, {"packed": True})
    return [kernel, verify(packed)]


BAD_CALLS: list[tuple[Callable[[], tuple[Any, ...]], type[Exception], str]] = [
    (lambda: (), TypeError, "add_one takes 3 arguments"),
    (lambda: (numbers(3), numbers(3), 2), ValueError, "longer than the limit"),
    (lambda: (numbers(3), numbers(3), 2.5), TypeError, "the limit is no int"),
    (lambda: (numbers(3, dtype="int32"), numbers(3), 9), TypeError, "no float32 array"),
    (lambda: (numbers(3, 1), numbers(3), 9), ValueError, "not flat"),
]


def test_packed_functions_in_the_interpreter() -> None:
    kernel, packed = packed_pair()
    x, y = numbers(5), numbers(5)
    run(packed, x, y, 9, functions=[kernel])
    np.testing.assert_array_equal(y[1:], x[1:] + 1)
    assert y[0] == (x[0] + 1) * 2
    for make, kind, message in BAD_CALLS:
        with pytest.raises(kind, match=message):
            run(packed, *make(), functions=[kernel])


def test_packed_functions_in_a_module(tmp_path: Path) -> None:
    require_program("gcc")
    source, output = tmp_path / "m.c", tmp_path / "m.so"
    source.write_text(generate(packed_pair(), "m"))
    command = ["gcc", *STRICT, "-O1", "-shared", "-fPIC", str(source), "-o", str(output), "-lm"]
    toolchain.run_compiler(command)
    add_one = runtime.load_module(str(output))["add_one"]
    x, y = runtime.ndarray.array(numbers(5)), runtime.ndarray.array(numbers(5))
    add_one(x, y, 9)
    np.testing.assert_array_equal(y.numpy()[1:], x.numpy()[1:] + 1)
    for make, kind, message in BAD_CALLS:
        args = [runtime.ndarray.array(a) if isinstance(a, np.ndarray) else a for a in make()]
        with pytest.raises(kind, match=message):
            add_one(*args)


def test_a_packed_function_calls_another_by_its_symbol(tmp_path: Path) -> None:
    require_program("gcc")
    kernel, packed = packed_pair()
    params = tuple(Var(p.name, p.dtype) for p in packed.params)
    call = E.Call(E.INT32, "try_call", (StringImm("__tvm_ffi_add_one"), *params))
    main = PrimFunc("main", params, packed.buffers, Evaluate(call), {"packed": True})
    functions = [main, packed, kernel]
    x, y = numbers(5), numbers(5)
    run(main, x, y, 9, functions=functions)
    np.testing.assert_array_equal(y[1:], x[1:] + 1)
    source, output = tmp_path / "m.c", tmp_path / "m.so"
    source.write_text(generate(functions, "m"))
    toolchain.run_compiler(
        ["gcc", *STRICT, "-O1", "-shared", "-fPIC", str(source), "-o", str(output), "-lm"]
    )
    module = runtime.load_module(str(output))
    left, right = (runtime.ndarray.array(numbers(5)) for _ in "ab")
    module["main"](left, right, 9)
    np.testing.assert_array_equal(right.numpy(), y)


def test_zig_compiles_whole_modules(tmp_path: Path) -> None:
    require_module("ziglang")
    source = tmp_path / "m.c"
    source.write_text(generate(packed_pair(), "m"))
    for target in ("x86_64-linux-gnu", "arm-linux-musleabihf", "x86_64-windows-gnu"):
        toolchain.run_compiler(
            [*zig(), *STRICT, "-target", target, "-c", str(source), "-o", str(tmp_path / "m.o")]
        )


def test_what_c_cannot_say_is_refused() -> None:
    a = buffer("A", 4)
    thread = For(Var("t"), ZERO, const(4), "thread", store(a, const(0.0), 0), "threadIdx.x")
    with pytest.raises(CodegenError, match=r"threadIdx\.x needs a GPU"):
        generate([PrimFunc("f", (a.data,), (a,), thread)], "m")
    missing = Evaluate(E.Call(E.INT32, "try_call", (StringImm("g"),)))
    with pytest.raises(CodegenError, match="f calls g, which is no function beside it"):
        generate([PrimFunc("f", (), (), missing)], "m")
    odd = Buffer("B", DataType("int4"), (const(4),))
    with pytest.raises(CodegenError, match="int4"):
        generate([PrimFunc("f", (odd.data,), (odd,), Evaluate(ZERO))], "m")


def test_the_text_is_deterministic() -> None:
    assert generate(packed_pair(), "m") == generate(packed_pair(), "m")


@pytest.mark.parametrize(("rows", "lanes"), [*itertools.product([1, 5], [2, 4])])
def test_every_index_form_of_a_vector_store(rows: int, lanes: int) -> None:
    a = buffer("A", rows, 16, dtype="int32")
    row = Var("row")
    index = E.Ramp(ZERO, const(3), lanes)
    value = load(a, row, index) * E.Ramp(row, const(1 << 30), lanes)
    picked = E.Broadcast(row % 2, lanes) + E.Ramp(ZERO, const(2), lanes)
    body = For(row, ZERO, const(rows), "serial", SeqStmt((
        BufferStore(a, value, (row, index)),
        BufferStore(a, load(a, row, picked), (E.Broadcast(row, lanes), index)),
    )))
    check(function("f", body, a), np.arange(rows * 16, dtype=np.int32).reshape(rows, 16))


def test_bits_of_one_type_are_written_once() -> None:
    """What a branch computes before its value stands there once: compilers warn of unused ones."""
    a, b, v = buffer("A", 4, dtype="int32"), buffer("B", 4, dtype="int32"), Var("v")
    place = Var("place")
    number = load(a, place)
    longer = E.Let(v, number + 1, E.Mul(v, v))
    same = E.Call(E.INT32, "reinterpret", (E.Select(E.LT(number, ZERO), longer, number),))
    body = For(place, ZERO, const(4), "serial", BufferStore(b, same, (place,)))
    check(function("f", body, a, b), np.array([-5, 0, -1, 7], np.int32), np.zeros(4, np.int32))
