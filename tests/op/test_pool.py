"""Pooling: references against torch, layouts, types, messages."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType
from sterna.relay.interpreter import interpret
from sterna.relay.layout import layout_of, transform
from tests.micro.networks import build
from tests.op.torch_support import functional, reference, tensor
from tests.schedule.implemented import run_built


def draw(rng: np.random.Generator, rank: int) -> tuple[np.ndarray, dict[str, Any]]:
    window = rng.integers(2, 5, rank)
    attrs = {
        "pool_size": tuple(window.tolist()),
        "strides": tuple(rng.integers(1, 4, rank).tolist()),
        "padding": tuple(int(rng.integers(0, k // 2 + 1)) for k in window),
        "ceil_mode": bool(rng.integers(0, 2)),
    }
    return rng.standard_normal((2, 3, *rng.integers(7, 11, rank))), attrs


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("channels", [3, 5, 12, 16])
@pytest.mark.parametrize("cpu", ["cortex-m4", "cortex-m55"])
def test_sources_keep_windows_of_bytes_in_registers(kind: str, channels: int, cpu: str) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (1, 9, 8, channels)).astype("int8")
    attrs = {"count_include_pad": False, "rounds": True} if kind == "avg" else {}
    made = getattr(relay.nn, f"{kind}_pool2d")(
        relay.var("x", shape=x.shape, dtype="int8"), pool_size=(3, 2), strides=(2, 1),
        padding=(1, 0, 1, 1), layout="NHWC", **attrs)
    mod = tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(made)), made))
    program = build(mod, f"c -mcpu={cpu}")
    assert program.memory_report().workspace_bytes < 64 * 4
    found = run_built(relay.build(mod, target=f"c -mcpu={cpu}"), x=x)
    np.testing.assert_array_equal(found, interpret(mod["main"], x))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool_is_torchs(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(12):
        x, attrs = draw(rng, rank)
        attrs["dilation"] = tuple(rng.integers(1, 3, rank).tolist())
        want, where = getattr(functional(), f"max_pool{rank}d")(
            tensor(x), attrs["pool_size"], attrs["strides"], attrs["padding"], attrs["dilation"],
            attrs["ceil_mode"], return_indices=True,
        )
        np.testing.assert_array_equal(reference(f"nn.max_pool{rank}d", x, **attrs), want.numpy())
        values, places = reference(f"nn.max_pool{rank}d_with_indices", x, **attrs)
        np.testing.assert_array_equal(values, want.numpy())
        np.testing.assert_array_equal(places % np.prod(x.shape[2:]), where.numpy())
        np.testing.assert_array_equal(x.ravel()[places], values)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_avg_pool_is_torchs(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(12):
        x, attrs = draw(rng, rank)
        attrs["count_include_pad"] = bool(rng.integers(0, 2))
        want = getattr(functional(), f"avg_pool{rank}d")(
            tensor(x), attrs["pool_size"], attrs["strides"], attrs["padding"],
            attrs["ceil_mode"], attrs["count_include_pad"],
        )
        np.testing.assert_allclose(reference(f"nn.avg_pool{rank}d", x, **attrs), want.numpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_pools_are_torchs(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(6):
        x = rng.standard_normal((2, 3, *rng.integers(1, 8, rank)))
        size = tuple(rng.integers(1, 9, rank).tolist())
        for kind in ("max", "avg"):
            want = getattr(functional(), f"adaptive_{kind}_pool{rank}d")(tensor(x), size)
            got = reference(f"nn.adaptive_{kind}_pool{rank}d", x, output_size=size)
            np.testing.assert_allclose(got, want.numpy())


def test_global_pools() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 3))
    attrs = {"layout": "NHWC"}
    np.testing.assert_array_equal(
        reference("nn.global_max_pool2d", x, **attrs), x.max((1, 2), keepdims=True)
    )
    np.testing.assert_allclose(
        reference("nn.global_avg_pool2d", x, **attrs), x.mean((1, 2), keepdims=True)
    )
    np.testing.assert_allclose(
        reference("nn.global_lp_pool2d", x, p=3, **attrs),
        (np.abs(x) ** 3).sum((1, 2), keepdims=True) ** (1 / 3),
    )


@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d", "nn.lp_pool2d"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW4c", "NHWC2c"])
def test_layouts_say_the_same(name: str, layout: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8, 7, 6))
    attrs: dict[str, Any] = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 2, 1)}
    given = transform(x, layout_of("NCHW"), layout_of(layout))
    got = reference(name, given, layout=layout, out_layout="NCHW", **attrs)
    np.testing.assert_array_equal(got, reference(name, x, **attrs))


def pools_of(body: relay.RelayExpr) -> list[Any]:
    """The windows that are left after operators became others for this machine."""
    mod = tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(body)), body))
    made = relay.transform.Legalize(tvm.target.Target("llvm -mcpu=native"))(mod)["main"].body
    calls: list[Any] = []
    relay.analysis.post_order_visit(
        made, lambda e: calls.append(e) if isinstance(e, relay.Call) else None)
    return [list(c.attrs.pool_size) for c in calls if "pool2d" in c.op.name]


def test_windows_that_move_by_steps_go_axis_by_axis() -> None:
    """Where vectors lie along rows; behind a convolution they will lie along its channels."""
    x, w = relay.var("x", shape=(1, 16, 30, 30)), relay.var("w", shape=(16, 16, 3, 3))
    attrs: dict[str, Any] = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}
    assert pools_of(relay.nn.max_pool2d(x, **attrs)) == [[3, 1], [1, 3]]
    assert pools_of(relay.nn.avg_pool2d(x, **attrs)) == [[3, 3]]
    assert pools_of(relay.nn.avg_pool2d(x, pool_size=(5, 5), strides=(2, 2))) == [[5, 1], [1, 5]]
    assert pools_of(relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))) == [[2, 2]]
    assert pools_of(relay.nn.max_pool2d(x, pool_size=(3, 3))) == [[3, 3]]
    behind = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    assert pools_of(relay.nn.max_pool2d(behind, **attrs)) == [[3, 3]]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("kind,size", [("max", 3), ("max", 5), ("avg", 5)])
def test_axis_by_axis_gives_the_same(kind: str, size: int, ceil_mode: bool) -> None:
    data = np.random.default_rng(size).standard_normal((2, 3, 27, 30)).astype("float32")
    data[0, 1, 5, 7] = np.nan
    attrs: dict[str, Any] = {
        "pool_size": (size, size), "strides": (2, 2), "padding": (1, 0, 2, 1),
        "ceil_mode": ceil_mode,
    }
    x = relay.var("x", shape=data.shape)
    made = getattr(relay.nn, f"{kind}_pool2d")(x, **attrs)
    assert len(pools_of(made)) == 2
    got = tvm.compile(relay.Function((x,), made))(data)
    want = reference(f"nn.{kind}_pool2d", data, **attrs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_unpooling_undoes_pooling() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal((2, 3, 6, 6)))
    values, places = reference("nn.max_pool2d_with_indices", x, pool_size=2, strides=2)
    back = reference("nn.max_unpool", values, places, output_shape=x.shape)
    want = functional().max_unpool2d(tensor(values), tensor(places % 36), 2).numpy()
    np.testing.assert_array_equal(back, want)


def test_places_counted_by_columns() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    attrs: dict[str, Any] = {"pool_size": (3, 4)}
    assert reference("nn.max_pool2d_with_indices", x, **attrs)[1].item() == 11
    x[0, 0, 1, 3] = 99
    by_columns = reference("nn.max_pool2d_with_indices", x, storage_order=1, **attrs)[1]
    assert by_columns.item() == 1 + 3 * 3


def test_extents_that_only_the_run_knows() -> None:
    x = relay.var("x", shape=(relay.Any(), 3, relay.Any(), 8))
    pooled = relay.nn.max_pool2d(x, pool_size=2, strides=2, ceil_mode=True)
    assert pooled.checked_type == TensorType((relay.Any(), 3, relay.Any(), 4))
    assert relay.nn.global_avg_pool2d(x).checked_type == TensorType((relay.Any(), 3, 1, 1))
    shares = relay.nn.adaptive_avg_pool2d(x, output_size=(2, None))
    assert shares.checked_type == TensorType((relay.Any(), 3, 2, 8))


def test_a_call_with_indices_gives_two_values() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    values, places = relay.nn.max_pool2d_with_indices(x, pool_size=2)
    assert values.checked_type == TensorType((1, 3, 7, 7))
    assert str(places.checked_type) == "Tensor[(1, 3, 7, 7), int64]"


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [
        ("max_pool2d", {"pool_size": 0}, r"pool_size is at least 1, not \(0, 0\)"),
        ("max_pool2d", {"pool_size": 9}, "a window that reaches over 9 elements does not fit"),
        ("max_pool2d", {"layout": "NCW"}, "layout 'NCW' must have the axes N, C, H, W"),
        ("lp_pool2d", {"p": 0}, r"p is at least 1, not \(0,\)"),
        ("adaptive_avg_pool2d", {"output_size": (1, 2, 3)}, "output_size is a number or 2 of"),
        ("adaptive_avg_pool2d", {"output_size": 0}, "output_size is at least 1"),
        ("max_pool2d_with_indices", {"layout": "NHWC"}, "counted in the layout NCHW, not in NHWC"),
        ("max_pool2d_with_indices", {"storage_order": 2}, "storage_order is 0 or 1, not 2"),
    ],
)
def test_mistakes(name: str, attrs: dict[str, Any], message: str) -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    with pytest.raises(ValueError, match=message):
        getattr(relay.nn, name)(x, **attrs)


@pytest.mark.parametrize("name", ["max", "avg"])
def test_gradients_are_torchs(name: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(8):
        x, attrs = draw(rng, 2)
        given = [attrs["pool_size"], attrs["strides"], attrs["padding"]]
        leaf = tensor(x).requires_grad_()
        if name == "avg":
            attrs["count_include_pad"] = bool(rng.integers(0, 2))
            made = functional().avg_pool2d(leaf, *given, attrs["ceil_mode"],
                                           attrs["count_include_pad"])
        else:
            made = functional().max_pool2d(leaf, *given, ceil_mode=attrs["ceil_mode"])
        worth = rng.standard_normal(tuple(made.shape))
        made.backward(tensor(worth))
        got = reference(f"nn.{name}_pool2d_grad", worth, x, **attrs)
        np.testing.assert_allclose(got, leaf.grad.numpy(), atol=1e-12)


def test_gradients_fit_their_pooling() -> None:
    x, worth = relay.var("x", shape=(1, 2, 6, 6)), relay.var("g", shape=(1, 2, 6, 6))
    with pytest.raises(ValueError, match=r"extent of out_grad.*is 3, not 6"):
        relay.nn.max_pool2d_grad(worth, x, pool_size=(2, 2), strides=(2, 2))


LARGE: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 3, 20, 23), {"pool_size": (7, 7)}),
    "border": ((1, 3, 20, 23), {"pool_size": (9, 7), "padding": (4, 3)}),
    "border counts": ((1, 2, 18, 9), {"pool_size": (7, 7), "padding": (3, 1, 2, 3),
                                      "count_include_pad": True}),
    "sticks out": ((1, 2, 19, 21), {"pool_size": (9, 9), "strides": (2, 2), "ceil_mode": True}),
    "dilated": ((1, 2, 30, 27), {"pool_size": (6, 7), "dilation": (2, 3), "padding": (3, 2)}),
    "channels last": ((1, 15, 17, 5), {"pool_size": (7, 8), "layout": "NHWC"}),
    "volume": ((1, 2, 8, 14, 15), {"pool_size": (2, 7, 7)}),
}


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("shape, attrs", LARGE.values(), ids=LARGE.keys())
def test_large_windows_go_axis_by_axis(
    kind: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    own = {key: value for key, value in attrs.items() if kind == "avg" or "count" not in key}
    x = relay.var("x", shape=shape)
    pooled = getattr(relay.nn, f"{kind}_pool{len(shape) - 2}d")(x, **own)
    module = tvm.IRModule.from_expr(relay.Function((x,), pooled))
    given = np.random.default_rng(0).standard_normal(shape).astype("float32")
    want = interpret(module["main"], given)
    made = relay.transform.InferType()(module)
    made = relay.transform.Legalize(tvm.target.Target("llvm"))(made)
    assert str(made).count("_pool") == len(shape) - 2
    executor = relay.create_executor("graph", mod=module, target="llvm")
    np.testing.assert_allclose(executor.evaluate()(given).numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("shape, layout", [((2, 8, 7, 5), "NCHW"), ((1, 7, 5, 12), "NHWC"),
                                           ((1, 2, 7, 5, 4), "NCHW4c"), ((1, 3, 4), "NCW")])
def test_a_window_as_large_as_the_image_stays_whole(
    shape: tuple[int, ...], layout: str, kind: str
) -> None:
    data, rank = relay.var("x", shape=shape), 1 if layout == "NCW" else 2
    pool = getattr(relay.nn, f"{kind}_pool{rank}d")
    func = relay.Function((data,), pool(data, (7, 5) if rank > 1 else (4,), layout=layout))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    text = str(relay.transform.Legalize(tvm.target.Target("llvm"))(module))
    assert text.count("_pool") == text.count(f"nn.global_{kind}_pool{rank}d") == 1
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    made = relay.create_executor("graph", module).evaluate()(x).numpy()
    np.testing.assert_allclose(made, interpret(func, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("channels", [4, 7, 24, 40, 64])
def test_windows_of_channels_that_fill_no_vector(channels: int, kind: str) -> None:
    rng = np.random.default_rng(channels)
    for dtype in ("float32", "uint8"):
        x = rng.integers(0, 256, (2, 9, 8, channels)).astype(dtype)
        attrs = {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0), "layout": "NHWC"}
        data = relay.var("x", shape=x.shape, dtype=dtype)
        made = getattr(relay.nn, f"{kind}_pool2d")(data, **attrs)
        for last in (made, relay.nn.relu(relay.add(made, relay.const(3, dtype)))):
            func = relay.Function((data,), last)
            run = relay.create_executor("graph", tvm.IRModule.from_expr(func)).evaluate()
            np.testing.assert_allclose(run(x).numpy(), interpret(func, x), rtol=1e-6)


def test_floats_are_pooled_before_they_become_bytes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 2, (1, 8, 12, 12)).astype("float32")
    bias = rng.normal(0, 1, 8).astype("float32")
    data = relay.var("x", shape=x.shape)
    scale, zero = relay.const(0.013, "float32"), relay.const(5, "uint8")
    shifted = relay.nn.relu(relay.nn.bias_add(data, relay.const(bias)))
    bytes_ = relay.qnn.op.quantize(shifted, scale, zero, out_dtype="uint8")
    for strides, is_first in (((2, 2), True), ((1, 1), False)):
        func = relay.Function((data,), relay.nn.max_pool2d(bytes_, (3, 3), strides, padding=(1, 1)))
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
        made = relay.transform.SimplifyExpr()(mod)["main"]
        assert (made.body.op.name == "qnn.quantize") is is_first
        np.testing.assert_array_equal(interpret(made, x), interpret(func, x))


@pytest.mark.parametrize(("attrs", "is_first"), [
    ({"strides": (2, 2)}, True), ({"strides": (2, 2), "padding": (1, 1)}, True),
    ({"strides": (1, 1)}, False),  # nearly as many are left
    ({"strides": (2, 2), "padding": (1, 1), "ceil_mode": True}, False),  # windows of border alone
])
def test_sums_are_pooled_before_they_become_bytes(attrs: dict[str, Any], is_first: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-20000, 20000, (1, 8, 12, 12)).astype("int32")
    data = relay.var("x", shape=x.shape, dtype="int32")
    scales = relay.const(rng.uniform(0.001, 0.01, 8).astype("float32"))
    bytes_ = relay.qnn.op.requantize(
        data, scales, relay.const(0), relay.const(np.float32(0.5)), relay.const(7), axis=1,
        rounding="TONEAREST_EVEN", compute_dtype="float32", out_dtype="uint8")
    func = relay.Function((data,), relay.nn.max_pool2d(bytes_, (3, 3), **attrs))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(func))
    made = relay.transform.Legalize(tvm.target.Target("llvm"))(mod)["main"]
    assert (made.body.op.name == "qnn.requantize") is is_first
    np.testing.assert_array_equal(interpret(made, x), interpret(func, x))
    for_boards = relay.transform.Legalize(tvm.target.Target("c"))(mod)["main"]
    assert for_boards.body.op.name == "nn.max_pool2d"
