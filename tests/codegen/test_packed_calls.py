"""Functions that compiled code calls by name: what they get, what they give, and how they fail."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.codegen import c, llvm
from sterna.contrib import cc
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter, pipeline
from sterna.tir.verify import verify
from tests.support import require_program

TARGETS = ["interpreter", "llvm", "c"]


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


def make(target: str, body: Any, *params: Any) -> Callable[..., Any]:
    """A function of a statement, that runs on a target."""
    variables = tuple(p.data if isinstance(p, tir.Buffer) else p for p in params)
    buffers = tuple(p if isinstance(p, tir.Buffer) else None for p in params)
    stmt = tir.Evaluate(body) if isinstance(body, tvm.ir.Expr) else body
    func = verify(tir.PrimFunc("caller", variables, buffers, stmt))
    if target == "interpreter":
        passed = verify(pipeline.run(func))
        return lambda *args: interpreter.run(passed, *args)
    return tvm.build(func, target=target)


# ---- what goes in ----


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_of_every_kind(target: str, register: Any) -> None:
    seen: list[Any] = []

    def take(*args: Any) -> None:
        seen[:] = args

    register("test.take", take)
    n, x = te.var("n", "int64"), te.var("x", "float32")
    small, truth = te.const(-3, "int8"), n > 4
    call = tir.call_packed(
        "test.take", n, x, small, te.const(200, "uint8"), truth, "a text, ä",
        te.const(0.5, "float16"), te.const(2**63 + 5, "uint64"),
    )
    make(target, call, n, x)(2**40, 1.25)
    # What has no sign and 64 bits passes as the same bits.
    expected = [2**40, 1.25, -3, 200, True, "a text, ä", 0.5]
    assert seen[:-1] == expected and seen[-1] % 2**64 == 2**63 + 5
    assert [type(value) for value in seen[:-1]] == [type(value) for value in expected]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "float64", "uint16"])
def test_buffers_are_arrays_that_share_memory(target: str, dtype: str, register: Any) -> None:
    a = tir.decl_buffer((2, 3), dtype, "a")
    seen: list[Any] = []

    def fill(array: Any) -> None:
        seen.append((array.shape, str(array.dtype), array.strides))
        array.copyfrom(np.ones((2, 3), "uint16" if dtype == "bfloat16" else dtype))

    register("test.fill", fill)
    memory = np.zeros((2, 3), "uint16" if dtype == "bfloat16" else dtype)
    given = memory
    if dtype == "bfloat16":
        given = memory if target == "interpreter" else tvm.nd.from_dlpack(memory)._view(
            (2, 3), "bfloat16", 0)
    make(target, tir.call_packed("test.fill", a), a)(given)
    assert seen == [((2, 3), dtype, (3, 1))] and memory.all()


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_buffers(target: str, register: Any) -> None:
    """Unknown extents, no dimensions at all, no elements, and memory of the function itself."""
    n = te.size_var("n")
    whole = tir.decl_buffer((n, 4), name="whole")
    ib = tir.ir_builder.create()
    scalar = ib.allocate("float32", (), name="scalar")
    empty = ib.allocate("float32", (0, 3), name="empty")
    scalar[()] = 7.0
    ib.emit(tir.call_packed("test.see", whole, scalar.buffer, empty.buffer))
    seen: list[Any] = []
    register("test.see", lambda *arrays: seen.extend((a.shape, a.numpy().tolist()) for a in arrays))
    numbers = np.arange(8, dtype="float32").reshape(2, 4)
    function = make(target, ib.get(), whole, n)
    function(numbers, 2)
    assert seen == [((2, 4), numbers.tolist()), ((), 7.0), ((0, 3), [])]


STRIDES = r"""
#include "sterna.h"
STERNA_FUNCTION(strides) {
  DLTensor *x;
  if (n != 2 || sterna_as_tensor(&args[0], &x)) return -1;
  *ret = sterna_any_int(x->strides[0] * 1000 + x->strides[1] * 100 +
                        (int64_t)((float *)x->data)[args[1].v_int64]);
  return 0;
}
"""


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_gaps_are_told_by_strides(target: str, register: Any, tmp_path: Path) -> None:
    """A C function sees them; arrays of Python have none, so there they are refused."""
    (tmp_path / "strides.c").write_text(STRIDES)
    cc.create_shared(tmp_path / "strides.so", [tmp_path / "strides.c"])
    register("test.strides", tvm.runtime.load_module(tmp_path / "strides.so")["strides"])
    register("test.python", lambda array: 0)
    out = tir.decl_buffer((1,), "int32", "out")
    ib = tir.ir_builder.create()
    padded = tir.decl_buffer((3, 2), name="padded", strides=(5, 1))
    ib.emit(lambda body: tir.Allocate(padded, body))
    with ib.for_range(0, 3) as i, ib.for_range(0, 2) as j:
        ib.emit(padded.vstore((i, j), (i * 10 + j).astype("float32")))
    ib.emit(out.vstore([0], tir.call_packed("test.strides", padded, 2 * 5 + 1)))
    result = np.zeros(1, "int32")
    make(target, ib.get(), out)(result)
    assert result[0] == 5 * 1000 + 1 * 100 + 21
    ib.emit(lambda body: tir.Allocate(padded, body))
    ib.emit(tir.call_packed("test.python", padded))
    with pytest.raises(ValueError, match="not contiguous"):
        make(target, ib.get())()


@pytest.mark.parametrize("target", TARGETS)
def test_addresses_are_pointers(target: str, register: Any) -> None:
    a = tir.decl_buffer((4,), name="a")
    seen: list[Any] = []
    register("test.pointer", seen.append)
    memory = np.arange(4, dtype="float32")
    if target == "interpreter":  # its pointers are no addresses
        return
    make(target, tir.call_packed("test.pointer", a.access_ptr("r", offset=2)), a)(memory)
    assert seen[0].value == memory.ctypes.data + 8


# ---- what comes back ----


RESULTS = (
    "bool", "float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "uint64",
)


@pytest.mark.parametrize("target", TARGETS)
def test_results_become_numbers_or_errors(target: str, register: Any) -> None:
    """One module for all types, and one function that gives what is laid here."""
    given: list[Any] = [None]
    register("test.give", lambda: given[0])
    functions = {}
    for dtype in RESULTS:
        out = tir.decl_buffer((1,), dtype, "out")
        body = out.vstore([0], tir.call_packed("test.give", dtype=dtype))
        functions[f"to_{dtype}"] = tir.PrimFunc(f"to_{dtype}", (out.data,), (out,), body)
    module: Any = functions
    if target != "interpreter":
        module = tvm.build(tvm.IRModule(functions), target=target)

    def give(dtype: str, value: Any) -> Any:
        out = np.zeros(1, dtype)
        given[0] = value
        if target == "interpreter":
            interpreter.run(module[f"to_{dtype}"], out)
        else:
            module[f"to_{dtype}"](out)
        return out[0]

    good: list[tuple[str, Any, Any]] = [
        ("int32", -5, -5), ("int8", -128, -128), ("uint8", 255, 255), ("int64", -(2**63), -(2**63)),
        ("uint64", 2**62, 2**62), ("uint32", 2**32 - 1, 2**32 - 1), ("int32", True, 1),
        ("bool", True, True), ("bool", 0, False), ("float32", 0.1, np.float32(0.1)),
        ("float64", 0.1, 0.1), ("float32", 3, 3.0), ("float16", 0.1, np.float16(0.1)),
    ]
    for dtype, value, expected in good:
        assert give(dtype, value) == expected
    bad: list[tuple[str, Any, type[Exception], str]] = [
        ("int8", 128, OverflowError, "a number that does not fit in int8"),
        ("uint8", -1, OverflowError, "a number that does not fit in uint8"),
        ("int32", 2**31, OverflowError, "a number that does not fit in int32"),
        ("uint64", -1, OverflowError, "a number that does not fit in uint64"),
        ("int32", 1.5, TypeError, "float instead of int"),
        ("float32", "text", TypeError, "instead of float"),
        ("int32", None, TypeError, "instead of int"),
        ("float32", [1, 2], TypeError, "list instead of float"),
    ]
    for dtype, value, kind, words in bad:
        message = f"to_{dtype} calls 'test.give', which returned .*{words}"
        with pytest.raises(kind, match=message):
            give(dtype, value)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_that_nobody_uses_is_dropped(target: str, register: Any) -> None:
    array = tvm.nd.array(np.zeros(3, "float32"))
    given: list[Any] = [None, 5, "a long enough text", array, [1, array], lambda: 0]
    register("test.any", lambda i: given[i])
    i = te.var("i")
    function = make(target, tir.call_packed("test.any", i), i)
    for place in range(len(given)):
        assert function(place) is None


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_pointers_go_from_one_function_to_the_next(target: str, register: Any) -> None:
    memory = np.arange(3, dtype="int32")
    seen: list[Any] = []
    given: list[Any] = [ctypes.c_void_p(memory.ctypes.data)]
    register("test.open", lambda: given[0])
    register("test.use", lambda pointer: seen.append(pointer.value if pointer else None))
    ib = tir.ir_builder.create()
    opened = ib.let("opened", tir.call_packed("test.open", dtype="handle"))
    ib.emit(tir.call_packed("test.use", opened))
    function = make(target, ib.get())
    function()
    given[0] = None
    function()
    assert seen == [memory.ctypes.data, None]


# ---- failures ----


@pytest.mark.parametrize("target", TARGETS)
def test_errors_keep_their_type_and_give_back_memory(target: str, register: Any) -> None:
    class OwnError(Exception):
        pass

    def fail(x: int) -> None:
        raise (KeyError, OwnError, ZeroDivisionError)[x]("from inside")

    register("test.fail", fail)
    i = te.var("i")
    ib = tir.ir_builder.create()
    big = ib.allocate("float32", (100000,), name="big")  # too big for the stack
    big[0] = 1.0
    ib.emit(tir.call_packed("test.fail", i, big.buffer))
    function = make(target, tir.call_packed("test.fail", i), i)
    for place, kind in enumerate((KeyError, OwnError, ZeroDivisionError)):
        with pytest.raises(kind, match="from inside"):
            function(place)


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_function_is_named_with_its_caller(target: str, register: Any) -> None:
    function = make(target, tir.call_packed("test.no.such"))
    with pytest.raises(ValueError, match=r"caller calls 'test\.no\.such', but no function of that"):
        function()
    calls: list[int] = []
    register("test.no.such", lambda: calls.append(1))
    function()  # what was missing is looked for again
    assert calls == [1]


@pytest.mark.parametrize("target", TARGETS)
def test_it_happens_where_and_as_often_as_it_is_written(target: str, register: Any) -> None:
    """In a branch that is not taken not at all, in a vectorized loop once per iteration."""
    calls: list[int] = []

    def note(i: int) -> int:
        calls.append(i)
        return i * i

    register("test.note", note)
    x = te.placeholder((8,), "int32", name="x")
    y = te.compute(
        (8,), lambda i: te.if_then_else(x[i] > 0, tir.call_packed("test.note", i), -1), name="y"
    )
    schedule = te.create_schedule(y.op)
    schedule[y].vectorize(y.op.axis[0])
    numbers, out = np.array([1, 0, 1, 1, 0, 0, 0, 1], "int32"), np.zeros(8, "int32")
    if target == "interpreter":
        interpreter.run(pipeline.run(lower_schedule(schedule, [x, y], "f")), numbers, out)
    else:
        tvm.build(schedule, [x, y], target=target)(numbers, out)
    assert sorted(calls) == [0, 2, 3, 7] and out.tolist() == [0, -1, 4, 9, -1, -1, -1, 49]


# ---- threads ----


def parallel_calls(target: str) -> Any:
    out = tir.decl_buffer((64,), "int32", "out")
    ib = tir.ir_builder.create()
    with ib.for_range(0, 64, kind="parallel") as i:
        ib.emit(out.vstore([i], tir.call_packed("test.square", i)))
    return make(target, ib.get(), out)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_parallel_loops_call_at_once_and_report_the_first_failure(
    target: str, register: Any
) -> None:
    bad: set[int] = set()

    def square(i: int) -> int:
        if i in bad:
            raise LookupError(f"not {i}")
        return i * i

    register("test.square", square)
    function = parallel_calls(target)
    out = np.zeros(64, "int32")
    function(out)
    np.testing.assert_array_equal(out, np.arange(64) ** 2)
    bad.add(37)
    with pytest.raises(LookupError, match="not 37"):
        function(out)


def test_several_threads_find_the_function_at_once(register: Any) -> None:
    register("test.square", lambda i: i * i)
    function = parallel_calls("llvm")
    results = [np.zeros(64, "int32") for _ in range(8)]
    threads = [threading.Thread(target=function, args=(r,)) for r in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, np.arange(64) ** 2)


# ---- what is refused ----


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="takes the function's name"):
        tir.call_packed()
    with pytest.raises(ValueError, match="takes the function's name"):
        tir.call_packed(3, "f")
    with pytest.raises(ValueError, match="has a zero in it"):
        tir.call_packed("f", "a\0b")
    with pytest.raises(ValueError, match="gives one value, not float32x4"):
        tir.call_packed("f", dtype="float32x4")
    vector = tir.Ramp(te.const(0), te.const(1), 4)
    with pytest.raises(TypeError, match="is no single value"):
        tir.call_packed("f", vector)
    with pytest.raises(ValueError, match="result's type and the function's name"):
        tir.call_extern("int32", 3)  # type: ignore[arg-type]
    long = tir.PrimFunc("f", (), (), tir.Evaluate(tir.call_packed("f", "x" * 5000)))
    with pytest.raises(ValueError, match="a text of C holds 4000 bytes"):
        c.generate([long], "m")
    assert "x" * 5000 in llvm.generate([long], llvm.LLVMOptions.native(), "m")


def test_an_older_runtime_says_so() -> None:
    """A host whose table ends before the member that calls."""
    errors: list[bytes] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)

    def set_error(_kind: bytes, message: bytes) -> int:
        errors.append(message)
        return -1

    keep = kind(set_error)
    table = (ctypes.c_uint64 * 7)(48, ctypes.cast(keep, ctypes.c_void_p).value or 0)
    func = tir.PrimFunc("f", (), (), tir.Evaluate(tir.call_packed("g")), {"export": True})
    jit = llvm.CompiledModule([func]).jit()
    jit.set_host(ctypes.addressof(table))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(jit.address("f"))() == -1
    assert errors == [b"the code calls functions by name, which needs a newer Sterna runtime"]
