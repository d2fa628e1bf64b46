"""Tensors that statements of the user's own fill, beside NumPy."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from tests.support import require_program
from tests.te.running import check

N, M = 6, 5
X = np.random.default_rng(0).integers(-4, 5, (N, M)).astype("float32")


def sum_rows(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
    """outs[0][i] = sum of ins[0][i, :]"""
    ib = tir.ir_builder.create()
    x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    rows, columns = ins[0].shape
    with ib.for_range(0, rows) as i:
        y[i] = 0.0
        with ib.for_range(0, columns) as j:
            y[i] = y[i] + x[i, j]
    return ib.get()


def test_a_stage_between_others() -> None:
    x = te.placeholder((N, M), name="x")
    a = te.compute((N, M), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.extern((N,), [a], sum_rows, name="b")
    c = te.compute((N,), lambda i: b[i] * 2.0, name="c")
    schedule = te.create_schedule(c.op)
    schedule[b].compute_root()
    schedule[a].parallel(a.op.axis[0])
    schedule[c].vectorize(c.op.axis[0])
    assert isinstance(b.op, te.ExternOp) and b.op.input_tensors == [a] and b.dtype == "float32"
    text = check(schedule, [x, c], [X], [(X + 1).sum(1) * 2])
    assert text.count("allocate") == 2


def test_several_outputs_of_different_shapes_and_types() -> None:
    x = te.placeholder((N, M), name="x")

    def signs(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        count = ib.buffer_ptr(outs[1])
        count[0] = 0
        with ib.for_range(0, N) as i, ib.for_range(0, M) as j:
            ib.emit(outs[0].vstore([i, j], tvm.tir.abs(ins[0][i, j])))
            with ib.if_scope(ins[0][i, j] < 0):
                count[0] = count[0] + 1
        return ib.get()

    size, negative = te.extern(
        [(N, M), (1,)], [x], signs, name="signs", dtype=["float32", "int32"]
    )
    expected = [np.abs(X), np.array([(X < 0).sum()], "int32")]
    check(te.create_schedule(size.op), [x, size, negative], [X], expected)
    # Only one of them is asked for: the other is kept inside.
    out = te.compute((1,), lambda i: negative[i] + 1, name="out")
    check(te.create_schedule(out.op), [x, out], [X], [expected[1] + 1])


def test_unknown_shapes_and_the_same_statement_twice() -> None:
    n, m = te.size_var("n"), te.size_var("m")
    x, y = te.placeholder((n, m), name="x"), te.placeholder((n, m), name="y")
    a, b = te.extern((n,), [x], sum_rows, name="a"), te.extern((n,), [y], sum_rows, name="b")
    c = te.compute((n,), lambda i: a[i] - b[i], name="c")
    check(te.create_schedule(c.op), [x, y, c], [X, X * 3], [(X - X * 3).sum(1)], sizes=(N, M))


def test_it_is_computed_whole_inside_a_loop() -> None:
    x = te.placeholder((N, M), name="x")
    a = te.compute((N, M), lambda i, j: x[i, j] * 2.0, name="a")
    b = te.extern((N,), [a], sum_rows, name="b")
    c = te.compute((N, M), lambda i, j: b[i] + a[i, j], name="c")
    schedule = te.create_schedule(c.op)
    for stage in (a, b):
        schedule[stage].compute_at(schedule[c], c.op.axis[0])
    text = check(schedule, [x, c], [X], [X * 2 + (X * 2).sum(1, keepdims=True)])
    assert text.index("for i") < text.index("b = allocate((6,)")


def test_it_reads_a_cache() -> None:
    x = te.placeholder((N, M), name="x")
    b = te.extern((N,), [x], sum_rows, name="b")
    schedule = te.create_schedule(b.op)
    cached = schedule.cache_read(x, "local", [b.op])
    assert schedule[b].op.input_tensors == [cached]
    text = check(schedule, [x, b], [X], [X.sum(1)])
    assert "b[i] = b[i] + x.local[i, j]" in text


def test_buffers_may_be_declared_with_unknown_strides() -> None:
    x = te.placeholder((N, M), name="x")
    a = te.compute((N, M), lambda i, j: x[i, j] + 1.0, name="a")
    stride = te.var("stride")
    declared = tir.decl_buffer((te.var("rows"), M), name="declared", strides=(stride, 1))

    def strides(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        with ib.for_range(0, N) as i:
            ib.emit(outs[0].vstore([i], ins[0][i, 2] + stride.astype("float32")))
        return ib.get()

    b = te.extern((N,), [a], strides, name="b", in_buffers=[declared])
    check(te.create_schedule(b.op), [x, b], [X], [X[:, 2] + 1 + M])
    schedule = te.create_schedule(b.op)
    schedule[a].storage_align(a.op.axis[0], 8, 1)
    check(schedule, [x, b], [X], [X[:, 2] + 1 + 9])


def test_c_functions_are_called() -> None:
    x = te.placeholder((N, M), name="x")
    y = te.extern(
        (N, M), [x],
        lambda ins, outs: tir.call_extern(
            "handle", "memcpy", outs[0], ins[0], te.const(N * M * 4, "uint64")
        ),
        name="y",
    )
    z = te.compute((N, M), lambda i, j: tir.call_pure_extern("float32", "fabsf", y[i, j]), name="z")
    schedule = te.create_schedule(z.op)
    schedule[z].vectorize(z.op.axis[1])  # a C function takes one number: the loop stays a loop
    require_program("cc")
    for target in ("llvm", "c"):
        result = np.zeros((N, M), "float32")
        tvm.build(schedule, [x, z], target=target)(X, result)
        np.testing.assert_array_equal(result, np.abs(X))


def test_loops_of_a_function_become_a_stage() -> None:
    a, b, c = (tir.decl_buffer((N, M), name=name) for name in "abc")
    ib = tir.ir_builder.create()
    with ib.for_range(0, N) as i, ib.for_range(0, M) as j:
        ib.emit(c.vstore([i, j], a[i, j] - b[i, j]))
    func = tir.PrimFunc("minus", (a.data, c.data, b.data), (a, c, b), ib.get())
    x = te.placeholder((N, M), name="x")
    twice = te.compute((N, M), lambda i, j: x[i, j] * 2.0, name="twice")
    y = te.extern_primfunc([twice, x], func)
    assert y.op.name == "minus"
    z = te.extern_primfunc([y, y], func, name="again")
    out = te.compute((N, M), lambda i, j: y[i, j] + z[i, j], name="out")
    check(te.create_schedule(out.op), [x, out], [X], [X])
    with pytest.raises(ValueError, match=r"minus reads 2 buffers \(a, b\), not 1"):
        te.extern_primfunc([x], func)
    empty = tir.PrimFunc("empty", (a.data,), (a,), tir.Evaluate(te.const(0)))
    with pytest.raises(ValueError, match="empty writes none of its buffers"):
        te.extern_primfunc([x], empty)


# ---- what is refused ----


def test_wrong_declarations_are_refused() -> None:
    x, n = te.placeholder((N, M), name="x"), te.placeholder((N,), "int32", name="n")
    nothing = tir.Evaluate(te.const(0))
    other = tir.decl_buffer((N, M + 1), name="other")
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"inputs": ["x"]}, ValueError, "extern e: expect inputs to be tensor"),
        ({"inputs": [x, n]}, ValueError, "extern e: Cannot infer output type"),
        ({"inputs": []}, ValueError, "extern e: Cannot infer output type"),
        ({"in_buffers": [other]}, ValueError, "the buffer other: .* cannot stand for x"),
        ({"in_buffers": [other, other]}, ValueError, "2 in_buffers for 1 inputs"),
        ({"out_buffers": [other]}, ValueError, "cannot stand for output 0"),
        ({"dtype": ["float32", "int32"]}, ValueError, "2 types for 1 outputs"),
        ({"fcompute": lambda i, o: None}, ValueError, "must return a statement or an expression"),
        ({"fcompute": lambda i, o: o[0].vstore([0, 0], x[0, 0])}, ValueError, "reads the tensor x"),
    ]
    for change, kind, message in cases:
        given = {"inputs": [x], "fcompute": lambda i, o: nothing, **change}
        with pytest.raises(kind, match=message):
            te.extern((N, M), name="e", **given)


def test_schedules_respect_the_statement() -> None:
    x = te.placeholder((N, M), name="x")
    a = te.compute((N, M), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.extern((N,), [a], sum_rows, name="b")
    c = te.compute((N,), lambda i: b[i] * 2.0, name="c")
    schedule = te.create_schedule(c.op)
    schedule[a].compute_inline()
    with pytest.raises(ValueError, match="a cannot be inlined into b"):
        tvm.lower(schedule, [x, c])
    schedule = te.create_schedule(c.op)
    schedule[b].compute_inline()
    with pytest.raises(ValueError, match="b cannot be inlined"):
        tvm.lower(schedule, [x, c])
    schedule = te.create_schedule(c.op)
    with pytest.raises(ValueError, match="cache write only take ComputeOp"):
        schedule.cache_write(b, "local")


def test_padded_memory_has_no_plain_address() -> None:
    x = te.placeholder((N, M), name="x")
    a = te.compute((N, M), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.extern((N,), [a], lambda i, o: tir.call_extern("int32", "f", i[0], o[0]), name="b")
    schedule = te.create_schedule(b.op)
    schedule[a].storage_align(a.op.axis[0], 8, 1)
    with pytest.raises(ValueError, match="extern b takes the address of a, which storage_align"):
        tvm.lower(schedule, [x, b])


# ---- tags ----


def test_tags_come_from_the_scope() -> None:
    x = te.placeholder((N, M), name="x")

    @te.tag_scope(tag="rows")
    def summed() -> Any:
        return te.extern((N,), [x], sum_rows)

    with te.tag_scope("mine"):
        y = te.compute((N, M), lambda i, j: x[i, j], name="y")
        with pytest.raises(ValueError, match="nested tag is not allowed"):
            te.compute((N, M), lambda i, j: x[i, j], tag="other")
        with pytest.raises(ValueError, match="nested op_tag is not allowed"):
            te.tag_scope("inner").__enter__()
    assert y.op.tag == "mine" and summed().op.tag == "rows" and summed().op.tag == "rows"
    assert te.compute((N, M), lambda i, j: x[i, j], tag="other").op.tag == "other"


# ---- functions of loops ----


def test_tensors_become_a_function_of_loops() -> None:
    n = te.size_var("n")
    x, scale = te.placeholder((n,), name="x"), te.var("scale", "float32")
    y = te.compute((n,), lambda i: x[i] * scale, name="y")
    z = te.compute((n,), lambda i: y[i] + 1.0, name="z")
    func = te.create_prim_func([x, scale, z])
    assert func.name == "main" and isinstance(func, tir.PrimFunc)
    values, result = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    tvm.build(func)(values, 2.0, result)
    np.testing.assert_array_equal(result, values * 2 + 1)
    both = te.create_prim_func([x, scale, y.op, z])  # what is listed is given out too
    other = np.zeros(5, "float32")
    tvm.build(both)["main"](values, 3.0, other, result)
    np.testing.assert_array_equal(other, values * 3)
    np.testing.assert_array_equal(result, values * 3 + 1)
    with pytest.raises(ValueError, match="none of the tensors is computed"):
        te.create_prim_func([x])
    with pytest.raises(TypeError, match="takes tensors and variables, not 3"):
        te.create_prim_func([x, 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="index_dtype_override"):
        te.create_prim_func([x, z], "int64")


def test_constants_have_the_type_that_holds_them() -> None:
    cases: list[tuple[Any, str]] = [
        (3, "int32"), (2**31, "int64"), (-(2**31), "int32"), (0.1, "float32"), (1e300, "float64"),
        (float("inf"), "float32"), (True, "bool"), (np.float64(0.1), "float64"),
        (np.int8(3), "int8"),
    ]
    for value, dtype in cases:
        made = te.const(value)
        assert isinstance(made, tir.IntImm | tir.FloatImm) and made.dtype == dtype
        assert made.value == (np.float32(value) if dtype == "float32" else value)
    assert te.const(3, "float16").dtype == "float16" and te.var().name == "tindex"
    assert te.size_var().name == "size" and te.size_var("n", "int64").dtype == "int64"
    with pytest.raises(TypeError, match="is no constant"):
        te.const("3")  # type: ignore[arg-type]
