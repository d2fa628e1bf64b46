"""How networks become kernels of a GPU: layouts, precision, few launches, and their schedules."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.codegen import nvptx
from sterna.driver.relay_build import optimize
from sterna.lowering.graph import is_view
from sterna.lowering.lower_kernel import lower_kernel
from sterna.lowering.unique_kernels import unique_kernels
from sterna.model.import_and_build import narrowed
from sterna.relay.expr import Call, Function
from sterna.relay.passes.fewer_kernels import FewerKernels
from sterna.relay.traverse import post_order
from sterna.schedule.choose import answering
from sterna.schedule.gpu.ring import Ring
from sterna.target import Target, processor_of
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.split_host_device import split_host_device
from tests.gpu.ptxas import assemble, find_ptxas

HOPPER = "cuda -arch=sm_90a"


def var(name: str, *shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def module_of(expr: Any) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(expr)), expr))


def kernels_of(expr: Any, target: str = HOPPER, narrow: str = "") -> dict[str, Function]:
    """The fused functions of a graph, without those that only give memory another shape."""
    mod, where = module_of(expr), Target(target)
    if narrow:
        mod = narrowed(mod, {}, narrow, where)
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = optimize(mod, where)
    found = unique_kernels(mod["main"], "k").functions
    return {name: each for name, each in found.items() if not is_view(each)}


def calls_of(function: Function) -> list[Call]:
    return [expr for expr in post_order(function.body) if isinstance(expr, Call)]


def lowered(expr: Any, target: str = HOPPER) -> Any:
    """The loops of a graph that is one kernel, and what its schedule chose."""
    (function,) = kernels_of(expr, target).values()
    where = Target(target)
    return lower_kernel(function, "kernel", processor_of(where), where)


def ptx_of(expr: Any) -> str:
    _, kernels = split_host_device(loop_pipeline.run(lowered(expr).function))
    text = nvptx.generate(kernels, "sm_90a")
    if find_ptxas() is not None:
        assert not assemble(text, "sm_90a").spilled_bytes
    return text


def test_convolutions_have_channels_last() -> None:
    weight = relay.const(np.ones((8, 4, 3, 3), "float32"))
    deep = relay.const(np.ones((8, 1, 3, 3), "float32"))
    x = relay.nn.conv2d(var("x", 1, 4, 6, 6), weight, padding=(1, 1))
    x = relay.nn.conv2d(relay.nn.relu(x), deep, padding=(1, 1), groups=8)
    found = kernels_of(x, "opencl")
    convolutions = [c for f in found.values() for c in calls_of(f) if str(c.op) == "nn.conv2d"]
    given: list[Any] = [c.attrs for c in convolutions]
    layouts = [(attrs.data_layout, attrs.kernel_layout) for attrs in given]
    assert sorted(layouts) == [("NHWC", "HWOI"), ("NHWC", "OHWI")]
    calls = [str(c.op) for f in found.values() for c in calls_of(f)]
    assert calls.count("layout_transform") == 2  # one at each border
    assert len(found) == 3  # the first convolution reads its few channels where they lie


def transformer(dtype: str = "float32") -> Any:
    """An embedding, and attention of heads that lie first, as exporters write it."""
    rng = np.random.default_rng(0)
    table, weight = (
        relay.const(rng.standard_normal(shape).astype(dtype)) for shape in ((40, 32), (32, 32))
    )
    x = relay.take(table, var("ids", 1, 16, dtype="int64"), axis=0)

    def heads(of: Any) -> Any:
        parts = relay.reshape(relay.nn.dense(of, weight), (16, 4, 8))
        return relay.reshape(relay.transpose(parts, (1, 0, 2)), (1, 4, 16, 8))

    scores = relay.nn.batch_matmul(heads(x), heads(x), transpose_b=True)
    mixed = relay.nn.batch_matmul(relay.nn.softmax(scores), heads(x), transpose_b=False)
    joined = relay.reshape(relay.transpose(mixed, (0, 2, 1, 3)), (16, 32))
    out = relay.reshape(relay.nn.dense(joined, weight), (1, 16, 32))
    return relay.add(out, x)


def test_what_flows_between_kernels_is_narrow() -> None:
    found = kernels_of(transformer(), narrow="bfloat16")

    def kind_of(expr: Any) -> str:
        return str(expr.checked_type.dtype)

    made = [kind_of(f.body) for f in found.values()]
    assert {kind_of(p) for f in found.values() for p in f.params} == {"int64", "bfloat16"}
    assert set(made) == {"bfloat16", "float32"}
    assert made.count("float32") == 1  # the result has the model's type


def test_convolutions_of_groups_are_narrow_where_memory_counts() -> None:
    wide = relay.nn.conv2d(var("x", 1, 8, 6, 6), var("w", 16, 8, 1, 1), kernel_size=(1, 1))
    made = relay.nn.conv2d(
        relay.nn.relu(wide), var("v", 16, 1, 3, 3), groups=16, padding=(1, 1), channels=16,
        kernel_size=(3, 3))
    found = kernels_of(made, narrow="bfloat16").values()
    attrs: list[Any] = [c.attrs for f in found for c in calls_of(f) if str(c.op) == "nn.conv2d"]
    assert [each.groups for each in attrs] == [1, 16]
    kinds: list[Any] = [p.checked_type for p in list(found)[-2].params]
    assert [str(kind.dtype) for kind in kinds] == ["bfloat16"] * 2


def test_attention_is_one_kernel_and_residuals_are_epilogues() -> None:
    names = [[str(c.op) for c in calls_of(f)] for f in kernels_of(transformer()).values()]
    assert any(each[-1] == "nn.attention" for each in names)
    assert not any("nn.softmax" in each for each in names)
    assert any("nn.dense" in each and "add" in each for each in names)


def test_reshapes_pass_behind_what_follows_a_product() -> None:
    product = relay.nn.dense(var("x", 4, 8), var("w", 6, 8))
    still = relay.transpose(relay.reshape(product, (4, 1, 6)), (1, 0, 2))
    moved = FewerKernels()(module_of(relay.add(still, var("y", 1, 4, 6))))["main"].body
    assert str(moved.op) == "reshape" and str(moved.args[0].op) == "add"
    assert str(moved.args[0].args[0].op) == "nn.dense"


def test_each_reader_moves_elements_itself() -> None:
    turned = relay.transpose(var("x", 4, 6), (1, 0))
    both = relay.Tuple((relay.nn.relu(turned), relay.exp(turned)))
    first, second = FewerKernels()(module_of(both))["main"].body.fields
    assert first.args[0] is not second.args[0]


SCHEDULES = {
    "vectors": lambda: relay.add(var("x", 6, 40), var("b", 40)),
    "transpose": lambda: relay.transpose(var("x", 2, 36, 40), (0, 2, 1)),
    "max_pool": lambda: relay.nn.max_pool2d(
        var("x", 1, 7, 7, 8), pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout="NHWC"),
    "depthwise": lambda: relay.nn.relu(relay.nn.conv2d(
        var("x", 1, 5, 5, 8), var("w", 3, 3, 8, 1), groups=8, padding=(1, 1),
        data_layout="NHWC", kernel_layout="HWOI")),
    "wide_windows": lambda: relay.nn.conv2d(
        var("x", 1, 7, 7, 4), var("w", 5, 5, 4, 1), groups=4, padding=(2, 2),
        data_layout="NHWC", kernel_layout="HWOI"),
    "global_pool": lambda: relay.nn.global_avg_pool2d(var("x", 1, 7, 7, 40), layout="NHWC"),
    "large_global_pool": lambda: relay.nn.global_avg_pool2d(
        var("x", 1, 25, 21, 4), layout="NHWC"),
    "small_product": lambda: relay.nn.relu(relay.nn.conv2d(
        var("x", 3, 1, 1, 160), var("w", 5, 1, 1, 160), kernel_size=(1, 1), channels=5,
        data_layout="NHWC", kernel_layout="OHWI")),
    "rows_summed": lambda: relay.sum(var("x", 6, 300), axis=1),
    "columns_summed": lambda: relay.sum(var("x", 70, 33), axis=0),
    "all_summed": lambda: relay.sum(var("x", 17000)),
    "layer_norm": lambda: relay.nn.layer_norm(var("x", 3, 96), var("g", 96), var("b", 96)),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_without_races(name: str) -> None:
    function = lowered(SCHEDULES[name]()).function
    rng = np.random.default_rng(0)
    given = [
        rng.standard_normal([int(n) for n in buffer.shape]).astype("float32")
        for buffer in function.buffers if buffer is not None
    ]
    wanted = tvm.compile(module_of(SCHEDULES[name]()), target="llvm")(*given[:-1])
    run_on_device(loop_pipeline.run(function), *given, seed=1)
    np.testing.assert_allclose(given[-1], wanted, rtol=1e-4, atol=1e-5)


def test_threads_wait_for_a_value_that_gets_a_name() -> None:
    """The mean of a row is shared by all that subtract it."""
    names = [var("x", 2, 256), var("g", 256), var("b", 256)]
    function = lowered(relay.nn.layer_norm(*names), "cuda -arch=sm_80").function
    rng = np.random.default_rng(0)
    x, g, b = (rng.standard_normal(shape).astype("float32") for shape in ((2, 256), 256, 256))
    out = np.zeros((2, 256), "float32")
    run_on_device(loop_pipeline.run(function), x, g, b, out, seed=3)
    centred = x - x.mean(1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [6, 64])
def test_attention_without_races(width: int) -> None:
    """Queries and keys that do not fill their tiles, a mask, and values of any width."""
    shapes = ((1, 5, 1, 4), (1, 18, 1, 4), (1, 18, 1, width), (5, 18))
    names = [var(n, *shape) for n, shape in zip("qkvm", shapes, strict=True)]
    record = relay.nn.masked_attention(*names, scale=0.5)
    function = loop_pipeline.run(lowered(record, "opencl").function)
    rng = np.random.default_rng(0)
    q, k, v, m = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    m[2, 3:] = -np.inf
    out = np.zeros((1, 5, 1, width), "float32")
    run_on_device(function, q, k, v, m, out, seed=3)
    scores = 0.5 * q[0, :, 0] @ k[0, :, 0].T + m
    power = np.exp(scores - scores.max(1, keepdims=True))
    wanted = power / power.sum(1, keepdims=True) @ v[0, :, 0]
    np.testing.assert_allclose(out[0, :, 0], wanted, rtol=1e-4, atol=1e-5)


def test_causal_attention_leaves_out_later_keys() -> None:
    names = [var(n, 1, 20, 1, 4) for n in "qkv"]
    with answering({"tile of attention": "16 queries, 16 keys at once, 4 queries a thread"}):
        record = relay.nn.attention(*names, scale=0.5, causal=True)
        function = loop_pipeline.run(lowered(record, "opencl").function)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 20, 1, 4)).astype("float32") for _ in range(3))
    out = np.zeros((1, 20, 1, 4), "float32")
    run_on_device(function, q, k, v, out, seed=3)
    scores = np.where(np.tri(20, dtype=bool), 0.5 * q[0, :, 0] @ k[0, :, 0].T, -np.inf)
    power = np.exp(scores - scores.max(1, keepdims=True))
    wanted = power / power.sum(1, keepdims=True) @ v[0, :, 0]
    np.testing.assert_allclose(out[0, :, 0], wanted, rtol=1e-4, atol=1e-5)


def test_attention_takes_what_shared_memory_a_gpu_has() -> None:
    """More of its queries and keys meet in registers then, and none of them leave these."""
    record = relay.nn.attention(*[var(n, 1, 2048, 16, 128) for n in "qkv"], scale=0.1)
    text = ptx_of(record)
    assert ".extern .shared" in text and text.count("fma.rn.f32") > 1000


@pytest.mark.parametrize("shape", [(1, 34, 34), (1, 33, 36)])
def test_softmax_along_an_inner_axis(shape: tuple[int, ...]) -> None:
    """Neighbouring threads read neighbours, and rows along another axis may be as many."""
    function = lowered(relay.nn.softmax(var("x", *shape), axis=-2), "opencl").function
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    out = np.zeros(shape, "float32")
    run_on_device(loop_pipeline.run(function), x, out, seed=4)
    power = np.exp(x - x.max(-2, keepdims=True))
    np.testing.assert_allclose(out, power / power.sum(-2, keepdims=True), rtol=1e-4, atol=1e-6)


def packed_attention(dtype: str) -> Any:
    """Queries, keys and values in one array, as one dense layer makes them."""
    packed = var("x", 10, 1, 3 * 2 * 8, dtype=dtype)
    turned = relay.transpose(relay.reshape(packed, (10, 1, 3, 16)), (2, 0, 1, 3))
    parts = [
        relay.reshape(relay.take(turned, relay.const(n, "int32"), axis=0), (1, 10, 2, 8))
        for n in range(3)
    ]
    return relay.nn.attention(*parts, scale=0.5)


def test_attention_reads_parts_of_an_array_where_they_lie() -> None:
    with answering({"attention of few queries": "tiles"}):
        made = lowered(packed_attention("bfloat16")).function
    text = str(made)
    assert text.count("# thread blockIdx.x") == 1  # nothing is moved before
    # Rows of 96 bytes, heads of 16; keys begin behind two heads, values behind four.
    for heads in (2, 4, 6):
        assert f'"tiled 9 3 4 8 {heads} 10 1 16 96 960 64 1 ' in text


def test_attention_elsewhere_reads_them_there_too() -> None:
    """And stores heads in front of queries where the caller wants them so."""
    moved = relay.transpose(packed_attention("float32"), (0, 2, 1, 3))
    function = loop_pipeline.run(lowered(moved, "opencl").function)
    assert str(function).count("# thread blockIdx.x") == 1
    x = np.random.default_rng(0).standard_normal((10, 1, 48)).astype("float32")
    out = np.zeros((1, 2, 10, 8), "float32")
    run_on_device(function, x, out, seed=2)
    q, k, v = x.reshape(10, 3, 2, 8).transpose(1, 2, 0, 3)
    scores = 0.5 * q @ k.transpose(0, 2, 1)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = power / power.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(out[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options, ring, error", [
    ("sm_90a", Ring(64, 32, 3), 1e-6), ("sm_90a -tf32=3", Ring(64, 64, 3, thrice=True), 2e-6),
    ("sm_80 -tf32=1", Ring(64, 64, 3), 2e-3),
])
def test_products_of_float32(options: str, ring: Ring, error: float) -> None:
    """By lanes, as three products of tf32, and as one."""
    data, weight = var("x", 40, 40), var("w", 20, 40)
    with answering({"tile of a block": str(ring)}):
        made = lowered(relay.nn.dense(data, weight), f"cuda -arch={options}").function
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((rows, 40)).astype("float32") for rows in (40, 20))
    out = np.zeros((40, 20), "float32")
    run_on_device(loop_pipeline.run(made), x, w, out, seed=1)
    wanted = x.astype("float64") @ w.T
    assert np.linalg.norm(out - wanted) < error * np.linalg.norm(wanted)


def test_threads_load_vectors() -> None:
    narrow = var("x", 64, 1024, dtype="bfloat16")
    text = ptx_of(relay.nn.relu(narrow))
    assert "ld.global.nc.v4.b32" in text and "st.global.v4.b32" in text


def test_attention_of_tensor_cores_keeps_scores_in_registers() -> None:
    names = [var(n, 1, 200, 2, 80, dtype="bfloat16") for n in "qkv"]
    text = ptx_of(relay.nn.attention(*names, scale=0.125))
    assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in text
    assert "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16" in text
    assert "st.local" not in text and "st.shared" not in text
