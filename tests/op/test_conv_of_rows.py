"""Convolutions along one and three axes, which run as those of images."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.op.dynamic import tensor_type
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import find, is_call_of
from tests.schedule.byte_layers import convolved, extremes

LAYERS: dict[str, Any] = {
    "border": ((1, 16, 21), (32, 16, 3), {"strides": 2, "padding": (1, 2)}),
    "dilated": ((2, 8, 13), (16, 8, 3), {"dilation": 2}),
    "depthwise": ((1, 32, 9), (32, 1, 3), {"groups": 32, "padding": 1}),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str) -> None:
    shape, kernel, attrs = LAYERS[kind]
    rng = np.random.default_rng(len(kind))
    x, w = extremes(rng, shape, "int8"), rng.integers(-40, 41, kernel).astype("int8")
    one = relay.const(1.0)
    made = relay.qnn.conv1d(
        relay.var("x", shape=shape, dtype="int8"), relay.const(w), relay.const(77), relay.const(0),
        one, one, kernel_size=kernel[2], channels=kernel[0], **attrs,
    )
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target="llvm")
    assert "conv1d" not in lib.get_graph_json()
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    padding = np.broadcast_to(attrs.get("padding", 0), 2)
    flat = {
        "strides": (1, attrs.get("strides", 1)), "dilation": attrs.get("dilation", 1),
        "padding": (0, int(padding[0]), 0, int(padding[1])), "groups": attrs.get("groups", 1),
    }
    want = convolved(x.astype("int64")[:, :, None] - 77, w.astype("int64")[:, :, None], flat)
    np.testing.assert_array_equal(module.get_output(0).numpy(), want[:, :, 0])


FLOATS: dict[str, Any] = {
    "rows": ((2, 9, 19), (11, 9, 3), {"strides": 2, "padding": (2, 1)}),
    "dilated rows": ((1, 8, 23), (8, 8, 3), {"dilation": 4, "padding": 4}),
    "grouped rows": ((1, 16, 9), (20, 8, 2), {"groups": 2}),
    "volumes": ((2, 6, 5, 6, 7), (17, 6, 3, 3, 2), {"padding": (1, 1, 0), "strides": (2, 1, 2)}),
    "dilated volumes": ((1, 8, 7, 5, 5), (16, 8, 2, 2, 2), {"dilation": (3, 1, 2)}),
    "along depth": (
        (1, 6, 5, 4, 3), (16, 6, 3, 1, 1), {"padding": (1, 0, 0), "strides": (2, 1, 1)},
    ),
    "images": ((2, 32, 3, 6, 6), (32, 16, 1, 3, 3), {"groups": 2, "padding": (0, 1, 1)}),
    "pixels": ((1, 16, 2, 3, 3), (16, 16, 1, 1, 1), {}),
    "grouped volumes": (
        (2, 12, 5, 6, 7), (36, 4, 3, 2, 3),
        {"groups": 3, "padding": (1, 0, 1), "strides": (2, 1, 1)},
    ),
    "grouped along depth": (
        (1, 16, 5, 4, 3), (32, 8, 3, 1, 1), {"groups": 2, "padding": (1, 0, 0)},
    ),
    "pixels apart": ((2, 16, 5, 7, 6), (16, 16, 1, 1, 1), {"strides": (2, 3, 2)}),
    "lines of pixels apart": ((1, 16, 5, 7, 6), (16, 16, 1, 3, 1), {
        "strides": (2, 1, 2), "padding": (0, 1, 0), "dilation": (5, 1, 3),
    }),
    "images of pixels apart": ((1, 12, 7, 7, 6), (24, 6, 3, 1, 1), {
        "strides": (2, 3, 3), "padding": (1, 0, 0), "groups": 2,
    }),
    "pixels apart beside a border": (
        (1, 16, 3, 7, 6), (16, 16, 1, 1, 1), {"strides": 2, "padding": (0, 1, 0)},
    ),
    "volumes of short rows": ((1, 6, 3, 4, 15), (8, 6, 2, 3, 3), {"padding": (0, 1, 1)}),
    "shallow volumes": ((2, 16, 2, 5, 6), (24, 16, 3, 3, 3), {"padding": 1}),
    "volumes of which the border is a good part": (
        (2, 16, 5, 4, 5), (24, 8, 3, 2, 3),
        {"groups": 2, "padding": (2, 0, 1, 1, 0, 1), "dilation": (2, 1, 1), "strides": (2, 1, 1)},
    ),
}
FEW: dict[str, Any] = {
    "rows": ((1, 4, 19), (6, 4, 3), {"strides": 2}),
    "volumes": ((1, 3, 5, 6, 7), (6, 3, 3, 3, 2), {"padding": (1, 1, 0)}),
    "volumes of long rows": ((1, 3, 2, 3, 16), (8, 3, 2, 2, 3), {}),
}


def defined(name: str, data: Any, weight: Any, attrs: dict[str, Any]) -> Any:
    """What a convolution is, by its own definition."""
    record = find(f"nn.{name}")
    assert record.attrs is not None and record.reference is not None
    return record.reference(record.attrs(**attrs), data, weight)


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("kind", FLOATS)
def test_floats(kind: str, is_free: bool) -> None:
    shape, kernel, attrs = FLOATS[kind]
    check_floats(shape, kernel, attrs, is_free, True)


@pytest.mark.parametrize("kind", FEW)
def test_few_channels_stay_as_they_lie(kind: str) -> None:
    shape, kernel, attrs = FEW[kind]
    check_floats(shape, kernel, attrs, False, False)


def check_floats(
    shape: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, Any], is_free: bool,
    becomes_images: bool,
) -> None:
    """A layer against its definition, and by which operator it runs."""
    rng = np.random.default_rng(len(shape))
    x, w = (rng.standard_normal(s).astype("float32") for s in (shape, kernel))
    name = f"conv{len(shape) - 2}d"
    made = relay.nn.relu(getattr(relay.nn, name)(
        relay.var("x", shape=shape), relay.var("w", shape=kernel) if is_free else relay.const(w),
        channels=kernel[0], kernel_size=kernel[2:], **attrs,
    ))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target="llvm")
    assert (name not in lib.get_graph_json()) == becomes_images
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x, **({"w": w} if is_free else {}))
    full = {"channels": kernel[0], "kernel_size": kernel[2:], **attrs}
    want = np.maximum(defined(name, x, w, full), 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("growth, depths", [(8, [32, 48, 32]), (2, [48])])
def test_volumes_fall_into_parts_by_the_images_that_they_read(
    growth: int, depths: list[int]
) -> None:
    """4 steps of windows of 3: the first and the last read two images, where weights may grow."""
    weight = relay.const(np.ones((24, 16, 3, 3, 3), "float32"))
    made = relay.nn.conv3d(relay.var("x", shape=(1, 16, 4, 5, 6)), weight, padding=1)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(made))
    with tvm.transform.PassContext(opt_level=3, config={"relay.Winograd.max_growth": growth}):
        module = relay.transform.InferType()(relay.transform.CanonicalizeOps()(module))
    found: list[int] = []

    def note(each: RelayExpr) -> None:
        if isinstance(each, Call) and is_call_of(each, "nn.conv2d"):
            found.append(tensor_type(each.args[0]).concrete_shape[1])

    relay.analysis.post_order_visit(module["main"], note)
    assert found == depths


def test_what_stands_between_rows_stays_with_their_images() -> None:
    x = relay.var("x", shape=(1, 8, 20))
    first, second = (relay.const(np.full((8, 8, 3), 0.1 * n, "float32")) for n in (1, 2))
    bias = relay.const(np.arange(8, dtype="float32").reshape(8, 1))
    between = relay.nn.relu(relay.add(relay.nn.conv1d(x, first, padding=1), bias))
    made = relay.add(relay.nn.conv1d(between, second, padding=1), between)
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(tvm.IRModule.from_expr(relay.nn.relu(made)), "llvm")[0])
    assert text.count("nn.conv2d") == 2
    assert text.count("expand_dims") <= 1


def test_rows_in_a_row_compute_what_they_are() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 8, 20)).astype("float32")
    weights = [rng.standard_normal((8, 8, 3)).astype("float32") for _ in range(2)]
    bias = rng.standard_normal((8, 1)).astype("float32")
    between = np.maximum(defined("conv1d", x, weights[0], {"padding": 1}) + bias, 0)
    want = defined("conv1d", between, weights[1], {"padding": 1}) + between
    row = relay.var("x", shape=x.shape)
    inner = relay.nn.relu(
        relay.add(relay.nn.conv1d(row, relay.const(weights[0]), padding=1), relay.const(bias))
    )
    made = relay.add(relay.nn.conv1d(inner, relay.const(weights[1]), padding=1), inner)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target="llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


# By image, kernel and attributes.
COLUMNS: dict[str, Any] = {
    "border": ((2, 21, 1, 8), (3, 1, 8, 16), {"strides": (2, 1), "padding": (1, 0, 2, 0)}),
    "dilated": ((1, 13, 1, 8), (3, 1, 8, 16), {"dilation": (2, 1)}),
    "depthwise": ((1, 30, 1, 40), (5, 1, 40, 1), {"groups": 40, "kernel_layout": "HWOI"}),
    "outputs first": ((1, 20, 1, 8), (16, 8, 3, 1), {"kernel_layout": "OIHW"}),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_single_column_is_a_line(kind: str) -> None:
    shape, kernel, attrs = COLUMNS[kind]
    rng = np.random.default_rng(len(kind))
    x, w = rng.standard_normal(shape).astype("float32"), rng.standard_normal(kernel).astype("f")
    own = {"data_layout": "NHWC", "kernel_layout": "HWIO", **attrs}
    first = own["kernel_layout"].index("H")
    own["kernel_size"] = kernel[first : first + 2]
    own["channels"] = kernel[own["kernel_layout"].index("O")]
    made = relay.nn.conv2d(relay.var("x", shape=shape), relay.const(w), **own)
    reference = find("nn.conv2d").reference
    assert reference is not None
    want = reference(made.attrs, x, w)
    canonicalize = find("nn.conv2d").canonicalize
    assert canonicalize is not None
    simpler: Any = canonicalize(made.attrs, made.args)
    assert simpler.args[0].attrs.kernel_size == (1, kernel[first])
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.nn.relu(made)), target="llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    np.testing.assert_allclose(
        module.get_output(0).numpy(), np.maximum(want, 0), rtol=1e-4, atol=1e-4)


def test_bytes_of_a_column_become_a_line_when_their_channels_are_last() -> None:
    """Importers have the channels first; layouts are chosen later."""
    rng = np.random.default_rng(4)
    w = rng.integers(-9, 9, (32, 16, 5, 1)).astype("int8")
    x = relay.var("x", shape=(1, 16, 40, 1), dtype="uint8")
    made = relay.nn.conv2d(x, relay.const(w), kernel_size=(5, 1), channels=32, out_dtype="int32")
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(
            tvm.IRModule.from_expr(made), target="llvm -mcpu=cascadelake")
    assert "1, 1, 36, 32" in str(mod), str(mod)


@pytest.mark.parametrize("changed", [{"padding": (0, 1, 0, 1)}, {"data_layout": "NCHW"}, {}])
def test_what_stays_an_image(changed: dict[str, Any]) -> None:
    first = changed.get("data_layout") == "NCHW"
    kernel = (3, 1, 4, 4) if changed else (3, 2, 4, 4)
    x = relay.var("x", shape=(1, 4, 8, 1) if first else (1, 8, 1 if changed else 2, 4))
    made = relay.nn.conv2d(x, relay.const(np.ones(kernel, "float32")), **{
        "data_layout": "NHWC", "kernel_layout": "HWIO", "kernel_size": kernel[:2], "channels": 4,
        **changed})
    tvm.IRModule.from_expr(made)
    canonicalize = find("nn.conv2d").canonicalize
    assert canonicalize is not None and canonicalize(made.attrs, made.args) is None
