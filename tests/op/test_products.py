"""Products of matrices and einsum: types, untyped weights, counts, messages."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.contrib import graph_executor
from sterna.ir.types import TensorType
from sterna.relay.op import call, find, record_of
from sterna.te import create_schedule, placeholder


def macs(expr: relay.Call) -> int:
    record = record_of(expr)
    assert record is not None
    assert record.macs is not None
    return record.macs(expr.attrs, expr.checked_type, *[arg.checked_type for arg in expr.args])


def test_an_untyped_weight_gets_its_type_from_units() -> None:
    x, w = relay.var("x", shape=(2, 7)), relay.var("w")
    y = relay.nn.dense(x, w, units=5)
    assert y.checked_type == TensorType((2, 5))
    assert w.checked_type == TensorType((5, 7))
    w = relay.var("w")
    y = relay.nn.matmul(x, w, units=5, transpose_a=True)
    assert y.checked_type == TensorType((7, 5))
    assert w.checked_type == TensorType((2, 5))


def test_without_units_an_untyped_weight_is_an_error() -> None:
    y = relay.nn.dense(relay.var("x", shape=(2, 7)), relay.var("w"))
    with pytest.raises(ValueError, match="the variable w has no type"):
        _ = y.checked_type


def test_dimensions_that_only_the_run_knows() -> None:
    x = relay.var("x", shape=(relay.Any(), 7))
    y = relay.nn.dense(x, relay.var("w", shape=(5, relay.Any())))
    assert y.checked_type == TensorType((relay.Any(), 5))
    a = relay.var("a", shape=(relay.Any(), 3, 4))
    b = relay.var("b", shape=(2, 5, 4))
    assert relay.nn.batch_matmul(a, b).checked_type == TensorType((2, 3, 5))
    z = relay.einsum([a, b], "bik,bjk->bij")
    assert z.checked_type == TensorType((2, 3, 5))


def test_a_symbolic_batch_runs() -> None:
    n = te.size_var("n")
    record = find("nn.dense")
    assert record.attrs is not None
    assert record.compute is not None
    a, b = placeholder((n, 3), name="a"), placeholder((4, 3), name="b")
    kind = record.infer(record.attrs(), TensorType((n, 3)), TensorType((4, 3)))
    c = record.compute(record.attrs(), kind, a, b)
    function = tvm.build(create_schedule(c.op), [a, b, c], "llvm")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 3), "float32"), rng.standard_normal((4, 3), "float32")
    y = np.empty((5, 4), "float32")
    function(x, w, y)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-5, atol=1e-5)


def test_multiply_adds() -> None:
    a, b = relay.var("a", shape=(2, 3, 4)), relay.var("b", shape=(2, 5, 4))
    assert macs(relay.nn.batch_matmul(a, b)) == 2 * 3 * 5 * 4
    assert macs(relay.nn.dense(a, relay.var("w", shape=(6, 4)))) == 2 * 3 * 6 * 4
    assert macs(relay.einsum([a, b], "bik,bjk->bij")) == 2 * 3 * 5 * 4
    chain = [relay.var(f"v{i}", shape=s) for i, s in enumerate([(90, 2), (2, 80), (80, 3)])]
    assert macs(relay.einsum(chain, "ab,bc,cd->ad")) == 2 * 80 * 3 + 90 * 2 * 3
    assert macs(relay.einsum([a], "bij->bj")) == 0


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 7), (5, 6)), r"the inner dimension of weight is 7, not 6"),
        (((2, 7), (5,)), r"weight has 2 dimensions, not shape \(5,\)"),
        (((), (5, 6)), r"data has at least 1 dimensions, not shape \(\)"),
    ],
)
def test_operands_that_do_not_fit_dense(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], message: str
) -> None:
    x, w = (relay.var("v", shape=shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        relay.nn.dense(x, w)


def test_other_mistakes() -> None:
    x = relay.var("x", shape=(2, 7))
    with pytest.raises(ValueError, match="weight's number of units is 4, not 5"):
        relay.nn.dense(x, relay.var("w", shape=(5, 7)), units=4)
    with pytest.raises(ValueError, match="cast one of them, or give out_dtype"):
        relay.nn.dense(x, relay.var("w", shape=(5, 7), dtype="int8"))
    with pytest.raises(ValueError, match="the inner dimension of tensor_b is 4, not 5"):
        relay.nn.batch_matmul(relay.var("a", shape=(1, 3, 4)), relay.var("b", shape=(1, 3, 5)))


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij", "names 1 operands; there are 2"),
        ("ij,jkl->ik", "gives operand 1 3 letters; it has 2 dimensions"),
        ("ij,jk->iik", "every letter of the result occurs there once"),
        ("ij,jk->iz", "'z' does not"),
        ("i1,jk->ij", "has '1' where letters stand"),
        ("ij,ik->jk", "data.1. has the extent 3 where another operand has 2"),
    ],
)
def test_equations_that_do_not_fit(equation: str, message: str) -> None:
    data = [relay.var("a", shape=(2, 3)), relay.var("b", shape=(3, 4))]
    with pytest.raises(ValueError, match=message):
        relay.einsum(data, equation)


@pytest.mark.parametrize(("op", "shapes", "attrs"), [
    ("nn.matmul", ((40, 1), (1, 50)), {}),
    ("nn.matmul", ((1, 40), (50, 1)), {"transpose_a": True, "transpose_b": True, "units": 50}),
    ("nn.dense", ((40, 1), (50, 1)), {}),
    ("nn.batch_matmul", ((2, 1, 30, 1), (3, 20, 1)), {}),
])
def test_outer_products_have_no_sum(
    op: str, shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any]
) -> None:
    given = [relay.var(name, shape=shape) for name, shape in zip("ab", shapes, strict=True)]
    body = call(op, *given, **attrs)
    mod = tvm.IRModule.from_expr(relay.Function(tuple(given), body))
    assert "multiply" in str(relay.optimize(mod, "llvm -mcpu=native")[0])
    lib = relay.build(mod, target="llvm -mcpu=native")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    m.run(a=data[0], b=data[1])
    record = find(op)
    assert record.attrs is not None and record.reference is not None
    np.testing.assert_allclose(
        m.get_output(0).numpy(), record.reference(record.attrs(**attrs), *data), rtol=1e-6
    )
