"""topi's functions against NumPy, by schedules for processors and for OpenCL devices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, topi
from sterna.target import Target
from sterna.testing import requires_opencl
from sterna.topi.nn.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d
from sterna.topi.utils import get_const_float, get_const_int, get_const_tuple, traverse_inline

RNG = np.random.default_rng(5)


def given(*shape: int, dtype: str = "float32") -> tuple[te.Tensor, Any]:
    array = RNG.integers(-4, 5, shape).astype(dtype)
    if dtype.startswith("float"):
        array = array + RNG.random(shape).astype(dtype)
    return te.placeholder(shape, dtype, name="given"), array


def run(
    output: te.Tensor, inputs: list[te.Tensor], arrays: list[Any], target: str = "llvm",
    schedule: Callable[[Any], Any] = topi.generic.schedule_injective,
) -> Any:
    with Target(target):
        made = schedule([output])
    built = tvm.build(made, [*inputs, output], target)
    device = tvm.device(target)
    result = tvm.nd.array(np.zeros(get_const_tuple(output.shape), str(output.dtype)), device)
    built(*[tvm.nd.array(array, device) for array in arrays], result)
    return result.numpy()


def check(
    make: Callable[..., te.Tensor], expect: Callable[..., Any], *shapes: Any, target: str = "llvm",
    tolerance: float = 1e-4,
) -> None:
    pairs = [given(*shape) for shape in shapes]
    tensors, arrays = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = run(make(*tensors), tensors, arrays, target)
    np.testing.assert_allclose(found, expect(*arrays), rtol=tolerance, atol=tolerance)


ELEMENTS: list[tuple[str, Any, Any, list[tuple[int, ...]]]] = [
    ("exp", topi.exp, np.exp, [(3, 20)]),
    ("tanh", topi.tanh, np.tanh, [(3, 20)]),
    ("abs", topi.abs, np.abs, [(3, 20)]),
    ("sign", topi.sign, np.sign, [(3, 20)]),
    ("sigmoid", topi.sigmoid, lambda x: 1 / (1 + np.exp(-x)), [(3, 20)]),
    ("identity", topi.identity, np.copy, [(3, 20)]),
    ("cast", lambda x: topi.cast(x, "int32"), lambda x: x.astype("int32"), [(3, 20)]),
    ("clip", lambda x: topi.clip(x, -1.0, 2.0), lambda x: x.clip(-1, 2), [(3, 20)]),
    ("add", topi.add, np.add, [(3, 1, 20), (5, 1)]),
    ("add a number", lambda x: topi.add(x, 2), lambda x: x + 2, [(3, 20)]),
    ("from a number", lambda x: topi.subtract(1, x), lambda x: 1 - x, [(3, 20)]),
    ("maximum", topi.maximum, np.maximum, [(3, 20), (3, 20)]),
    ("greater", topi.greater, np.greater, [(3, 20), (20,)]),
    ("elemwise_sum", lambda a, b: topi.elemwise_sum([a, b, a]), lambda a, b: a + b + a,
     [(3, 4), (3, 4)]),
    ("full", lambda x: topi.full((2, 3), "float32", 7) + x, lambda x: 7 + x, [(2, 3)]),
    ("reshape", lambda x: topi.reshape(x, (4, 15)), lambda x: x.reshape(4, 15), [(3, 20)]),
    ("transpose", lambda x: topi.transpose(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0),
     [(3, 4, 5)]),
    ("expand_dims", lambda x: topi.expand_dims(x, 1, 2), lambda x: x[:, None, None], [(3, 20)]),
    ("squeeze", lambda x: topi.squeeze(x, 1), lambda x: x[:, 0], [(3, 1, 20)]),
    ("concatenate", lambda a, b: topi.concatenate([a, b], 1),
     lambda a, b: np.concatenate([a, b], 1), [(3, 4), (3, 5)]),
    ("stack", lambda a, b: topi.stack([a, b], 1), lambda a, b: np.stack([a, b], 1),
     [(3, 4), (3, 4)]),
    ("split", lambda x: topi.split(x, 2, 1)[1], lambda x: x[:, 10:], [(3, 20)]),
    ("strided_slice", lambda x: topi.strided_slice(x, [0, 2], [3, 18], [1, 4]),
     lambda x: x[0:3, 2:18:4], [(3, 20)]),
    ("tile", lambda x: topi.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3)), [(3, 4)]),
    ("flip", lambda x: topi.flip(x, 1), lambda x: x[:, ::-1], [(3, 4)]),
    ("arange", lambda x: topi.arange(1, 8, 2, "float32") + x, lambda x: np.arange(1, 8, 2) + x,
     [(4,)]),
    ("where", lambda c, a, b: topi.where(topi.greater(c, 0), a, b),
     lambda c, a, b: np.where(c > 0, a, b), [(3, 4), (3, 4), (3, 4)]),
    ("sum", lambda x: topi.sum(x, axis=1), lambda x: x.sum(1), [(3, 20)]),
    ("sum of all", topi.sum, np.sum, [(3, 20)]),
    ("kept", lambda x: topi.sum(x, axis=(0, -1), keepdims=True),
     lambda x: x.sum((0, 2), keepdims=True), [(3, 4, 5)]),
    ("max", lambda x: topi.max(x, axis=0), lambda x: x.max(0), [(3, 20)]),
    ("min", lambda x: topi.min(x, axis=-1), lambda x: x.min(-1), [(3, 20)]),
    ("prod", lambda x: topi.prod(x, axis=1), lambda x: x.prod(1), [(3, 4)]),
    ("argmax", lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1), [(3, 20)]),
    ("matmul", lambda a, b: topi.matmul(a, b, transp_b=True), lambda a, b: a @ b.T,
     [(5, 7), (6, 7)]),
    ("tensordot", lambda a, b: topi.tensordot(a, b, ((1, 2), (0, 1))),
     lambda a, b: np.tensordot(a, b, ((1, 2), (0, 1))), [(2, 3, 4), (3, 4, 5)]),
]

LAYERS: list[tuple[str, Any, Any, list[tuple[int, ...]]]] = [
    ("relu", topi.nn.relu, lambda x: np.maximum(x, 0), [(3, 20)]),
    ("leaky_relu", lambda x: topi.nn.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x),
     [(3, 20)]),
    ("softmax", topi.nn.softmax, lambda x: topi.testing.softmax_python(x, 1), [(3, 20)]),
    ("softmax inside", lambda x: topi.nn.softmax(x, 1), topi.testing.softmax_python, [(3, 5, 4)]),
    ("log_softmax", topi.nn.log_softmax, lambda x: topi.testing.log_softmax_python(x, 1),
     [(3, 20)]),
    ("flatten", topi.nn.flatten, lambda x: x.reshape(2, -1), [(2, 3, 4)]),
    ("pad", lambda x: topi.nn.pad(x, (1, 0), (0, 2), 9.0),
     lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=9), [(3, 4)]),
    ("dilate", lambda x: topi.nn.dilate(x, (1, 3)),
     lambda x: topi.testing.dilate_python(x, (1, 3)), [(3, 4)]),
    ("bias_add", topi.nn.bias_add, lambda x, b: x + b[:, None], [(2, 3, 4), (3,)]),
    ("dense", topi.nn.dense, lambda a, w, b: a @ w.T + b, [(5, 7), (6, 7), (6,)]),
    ("batch_matmul", topi.nn.batch_matmul, topi.testing.batch_matmul, [(2, 3, 4), (2, 5, 4)]),
    ("one for all", topi.nn.batch_matmul, topi.testing.batch_matmul, [(2, 3, 4), (1, 5, 4)]),
    ("conv2d_nchw", lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 1),
     lambda x, w: topi.testing.conv2d_nchw_python(x, w, 2, 1), [(1, 3, 9, 8), (4, 3, 3, 3)]),
    ("conv2d_nhwc", lambda x, w: topi.nn.conv2d_nhwc(x, w, 1, "SAME"),
     lambda x, w: topi.testing.conv2d_nhwc_python(x, w, 1, "SAME"), [(1, 6, 7, 3), (3, 2, 3, 4)]),
    ("conv2d_hwcn", lambda x, w: topi.nn.conv2d_hwcn(x, w, 1, 1),
     lambda x, w: topi.testing.conv2d_hwcn_python(x, w, 1, 1), [(6, 7, 3, 2), (3, 3, 3, 4)]),
    ("groups", lambda x, w: topi.nn.group_conv2d_nchw(x, w, 1, 0, 1, 2),
     lambda x, w: topi.testing.conv2d_nchw_python(x, w, 1, 0, 2), [(1, 4, 6, 6), (6, 2, 3, 3)]),
    ("conv1d", lambda x, w: topi.nn.conv1d_ncw(x, w, 2, 1),
     lambda x, w: topi.testing.conv1d_ncw_python(x, w, 2, 1), [(1, 3, 9), (4, 3, 3)]),
    ("conv3d", lambda x, w: topi.nn.conv3d_ncdhw(x, w, 1, 1, 1),
     lambda x, w: topi.testing.conv3d_ncdhw_python(x, w, 1, 1), [(1, 2, 4, 5, 6), (3, 2, 3, 3, 3)]),
    ("depthwise", lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 2, 1),
     lambda x, w: topi.testing.depthwise_conv2d_python_nchw(x, w, 2, 1),
     [(1, 3, 8, 8), (3, 2, 3, 3)]),
    ("depthwise_nhwc", lambda x, w: topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1),
     lambda x, w: topi.testing.depthwise_conv2d_python_nhwc(x, w, 1, 1),
     [(1, 8, 8, 3), (3, 3, 3, 2)]),
    ("transposed", lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, 2, 1, None, (1, 0)),
     lambda x, w: topi.testing.conv2d_transpose_nchw_python(x, w, 2, 1, (1, 0)),
     [(1, 3, 5, 6), (3, 4, 3, 3)]),
    ("pool2d", lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"),
     lambda x: x.reshape(1, 3, 4, 2, 3, 2).max((3, 5)), [(1, 3, 8, 6)]),
    ("global_pool", lambda x: topi.nn.global_pool(x, "avg"),
     lambda x: x.mean((2, 3), keepdims=True), [(1, 3, 8, 6)]),
    ("adaptive_pool", lambda x: topi.nn.adaptive_pool(x, (2, 3), "max"),
     lambda x: x.reshape(1, 3, 2, 4, 3, 2).max((3, 5)), [(1, 3, 8, 6)]),
]


@pytest.mark.parametrize("case", ELEMENTS + LAYERS, ids=lambda case: case[0])
def test_numbers(case: tuple[str, Any, Any, list[tuple[int, ...]]]) -> None:
    _, make, expect, shapes = case
    check(make, expect, *shapes)


def test_batch_norm() -> None:
    x, array = given(2, 3, 4)
    params = [given(3) for _ in range(4)]
    arrays = [param[1] for param in params]
    arrays[3] = np.abs(arrays[3]) + 1
    first, second, third, fourth = [param[0] for param in params]
    made, *_ = topi.nn.batch_norm(x, first, second, third, fourth)
    gamma, beta, mean, variance = [one[:, None] for one in arrays]
    found = run(made, [x, *[param[0] for param in params]], [array, *arrays])
    expected = (array - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@requires_opencl
@pytest.mark.parametrize("name", ["add", "sum", "softmax", "conv2d_nchw"])
def test_on_opencl(name: str) -> None:
    _, make, expect, shapes = next(case for case in ELEMENTS + LAYERS if case[0] == name)
    check(make, expect, *shapes, target="opencl")


def test_stages_are_those_of_classic_schedules() -> None:
    data, weight = te.placeholder((1, 8, 14, 14)), te.placeholder((16, 8, 3, 3))
    conv = topi.nn.conv2d_nchw(data, weight, 1, 1, dilation=1, out_dtype="float32")
    padded, other = conv.op.input_tensors
    assert other is weight and get_const_tuple(padded.shape) == (1, 8, 16, 16)
    assert [axis.name for axis in conv.op.reduce_axis] == ["rc", "ry", "rx"]
    output = topi.nn.relu(conv + te.placeholder((1, 16, 1, 1)))
    schedule = te.create_schedule(output.op)
    seen: list[str] = []
    traverse_inline(schedule, output.op, lambda op: seen.append(op.tag or op.name))
    assert "conv2d_nchw" in seen and schedule[padded].attach_type == "inline"


def test_open_extents() -> None:
    n = te.var("n")
    a = te.placeholder((n, 4), name="a")
    total = topi.sum(topi.nn.relu(a + 1.0), axis=1)
    built = tvm.build(te.create_schedule(total.op), [a, total], "llvm")
    array, result = RNG.random((7, 4), "float32") - 0.5, tvm.nd.array(np.zeros(7, "float32"))
    built(tvm.nd.array(array), result)
    np.testing.assert_allclose(result.numpy(), np.maximum(array + 1, 0).sum(1), rtol=1e-6)


def test_constants_of_shapes() -> None:
    n = te.var("n")
    assert get_const_tuple([te.const(3), n, 4]) == (3, n, 4)
    assert get_const_int(te.const(3) * 2) == 6 and get_const_float(te.const(2.0, "float32")) == 2
    with pytest.raises(ValueError, match="a constant integer is needed, not n"):
        get_const_int(n)
    assert get_pad_tuple("SAME", (3, 4)) == (1, 2, 1, 1)
    assert get_pad_tuple((1, 2), (3, 4)) == (1, 2, 1, 2)
    assert get_pad_tuple1d("VALID", 3) == (0, 0) and get_pad_tuple3d(1, (3, 3, 3)) == (1,) * 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: topi.sum(te.placeholder((3, 4)), axis=2), "axis 2 is none of a tensor of 2"),
        (lambda: topi.matmul(te.placeholder((3, 4)), te.placeholder((5, 4))), "inner extents"),
        (lambda: topi.nn.conv2d_nchw(te.placeholder((1, 3, 8, 8)), te.placeholder((4, 2, 3, 3)), 1,
                                     1), "are for 2 channels of each of 1 groups"),
        (lambda: topi.nn.depthwise_conv2d_nchw(te.placeholder((1, 3, 8, 8)),
                                               te.placeholder((2, 1, 3, 3)), 1, 1),
         "are for 2 channels, the data .* has 3"),
        (lambda: topi.nn.conv2d_transpose_nchw(te.placeholder((1, 3, 8, 8)),
                                               te.placeholder((2, 4, 3, 3)), 1, 1),
         "are for 2 channels, the data .* has 3"),
        (lambda: topi.nn.bias_add(te.placeholder((1, 3, 8)), te.placeholder((2,))),
         "has not one number for each of 3 channels"),
        (lambda: topi.nn.dense(te.placeholder((2, 3)), te.placeholder((4, 3)),
                               te.placeholder((5,))), "is for 5 columns, there are 4"),
        (lambda: topi.nn.pad(te.placeholder((3, 4)), (1,)), "pad takes 2 widths"),
        (lambda: topi.nn.pool2d(te.placeholder((1, 1, 4, 4)), 2, 2, 1, 0, "sum"), "avg or max"),
        (lambda: topi.nn.conv2d_nchw(te.placeholder((1, 3, 8, 8)), te.placeholder((4, 3, 3, 3)), 0,
                                     1), "stride is a positive number"),
    ],
)
def test_mistakes_are_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_schedules_go_by_target() -> None:
    a = te.placeholder((4, 64), name="a")
    with Target("cuda -arch=sm_80"):
        schedule = topi.cuda.schedule_reduce(topi.sum(a, axis=1))
    assert "threadIdx.x" in str(tvm.lower(schedule, [a, schedule.outputs[0].output(0)]))
    chosen = topi.testing.dispatch("llvm", {"generic": 1, "cpu": 2, "cuda": 3})
    assert chosen == 2 and topi.testing.dispatch("cuda -arch=sm_80", {"cpu": 2, "gpu": 4}) == 4
    with pytest.raises(AttributeError, match=r"no function of topi\.nn is named conv2d_NCHWc"):
        _ = topi.x86.conv2d_NCHWc
