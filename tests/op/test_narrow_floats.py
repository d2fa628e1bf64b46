"""Products of narrow floats, whose operands are widened before they meet each other."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import from_numpy, numpy_dtype
from sterna.relay.expr import RelayExpr
from sterna.relay.pipeline import passes
from sterna.target import processor_of
from tests.schedule.implemented import run_built

BUILDERS: dict[str, Any] = {
    "dense": lambda a, b: relay.nn.dense(a, b),
    "matmul": lambda a, b: relay.nn.matmul(a, b, transpose_b=True),
    "batch_matmul": lambda a, b: relay.nn.batch_matmul(a, b),
}


N1 = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"
CONVOLUTIONS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "row": (relay.nn.conv1d, (1, 8, 40), (6, 8, 3), {"padding": 1}),
    "image": (relay.nn.conv2d, (1, 8, 9, 11), (16, 8, 3, 3), {"padding": 1}),
    "depthwise": (relay.nn.conv2d, (2, 8, 9, 7), (8, 1, 3, 3), {"groups": 8, "strides": 2}),
    "volume": (relay.nn.conv3d, (1, 4, 4, 5, 6), (5, 4, 2, 3, 3), {}),
    "transposed": (relay.nn.conv2d_transpose, (1, 8, 5, 6), (8, 4, 4, 4), {"strides": (2, 2)}),
}


def legalized(made: RelayExpr, inputs: Any, name: str = N1) -> str:
    mod = tvm.IRModule.from_expr(relay.Function(inputs, made))
    target = tvm.target.Target(name)
    steps = [relay.transform.InferType(), relay.transform.WidenFloats(processor_of(target))]
    return str(tvm.transform.Sequential(steps)(mod))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_operands_are_widened_once(name: str, dtype: str, step: float) -> None:
    outer = (2,) if name == "batch_matmul" else ()
    x, y = (relay.var(n, shape=(*outer, m, 40), dtype=dtype) for n, m in (("x", 9), ("y", 6)))
    made = BUILDERS[name](x, y)
    assert legalized(made, (x, y)).count('dtype="float32"') >= 2
    rng = np.random.default_rng(4)
    arrays = [
        rng.standard_normal((*outer, rows, 40)).astype(numpy_dtype(dtype)) for rows in (9, 6)
    ]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x, y), made)), target="native")
    got = run_built(lib, x=arrays[0], y=arrays[1])
    assert got.dtype == numpy_dtype(dtype)
    want = np.matmul(arrays[0].astype("float64"), arrays[1].astype("float64").swapaxes(-1, -2))
    np.testing.assert_allclose(got.astype("float64"), want, rtol=1.01 * step, atol=1e-5)


def test_single_rows_and_known_weights_stay() -> None:
    x, y = (relay.var(n, shape=(m, 40), dtype="float16") for n, m in (("x", 1), ("y", 6)))
    assert "float32" not in legalized(relay.nn.dense(x, y), (x, y))
    weight = relay.const(np.ones((6, 40), "float16"))
    many = relay.var("many", shape=(9, 40), dtype="float16")
    assert "float32" not in legalized(relay.nn.dense(many, weight), (many,))


def test_known_weights_of_many_rows_are_widened_without_half_instructions() -> None:
    weight = relay.const(np.ones((6, 40), "float16"))
    for rows, is_wide in ((4, False), (9, True)):
        x = relay.var("x", shape=(rows, 40), dtype="float16")
        text = legalized(relay.nn.dense(x, weight), (x,), AVX512)
        assert text.count('dtype="float32"') == 2 * is_wide  # the data's cast and the sum


@pytest.mark.parametrize("known", [True, False], ids=["known", "free"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_convolutions_of_widened_operands(
    name: str, dtype: str, step: float, known: bool
) -> None:
    builder, shape, kernel, attrs = CONVOLUTIONS[name]
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(numpy_dtype(dtype)) for s in (shape, kernel))
    data, free = (relay.var(n, shape=s, dtype=dtype) for n, s in (("x", shape), ("w", kernel)))
    weight = relay.const(from_numpy(w)) if known else free
    channels = kernel[name == "transposed"]
    made = builder(data, weight, channels=channels, kernel_size=kernel[2:], **attrs)
    inputs = (data,) if known else (data, free)
    assert 'dtype="float32"' in legalized(made, inputs, AVX512)
    want = made.op.record.reference(
        made.attrs.replace(out_dtype="float64"), x.astype("float64"), w.astype("float64"))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(
            tvm.IRModule.from_expr(relay.Function(inputs, made)), target="llvm -mcpu=native")
    got = run_built(lib, **({"x": x} if known else {"x": x, "w": w}))
    assert got.dtype == numpy_dtype(dtype)
    # where processors add up some products in float16, sums near 0 are less exact
    np.testing.assert_allclose(got.astype("float64"), want, rtol=2 * step, atol=0.06)


def test_a_factor_is_folded_into_weights_before_they_are_widened() -> None:
    x = relay.var("x", shape=(1, 8, 9, 9), dtype="float16")
    made = relay.nn.conv2d(x, relay.const(np.ones((8, 8, 3, 3), "float16")), channels=8,
                           kernel_size=(3, 3), padding=1)
    scaled = made * relay.const(np.full((8, 1, 1), 2, "float16"))
    mod = tvm.IRModule.from_expr(relay.Function((x,), scaled))
    target = tvm.target.Target(AVX512)
    with tvm.transform.PassContext(opt_level=3):
        made = tvm.transform.Sequential(passes(processor_of(target), target))(mod)
    assert "multiply" not in str(made) and "float32" in str(made)


@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("name, gates", [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_networks_pass_float32_between_steps(
    name: str, gates: int, dtype: str, step: float
) -> None:
    rng = np.random.default_rng(6)
    kind, shapes = numpy_dtype(dtype), ((5, 2, 7), (1, gates * 6, 7), (1, gates * 6, 6))
    x, w, r = (rng.standard_normal(shape).astype(kind) for shape in shapes)
    data = relay.var("x", shape=x.shape, dtype=dtype)
    build = getattr(relay.nn, name)
    made = build(data, relay.const(from_numpy(w)), relay.const(from_numpy(r)))
    first = made[0]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(
            tvm.IRModule.from_expr(relay.Function((data,), first)), target="llvm -mcpu=native")
    got = run_built(lib, x=x)
    record = first.tuple_value.op.record
    x64, w64, r64 = (each.astype("float64") for each in (x, w, r))
    want = record.reference(first.tuple_value.attrs, x64, [w64, r64])[0]
    assert got.dtype == kind and got.shape == want.shape
    np.testing.assert_allclose(got.astype("float64"), want, atol=2 * step)
