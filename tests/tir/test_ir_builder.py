"""Statements written as a program: what they become, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.tir import interpreter, pipeline
from sterna.tir.passes import storage_rewrite
from sterna.tir.verify import verify

NUMBERS = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")


def function(body: Any, *buffers: tir.Buffer) -> tir.PrimFunc:
    return verify(tir.PrimFunc("f", tuple(b.data for b in buffers), buffers, body))


def run(func: tir.PrimFunc, *arrays: Any) -> None:
    """Before and after the passes, and as machine code, with the same result."""
    given = [a.copy() for a in arrays]
    interpreter.run(func, *arrays)
    passed = verify(pipeline.run(func))
    for other in (lambda *a: interpreter.run(passed, *a), tvm.build(func)):
        again = [a.copy() for a in given]
        other(*again)
        for a, b in zip(again, arrays, strict=True):
            np.testing.assert_array_equal(a, b)


def test_loops_conditions_and_memory() -> None:
    a, b = tir.decl_buffer((4, 5), name="a"), tir.decl_buffer((4, 5), name="b")
    ib = tir.ir_builder.create()
    x, y = ib.buffer_ptr(a), ib.buffer_ptr(b)
    with ib.for_range(0, 4, kind="parallel") as i:
        t = ib.allocate("float32", (5,), name="t", scope="local")
        with ib.for_range(0, 5) as j:
            t[j] = x[i, j] * 2.0
        with ib.for_range(1, 5, name="col") as col:
            with ib.if_scope(ib.likely(t[col] > 0)):
                y[i, col] = t[col]
            with ib.else_scope():
                y[i, col] = 0
        y[i, 0] = -1
    func = function(ib.get(), a, b)
    assert [v.name for v in (i, j, col)] == ["i", "j", "col"]
    assert str(func).splitlines()[1:4] == [
        "    for i in range(4):  # parallel",
        '        t = allocate((5,), "float32", "local")',
        "        for j in range(5):",
    ]
    result = np.zeros((4, 5), "float32")
    run(func, NUMBERS, result)
    expected = np.maximum(NUMBERS * 2, 0)
    expected[:, 0] = -1
    np.testing.assert_array_equal(result, expected)


def test_names_attributes_and_scopes() -> None:
    a = tir.decl_buffer((8,), "int32", "a")
    ib = tir.ir_builder.create()
    x = ib.buffer_ptr(a)
    with ib.new_scope():
        ib.scope_attr(a, "said", 7)
        seven = ib.let("seven", x[0] + 7)
        x[1] = seven * seven
    ib.emit(tir.BufferStore(a, te.const(3), (te.const(2),)))
    func = function(ib.get(), a)
    assert 'with attr("said", a, 7):' in str(func) and "seven: int32 = a[0] + 7" in str(func)
    values = np.zeros(8, "int32")
    run(func, values)
    assert values.tolist() == [0, 49, 3, 0, 0, 0, 0, 0]


def test_one_index_counts_through_all_dimensions() -> None:
    a, b = tir.decl_buffer((4, 5), name="a"), tir.decl_buffer((20,), name="b")
    ib = tir.ir_builder.create()
    x, y, z = ib.buffer_ptr(a), ib.buffer_ptr(b, shape=(2, 10)), ib.buffer_ptr(a, shape=(10, 2))
    with ib.for_range(0, 2) as i, ib.for_range(0, 10) as j:
        y[i, j] = x[i * 10 + j] + z[j, i]
    result = np.zeros(20, "float32")
    run(function(ib.get(), a, b), NUMBERS, result)
    other = NUMBERS.reshape(10, 2).T
    np.testing.assert_array_equal(result, (NUMBERS.reshape(2, 10) + other).reshape(-1))


def test_vectors_are_loaded_and_stored() -> None:
    a, b = tir.decl_buffer((4, 8), name="a"), tir.decl_buffer((4, 8), name="b")
    ib = tir.ir_builder.create()
    with ib.for_range(0, 4) as i:
        ib.emit(b.vstore([i, 4], a.vload([i, 0], "float32x4") * 2.0))
        ib.emit(b.vstore((i, 0), 1.5))
    values, result = np.arange(32, dtype="float32").reshape(4, 8), np.zeros((4, 8), "float32")
    run(function(ib.get(), a, b), values, result)
    expected = np.zeros((4, 8), "float32")
    expected[:, 4:], expected[:, 0] = values[:, :4] * 2, 1.5
    np.testing.assert_array_equal(result, expected)


def test_a_thread_axis_makes_what_follows_its_body() -> None:
    a = tir.decl_buffer((8,), name="a")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 8)
    ib.buffer_ptr(a)[tx] = 1.0
    func = function(ib.get(), a)
    assert "for threadIdx.x in range(8):  # thread threadIdx.x" in str(func)


def test_addresses_follow_their_buffers_through_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flattening, sharing of memory and unrolling make new buffers."""
    monkeypatch.setattr(storage_rewrite, "SMALLEST_BYTES", 0)
    a = tir.decl_buffer((2, 4), name="a")
    ib = tir.ir_builder.create()
    with ib.for_range(0, 2, kind="unroll") as i:
        for number in range(3):
            t = ib.allocate("float32", (2, 2), name=f"t{number}")
            ib.emit(tir.call_extern("int32", "fill", t, 4, number))
            ib.buffer_ptr(a)[i, number] = t[1, 1]
        ib.emit(tir.call_extern("int32", "fill", a.access_ptr("w", offset=i * 4 + 3), 1, 9))

    def fill(pointer: Any, count: int, value: int) -> int:
        pointer.memory[pointer.offset : pointer.offset + count] = value
        return 0

    func = function(ib.get(), a)
    passed = verify(pipeline.run(func))
    assert str(passed).count("allocate") < 6  # some share
    for each in (func, passed):
        result = np.zeros((2, 4), "float32")
        interpreter.run(each, result, externs={"fill": fill})
        np.testing.assert_array_equal(result, [[0, 1, 2, 9]] * 2)


# ---- what is refused ----


def test_scopes_must_be_closed_and_follow_each_other() -> None:
    ib = tir.ir_builder.create()
    with ib.for_range(0, 4), pytest.raises(RuntimeError, match="still open"):
        ib.get()
    with pytest.raises(RuntimeError, match="else_scope can only follow an if_scope"):
        ib.else_scope().__enter__()
    with pytest.raises(TypeError, match="emit takes a statement"):
        ib.emit("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not 'sideways'"):
        ib.for_range(0, 4, kind="sideways").__enter__()
    with pytest.raises(TypeError, match="runs over integers, not float32"):
        ib.for_range(0.0, 4.0).__enter__()


def test_an_error_inside_a_scope_leaves_the_builder_usable() -> None:
    ib = tir.ir_builder.create()
    with pytest.raises(KeyError), ib.for_range(0, 4):
        raise KeyError
    assert str(ib.get()) == "pass"


def test_buffers_check_what_they_are_given() -> None:
    a = tir.decl_buffer((4, 4), name="a")
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: a[1], "a has 2 dimensions, not 1"),
        (lambda: a.vload([0, 0], "int32"), "int32 cannot be loaded from a"),
        (lambda: a.vstore([0, 0], te.const(1, "int32")), "int32 cannot be stored into a"),
        (lambda: a.access_ptr("x"), "the mask is r, w or rw"),
        (lambda: tir.decl_buffer((4,), strides=(1, 1), name="b"), "1 dimensions, 2 strides"),
        (lambda: tir.decl_buffer((4,), elem_offset=te.var("o"), name="b"), "its own address"),
        (lambda: tir.decl_buffer((4,), buffer_type="auto_broadcast"), "not supported"),
        (lambda: tir.decl_buffer((4, 2), axis_separators=[1, 1]), "axis_separators rise"),
        (lambda: tir.decl_buffer((4,), axis_separators=[2]), "no dimensions before"),
        (
            lambda: tir.decl_buffer((4, 4), strides=(8, 1)).access_ptr("r", offset=1),
            "name its elements by indices",
        ),
        (lambda: tir.ir_builder.create().buffer_ptr(a)[0, 0, 0], "indexed by 2 numbers, not 3"),
    ]
    for wrong, message in cases:
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(TypeError, match="made of integers, not float32"):
        tir.decl_buffer((4.0,))
    with pytest.raises(TypeError, match="not iterable"):
        iter(a)
