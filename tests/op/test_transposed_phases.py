"""Transposed convolutions by convolutions, held against their definition."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.op.nn._transposed_phases import by_phases
from sterna.relay.interpreter import interpret
from sterna.relay.op import find
from sterna.relay.passes.legalize import Legalize
from sterna.schedule.choose import answering

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = [
    ((1, 8, 6, 7), (8, 16, 2, 2), {"strides": 2}, True),
    ((2, 3, 5, 4), (3, 5, 4, 4), {"strides": 2, "padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 5, 3), {"strides": 3, "padding": (1, 0, 2, 1)}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 2, 3), {"strides": 4}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": (2, 1)}, True),
    ((2, 4, 7), (4, 3, 5), {"strides": 3, "padding": (1, 2), "output_padding": 1}, True),
    ((1, 3, 3, 4, 5), (3, 2, 2, 3, 2), {"strides": (1, 2, 2), "padding": (0, 1, 0)}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": 2, "padding": 4}, False),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": 2, "groups": 2}, True),
    ((2, 6, 5, 4), (6, 3, 4, 4), {"strides": (2, 3), "padding": 1, "groups": 3}, True),
    ((1, 4, 7), (4, 2, 3), {"strides": 2, "groups": 4}, True),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": 2, "dilation": 2}, True),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"dilation": (2, 3), "padding": (1, 2, 0, 1)}, True),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": (1, 3), "dilation": 2, "output_padding": (0, 2),
                                  "groups": 2}, True),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": (1, 2), "dilation": (3, 1), "padding": 1}, True),
    ((1, 2, 9), (2, 2, 3), {"strides": 4, "dilation": 6, "padding": (1, 2)}, True),
    ((2, 4, 5, 6), (4, 8, 1, 1), {"strides": 2}, True),
    ((1, 4, 5, 6), (4, 3, 2, 1), {"strides": 3, "padding": (1, 0), "output_padding": 2}, True),
    ((1, 4, 3, 4, 5), (4, 2, 1, 2, 3), {"strides": 2, "output_padding": (1, 0, 1)}, True),
]
GPU = "cuda -arch=sm_90a"
APART = (1, 2, 3, 5, 7, 8, 16, 18, 19, 20)


@pytest.mark.parametrize(("shape", "window", "attrs", "replaced", "phases"), [
    *((*case, "together") for case in CASES), *((*CASES[n], "apart") for n in APART),
])
def test_they_compute_what_they_are(
    shape: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, Any], replaced: bool,
    phases: str,
) -> None:
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, window))
    x = relay.var("x", shape=shape)
    full = {"strides": 1, "padding": 0, **attrs}
    name = f"conv{len(shape) - 2}d_transpose"
    body = relay.nn.relu(getattr(relay.nn, name)(x, relay.const(weight), **full))
    mod = tvm.IRModule.from_expr(relay.Function((x,), body))
    with tvm.transform.PassContext(opt_level=3), answering({"phases": phases}):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    assert (f"nn.{name}" in text) != replaced
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    record = find(f"nn.{name}")
    assert record.attrs is not None and record.reference is not None
    want = np.maximum(record.reference(record.attrs(**full), data, weight), 0)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", [
    "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu",
    "llvm -mcpu=icelake-server -mtriple=x86_64-linux-gnu",
    "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu",
])
@pytest.mark.parametrize(("outputs", "width", "stride", "padding", "convolutions"), [
    (128, 3, 2, 1, 4),  # sixteen places together, of which nine are there
    (128, 2, 2, 0, 1),
    (128, 1, 2, 0, 1),  # of four places three are not there
    (3, 4, 2, 1, 1),  # which fill no vectors one by one
    (21, 16, 8, 4, 1),  # of 64 phases each result would be looked for
])
def test_phases_are_apart_where_that_saves_products(
    target: str, outputs: int, width: int, stride: int, padding: int, convolutions: int
) -> None:
    x = relay.var("x", shape=(1, 128, 16, 16))
    weight = relay.const(np.ones((128, outputs, width, width), "float32"))
    body = relay.nn.conv2d_transpose(x, weight, strides=stride, padding=padding)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function((x,), body)))
    made = str(Legalize(tvm.target.Target(target))(mod))
    assert ("zeros(" in made) == (width < stride)
    assert made.count("nn.conv2d(") == convolutions and "nn.conv2d_transpose" not in made


@pytest.mark.parametrize(("shape", "window", "attrs"), [
    ((1, 24, 3, 4), (24, 5, 4, 3), {"strides": 2, "padding": (1, 0, 2, 1), "output_padding": 1}),
    ((2, 40, 7), (40, 3, 5), {"strides": 3, "padding": (1, 2)}),
])
def test_free_weights_of_few_pixels_stay_as_they_lie(
    shape: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, window))
    x, w = relay.var("x", shape=shape), relay.var("w", shape=window)
    name = f"conv{len(shape) - 2}d_transpose"
    mod = tvm.IRModule.from_expr(relay.Function((x, w), getattr(relay.nn, name)(x, w, **attrs)))
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    assert "nn.col2im" in text and "nn.conv" not in text
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data, w=weight)
    record = find(f"nn.{name}")
    assert record.attrs is not None and record.reference is not None
    want = record.reference(record.attrs(**attrs), data, weight)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gpus_have_them_by_phases_in_both_layouts(layout: str, dtype: str) -> None:
    shape = (2, 4, 5, 6) if layout == "NCHW" else (2, 5, 6, 4)
    x, w = relay.var("x", shape=shape, dtype=dtype), relay.var("w", shape=(4, 3, 4, 4), dtype=dtype)
    plain = relay.nn.conv2d_transpose(
        x, w, strides=2, padding=1, data_layout=layout, out_dtype="float32")
    made = by_phases(plain.attrs, plain.args, tvm.target.Target(GPU))
    assert made is not None
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(kind) for s in (shape, (4, 3, 4, 4))]
    want, have = (interpret(relay.Function((x, w), body), *given) for body in (plain, made))
    tolerance = 1e-5 if dtype == "float32" else 4e-2
    np.testing.assert_allclose(
        np.asarray(have, "float32"), np.asarray(want, "float32"), rtol=tolerance, atol=tolerance)


def test_depthwise_ones_stay_on_gpus() -> None:
    x, w = relay.var("x", shape=(1, 4, 5, 6)), relay.var("w", shape=(4, 1, 4, 4))
    plain = relay.nn.conv2d_transpose(x, w, strides=2, groups=4)
    assert by_phases(plain.attrs, plain.args, tvm.target.Target(GPU)) is None


@pytest.mark.parametrize(("shape", "window"), [
    ((0, 4, 3, 5), (4, 2, 1, 3)), ((7, 0, 3, 5), (0, 2, 1, 3)), ((2, 4, 3, 5), (4, 0, 1, 3)),
], ids=["pictures", "channels", "results"])
@pytest.mark.parametrize("is_known", [False, True])
def test_nothing_is_convolved(
    shape: tuple[int, ...], window: tuple[int, ...], is_known: bool
) -> None:
    x, w = np.ones(shape, "float32"), np.ones(window, "float32")
    data, weight = relay.var("x", shape=shape), relay.var("w", shape=window)
    given = relay.const(w) if is_known else weight
    body = relay.nn.conv2d_transpose(data, given, strides=(1, 2), padding=(0, 1))
    function = relay.Function((data,) if is_known else (data, weight), body)
    run = tvm.compile(function, target="llvm -opt-level=0")
    got = np.asarray(run(x) if is_known else run(x, w))
    np.testing.assert_array_equal(got, np.zeros((shape[0], window[1], 3, 9), "float32"))
