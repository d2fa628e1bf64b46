"""Batched products of dequantised bytes, by dot products of the bytes themselves."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.dynamic import tensor_type
from sterna.op.nn._byte_products import of_dequantised
from sterna.op.nn.dense import BatchMatmulAttrs
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.interpreter import interpret
from sterna.relay.traverse import post_order
from sterna.target import Target, processor_of
from tests.schedule.implemented import run_built

DOTS = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
VNNI = "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake"
PLAIN = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"

# The shapes, the types and the zero points of both operands, and whether columns are rows.
PRODUCTS = [
    ((2, 9, 32), "uint8", 131, (2, 8, 32), "uint8", 120, True),
    ((1, 3, 12, 20), "uint8", 0, (2, 3, 20, 24), "int8", 0, False),
    ((8, 16), "int8", -128, (16, 12), "int8", 7, False),
]


def product(case: Any) -> tuple[tuple[Any, ...], RelayExpr, list[Any]]:
    """Variables, the product of what they stand for, and arrays."""
    a, a_type, a_zero, b, b_type, b_zero, turned = case
    x, y = relay.var("x", shape=a, dtype=a_type), relay.var("y", shape=b, dtype=b_type)
    operands = [
        relay.qnn.dequantize(v, relay.const(np.float32(scale)), relay.const(zero))
        for v, scale, zero in ((x, 0.25, a_zero), (y, 0.03, b_zero))
    ]
    made = relay.nn.batch_matmul(*operands, transpose_b=turned)
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for shape, kind in ((a, a_type), (b, b_type))
    ]
    return (x, y), made, arrays


def provides_dot4() -> bool:
    return processor_of(Target("native")).has_dot4


def rewritten(made: RelayExpr, target: str) -> RelayExpr | None:
    made.checked_type  # noqa: B018  (arguments get their types)
    assert isinstance(made, Call) and isinstance(made.attrs, BatchMatmulAttrs)
    return of_dequantised(made.attrs, made.args, Target(target))


def whole(case: Any, arrays: list[Any]) -> Any:
    """The sums, exactly."""
    x, y = (array.astype(np.int64) for array in arrays)
    y = (y - case[5]).swapaxes(-1, -2) if case[6] else y - case[5]
    return np.matmul(x - case[2], y)


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("target", [DOTS, VNNI])
def test_zero_points_are_taken_off_the_sums(case: Any, target: str) -> None:
    inputs, made, arrays = product(case)
    better = rewritten(made, target)
    assert better is not None and "nn.batch_matmul" in str(better) and "int32" in str(better)
    got = interpret(relay.Function(inputs, better), *arrays)
    factor = np.float32(0.25) * np.float32(0.03)
    np.testing.assert_array_equal(got, whole(case, arrays).astype("float32") * factor)
    assert rewritten(made, PLAIN) is None and rewritten(made, "c") is None


@pytest.mark.parametrize("case", PRODUCTS)
def test_kernels_agree(case: Any) -> None:
    inputs, made, arrays = product(case)
    scale, zero = relay.const(np.float32(8)), relay.const(128)
    bytes_ = relay.qnn.quantize(made, scale, zero, out_dtype="uint8", rounding="TO_EVEN")
    for expr, tolerance in ((made, 1e-6), (bytes_, 0)):
        function = relay.Function(inputs, expr)
        with tvm.transform.PassContext(opt_level=3):
            lib = relay.build(tvm.IRModule.from_expr(function), target="native")
        if provides_dot4():
            assert "direct(weights=OI" in str(lib.ir_mod)
        got = run_built(lib, x=arrays[0], y=arrays[1])
        want = interpret(function, *arrays)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-6 * np.abs(want).max())


def test_a_transposed_operand_is_read_as_it_lies() -> None:
    inputs, _, arrays = product(PRODUCTS[0])
    one, none = relay.const(np.float32(1)), relay.const(0)
    turned = relay.qnn.dequantize(relay.transpose(inputs[1], axes=[0, 2, 1]), one, none)
    made = relay.nn.batch_matmul(
        relay.qnn.dequantize(inputs[0], one, none), turned, transpose_b=False
    )
    better = rewritten(made, DOTS)
    assert better is not None and "axes=[0, 2, 1]" not in str(better)
    want = np.matmul(arrays[0].astype("float32"), arrays[1].astype("float32").swapaxes(1, 2))
    np.testing.assert_array_equal(interpret(relay.Function(inputs, better), *arrays), want)


def test_an_operand_lies_as_an_answer_says() -> None:
    """The packing is one of the choices, and any answer gives the same sums."""
    inputs, _, arrays = product(((2, 16, 32), "int8", 0, (2, 8, 32), "int8", 0, True))
    made = relay.nn.batch_matmul(*inputs, out_dtype="int32")
    want = np.matmul(arrays[0].astype("int32"), arrays[1].astype("int32").swapaxes(1, 2))
    module = tvm.IRModule.from_expr(relay.Function(inputs, made))
    for answer, packs in (("direct", False), ("", provides_dot4())):
        answers = {"schedule.answers": {"implementation": answer}} if answer else {}
        with tvm.transform.PassContext(opt_level=3, config=answers):
            lib = relay.build(module, target="native")
        assert ("direct(weights=OI" in str(lib.ir_mod)) is packs
        np.testing.assert_array_equal(run_built(lib, x=arrays[0], y=arrays[1]), want)


@pytest.mark.parametrize("shape", [(2, 4, 32), (2, 9, 8)])
def test_small_products_stay_floats(shape: tuple[int, ...]) -> None:
    case = (shape, "uint8", 1, (2, 8, shape[-1]), "uint8", 2, True)
    assert rewritten(product(case)[1], DOTS) is None


@pytest.mark.parametrize(("case", "target"), [
    (((2, 9, 33), "uint8", 0, (2, 33, 21), "uint8", 0, False), DOTS),
    (((2, 9, 33), "uint8", 0, (2, 33, 21), "uint8", 0, False), VNNI),
    (((3, 70, 64), "int8", -5, (50, 64), "uint8", 200, True), DOTS),
    (((3, 70, 64), "int8", -5, (50, 64), "uint8", 200, True), VNNI),
    (((17, 30), "uint8", 255, (30, 50), "int8", -128, False), DOTS),
])
def test_free_bytes_of_any_extents_are_dot_products(case: Any, target: str) -> None:
    a, a_type, a_zero, b, b_type, b_zero, turned = case
    x, y = relay.var("x", shape=a, dtype=a_type), relay.var("y", shape=b, dtype=b_type)
    one = relay.const(np.float32(1))
    made = relay.qnn.batch_matmul(
        x, y, relay.const(a_zero), relay.const(b_zero), one, one, transpose_b=turned
    )
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function((x, y), made)))
    plain = relay.transform.Legalize(Target(target))(mod)["main"]
    products = [
        each for each in post_order(plain.body)
        if isinstance(each, Call) and str(each.op) == "nn.batch_matmul"
    ]
    assert [str(tensor_type(each.args[1]).dtype) for each in products] == ["int8"]
    rng = np.random.default_rng(2)
    given = [
        rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for shape, kind in ((a, a_type), (b, b_type))
    ]
    wide = [given[0].astype(np.int64) - a_zero, given[1].astype(np.int64) - b_zero]
    want = wide[0] @ (wide[1].swapaxes(-1, -2) if turned else wide[1])
    np.testing.assert_array_equal(interpret(plain, *given), want.astype(np.int32))
    lib = relay.build(mod, target="llvm -mcpu=native")
    np.testing.assert_array_equal(run_built(lib, x=given[0], y=given[1]), want)
