"""Functions of loops by the arguments of the classic API, and modules of them."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna import tir as _tir

tir: Any = _tir  # whose arguments are the classic ones here


def counted() -> tuple[Any, Any, Any]:
    builder = tir.ir_builder.create()
    n, memory = te.size_var("n"), builder.pointer("float32", name="A")
    with builder.for_range(0, n, name="i") as i:
        memory[i] = memory[i] * 2.0 + i.astype("float32")
    return builder.get(), memory, n


def test_what_a_builder_gives_becomes_a_function() -> None:
    body, memory, n = counted()
    for first in (memory, memory.asobject()):
        function = tir.PrimFunc([first, n], body)
        module = tvm.IRModule.from_expr(function.with_attr("global_symbol", "twice"))
        assert list(module) == ["twice"]
        built, array = tvm.build(module, target="llvm"), tvm.nd.array(np.ones(5, "float32"))
        built["twice"](array, 3)
        np.testing.assert_array_equal(array.numpy(), [2, 3, 4, 1, 1])
    unnamed = tvm.build(tvm.IRModule.from_expr(tir.PrimFunc([memory, n], body)), target="llvm")
    unnamed["main"](array, 0)


def test_a_map_says_the_buffers() -> None:
    a, whole = tir.Var("a", "handle"), tir.decl_buffer((4,), "int32", name="A")
    i = tir.Var("i", "int32")
    body = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(whole, whole[i] + 1, [i]))
    function = tir.PrimFunc([a], body, None, {a: whole}, {"global_symbol": "count"})
    assert function.name == "count" and list(function.buffer_map.values()) == [whole]
    array = np.arange(4, dtype="int32")
    tvm.build(function, target="llvm")(array)
    np.testing.assert_array_equal(array, [1, 2, 3, 4])
    with pytest.raises(ValueError, match="the parameter a is an address, but nothing says of what"):
        tir.PrimFunc([a], tir.Evaluate(0))
    with pytest.raises(TypeError, match="a parameter is a variable or a buffer, not 3"):
        tir.PrimFunc([3], tir.Evaluate(0))
    with pytest.raises(TypeError, match="the body is a statement, not 3"):
        tir.PrimFunc([a], 3)


def test_statements_are_made_and_asked_by_classic_words() -> None:
    whole, i = tir.decl_buffer((4,), name="A"), tir.Var("i", "int32")
    one, two = tir.BufferStore(whole, 1.0, [0]), tir.Evaluate(3)
    choice = tir.IfThenElse(i > 1, tir.SeqStmt([one, two]), two)
    assert choice.then_case.seq == (one, two) and choice.else_case is two
    assert str(choice) == "if i > 1:\n    A[0] = 1.0\n    3\nelse:\n    3"
    assert tir.AttrStmt("pragma_x", None, i, one).attr_key == "pragma_x"


def test_questions_about_functions() -> None:
    body, memory, n = counted()
    function, x = tir.PrimFunc([memory, n], body), te.var("x")
    assert tir.analysis.verify_ssa(function) and tir.analysis.verify_well_formed(function)
    stray = function.with_body(tir.Evaluate(x))
    assert not tir.analysis.verify_ssa(stray)
    assert not tir.analysis.verify_well_formed(stray, assert_mode=False)
    with pytest.raises(tvm.error.InternalError, match="the variable x is used outside what binds"):
        tir.analysis.verify_well_formed(stray)
    assert tir.analysis.expr_deep_equal(x + 1, x + 1)
    assert not tir.analysis.expr_deep_equal(x + 1, te.var("x") + 1)


def test_a_pass_makes_functions_anew() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")

    @tir.transform.prim_func_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def anew(func: Any, mod: Any, ctx: Any) -> Any:
        return tir.PrimFunc(func.params, func.body, func.ret_type, func.buffer_map, func.attrs)

    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, anew)]}):
        built = tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="named")
    x, y = np.ones(8, "float32"), np.zeros(8, "float32")
    built["named"](x, y)
    np.testing.assert_array_equal(y, 2)


def test_modules_take_in_others() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    schedule = te.create_schedule(b.op)
    module = tvm.lower(schedule, [a, b], name="one")
    module.update(tvm.lower(schedule, [a, b], name="two"))
    module.update({"three": module["one"].with_attr("global_symbol", "three")})
    built = tvm.build(module, target="llvm")
    for name in ("one", "two", "three"):
        x, y = np.ones(8, "float32"), np.zeros(8, "float32")
        built[name](x, y)
        np.testing.assert_array_equal(y, 2)


def test_buffers_that_a_program_binds() -> None:
    a = te.placeholder((8, 4), name="A")
    b = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, name="B")
    schedule = te.create_schedule(b.op)
    own = tir.decl_buffer((8, 4), "float32", name="own", data_alignment=4)
    assert "own[" in str(tvm.lower(schedule, [a, b], binds={a: own}))
    x, y = np.ones((8, 4), "float32"), np.zeros((8, 4), "float32")
    tvm.build(schedule, [a, b], "llvm", binds={a: own})(x, y)
    np.testing.assert_array_equal(y, 2)
    with pytest.raises(ValueError, match="the buffer own of A has strides, but functions are"):
        strided = tir.decl_buffer((8, 4), "float32", name="own", strides=[8, 1])
        tvm.lower(schedule, [a, b], binds={a: strided})
    with pytest.raises(ValueError, match=r"the buffer own is not of float32 and the shape \(8, 4"):
        tvm.lower(schedule, [a, b], binds={a: tir.decl_buffer((4, 8), name="own")})
