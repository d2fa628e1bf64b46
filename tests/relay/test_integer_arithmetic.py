"""Quantised graphs in integers: against NumPy, whatever the shapes, signs, scales and borders."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.relay import transform
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret
from tests.schedule.byte_layers import convolved, extremes


def rewritten(expr: relay.Expr) -> relay.Function:
    """The graph after the pass."""
    passes = [transform.InferType(), transform.IntegerArithmetic(), transform.InferType()]
    with tvm.transform.PassContext(opt_level=3):
        mod = tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(expr))
    made: relay.Function = mod["main"]
    return made


def number(value: object, dtype: str) -> relay.Expr:
    return relay.const(np.asarray(value, dtype))


@settings(max_examples=30)
@given(st.data())
def test_convolutions_are_exact_sums_rounded_once(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    groups, inputs, outputs = (draw(st.integers(1, 3)) for _ in range(3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(2))
    shape = (1, groups * inputs, draw(st.integers(5, 7)), draw(st.integers(5, 7)))
    pads = tuple(draw(st.integers(0, 2)) for _ in range(4))
    attrs = {"groups": groups, "padding": pads, "dilation": draw(st.integers(1, 2)),
             "strides": (draw(st.integers(1, 2)), draw(st.integers(1, 2)))}
    kind, out = draw(st.sampled_from(["int8", "uint8"])), draw(st.sampled_from(["int8", "uint8"]))
    ends, own = np.iinfo(kind), np.iinfo(out)
    zero, out_zero = draw(st.integers(ends.min, ends.max)), draw(st.integers(own.min, own.max))
    x = extremes(rng, shape, kind)
    w = extremes(rng, (groups * outputs, inputs, *window), "int8")
    bias = rng.integers(-(1 << 15), 1 << 15, len(w)).astype("int32")
    scale, out_scale = np.float32(rng.uniform(0.01, 0.1)), np.float32(rng.uniform(0.1, 20))
    scales = rng.uniform(0.01, 0.1, len(w) if draw(st.booleans()) else ()).astype("float32")
    bounded = draw(st.booleans())

    var = relay.var("x", shape=shape, dtype=kind)
    real = relay.qnn.dequantize(var, number(scale, "float32"), number(zero, kind))
    weight = relay.qnn.dequantize(relay.const(w), relay.const(scales), relay.const(0), axis=0)
    made = relay.nn.conv2d(real, weight, channels=len(w), kernel_size=window, **attrs)
    added = relay.qnn.dequantize(relay.const(bias), relay.const(scale * scales), relay.const(0),
                                 axis=0)
    made = relay.nn.bias_add(made, added)
    made = relay.clip(made, 0.0, 6.0) if bounded else made
    made = relay.qnn.quantize(made, number(out_scale, "float32"), number(out_zero, out),
                              out_dtype=out, rounding="TO_EVEN")
    func = rewritten(made)
    text = str(func)
    assert "qnn.conv2d" in text and "qnn.dequantize" not in text and "qnn.quantize" not in text

    total = convolved(x.astype("int64") - zero, w.astype("int64"), attrs)
    total += bias.reshape(-1, 1, 1)
    ratio = (scale * scales / out_scale).astype("float32")
    ratio = ratio.reshape(-1, 1, 1) if ratio.ndim else ratio
    want = np.clip(np.rint(total.astype("float32") * ratio) + out_zero, own.min, own.max)
    if bounded:
        low, high = (np.clip(np.rint(np.float32(b) / out_scale) + out_zero, own.min, own.max)
                     for b in (0, 6))
        want = np.clip(want, low, high)
    found: Array = interpret(func, x)
    np.testing.assert_array_equal(found, want.astype(out))


def test_sums_that_might_not_fit_stay_floats() -> None:
    depth = 1 << 16
    x = relay.var("x", shape=(1, depth), dtype="uint8")
    w = relay.const(np.full((1, depth), -128, "int8"))
    one, zero = relay.const(1.0), relay.const(0)
    made = relay.nn.dense(relay.qnn.dequantize(x, one, zero), relay.qnn.dequantize(w, one, zero))
    assert "qnn.dense" not in str(rewritten(made))


def test_elements_at_indices_are_taken_as_integers() -> None:
    x = relay.var("x", shape=(2, 3, 4), dtype="uint8")
    scale, zero = number(0.5, "float32"), number(3, "int32")
    real = relay.take(relay.qnn.dequantize(x, scale, zero), number([2, 0], "int64"), axis=1)
    made = rewritten(relay.qnn.quantize(real, scale, zero, out_dtype="uint8", rounding="TO_EVEN"))
    assert "qnn" not in str(made) and "take" in str(made)
    given_numbers = np.arange(24, dtype="uint8").reshape(2, 3, 4)
    found = interpret(made, given_numbers)
    assert np.array_equal(np.asarray(found), given_numbers[:, [2, 0]])


def test_the_nearest_pixels_are_those_of_integers() -> None:
    """Those between pixels are rounded once, as floats are."""
    x = relay.var("x", shape=(1, 2, 3, 5), dtype="uint8")
    scale, zero = number(0.5, "float32"), number(3, "int32")
    for method, is_moved in (("nearest_neighbor", True), ("linear", False)):
        real = relay.image.resize2d(
            relay.qnn.dequantize(x, scale, zero), (6, 10), method=method,
            coordinate_transformation_mode="asymmetric",
        )
        wanted = relay.qnn.quantize(real, scale, zero, out_dtype="uint8", rounding="TO_EVEN")
        made = rewritten(wanted)
        assert ("qnn" not in str(made)) == is_moved
        given_numbers = np.arange(30, dtype="uint8").reshape(1, 2, 3, 5)
        func = relay.Function((x,), wanted)
        found, want = (np.asarray(interpret(each, given_numbers)) for each in (made, func))
        assert np.array_equal(found, want)


def test_unknown_schemes_stay_floats() -> None:
    x, scale = relay.var("x", shape=(2, 8), dtype="uint8"), relay.var("s", shape=())
    w = relay.qnn.dequantize(relay.const(np.ones((4, 8), "int8")), relay.const(0.1), relay.const(0))
    made = relay.nn.dense(relay.qnn.dequantize(x, scale, relay.const(0)), w)
    assert "qnn.dense" not in str(rewritten(made))


def test_numbers_that_several_read_are_integers_for_those_that_can() -> None:
    x = relay.var("x", shape=(2, 8), dtype="uint8")
    real = relay.qnn.dequantize(x, relay.const(0.1), relay.const(0))
    w = relay.qnn.dequantize(relay.const(np.ones((8, 8), "int8")), relay.const(0.1), relay.const(0))
    text = str(rewritten(relay.add(relay.nn.dense(real, w), relay.exp(real))))
    assert "qnn.dense" in text and text.count("qnn.dequantize") == 2


def test_integers_come_from_where_floats_came_from() -> None:
    data = relay.var("x", shape=(2, 4), dtype="int8")
    scale, zero = number(0.1, "float32"), number(3, "int8")
    weights = relay.qnn.dequantize(number(np.ones((5, 4)), "int8"), scale, number(0, "int8"))
    layer = relay.nn.dense(relay.qnn.dequantize(data, scale, zero), weights)
    layer.span = "the layer"
    made = rewritten(relay.qnn.quantize(layer, number(2.0, "float32"), zero))
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(made, found.append)
    assert "the layer" in {expr.span for expr in found if "dense" in str(getattr(expr, "op", ""))}


def test_products_of_bytes_are_rounded_before_and_after_their_zero_point() -> None:
    a, b = relay.var("a", shape=(256, 1), dtype="uint8"), relay.var("b", shape=(256,), dtype="int8")
    real = [relay.qnn.dequantize(each, number(scale, "float32"), number(zero, kind))
            for each, kind, scale, zero in ((a, "uint8", 0.02, 128), (b, "int8", 0.37, -3))]
    values = np.arange(256, dtype="uint8")[:, None], np.arange(-128, 128, dtype="int8")
    whole = (values[0].astype("int32") - 128) * (values[1].astype("int32") + 3)
    for own in (0.0037, 1e-30):
        out = relay.qnn.quantize(relay.multiply(*real), number(own, "float32"), number(77, "uint8"),
                                 out_dtype="uint8", rounding="TO_EVEN")
        scaled = whole.astype("float32") * (np.float32(0.02) * np.float32(0.37) / np.float32(own))
        wanted = np.clip(np.rint(scaled + np.float32(77)), 0, 255).astype("uint8")
        mod = tvm.IRModule.from_expr(relay.Function((a, b), out))
        with tvm.transform.PassContext(opt_level=3):
            got = relay.create_executor("graph", mod).evaluate()(*values).numpy()
        np.testing.assert_array_equal(got, wanted)


def test_by_its_classic_name() -> None:
    x = relay.var("x", shape=(1, 4), dtype="int8")
    scale, zero = number(0.5, "float32"), number(0, "int32")
    wide = relay.qnn.op.dequantize(x, scale, zero)
    weight = relay.qnn.op.dequantize(number(np.eye(3, 4), "int8"), scale, zero)
    made = relay.qnn.op.quantize(relay.nn.dense(wide, weight), scale, zero)
    mod = transform.InferType()(tvm.IRModule.from_expr(made))
    whole = transform.FakeQuantizationToInteger()(mod)
    assert "qnn.dense" in str(whole) and "qnn.dequantize" not in str(whole)
    with pytest.raises(ValueError, match="knows no hard_fail"):
        transform.FakeQuantizationToInteger(hard_fail=True)
