"""FuseOps: which operators become one kernel."""

import json
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import transform
from sterna.relay.passes.fuse_ops import fuse_ops
from sterna.schedule.kernel import Processor
from tests.relay.support import assert_same_values, function, run


def kernels(before: Any, level: int = 2, **config: Any) -> list[list[str]]:
    """The operators of each kernel, in the order in which they run; values stay what they are."""
    before = function(before) if isinstance(before, str) else before
    with tvm.transform.PassContext(opt_level=level, config=config):
        made = transform.FuseOps()(tvm.IRModule({"main": before}))["main"]
    assert made.checked_type == before.checked_type
    assert_same_values(run(made), run(before), 0)
    found: list[list[str]] = []
    for expr in _in_order(made.body):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            assert expr.op.is_primitive
            found.append([str(e.op) for e in _in_order(expr.op.body) if isinstance(e, relay.Call)])
        else:
            assert not isinstance(expr, relay.Call), "every operator is in a kernel"
    return found


def _in_order(root: Any) -> list[Any]:
    found: list[Any] = []
    seen: set[int] = set()

    def visit(expr: Any) -> None:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        inner = expr.args if isinstance(expr, relay.Call) else expr.operands()
        for part in inner:
            visit(part)
        found.append(expr)

    visit(root)
    return found


X = "fn (%x: Tensor[(2, 6), float32])"
CONV = relay.const(np.ones((4, 4, 3, 3), "float32"))


def _picture() -> Any:
    return relay.var("x", shape=(1, 4, 6, 6))


def test_a_kernel_s_result_is_quantised_in_it() -> None:
    x = _picture()
    scale, zero = relay.const(np.float32(0.25)), relay.const(np.uint8(3))
    body = relay.qnn.quantize(relay.nn.relu(relay.nn.conv2d(x, CONV)), scale, zero,
                              out_dtype="uint8")
    first = ["nn.conv2d", "nn.relu", "qnn.quantize"]
    assert kernels(relay.Function((x,), body)) == [first]
    again = relay.nn.conv2d(relay.qnn.dequantize(body, scale, zero), CONV)
    assert kernels(relay.Function((x,), again)) == [[*first, "qnn.dequantize"], ["nn.conv2d"]]


def test_chains() -> None:
    assert kernels(f"{X} {{ tanh(nn.relu(exp(%x))) }}") == [["exp", "nn.relu", "tanh"]]
    assert kernels(f"{X} {{ tanh(nn.relu(exp(%x))) }}", 0) == [["exp"], ["nn.relu"], ["tanh"]]


def test_a_convolution_takes_its_epilogue() -> None:
    x = _picture()
    bias = relay.const(np.ones((4, 1, 1), "float32"))
    conv = relay.nn.conv2d(x, CONV, padding=1)
    body = relay.nn.relu(relay.add(relay.add(conv, bias), x))
    assert kernels(relay.Function((x,), body)) == [["nn.conv2d", "add", "add", "nn.relu"]]


def test_two_convolutions_are_two_kernels() -> None:
    x = _picture()
    one = relay.nn.relu(relay.nn.conv2d(x, CONV, padding=1))
    two = relay.nn.conv2d(one, CONV, padding=1)
    body = relay.nn.relu(relay.add(two, one))
    assert kernels(relay.Function((x,), body)) == [
        ["nn.conv2d", "nn.relu"], ["nn.conv2d", "add", "nn.relu"],
    ]


def test_diamonds() -> None:
    text = f"{X} {{ %0 = exp(%x); add(nn.relu(%0), tanh(%0)) }}"
    assert kernels(text) == [["exp", "nn.relu", "tanh", "add"]]
    x = _picture()
    conv = relay.nn.conv2d(x, CONV, padding=1)
    body = relay.add(relay.nn.relu(conv), relay.tanh(conv))
    assert kernels(relay.Function((x,), body)) == [["nn.conv2d", "nn.relu", "tanh", "add"]]


def test_a_diamond_around_an_opaque_operator() -> None:
    text = f"{X} {{ %0 = exp(%x); add(nn.relu(%0), argsort(%0, dtype=\"float32\")) }}"
    assert kernels(text) == [["exp"], ["argsort"], ["nn.relu", "add"]] or kernels(text) == [
        ["exp"], ["nn.relu", "add"], ["argsort"]]


def test_reductions_take_what_stands_before_them() -> None:
    assert kernels(f"{X} {{ tanh(sum(exp(%x), axis=[1])) }}") == [["exp", "sum"], ["tanh"]]
    text = f"{X} {{ %0 = exp(%x); subtract(%0, max(%0, axis=[1], keepdims=True)) }}"
    assert kernels(text) == [["exp"], ["max"], ["subtract"]]


def test_joins() -> None:
    text = f"{X} {{ nn.relu(concatenate((exp(%x), tanh(%x)), axis=1)) }}"
    assert kernels(text) == [["exp", "tanh", "concatenate", "nn.relu"]]


def _doubling(x: Any, step: int) -> Any:
    earlier = relay.strided_slice(x, begin=[0, 0], end=[2, 64 - step], strides=[1, 1])
    return relay.add(x, relay.nn.pad(earlier, ((0, 0), (step, 0))))


def _mirrored(x: Any, step: int) -> Any:
    return relay.add(relay.reverse(x, axis=1), relay.multiply(x, relay.const(0.5)))


def _picked(x: Any, step: int) -> Any:
    places = relay.const(np.roll(np.arange(64), step).astype("int32"))
    return relay.add(relay.take(x, places, axis=1), x)


def _halved(x: Any, step: int) -> Any:
    left, right = relay.split(x, 2, axis=1)
    return relay.concatenate((relay.add(left, right), relay.subtract(left, right)), axis=1)


@pytest.mark.parametrize("step", [_doubling, _mirrored, _picked, _halved])
def test_what_is_read_in_several_places_is_written_out_so_often_at_most(step: Any) -> None:
    x = made = relay.var("x", shape=(2, 64))
    for n in range(24):  # 2 ** 24 copies of the first step, in one kernel
        made = step(made, 1 << n % 6)
    once = kernels(relay.Function((x,), step(x, 1)))
    found = kernels(relay.Function((x,), made))
    assert len(once) == 1 < len(found) < 12
    assert [name for each in found for name in each] == once[0] * 24


def test_broadcasts_are_read_in_one_place() -> None:
    x, row = relay.var("x", shape=(2, 64)), relay.var("row", shape=(2, 1))
    made, each = x, row
    for _ in range(40):
        each = relay.tanh(each)
        made = relay.add(relay.multiply(made, each), each)
    assert len(kernels(relay.Function((x, row), made))) == 1


def test_parts() -> None:
    text = f"{X} {{ %0 = split(exp(%x), indices_or_sections=2, axis=1); add(%0.0, %0.1) }}"
    assert kernels(text) == [["exp", "split", "add"]]
    opaque = (
        f"{X} {{ %0 = topk(exp(%x), k=2); add(%0.0, cast(%0.1, dtype=\"float32\")) }}"
    )
    assert kernels(opaque) == [["exp"], ["topk"], ["cast", "add"]]


def test_several_results() -> None:
    text = f"{X} {{ %0 = exp(%x); (nn.relu(%0), tanh(%0)) }}"
    assert kernels(text) == [["exp"], ["nn.relu"], ["tanh"]]
    again = f"{X} {{ %0 = exp(%x); (%0, tanh(%0)) }}"
    assert kernels(again) == [["exp"], ["tanh"]]


def test_injective_operators_do_not_follow_products() -> None:
    x = _picture()
    body = relay.transpose(relay.nn.relu(relay.nn.conv2d(x, CONV, padding=1)))
    assert kernels(relay.Function((x,), body)) == [["nn.conv2d", "nn.relu"], ["transpose"]]


def test_injective_operators_do_not_go_into_products() -> None:
    x = _picture()
    turned = relay.transpose(x, axes=(0, 1, 3, 2))
    body = relay.nn.relu(relay.nn.conv2d(turned, CONV, padding=1))
    assert kernels(relay.Function((x,), body)) == [["transpose"], ["nn.conv2d", "nn.relu"]]


@pytest.mark.parametrize("most", [1, 3, 4, 10])
def test_depth(most: int) -> None:
    body = "%x"
    for _ in range(10):
        body = f"exp(negative({body}))" if len(body) < 150 else body
    found = kernels(f"{X} {{ {body} }}", **{"relay.FuseOps.max_depth": most})
    assert max(map(len, found)) <= most
    assert most == 1 or len(found) < sum(map(len, found))


def test_scalars_stand_in_the_kernel_and_arrays_come_from_outside() -> None:
    x = relay.var("x", shape=(2,))
    body = relay.add(relay.multiply(x, relay.const(2.0)), relay.const([1.0, 2.0]))
    made = transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    assert len(made.body.op.params) == 2 and len(made.body.args) == 2


def test_branches_and_closures() -> None:
    text = (
        "fn (%x: Tensor[(2), float32], %c: Tensor[(), bool]) { %0 = exp(%x); "
        "if (%c) { nn.relu(tanh(%0)) } else { negative(%0) } }"
    )
    before = function(text)
    made = transform.FuseOps(2)(tvm.IRModule({"main": before}))["main"]
    for seed in range(4):
        assert_same_values(run(made, seed), run(before, seed), 0)


def test_shapes_of_the_run_stand_alone() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    made = transform.FuseOps(2)(tvm.IRModule.from_expr(relay.nn.relu(relay.exp(x))))["main"]
    assert isinstance(made.body.args[0], relay.Call)


def test_narrow_numbers_lie_between_kernels_where_memory_is_scarce() -> None:
    x = relay.var("x", shape=(1, 4, 4, 4), dtype="int8")
    weight = relay.const(np.ones((4, 4, 1, 1), "int8"))

    def wide(scale: int) -> Any:
        sums = relay.nn.conv2d(x, weight, kernel_size=(1, 1), channels=4, out_dtype="int32")
        narrow = relay.cast(relay.right_shift(sums, relay.const(scale)), "int8")
        return relay.multiply(relay.cast(narrow, "int32"), relay.const(scale))

    func = relay.Function((x,), relay.add(wide(2), wide(3)))
    conv = ["nn.conv2d", "right_shift", "cast"]
    for spare, ends in ((True, ["cast", "multiply"]), (False, [])):
        made = fuse_ops(func, processor=Processor(has_spare_memory=spare))
        assert_same_values(run(made), run(func), 0)
        bodies = [e.op.body for e in _in_order(made.body)
                  if isinstance(e, relay.Call) and isinstance(e.op, relay.Function)]
        inside = [[str(e.op) for e in _in_order(body) if isinstance(e, relay.Call)]
                  for body in bodies]
        assert [*conv, *ends] in inside
        assert len(inside) == 2 and sum(map(len, inside)) == 11


@pytest.mark.parametrize(
    ("cut", "packed", "kernels"),
    [
        ({"begin": (0,), "end": (20,), "axes": (1,)}, True, 1),
        ({"begin": (0,), "end": (20,), "axes": (1,)}, False, 2),
        ({"begin": (4,), "end": (24,), "axes": (1,)}, True, 2),
        ({"begin": (0,), "end": (4,), "axes": (0,)}, True, 2),
        ({"begin": (0,), "end": (24,), "axes": (1,), "strides": (2,)}, True, 2),
        ({"begin": (0,), "end": (9,), "axes": (1,)}, True, 2),
    ],
)
def test_a_dense_layer_with_packed_weights_leaves_out_its_last_columns(
    cut: dict[str, Any], packed: bool, kernels: int
) -> None:
    x, array = relay.var("x", shape=(5, 3)), np.arange(72, dtype="float32").reshape(24, 3)
    by_blocks = array.reshape(3, 8, 3).transpose(0, 2, 1)
    dense = relay.nn.dense(x, relay.const(array)) if not packed else relay.nn.dense(
        x, relay.const(by_blocks), units=24, implementation="direct(weights=OI8o)"
    )
    func = relay.Function((x,), relay.nn.relu(relay.strided_slice(dense, **cut)))
    for vectors, count in ((True, kernels), (False, 2)):
        made = fuse_ops(func, processor=Processor(whole_vectors=vectors))
        assert_same_values(run(made), run(func), 0)
        calls = [e for e in _in_order(made.body) if isinstance(e, relay.Call)]
        assert len(calls) == count


def test_a_kernel_reads_one_field_of_what_another_gives() -> None:
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(x, 2, axis=1)
    made = relay.Tuple(tuple(relay.nn.softmax(relay.exp(parts[n])) for n in range(2)))
    func = relay.Function((x,), made)
    fused = fuse_ops(func)
    assert_same_values(run(fused), run(func), 0)
    calls = [e for e in _in_order(fused.body) if isinstance(e, relay.Call)]
    assert all(len(call.args) == 1 for call in calls)


def test_views_of_fields_are_no_kernels() -> None:
    data, weights = relay.var("x", shape=(5, 1, 3)), relay.var("w", shape=(1, 16, 3))
    recurrence = relay.var("r", shape=(1, 16, 4))
    network = relay.nn.lstm(data, weights, recurrence)
    func = relay.Function((data, weights, recurrence), relay.reshape(network[0], (5, 4)))
    factory = relay.build(tvm.IRModule.from_expr(func), target="llvm")
    names = {node["attrs"]["func_name"] for node in json.loads(factory.graph_json)["nodes"]
             if node["op"] != "null"}
    assert "__nop" in names and not any(name.endswith("fused_reshape") for name in names)
