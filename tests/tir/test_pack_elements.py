"""Elements of less than a byte: the pass that packs them, and code for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import te
from sterna.ir import build
from sterna.ir.build import const
from sterna.ir.expr import Expr, Ramp, Var
from sterna.support import element_arrays
from sterna.support.dtype import DataType
from sterna.tir import interpreter
from sterna.tir.external import address_of, call_extern
from sterna.tir.passes.pack_elements import pack_elements
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    seq,
)
from sterna.tir.verify import verify
from tests.support import require_program

Array = npt.NDArray[Any]
TYPES = ["int4", "uint4", "int2", "uint1", "int3", "uint5", "float4_e2m1fn", "float6_e2m3fn"]


@pytest.fixture
def many_threads() -> Iterator[None]:
    before = tvm.runtime.num_threads()
    tvm.runtime.set_num_threads(4)
    yield
    tvm.runtime.set_num_threads(before)


def random_bytes(count: int, dtype: DataType, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, dtype.bytes_of(count), np.uint8)


def codes(packed: Array, count: int, dtype: DataType) -> list[int]:
    found: list[int] = element_arrays.unpack(packed, count, dtype).tolist()
    return found


def function(*buffers: Buffer, body: Stmt) -> PrimFunc:
    return PrimFunc("f", tuple(b.data for b in buffers), buffers, body)


def buffer(name: str, dtype: str, count: int) -> Buffer:
    return Buffer(name, DataType(dtype), (const(count),))


def check(func: PrimFunc, count: int, dtype: str) -> PrimFunc:
    """The packed function; it must do what the function does to A and B."""
    verify(func)
    packed = verify(pack_elements(func))
    kind = DataType(dtype)
    results = []
    for each in (func, packed):
        a, b = random_bytes(count, kind), random_bytes(count, kind, 1)
        interpreter.run(each, a, b, seed=3)
        results.append((codes(a, count, kind), codes(b, count, kind)))
    assert results[0] == results[1]
    assert all(b is None or not b.dtype.is_packed for b in packed.buffers)
    return packed


def loop(extent: int, body: Any, kind: Any = "serial") -> Stmt:
    i = Var("i")
    return For(i, const(0), const(extent), kind, body(i))


@pytest.mark.parametrize("dtype", TYPES)
def test_one_element_at_a_time(dtype: str) -> None:
    a, b = buffer("A", dtype, 21), buffer("B", dtype, 21)
    body = loop(21, lambda i: BufferStore(b, BufferLoad(a, (20 - i,)), (i,)))
    check(function(a, b, body=body), 21, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("start", [0, 1, 8])
@pytest.mark.parametrize("stride", [1, -1, 2])
def test_vectors(dtype: str, lanes: int, start: int, stride: int) -> None:
    a, b = buffer("A", dtype, 48), buffer("B", dtype, 48)
    first = start if stride > 0 else start + lanes - 1
    there = Ramp(const(first), const(stride), lanes)
    row = Ramp(const(start), const(1), lanes)
    for load, store in ((there, row), (row, there)):
        body = BufferStore(b, BufferLoad(a, (load,)), (store,))
        packed = check(function(a, b, body=body), 48, dtype)
        whole = start * DataType(dtype).bits % 8 == 0 and lanes * DataType(dtype).bits % 8 == 0
        if stride == 1 and whole:
            assert isinstance(packed.body, BufferStore)  # no byte is read that is written


@pytest.mark.parametrize("dtype", ["int4", "uint3", "float4_e2m1fn"])
def test_conditions_memory_and_places_that_are_computed(dtype: str) -> None:
    a, b, t = buffer("A", dtype, 24), buffer("B", dtype, 24), buffer("T", dtype, 24)
    lanes = Ramp(const(3), const(1), 6)
    first = loop(24, lambda i: BufferStore(t, BufferLoad(a, (i,)), (i,)))
    some = loop(24, lambda j: IfThenElse(
        j % 3 < 2, BufferStore(b, BufferLoad(t, ((j * 7) % 24,)), (j,))
    ), "parallel")
    masked = BufferStore(b, BufferLoad(t, (lanes,)), (lanes,), build.less(lanes, const(6)))
    single = loop(3, lambda k: BufferStore(a, BufferLoad(a, (k + 5,)), (k,), build.less(k, 1)))
    check(function(a, b, body=Allocate(t, seq(first, some, masked, single))), 24, dtype)


def shares(func: PrimFunc) -> bool:
    return "store_bits" in repr(pack_elements(func))


def test_bytes_that_one_iteration_has_for_itself_need_no_care() -> None:
    a = buffer("A", "int4", 64)
    value = const(3, "int4")

    def inner(p: Expr) -> Stmt:
        j = Var("j")
        return For(j, const(0), const(8), "serial", BufferStore(a, value, (p * 8 + j,)))

    assert not shares(function(a, body=loop(8, inner, "parallel")))
    pairs = loop(32, lambda p: seq(BufferStore(a, value, (p * 2,)),
                                   BufferStore(a, value, (p * 2 + 1,))), "parallel")
    assert not shares(function(a, body=pairs))
    assert shares(function(a, body=loop(64, lambda p: BufferStore(a, value, (p,)), "parallel")))
    apart = loop(31, lambda p: seq(BufferStore(a, value, (p * 2,)),
                                   BufferStore(a, value, (p * 2 + 3,))), "parallel")
    assert shares(function(a, body=apart))
    assert not shares(function(a, body=loop(64, lambda p: BufferStore(a, value, (p,)))))
    b = buffer("B", "int4", 64)
    reads = loop(64, lambda p: BufferStore(a, BufferLoad(b, (p,)), (p,)), "parallel")
    assert "load_shared" not in repr(pack_elements(function(a, b, body=reads)))
    both = loop(64, lambda p: BufferStore(a, BufferLoad(a, (p,)), (p,)), "parallel")
    assert "load_shared" in repr(pack_elements(function(a, body=both)))


def test_addresses_begin_with_a_byte() -> None:
    a = buffer("A", "int4", 64)
    i = Var("i")

    def address(at: Expr) -> Stmt:
        return Evaluate(call_extern("int32", "g", address_of(BufferLoad(a, (at,)))))

    even = For(i, const(0), const(8), "serial", address(i * 2))
    verify(pack_elements(function(a, body=even)))
    j = Var("j")
    odd = For(j, const(0), const(8), "serial", address(j))
    with pytest.raises(ValueError, match=r"f: A\[j\] has no address"):
        pack_elements(function(a, body=odd))


def test_other_functions_stay_as_they_are() -> None:
    a = Buffer("A", DataType("int8"), (const(4),))
    func = function(a, body=BufferStore(a, const(1, "int8"), (const(0),)))
    assert pack_elements(func) is func


# ---- compiled ----


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_threads_do_not_undo_each_others_work(target: str, many_threads: None) -> None:
    require_program("cc")
    n = 4001
    x = te.placeholder((n,), "int8", "x")
    y = te.compute((n,), lambda i: x[i].astype("int4"), name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].parallel(y.op.axis[0])
    module = tvm.build(schedule, [x, y], target=target)
    for seed in range(30):
        values = np.random.default_rng(seed).integers(-8, 8, n).astype("int8")
        result = tvm.nd.array(-1 - values, dtype="int4")
        module(values, result)
        np.testing.assert_array_equal(result.numpy(), values)


def test_processors_without_atomic_instructions_use_one_thread() -> None:
    x = te.placeholder((64,), "int8", "x")
    y = te.compute((64,), lambda i: x[i].astype("int4"), name="y")
    schedule = te.create_schedule(y.op)
    schedule[y].parallel(y.op.axis[0])
    text = tvm.build(schedule, [x, y], target="llvm -mcpu=cortex-m0").get_source("asm")
    assert "__atomic" not in text and "__sync" not in text and "parallel" not in text
    host = tvm.build(schedule, [x, y], target="llvm -mtriple=x86_64-linux-gnu").get_source("asm")
    assert "parallel" in host


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "dtype": draw(st.sampled_from([*TYPES, "uint2", "int1"])),
        "n": draw(st.integers(1, 70)),
        "factor": draw(st.integers(1, 20)),
        "kinds": draw(st.tuples(st.sampled_from(["serial", "parallel"]),
                                st.sampled_from(["serial", "vectorized", "unrolled"]))),
        "shift": draw(st.integers(0, 3)),
        "cached": draw(st.booleans()),
    }


@settings(max_examples=40)
@given(schedules())
def test_random_schedules(case: dict[str, Any]) -> None:
    """Elements that move, through memory of their own or not; machine code against NumPy."""
    kind, n, shift = DataType(case["dtype"]), case["n"], case["shift"]
    x = te.placeholder((n + shift,), case["dtype"], "x")
    z = te.compute((n,), lambda i: x[i + shift], name="z")
    y = te.compute((n,), lambda i: z[n - 1 - i], name="y")
    schedule = te.create_schedule(y.op)
    if not case["cached"]:
        schedule[z].compute_inline()
    outer, inner = schedule[y].split(y.op.axis[0], factor=case["factor"])
    for axis, how in zip((outer, inner), case["kinds"], strict=True):
        if how != "serial":
            primitive = {"vectorized": "vectorize", "unrolled": "unroll"}.get(how, how)
            getattr(schedule[y], primitive)(axis)
    module = tvm.build(schedule, [x, y])
    given_codes = np.random.default_rng(n).integers(0, 1 << kind.bits, n + shift).astype(np.uint8)
    source, result = tvm.nd.empty((n + shift,), case["dtype"]), tvm.nd.empty((n,), case["dtype"])
    source._create_view((source.nbytes,), "uint8").copyfrom(element_arrays.pack(given_codes, kind))
    module(source, result)
    held = np.zeros(result.nbytes, np.uint8)
    result._copy_to_buffer(held)
    assert codes(held, n, kind) == given_codes[shift:][::-1].tolist()


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "int3", "uint7"])
def test_arithmetic_wraps(target: str, dtype: str) -> None:
    require_program("cc")
    bits, low = DataType(dtype).bits, -(1 << DataType(dtype).bits - 1) if dtype[0] == "i" else 0
    every = np.arange(1 << bits) + low
    a, b = (v.reshape(-1) for v in np.meshgrid(every[:: max(1, len(every) // 16)], every))
    x, y = te.placeholder(a.shape, dtype, "x"), te.placeholder(a.shape, dtype, "y")
    operators: list[Any] = [
        lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, build.maximum,
        lambda p, q: p & q, lambda p, q: p ^ q, lambda p, q: ~p, lambda p, q: p << (q & 1),
        lambda p, q: p >> (q & 1),
        lambda p, q: tvm.tir.call_intrin(dtype, "tir.popcount", p),
    ]
    outs = te.compute(a.shape, lambda i: tuple(f(x[i], y[i]) for f in operators), name="out")
    module = tvm.build(te.create_schedule(outs[0].op), [x, y, *outs], target=target)
    results = [tvm.nd.empty(a.shape, dtype) for _ in operators]
    module(tvm.nd.array(a, dtype=dtype), tvm.nd.array(b, dtype=dtype), *results)
    mask = (1 << bits) - 1
    one = b & 1
    exact = [a + b, a - b, a * b, np.maximum(a, b), a & b, a ^ b, ~a, a << one, a >> one,
             np.array([int(v & mask).bit_count() for v in a])]
    for found, whole in zip(results, exact, strict=True):
        wrapped = (whole - low & mask) + low
        np.testing.assert_array_equal(found.numpy(), wrapped)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype", ["uint4", "int3"])
def test_any_number_of_elements(target: str, dtype: str) -> None:
    require_program("cc")
    n = te.size_var("n")
    x = te.placeholder((n,), dtype, "x")
    y = te.compute((n,), lambda i: x[i] + 1, name="y")
    schedule = te.create_schedule(y.op)
    outer, inner = schedule[y].split(y.op.axis[0], factor=8)
    schedule[y].vectorize(inner)
    schedule[y].parallel(outer)
    module = tvm.build(schedule, [x, y], target=target)
    for size in (0, 1, 2, 7, 8, 9, 31, 100):
        values = np.arange(size) % 3
        result = tvm.nd.empty((size,), dtype)
        module(tvm.nd.array(values, dtype=dtype), result)
        np.testing.assert_array_equal(result.numpy(), values + 1)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_arguments_are_checked(target: str) -> None:
    require_program("cc")
    x = te.placeholder((5,), "int4", "x")
    y = te.compute((5,), lambda i: x[i] + x[i], name="y")
    module = tvm.build(te.create_schedule(y.op), [x, y], target=target, name="twice")
    good = tvm.nd.array([1, 2, 3, -4, -8], dtype="int4")
    out = tvm.nd.empty((5,), "int4")
    module(good, out)
    assert out.numpy().tolist() == [2, 4, 6, -8, 0]
    for wrong, words in (
        (np.zeros(5, "int8"), "twice(x: int4[5], y: int4[5]): argument x must be of type int4"),
        (tvm.nd.empty((5,), "uint4"), "x must be of type int4"),
        (tvm.nd.empty((6,), "int4"), "x.shape[0] must be 5"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            module(wrong, out)
        assert words in str(caught.value)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_views_of_packed_elements_reach_packed_functions(target: str) -> None:
    require_program("cc")
    seen: list[Any] = []

    @tvm.register_func("test.see_int4", override=True)
    def see(array: Any) -> None:
        seen.append((array.dtype, array.shape, array.numpy().tolist()))

    x = te.placeholder((5,), "int4", "x")
    y = te.extern((5,), [x], lambda ins, outs: tvm.tir.call_packed("test.see_int4", ins[0]),
                  name="y", dtype="int4")
    module = tvm.build(te.create_schedule(y.op), [x, y], target=target)
    module(tvm.nd.array([1, -2, 3, -4, 5], dtype="int4"), tvm.nd.empty((5,), "int4"))
    assert seen == [("int4", (5,), [1, -2, 3, -4, 5])]
