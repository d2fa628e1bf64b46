"""ConvertLayout and AlterOpLayout: how far layouts are carried, and equal values."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import pipeline, transform
from sterna.relay.op import is_call_of
from sterna.schedule.kernel import Processor
from tests.relay.support import apply, assert_same_values, run

NHWC = {"nn.conv2d": ["NHWC", "default"]}


def array(*shape: int, seed: int = 0) -> Any:
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def picture(channels: int = 4) -> Any:
    return relay.var("x", shape=(1, channels, 6, 6))


def conv(data: Any, out: int = 4, channels: int = 4, **attrs: Any) -> Any:
    return relay.nn.conv2d(data, array(out, channels, 3, 3), padding=1, **attrs)


def transforms(param: Any, body: Any) -> list[tuple[str, str]]:
    """The changes of layout that ConvertLayout leaves once the weights are computed."""
    before = relay.Function((param,), body)
    assert_same_values(run(apply(transform.AlterOpLayout(Processor()), before)), run(before))
    made = apply(transform.ConvertLayout(NHWC), before)
    assert_same_values(run(made), run(before))
    found: list[tuple[str, str]] = []
    folded = apply(transform.FoldConstant(), made)
    relay.analysis.post_order_visit(folded, lambda e: found.extend(_way(e)))
    return found


def _way(expr: Any) -> list[tuple[str, str]]:
    if is_call_of(expr, "layout_transform"):
        return [(expr.attrs["src_layout"], expr.attrs["dst_layout"])]
    return []


THERE, BACK = ("NCHW", "NHWC"), ("NHWC", "NCHW")


def test_one_convolution() -> None:
    x = picture()
    assert transforms(x, conv(x)) == [THERE, BACK]


def test_what_stands_between() -> None:
    x = picture()
    body = relay.nn.max_pool2d(relay.nn.relu(conv(x)), (2, 2), (2, 2))
    body = relay.nn.bias_add(conv(body), array(4))
    body = relay.nn.prelu(relay.add(body, array(4, 1, 1)), array(4, seed=1))
    assert transforms(x, conv(relay.multiply(body, relay.const(2.0)))) == [THERE, BACK]


def test_quantised_values_between() -> None:
    x = picture()
    scales, zeros = relay.const(np.float32(0.1)), relay.const(np.uint8(7))
    narrow = relay.qnn.quantize(relay.nn.relu(conv(x)), scales, zeros, out_dtype="uint8")
    body = conv(relay.qnn.dequantize(narrow, scales, zeros))
    assert transforms(x, body) == [THERE, BACK]
    each = relay.const(np.array([0.1, 0.2, 0.4, 0.8], "float32"))
    offsets = relay.const(np.array([0, 3, -5, 1], "int32"))
    wide = relay.qnn.quantize(conv(x), each, offsets, axis=1, out_dtype="int8")
    assert transforms(x, conv(relay.qnn.dequantize(wide, each, offsets, axis=1))) == [THERE, BACK]


def test_residuals() -> None:
    x = picture()
    first = relay.nn.relu(conv(x))
    second = relay.add(conv(first), first)
    assert transforms(x, conv(second)) == [THERE, BACK]
    assert transforms(x, relay.add(conv(x), x)) == [THERE, BACK]


def test_joins_and_tuples() -> None:
    x = picture()
    body = relay.concatenate([conv(x), relay.nn.relu(conv(x, 8)), conv(x)], axis=1)
    assert transforms(x, conv(body, 4, 16)) == [THERE, BACK]
    pair = relay.Tuple((conv(x), relay.nn.relu(conv(x))))
    assert transforms(x, pair) == [THERE, BACK, BACK]
    again = relay.Tuple((conv(x), x))
    assert transforms(x, relay.TupleGetItem(again, 0)) == [THERE, BACK]


def test_parts() -> None:
    x = picture(8)
    parts = relay.split(conv(x, 8, 8), 2, axis=1)
    body = relay.add(relay.nn.relu(parts[0]), parts[1])
    assert transforms(x, conv(body)) == [THERE, BACK]


def test_reductions() -> None:
    x = picture()
    assert transforms(x, relay.mean(conv(x), axis=(2, 3))) == [THERE]
    assert transforms(x, relay.mean(conv(x), axis=(2, 3), keepdims=True)) == [THERE, BACK]
    assert transforms(x, relay.sum(conv(x), axis=1)) == [THERE]
    assert transforms(x, relay.sum(conv(x), axis=0)) == [THERE, ("HWC", "CHW")]
    assert transforms(x, relay.max(conv(x), axis=1, exclude=True)) == [THERE]
    assert transforms(x, relay.mean(conv(x))) == [THERE]


def test_broadcast_operands() -> None:
    x = picture()
    for shape in ((), (1,), (6,), (6, 6), (4, 1, 1), (1, 4, 6, 6), (1, 1, 6, 1)):
        assert transforms(x, relay.add(conv(x), array(*shape))) == [THERE, BACK], shape
    y = relay.var("y", shape=(2, 1, 1, 1, 1))
    body = relay.Function((x, y), relay.add(conv(x), y))
    made = apply(transform.ConvertLayout(NHWC), body)
    assert_same_values(run(made), run(body))


def test_along_axes() -> None:
    x = picture()
    assert transforms(x, relay.nn.softmax(conv(x), axis=1)) == [THERE, BACK]
    assert transforms(x, relay.nn.softmax(conv(x), axis=-1)) == [THERE, BACK]
    assert transforms(x, relay.nn.batch_flatten(conv(x))) == [THERE, BACK]


def test_grouped() -> None:
    x = picture()
    deep = relay.nn.conv2d(x, array(4, 1, 3, 3), groups=4, padding=1)
    pairs = relay.nn.conv2d(deep, array(8, 2, 3, 3), groups=2, padding=1)
    twice = relay.nn.conv2d(x, array(4, 2, 3, 3), groups=4, channels=8, padding=1)
    for body in (deep, pairs, twice):
        assert transforms(x, body) == [THERE, BACK]


def test_axes_that_the_user_calls_otherwise() -> None:
    x = relay.var("x", shape=(1, 4, 4, 4))
    body = relay.nn.conv2d(
        conv(x), array(3, 3, 4, 4), padding=1, data_layout="NHWC", kernel_layout="HWIO"
    )
    before = relay.Function((x,), body)
    for change in (transform.ConvertLayout(NHWC), transform.AlterOpLayout(Processor()),
                   transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]})):
        assert_same_values(run(apply(change, before)), run(before))


def test_blocked_layouts() -> None:
    x = relay.var("x", shape=(1, 2, 5, 5, 4))
    body = relay.nn.relu(relay.nn.conv2d(
        x, array(3, 2, 3, 3, 4, 2), data_layout="NCHW4c", kernel_layout="OIHW4i2o",
        out_layout="NCHW2c",
    ))
    before = relay.Function((x,), relay.add(body, array(1, 3, 1, 1, 2)))
    made = apply(transform.ConvertLayout(NHWC), before)
    assert_same_values(run(made), run(before))


def test_there_and_back_is_nothing() -> None:
    x = picture()
    before = relay.Function((x,), relay.nn.relu(conv(relay.nn.relu(conv(x)))))
    there = apply(transform.ConvertLayout(NHWC), before)
    back = apply(transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]}), there)
    made = apply(tvm.transform.Sequential([transform.SimplifyExpr(), transform.FoldConstant(),
                                           transform.SimplifyExpr()]), back)
    assert "layout_transform" not in str(made)
    assert_same_values(run(made), run(before))


def test_operators_without_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="ConvertLayout: add has no layouts to convert"):
        transform.ConvertLayout({"add": ["NHWC"]})


def test_global_and_adaptive_pools() -> None:
    x = picture()
    body = relay.nn.adaptive_max_pool2d(relay.nn.relu(conv(x)), output_size=(2, 3))
    assert transforms(x, relay.nn.global_avg_pool2d(body)) == [THERE, BACK]


def built(body: Any) -> Any:
    """The graph of kernels, and that it gives what the expression does."""
    before = relay.Function(tuple(relay.analysis.free_vars(body)), body)
    with tvm.transform.PassContext(opt_level=3):
        order = pipeline.passes(Processor(512, 32))
        made = tvm.transform.Sequential(order)(tvm.IRModule.from_expr(before))["main"]
    assert_same_values(run(made), run(before))
    return made


def test_few_channels_stay_where_they_are() -> None:
    """A first convolution reads a picture's colours as they lie: nothing is moved before it."""
    x = relay.var("x", shape=(1, 3, 12, 12))
    first = relay.nn.relu(conv(x, 16, 3, strides=2))
    text = str(built(relay.nn.global_avg_pool2d(conv(first, 16, 16))))
    assert 'src_layout="NCHW"' not in text
    first_call = next(line for line in text.splitlines() if 'out_layout="NHWC"' in line)
    assert "nn.conv2d" in first_call and "data_layout=" not in first_call  # NCHW is the default


@pytest.mark.parametrize("outputs, moved", [(16, True), (64, False)])
def test_factors_of_channels_become_factors_of_weights(outputs: int, moved: bool) -> None:
    """Where weights are fewer than what the factors would be multiplied by."""
    x, s = relay.var("x", shape=(1, 32, 7, 7)), relay.var("s", shape=(1, 32, 1, 1))
    made = relay.nn.relu(conv(x, 32, 32))
    kernels = built(relay.nn.conv2d(made * relay.sigmoid(s), array(outputs, 32, 1, 1)))
    shapes: list[tuple[int, ...]] = []

    def visit(expr: Any) -> None:
        if is_call_of(expr, "multiply"):
            shapes.append(expr.checked_type.shape)

    relay.analysis.post_order_visit(kernels, visit)
    assert shapes == [(1, 1, 1, 32, outputs) if moved else (1, 7, 7, 32)]


def changes(param: Any, body: Any, wanted: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The changes of layout that a user's wish leaves; the numbers stay."""
    before = relay.Function((param,), body)
    made = apply(transform.ConvertLayout(wanted), before)
    assert_same_values(run(made), run(before))
    found: list[tuple[str, str]] = []
    folded = apply(transform.FoldConstant(), made)
    relay.analysis.post_order_visit(folded, lambda e: found.extend(_way(e)))
    return found


def test_quantised_convolutions() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="int8")
    weight = np.random.default_rng(1).integers(-9, 9, (5, 4, 3, 3)).astype("int8")
    scales = np.linspace(0.1, 0.5, 5).astype("float32")
    sums = relay.qnn.op.conv2d(
        x, relay.const(weight), relay.const(3), relay.const(0), relay.const(np.float32(0.5)),
        relay.const(scales), kernel_size=(3, 3), channels=5, padding=(1, 1),
    )
    wanted = {"nn.conv2d": ["NHWC", "default"], "qnn.conv2d": ["NHWC", "default"]}
    assert changes(x, sums, wanted) == [THERE, BACK]
    narrow = relay.qnn.op.requantize(
        sums, relay.const(0.5 * scales), relay.const(0), relay.const(np.float32(4.0)),
        relay.const(0), axis=1, out_dtype="int8",
    )
    again = relay.qnn.op.conv2d(
        narrow, relay.const(weight.reshape(4, 5, 3, 3)), relay.const(0), relay.const(0),
        relay.const(np.float32(0.5)), relay.const(np.float32(0.25)), kernel_size=(3, 3), channels=4,
    )
    assert changes(x, again, wanted) == [THERE, BACK]
    assert changes(x, again, {"qnn.conv2d": ["NCHW", "default"]}) == []


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(groups: int) -> None:
    x = picture()
    body = relay.nn.conv2d_transpose(
        relay.nn.relu(x), array(4, 3, 3, 2), strides=(2, 1), padding=(1, 0), groups=groups
    )
    for kernel in ("default", "HWIO"):
        assert changes(x, body, {"nn.conv2d_transpose": ["NHWC", kernel]}) == [THERE, BACK]


def test_pools_and_resizing_by_themselves() -> None:
    x = picture()
    body = relay.nn.avg_pool2d(relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=1), (2, 2))
    assert changes(x, body, {"nn.max_pool2d": ["NHWC"]}) == [THERE, BACK]
    body = relay.image.resize2d(x, (9, 9), method="linear")
    assert changes(x, body, {"image.resize2d": ["NHWC"]}) == [THERE, BACK]
    assert changes(x, body, {"image.resize2d": ["default"]}) == []
