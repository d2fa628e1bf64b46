"""Passes that users write with functions over statements."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit, substitute


def added() -> tuple[Any, list[te.Tensor]]:
    a, b = te.placeholder((128,), name="a"), te.placeholder((128,), name="b")
    c = te.compute((128,), lambda i: a[i] + b[i], name="c")
    return te.create_schedule(c.op), [a, b, c]


def test_loops_are_vectorized_by_a_pass_of_the_user() -> None:
    found: list[tir.For] = []

    def find(op: Any) -> None:
        if isinstance(op, tir.For) and op.extent.value % 8 == 0:  # type: ignore[attr-defined]
            found.append(op)

    def vectorize8(op: Any) -> Any:
        if op not in found:
            return None
        outer, inner = te.var(f"{op.loop_var.name}.outer"), te.var(f"{op.loop_var.name}.inner")
        body = substitute(op.body, {op.loop_var: outer * 8 + inner})
        body = tir.For(inner, 0, 8, tir.ForKind.VECTORIZED, body)  # type: ignore[arg-type]
        return tir.For(outer, 0, op.extent.value // 8, tir.ForKind.SERIAL, body)  # type: ignore[arg-type]

    @tir.transform.prim_func_pass(opt_level=0)
    def vectorize(func: Any, mod: Any, context: Any) -> Any:
        post_order_visit(func.body, find)
        return func.with_body(ir_transform(func.body, None, vectorize8, ["tir.For"]))

    schedule, args = added()
    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, vectorize)]}):
        assert "ramp(i.outer*8, 1, 8)" in str(tvm.lower(schedule, args))
        built = tvm.build(schedule, args, "llvm")
    numbers = np.arange(128, dtype="float32")
    result = tvm.nd.array(np.zeros(128, "float32"))
    built(tvm.nd.array(numbers), tvm.nd.array(numbers), result)
    np.testing.assert_array_equal(result.numpy(), 2 * numbers)


def test_order_of_visits() -> None:
    schedule, args = added()
    body = tvm.lower(schedule, args, name="main")["main"].body
    names: list[str] = []
    pre_order_visit(body, lambda op: names.append(type(op).__name__) or True)  # type: ignore[func-returns-value]
    assert names[:2] == ["For", "BufferStore"] or "For" in names[:3]
    assert isinstance(body, tir.Stmt)
    seen: list[str] = []
    pre_order_visit(body, lambda op: seen.append(type(op).__name__) or False)  # type: ignore[func-returns-value]
    assert len(seen) == 1


def test_preorder_answers_are_taken_as_they_are() -> None:
    schedule, args = added()
    body = tvm.lower(schedule, args, name="main")["main"].body
    nothing = tir.Evaluate(tir.const(0, "int32"))
    made = ir_transform(body, lambda op: nothing, None, ["tir.For"])
    assert not any(isinstance(op, tir.BufferStore) for op in _nodes(made))
    with pytest.raises(TypeError, match="ir_transform makes a statement"):
        ir_transform(nothing, lambda op: tir.const(1, "int32"), None)


def _nodes(stmt: Any) -> list[Any]:
    found: list[Any] = []
    post_order_visit(stmt, found.append)
    return found
