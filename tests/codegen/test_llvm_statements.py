"""Loops, branches, vectors, memory and packed functions."""

import ctypes
from typing import Any

import numpy as np
import pytest

from sterna.codegen.llvm import CompiledModule, LLVMOptions, generate
from sterna.codegen.symbols import TASKS_OF_A_THREAD
from sterna.ir import build
from sterna.ir.build import call_intrinsic, cast, const, if_then_else
from sterna.ir.expr import (
    HANDLE,
    Broadcast,
    Call,
    Expr,
    Let,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
)
from sterna.support.dtype import DataType
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
    PrimFunc,
    Stmt,
    seq,
)
from tests.codegen.test_llvm_common import Array, Loaded, kernel, make_buffer


def loop(var: Var, extent: Any, body: Stmt, kind: Any = "serial", start: Any = 0) -> For:
    return For(var, build.as_expr(start, var), build.as_expr(extent, var), kind, body)


# ---- control ----


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("kind", ["serial", "unrolled", "parallel"])
def test_loops(kind: str, dtype: str) -> None:
    out = make_buffer("out", "int32", 40)
    n, i = Var("n"), Var("i", DataType(dtype))
    store = BufferStore(out, cast("int32", i) * 3, (i,))
    run = Loaded(kernel("f", [out, n], loop(i, cast(dtype, n), store, kind, 4)))
    for count in (0, 1, 2, 30):
        got = np.full(40, -1, "int32")
        assert run(got, count) == 0
        wanted = np.full(40, -1, "int32")
        wanted[4 : 4 + count] = np.arange(4, 4 + count) * 3
        np.testing.assert_array_equal(got, wanted)


def test_negative_start_and_extent() -> None:
    out = make_buffer("out", "int32", 8)
    i, n = Var("i"), Var("n")
    run = Loaded(kernel("f", [out, n], loop(i, n, BufferStore(out, i, (i + 4,)), start=-4)))
    got = np.zeros(8, "int32")
    run(got, 8)
    np.testing.assert_array_equal(got, np.arange(-4, 4))
    got[:] = 0
    run(got, -3)
    assert not got.any()


def test_branches_and_bindings() -> None:
    out = make_buffer("out", "int32", 10)
    i, twice = Var("i"), Var("twice")
    odd = BufferStore(out, twice, (i,))
    even = BufferStore(out, Let(Var("q"), i, const(0)) - i, (i,))
    body = LetStmt(twice, i * 2, IfThenElse(build.equal(i % 2, 1), odd, even))
    got = np.zeros(10, "int32")
    Loaded(kernel("f", [out], AttrStmt("pragma", None, const(1), loop(i, 10, body))))(got)
    np.testing.assert_array_equal(got, [-i if i % 2 == 0 else 2 * i for i in range(10)])


def test_only_the_taken_branch_is_evaluated() -> None:
    a, out = make_buffer("a", "int32", 4), make_buffer("out", "int32", 8)
    i = Var("i")
    far = i * 1000000
    value = if_then_else(i < 4, BufferLoad(a, (i,)), 7)
    crash = if_then_else(i < 100, value, BufferLoad(a, (far,)))
    got = np.zeros(8, "int32")
    Loaded(kernel("f", [a, out], loop(i, 8, BufferStore(out, crash, (i,)))))(
        np.arange(4, dtype="int32") + 1, got
    )
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 7, 7, 7, 7])


def test_multidimensional_and_strided_buffers() -> None:
    a = make_buffer("a", "float32", 3, 4, strides=(const(8), const(2)))
    b = make_buffer("b", "float32", 3, 4)
    i, j = Var("i"), Var("j")
    body = loop(i, 3, loop(j, 4, BufferStore(b, BufferLoad(a, (i, j)), (i, j))))
    x = np.arange(24, dtype="float32")
    got = np.zeros((3, 4), "float32")
    Loaded(kernel("f", [a, b], body))(x, got)
    np.testing.assert_array_equal(got, x.reshape(3, 8)[:, ::2])


def test_thread_loops_are_refused() -> None:
    out = make_buffer("out", "int32", 4)
    i = Var("i")
    body = For(i, const(0), const(4), "thread", BufferStore(out, i, (i,)), "threadIdx.x")
    with pytest.raises(ValueError, match=r"bound to threadIdx\.x: a CPU has no such threads"):
        generate([kernel("f", [out], body)], LLVMOptions.native(), "m")


def test_small_integers_have_no_memory() -> None:
    out = make_buffer("out", "int4", 4)
    body = BufferStore(out, const(1, "int4"), (const(0),))
    with pytest.raises(ValueError, match="a buffer of int4: elements of 4 bits"):
        generate([kernel("f", [out], body)], LLVMOptions.native(), "m")


# ---- vectors ----


def vector_copy(lanes: int, source: Expr, size: int = 64, dtype: str = "float32") -> Array:
    """out[0:lanes] = a[source]"""
    a, out = make_buffer("a", dtype, size), make_buffer("out", dtype, lanes)
    where = Ramp(const(0), const(1), lanes)
    body = BufferStore(out, BufferLoad(a, (source,)), (where,))
    x = (np.arange(size) % 251).astype(dtype)
    got = np.zeros(lanes, dtype)
    assert Loaded(kernel("f", [a, out], body))(x, got) == 0
    return got


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool", "float16"])
@pytest.mark.parametrize("stride", [1, 0, -1, 2, 3, -2, 7])
@pytest.mark.parametrize("lanes", [3, 8])
def test_ramps(lanes: int, stride: int, dtype: str) -> None:
    base = 50 if stride < 0 else 2
    got = vector_copy(lanes, Ramp(const(base), const(stride), lanes), dtype=dtype)
    wanted = (np.arange(64) % 251).astype(dtype)[base + stride * np.arange(lanes)]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("lanes, stride", [(6, 3), (8, 3), (8, 4), (16, 3), (16, 5), (16, 8),
                                           (32, 7), (32, 16), (16, 9)])
def test_elements_apart_come_from_the_rows_that_hold_them(
    lanes: int, stride: int, dtype: str
) -> None:
    """The last row ends where the last element does: nothing behind it is read."""
    size = 3 + stride * (lanes - 1) + 1
    got = vector_copy(lanes, Ramp(const(3), const(stride), lanes), size, dtype)
    np.testing.assert_array_equal(got, (np.arange(size) % 251)[3::stride])


EIGHT = Ramp(const(0), const(1), 8)
NUMBERS = np.arange(8)


@pytest.mark.parametrize("index, wanted", [
    (EIGHT // 4 * 32 + EIGHT % 4, NUMBERS // 4 * 32 + NUMBERS % 4),
    (EIGHT // 2 * 16 + (1 - EIGHT % 2), NUMBERS // 2 * 16 + 1 - NUMBERS % 2),
    ((EIGHT * 24) % 56, (NUMBERS * 24) % 56),
    (Ramp(const(3), const(7), 8), 3 + 7 * NUMBERS),
    (Ramp(const(60), const(-8), 8), 60 - 8 * NUMBERS),
])
def test_registers_are_read_by_rows_or_one_by_one(index: Expr, wanted: Array) -> None:
    """What was just computed lies in registers, where a gather would need it in memory."""
    x, out = make_buffer("x", "float32", 64), make_buffer("out", "float32", 8)
    held = make_buffer("held", "float32", 64, scope="local")
    whole = Ramp(const(0), const(1), 64)
    body = Allocate(held, seq(
        BufferStore(held, BufferLoad(x, (whole,)) * 2.0, (whole,)),
        BufferStore(out, BufferLoad(held, (index,)), (Ramp(const(0), const(1), 8),)),
    ))
    function = kernel("f", [x, out], body)
    assert "gather" not in generate([function], LLVMOptions.native(), "m")
    given, got = np.arange(64, dtype="float32"), np.zeros(8, "float32")
    assert Loaded(function)(given, got) == 0
    np.testing.assert_array_equal(got, given[wanted] * 2)


@pytest.mark.parametrize("lanes, length, step", [(8, 4, 20), (16, 4, 12), (16, 8, 56), (12, 6, 40)])
def test_short_rows_far_apart_are_loaded_whole(lanes: int, length: int, step: int) -> None:
    row = Ramp(const(0), const(1), lanes)
    base = Var("base")
    index = row // length * step + row % length + Broadcast(base, lanes)
    size = (lanes // length - 1) * step + length + 5
    x, out = make_buffer("x", "float32", size), make_buffer("out", "float32", lanes)
    function = kernel("f", [x, base, out], BufferStore(out, BufferLoad(x, (index,)), (row,)))
    assert "gather" not in generate([function], LLVMOptions.native(), "m")
    given, got = np.arange(size, dtype="float32"), np.zeros(lanes, "float32")
    assert Loaded(function)(given, 5, got) == 0
    numbers = np.arange(lanes)
    np.testing.assert_array_equal(got, 5 + numbers // length * step + numbers % length)


@pytest.mark.parametrize("lanes", [2, 4])
def test_a_few_elements_far_apart_are_loaded_one_by_one(lanes: int) -> None:
    x, out = make_buffer("x", "float32", 200), make_buffer("out", "float32", lanes)
    read = BufferLoad(x, (Ramp(const(1), const(49), lanes),))
    function = kernel("f", [x, out], BufferStore(out, read, (Ramp(const(0), const(1), lanes),)))
    assert "gather" not in generate([function], LLVMOptions.native(), "m")
    got = np.zeros(lanes, "float32")
    assert Loaded(function)(np.arange(200, dtype="float32"), got) == 0
    np.testing.assert_array_equal(got, 1 + 49 * np.arange(lanes))


def test_ramps_in_disguise() -> None:
    eight = Ramp(const(0), const(1), 8)
    text = [
        (eight + 5, 5 + np.arange(8)),
        (eight * 3 + 1, 1 + 3 * np.arange(8)),
        (cast("int64x8", eight) + const(2, "int64x8"), 2 + np.arange(8)),
        (30 - eight, 30 - np.arange(8)),
        ((eight * 5) % 16, (np.arange(8) * 5) % 16),
        (eight // 3, np.arange(8) // 3),
    ]
    for index, wanted in text:
        np.testing.assert_array_equal(vector_copy(8, index), wanted)


@pytest.mark.parametrize("stride", [1, -1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_vector_stores(stride: int, masked: bool) -> None:
    a, out = make_buffer("a", "float32", 8), make_buffer("out", "float32", 64)
    lanes = Ramp(const(0), const(1), 8)
    base = 40 if stride < 0 else 4
    value = BufferLoad(a, (lanes,))
    predicate = build.less(lanes, 5) if masked else None
    body = BufferStore(out, value, (Ramp(const(base), const(stride), 8),), predicate)
    x = np.arange(8, dtype="float32") + 1
    got = np.zeros(64, "float32")
    Loaded(kernel("f", [a, out], body))(x, got)
    wanted = np.zeros(64, "float32")
    count = 5 if masked else 8
    wanted[base + stride * np.arange(count)] = x[:count]
    np.testing.assert_array_equal(got, wanted)


def test_scalar_store_with_a_predicate() -> None:
    out = make_buffer("out", "int32", 8)
    i = Var("i")
    body = loop(i, 100, BufferStore(out, i, (i,), build.less(i, 8)))
    got = np.zeros(8, "int32")
    Loaded(kernel("f", [out], body))(got)
    np.testing.assert_array_equal(got, np.arange(8))


def test_masked_lanes_read_nothing() -> None:
    # Lanes past the end would read far outside of the array, and divide by zero.
    a, out = make_buffer("a", "int32", 8), make_buffer("out", "int32", 8)
    lanes = Ramp(const(0), const(1), 8)
    inside = build.less(lanes, 5)
    far = lanes * const(1 << 26, "int32x8")
    index = Select(inside, lanes, far)
    quotient = build.floordiv(const(100, "int32x8"), 5 - lanes)
    value = if_then_else(inside, BufferLoad(a, (index,)) + quotient, const(-1, "int32x8"))
    x = np.arange(8, dtype="int32")
    got = np.zeros(8, "int32")
    Loaded(kernel("f", [a, out], BufferStore(out, value, (lanes,))))(x, got)
    np.testing.assert_array_equal(got, [20, 26, 35, 53, 104, -1, -1, -1])


def test_masked_scalars_are_read_only_when_wanted() -> None:
    a, out = make_buffer("a", "int32", 8), make_buffer("out", "int32", 8)
    lanes, n = Ramp(const(0), const(1), 8), Var("n")
    far = Broadcast(BufferLoad(a, (n * (1 << 26),)), 8)
    value = if_then_else(build.less(lanes, Broadcast(1 - n, 8)), far, lanes)
    run = Loaded(kernel("f", [a, out, n], BufferStore(out, value, (lanes,))))
    x = np.full(8, 9, "int32")
    for n_value in (0, 1):
        got = np.zeros(8, "int32")
        run(x, got, n_value)
        np.testing.assert_array_equal(got, [9 if n_value == 0 else 0, *range(1, 8)])


def test_shuffles() -> None:
    a, out = make_buffer("a", "int32", 16), make_buffer("out", "int32", 8)
    parts = (BufferLoad(a, (Ramp(const(0), const(1), 4),)), BufferLoad(a, (const(9),)),
             BufferLoad(a, (Ramp(const(12), const(1), 3),)))
    picks = (7, 0, 4, 5, 3, 3, 6, 1)
    body = BufferStore(out, Shuffle(parts, picks), (Ramp(const(0), const(1), 8),))
    x = np.arange(16, dtype="int32")
    got = np.zeros(8, "int32")
    Loaded(kernel("f", [a, out], body))(x, got)
    np.testing.assert_array_equal(got, np.array([0, 1, 2, 3, 9, 12, 13, 14])[list(picks)])


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
@pytest.mark.parametrize("lanes", [4, 8, 16, 24, 32])
def test_gathers(dtype: str, lanes: int) -> None:
    x, places = make_buffer("x", dtype, 50), make_buffer("places", "int32", lanes)
    plain, guarded = make_buffer("plain", dtype, lanes), make_buffer("guarded", dtype, lanes)
    row = Ramp(const(0), const(1), lanes)
    read = BufferLoad(x, (BufferLoad(places, (row,)) + 20,))
    other = cast(f"{dtype}x{lanes}", const(7))
    wanted = build.greater(BufferLoad(places, (row,)), cast(f"int32x{lanes}", const(0)))
    body = seq(BufferStore(plain, read, (row,)),
               BufferStore(guarded, if_then_else(wanted, read, other), (row,)))
    given = np.arange(50).astype(dtype)
    at = np.random.default_rng(lanes).integers(-20, 30, lanes).astype("int32")
    got, kept = np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    assert Loaded(kernel("f", [x, places, plain, guarded], body))(given, at, got, kept) == 0
    np.testing.assert_array_equal(got, given[at + 20])
    np.testing.assert_array_equal(kept, np.where(at > 0, given[at + 20], 7))


@pytest.mark.parametrize("lanes", [100, 1024, 2048])
def test_wide_vectors(lanes: int) -> None:
    a, out = make_buffer("a", "float32", lanes), make_buffer("out", "float32", lanes)
    where = Ramp(const(0), const(1), lanes)
    tail = build.less(where, lanes - 3)
    value = build.maximum(BufferLoad(a, (where,)) * 2.0 + cast(f"float32x{lanes}", where), 5.0)
    body = BufferStore(out, value, (where,), tail)
    x = np.random.default_rng(4).normal(size=lanes).astype("float32")
    got = np.zeros(lanes, "float32")
    Loaded(kernel("f", [a, out], body))(x, got)
    wanted = np.maximum(x * 2 + np.arange(lanes, dtype="float32"), 5)
    wanted[-3:] = 0
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("lanes", [40, 48, 96, 1024])
@pytest.mark.parametrize("index", ["row", "gathered"])
def test_wide_vectors_with_a_name_are_kept_in_pieces(lanes: int, index: str) -> None:
    x = make_buffer("x", "float16", lanes)
    wide, narrow = make_buffer("wide", "float32", lanes), make_buffer("narrow", "float16", lanes)
    row = Ramp(const(0), const(1), lanes)
    where = Var("where", DataType("int32").with_lanes(lanes))
    named = Var("named", DataType("float32").with_lanes(lanes))
    loaded = cast(named.dtype, BufferLoad(x, (row,)))
    body: Stmt = seq(
        BufferStore(wide, named * named, (row if index == "row" else where,)),
        BufferStore(narrow, cast(f"float16x{lanes}", named + named), (row,)),
    )
    body = LetStmt(named, loaded, body)
    if index == "gathered":
        body = LetStmt(where, Ramp(const(lanes - 1), const(-1), lanes), body)
    run = Loaded(kernel("f", [x, wide, narrow], body))
    given = np.arange(lanes).astype("float16") / 8
    squares, doubled = np.zeros(lanes, "float32"), np.zeros(lanes, "float16")
    assert run(given, squares, doubled) == 0
    wanted = given.astype("float32") ** 2
    np.testing.assert_array_equal(squares, wanted if index == "row" else wanted[::-1])
    np.testing.assert_array_equal(doubled, given + given)


def test_wide_vectors_read_before_they_write() -> None:
    a = make_buffer("a", "int32", 1025)
    forward = Ramp(const(1), const(1), 1024)
    body = BufferStore(a, BufferLoad(a, (Ramp(const(0), const(1), 1024),)), (forward,))
    x = np.arange(1025, dtype="int32")
    Loaded(kernel("f", [a], body))(x)
    np.testing.assert_array_equal(x, [0, *range(1024)])


def test_float_ramps_and_vector_lets() -> None:
    out = make_buffer("out", "float32", 8)
    v = Var("v", DataType("float32x8"))
    value = Let(v, Ramp(const(0.5), const(0.25), 8), v * v)
    got = np.zeros(8, "float32")
    Loaded(kernel("f", [out], BufferStore(out, value, (Ramp(const(0), const(1), 8),))))(got)
    np.testing.assert_array_equal(got, (0.5 + 0.25 * np.arange(8)) ** 2)


# ---- memory ----


@pytest.mark.parametrize("size", [16, 5000, 1 << 20])
@pytest.mark.parametrize("with_host", [True, False])
def test_allocation(size: int, with_host: bool) -> None:
    out, space = make_buffer("out", "int32", size), make_buffer("space", "int32", size)
    i, j, k = Var("i"), Var("j"), Var("k")
    body = loop(k, 2, Allocate(space, seq(
        loop(i, size, BufferStore(space, i * 2 + k, (i,))),
        loop(j, size, BufferStore(out, BufferLoad(space, (size - 1 - j,)), (j,))))))
    run = Loaded(kernel("f", [out], body))
    if not with_host:
        run.jit.set_host(0)
    got = np.zeros(size, "int32")
    assert run(got) == 0
    np.testing.assert_array_equal(got, np.arange(size)[::-1] * 2 + 1)


class Host(ctypes.Structure):
    """struct sterna_host"""

    _fields_ = [("size", ctypes.c_uint64), *[(name, ctypes.c_void_p) for name in (
        "set_error", "parallel", "num_threads", "allocate", "release")]]


class FakeHost:
    """A host that writes down what it is asked."""

    def __init__(self, threads: int = 3, memory: bool = True) -> None:
        self.errors: list[tuple[str, str]] = []
        self.tasks: list[int] = []
        self.held: dict[int, Any] = {}
        self.asked: list[tuple[int, int]] = []
        task = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)

        def set_error(kind: bytes, message: bytes) -> int:
            self.errors.append((kind.decode(), message.decode()))
            return -1

        def parallel(body: Any, data: int, tasks: int) -> int:
            self.tasks.append(tasks)
            codes = [task(body)(number, tasks, data) for number in range(tasks)]
            return -1 if any(codes) else 0

        def num_threads(out: Any) -> int:
            out[0] = threads
            return 0

        def allocate(size: int, alignment: int) -> int | None:
            self.asked.append((size, alignment))
            if not memory:
                return None
            block = ctypes.create_string_buffer(size + alignment)
            address = -(-ctypes.addressof(block) // alignment) * alignment
            self.held[address] = block
            return address

        def release(block: int) -> None:
            del self.held[block]

        self._keep = (
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)(set_error),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(
                parallel
            ),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32))(num_threads),
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)(allocate),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release),
        )
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in self._keep]
        self._struct = Host(ctypes.sizeof(Host), *addresses)
        self.address = ctypes.addressof(self._struct)


def test_failed_allocation() -> None:
    space = make_buffer("space", "float32", 1 << 20)
    body = Allocate(space, BufferStore(space, const(1.0), (const(0),)))
    run = Loaded(kernel("f", [], body))
    fake = FakeHost(memory=False)
    run.jit.set_host(fake.address)
    assert run() == -1
    assert fake.errors == [("MemoryError", "no memory for the buffer space of f")]
    assert fake.asked == [(4 << 20, 64)]


def test_errors_release_memory() -> None:
    n = Var("n")
    space = make_buffer("space", "float32", n)
    check = AssertStmt(n < 5, "ValueError", 'n is too "large"\n')
    body = Allocate(space, seq(BufferStore(space, const(1.0), (const(0),)), check))
    run = Loaded(kernel("f", [n], body))
    fake = FakeHost()
    run.jit.set_host(fake.address)
    assert run(3) == 0 and not fake.held and not fake.errors
    assert run(6) == -1
    assert fake.errors == [("ValueError", 'n is too "large"\n')]
    assert not fake.held
    assert fake.asked == [(12, 64), (24, 64)]


# ---- parallel ----


def parallel_kernel() -> PrimFunc:
    """out[i, j] = a[i, j] + n, failing at i == 90."""
    n = Var("n")
    a, out = make_buffer("a", "float32", 100, 8), make_buffer("out", "float32", 100, 8)
    i, j = Var("i"), Var("j")
    store = BufferStore(out, BufferLoad(a, (i, j)) + cast("float32", n), (i, j))
    inner = loop(j, 8, store, "parallel")
    check = AssertStmt(build.logical_not(build.logical_and(build.equal(i, 90), n > 5)),
                       "ValueError", "ninety")
    return kernel("f", [a, out, n], loop(i, 100, seq(check, inner), "parallel"))


@pytest.mark.parametrize("host", ["real", "fake", "none"])
def test_parallel(host: str) -> None:
    run = Loaded(parallel_kernel())
    fake = FakeHost()
    if host != "real":
        run.jit.set_host(fake.address if host == "fake" else 0)
    x = np.random.default_rng(5).normal(size=(100, 8)).astype("float32")
    got = np.zeros_like(x)
    assert run(x, got, 2) == 0
    np.testing.assert_array_equal(got, x + 2)
    assert run(x, got, 6) == -1
    if host == "fake":
        assert fake.tasks == [3 * TASKS_OF_A_THREAD] * 2
        assert fake.errors == [("ValueError", "ninety")]


def test_few_iterations_make_few_tasks() -> None:
    out, n, i = make_buffer("out", "int32", 64), Var("n"), Var("i")
    run = Loaded(kernel("f", [out, n], loop(i, n, BufferStore(out, i, (i,)), "parallel")))
    fake = FakeHost(threads=3)
    run.jit.set_host(fake.address)
    for count in (0, 1, 2, 7, 64):
        got = np.full(64, -1, "int32")
        assert run(got, count) == 0
        np.testing.assert_array_equal(got[:count], np.arange(count))
        assert (got[count:] == -1).all()
    assert fake.tasks == [2, 7, 3 * TASKS_OF_A_THREAD]


# ---- packed functions ----


class Any16(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("zero", ctypes.c_uint32),
                ("payload", ctypes.c_int64)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def packed_module() -> list[PrimFunc]:
    """scale(a, b, factor) with checks, and the kernel behind it."""
    n = Var("n", is_size=True)
    a, b, factor = make_buffer("a", "float32", n), make_buffer("b", "float32", n), Var(
        "factor", DataType("float64"))
    i = Var("i")
    inner = kernel("compute", [a, b, factor, n], loop(
        i, n, BufferStore(b, BufferLoad(a, (i,)) * cast("float32", factor), (i,)), "parallel"))
    inner.attrs.clear()

    self_, args, ret = (Var(name, HANDLE) for name in ("self", "args", "ret"))
    count = Var("n")

    def call(op: str, dtype: str, *arguments: Any) -> Expr:
        return Call(DataType(dtype), op, tuple(build.as_expr(each) for each in arguments))

    ta, tb = Var("ta", HANDLE), Var("tb", HANDLE)
    size = cast("int32", call("tensor_shape", "int64", ta, 0))
    data = [call("tensor_data", "handle", tensor) for tensor in (ta, tb)]
    run = Evaluate(call("try_call", "int32", StringImm("compute"), *data,
                        call("any_value", "float64", args, 2), size))
    checks = [
        (build.equal(call("tensor_ndim", "int32", ta), 1), "ValueError", "a must have 1 dimension"),
        (build.equal(call("tensor_dtype", "int32", ta), 2 | 32 << 8 | 1 << 16), "TypeError",
         "a must be float32"),
        (build.equal(call("tensor_device", "int32", ta), 1), "ValueError", "a must be on the CPU"),
        (build.logical_not(call("tensor_has_strides", "bool", ta)), "ValueError", "a has gaps"),
    ]
    body = seq(*[AssertStmt(*check) for check in checks], run)
    body = LetStmt(ta, call("any_tensor", "handle", args, 0),
                   LetStmt(tb, call("any_tensor", "handle", args, 1), body))
    body = seq(
        AssertStmt(build.equal(count, 3), "TypeError", "scale takes 3 arguments"),
        AssertStmt(build.equal(call("any_type", "int32", args, 2), 3), "TypeError",
                   "factor must be a number"),
        body,
    )
    outer = PrimFunc("scale", (self_, args, count, ret), (None,) * 4, body, {"packed": True})
    return [outer, inner]


def as_tensor(array: Array, offset: int = 0) -> Tensor:
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    return Tensor(array.ctypes.data - offset, 1, 0, array.ndim, 2, array.itemsize * 8, 1, shape,
                  None, offset)


def call_packed(address: int, *args: Any16) -> int:
    values = (Any16 * max(len(args), 1))(*args)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int,
                                ctypes.c_void_p)(address)
    return int(function(None, values, len(args), None))


def float_value(number: float) -> Any16:
    return Any16(3, 0, int(np.array(number).view("int64")))


def test_packed_functions() -> None:
    jit = CompiledModule(packed_module()).jit()
    fake = FakeHost()
    jit.set_host(fake.address)
    address = jit.address("__tvm_ffi_scale")
    x = np.arange(10, dtype="float32")
    y = np.zeros(10, "float32")
    tx, ty = as_tensor(x), as_tensor(y, offset=8)
    # y as a tensor inside an array object: 24 bytes of header come first.
    boxed = (ctypes.c_char * (24 + ctypes.sizeof(Tensor)))()
    ctypes.memmove(ctypes.addressof(boxed) + 24, ctypes.addressof(ty), ctypes.sizeof(Tensor))
    views = [Any16(7, 0, ctypes.addressof(tx)), Any16(70, 0, ctypes.addressof(boxed))]
    assert call_packed(address, *views, float_value(1.5)) == 0
    np.testing.assert_array_equal(y, x * 1.5)
    assert call_packed(address, *views) == -1
    assert call_packed(address, *views, Any16(8, 0, 0)) == -1
    wrong = as_tensor(x.astype("float64"))
    assert call_packed(address, Any16(7, 0, ctypes.addressof(wrong)), views[1],
                       float_value(1)) == -1
    assert fake.errors == [
        ("TypeError", "scale takes 3 arguments"), ("TypeError", "factor must be a number"),
        ("TypeError", "a must be float32"),
    ]


def test_errors_without_a_host() -> None:
    jit = CompiledModule(packed_module()).jit()
    jit.set_host(0)
    assert call_packed(jit.address("__tvm_ffi_scale")) == -1


def test_failing_callee() -> None:
    inner = kernel("inner", [], AssertStmt(const(False), "ValueError", "no"))
    call = Call(DataType("int32"), "try_call", (StringImm("inner"),))
    outer = kernel("outer", [], Evaluate(call))
    run = Loaded(inner, outer)
    fake = FakeHost()
    run.jit.set_host(fake.address)
    assert run() == -1
    assert fake.errors == [("ValueError", "no")]
    with pytest.raises(ValueError, match="try_call of 'inner': the module has no such function"):
        generate([outer], LLVMOptions.native(), "m")


# ---- other calls ----


def test_extern_prefetch_and_address() -> None:
    a, out = make_buffer("a", "float32", 4), make_buffer("out", "float64", 1)
    address = Call(HANDLE, "address_of", (BufferLoad(a, (const(2),)),))
    body = seq(
        Evaluate(Call(DataType("int32"), "prefetch", (BufferLoad(a, (const(0),)),))),
        BufferStore(out, Call(DataType("float64"), "call_extern",
                              (StringImm("pow"), const(2.0, "float64"), const(10.0, "float64"))),
                    (const(0),)),
        Evaluate(Call(HANDLE, "call_extern", (StringImm("memset"), address, const(0),
                                              const(8, "int64")))),
    )
    x, got = np.ones(4, "float32"), np.zeros(1)
    Loaded(kernel("f", [a, out], body))(x, got)
    assert got[0] == 1024
    np.testing.assert_array_equal(x, [1, 1, 0, 0])


def test_a_kernel_may_be_named_like_a_c_function() -> None:
    out, i = make_buffer("out", "float32", 64), Var("i")
    inner = kernel("memset", [out], loop(i, 64, BufferStore(out, const(0.0), (i,))))
    inner.attrs.clear()
    call = Call(DataType("int32"), "try_call", (StringImm("memset"), out.data))
    got = np.ones(64, "float32")
    Loaded(inner, kernel("f", [out], Evaluate(call)))(got)
    assert not got.any()


def test_likely_and_select() -> None:
    out, i = make_buffer("out", "int32", 10), Var("i")
    test = call_intrinsic("likely", i < 7)
    body = IfThenElse(test, BufferStore(out, build.select(i > 3, i, -i), (i,)))
    got = np.zeros(10, "int32")
    Loaded(kernel("f", [out], loop(i, 10, body)))(got)
    np.testing.assert_array_equal(got, [0, -1, -2, -3, 4, 5, 6, 0, 0, 0])


def test_buffers_may_be_bound_by_hand() -> None:
    a = Buffer("a", DataType("int32"), (const(4),))
    handle = Var("h", HANDLE)
    body = LetStmt(a.data, handle, BufferStore(a, const(5), (const(1),)))
    got = np.zeros(4, "int32")
    Loaded(kernel("f", [handle], body))(got)
    np.testing.assert_array_equal(got, [0, 5, 0, 0])
