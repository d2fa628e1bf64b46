"""Attention: the operator over odd shapes, and which graphs are recognised as it."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.interpreter import interpret
from sterna.relay.op import call
from sterna.relay.traverse import post_order
from sterna.schedule.attention import Product, best_share
from sterna.schedule.choose import answering
from sterna.schedule.kernel import Processor

BATCH, QUERIES, KEYS, HEADS, WIDTH = 2, 5, 7, 3, 4


def operators(expr: Any) -> set[str]:
    return {str(e.op) for e in post_order(expr) if isinstance(e, relay.Call)}


def legalized(body: Any) -> Any:
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(body))
    with tvm.transform.PassContext(opt_level=3):
        mod = relay.transform.Legalize()(mod)
    return relay.transform.InferType()(mod)["main"]


def is_recognised(body: Any) -> bool:
    return any("attention" in name for name in operators(legalized(body).body))


def q() -> Any:
    return relay.var("q", shape=(BATCH, QUERIES, HEADS, WIDTH))


def k(heads: int = HEADS) -> Any:
    return relay.var("k", shape=(BATCH, KEYS, heads, WIDTH))


def heads_first(x: Any, axes: Any = (0, 2, 1, 3)) -> Any:
    return relay.transpose(x, axes=axes)


def scores(query: Any = None, key: Any = None, **attrs: Any) -> Any:
    query = heads_first(q()) if query is None else query
    key = heads_first(k(), (0, 2, 3, 1)) if key is None else key
    return relay.nn.batch_matmul(query, key, **{"transpose_b": False, **attrs})


def mixed(weights: Any, value: Any = None, **attrs: Any) -> Any:
    value = relay.var("v", shape=(BATCH, KEYS, HEADS, 6)) if value is None else value
    return relay.nn.batch_matmul(
        weights, heads_first(value), **{"transpose_b": False, **attrs}
    )


def condition() -> Any:
    return relay.var("c", shape=(BATCH, 1, 1, KEYS), dtype="bool")


EIGHT = relay.const(np.float32(8.0))
RECOGNISED = {
    "bare": lambda: scores(),
    "divided": lambda: relay.divide(scores(), EIGHT),
    "multiplied": lambda: relay.multiply(EIGHT, scores()),
    "keys_not_turned": lambda: scores(key=heads_first(k()), transpose_b=True),
    "keys_turned_twice": lambda: scores(key=heads_first(heads_first(k()), (0, 1, 3, 2))),
    "mask_added": lambda: relay.add(
        relay.divide(scores(), EIGHT), relay.var("m", shape=(BATCH, 1, 1, KEYS))
    ),
    "added_to_mask": lambda: relay.add(relay.var("m", shape=(QUERIES, 1)), scores()),
    "where": lambda: relay.where(
        condition(), relay.multiply(scores(), EIGHT), relay.const(np.float32(-1e9))
    ),
    "where_not": lambda: relay.where(condition(), relay.const(np.float32(-1e9)), scores()),
}
NEAR_MISSES = {
    "softmax_of_queries": lambda: mixed(relay.nn.softmax(scores(), axis=2)),
    "no_softmax": lambda: mixed(scores()),
    "log_softmax": lambda: mixed(relay.nn.log_softmax(scores())),
    "mask_before_factor": lambda: mixed(relay.nn.softmax(relay.divide(
        relay.add(scores(), relay.var("m", shape=(QUERIES, KEYS))), EIGHT))),
    "factor_per_key": lambda: mixed(relay.nn.softmax(
        relay.multiply(scores(), relay.var("s", shape=(KEYS,))))),
    "number_divided": lambda: mixed(relay.nn.softmax(relay.divide(EIGHT, scores()))),
    "two_masks": lambda: mixed(relay.nn.softmax(relay.add(
        relay.add(scores(), relay.var("m", shape=(KEYS,))), relay.var("n", shape=(KEYS,))))),
    "mask_that_is_scores": lambda: mixed(relay.nn.softmax(relay.add(scores(), scores()))),
    "mask_that_makes_more": lambda: mixed(relay.nn.softmax(relay.add(
        scores(heads_first(relay.var("q", shape=(1, QUERIES, HEADS, WIDTH))),
               heads_first(relay.var("k", shape=(1, KEYS, HEADS, WIDTH)), (0, 2, 3, 1))),
        relay.var("m", shape=(BATCH, 1, 1, KEYS))))),
    "shared_keys": lambda: mixed(relay.nn.softmax(
        scores(key=heads_first(k(1), (0, 2, 3, 1))))),
    "queries_not_transposed": lambda: mixed(relay.nn.softmax(
        scores(query=relay.var("q", shape=(BATCH, HEADS, QUERIES, WIDTH))))),
    "wide_sums": lambda: mixed(relay.nn.softmax(scores(out_dtype="float64")),
                               relay.var("v", shape=(BATCH, KEYS, HEADS, 6), dtype="float64")),
    "where_of_tensors": lambda: mixed(relay.nn.softmax(
        relay.where(condition(), scores(), relay.var("m", shape=(QUERIES, KEYS))))),
}


def random_inputs(func: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    kinds = [p.checked_type for p in func.params]
    return [
        rng.integers(0, 2, t.shape).astype("bool") if t.dtype == "bool"
        else rng.standard_normal(t.shape).astype(str(t.dtype))
        for t in kinds
    ]


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_exporters_write_is_recognised(name: str) -> None:
    plain = relay.transform.InferType()(
        tvm.IRModule.from_expr(mixed(relay.nn.softmax(RECOGNISED[name]())))
    )["main"]
    made = legalized(plain.body)
    assert operators(made.body) & {"nn.attention", "nn.masked_attention"}
    assert not operators(made.body) & {"nn.softmax", "nn.batch_matmul"}
    given = dict(zip([p.name_hint for p in plain.params], random_inputs(plain), strict=True))
    want = interpret(plain, *given.values())
    have = interpret(made, *[given[p.name_hint] for p in made.params])
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_not_attention_stays(name: str) -> None:
    assert not is_recognised(NEAR_MISSES[name]())


PROCESSORS = [Processor(128, 16), Processor(256, 16, threads=8), Processor(512, 32)]


@pytest.mark.parametrize("seed", range(9))
def test_odd_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, keys, width, values = (int(n) for n in rng.integers(1, 40, 4))
    if seed % 3 == 0:
        keys, width, values = 32, 16, 64
    batch, heads = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    shapes = [(batch, queries, heads, width), (batch, keys, heads, width),
              (batch, keys, heads, values), (1, heads, queries, keys)]
    given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    params = [relay.var(f"p{i}", shape=shape) for i, shape in enumerate(shapes)]
    body = call("nn.masked_attention", *params, scale=0.3)
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    loops = lower_kernel(main.body.op, "kernel", PROCESSORS[seed % 3]).function
    out = tvm.nd.empty((batch, queries, heads, values))
    tvm.build(loops, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    want = interpret(main.body.op, *given)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_keys_are_turned_by_squares(bits: int, threads: int) -> None:
    shapes = [(2, 27, 2, 32), (2, 48, 2, 32), (2, 48, 2, 64)]
    rng = np.random.default_rng(bits)
    given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    params = tuple(relay.var(name, shape=shape) for name, shape in zip("qkv", shapes, strict=True))
    body = relay.Function(params, call("nn.attention", *params, scale=0.2))
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    processor = Processor(bits, 32 if bits == 512 else 16, threads=threads)
    loops = lower_kernel(main.body.op, "kernel", processor).function
    assert f"float32x{bits // 32}" in str(loops)
    assert "shuffle" in str(loops)
    out = tvm.nd.empty((2, 27, 2, 64))
    tvm.build(loops, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    want = interpret(main.body.op, *given)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-6)


def test_heads_are_cut_where_threads_would_wait() -> None:
    products = [Product(128, 64, 16, Processor(512, 32)), Product(64, 128, 16, Processor(512, 32))]
    assert best_share(products, 128, 12, 16, threads=2).groups == 1
    share = best_share(products, 128, 12, 16, threads=16)
    assert 12 * share.groups % 16 == 0
    assert 128 % (share.groups * share.rows) == 0
    assert best_share(products, 127, 12, 16, threads=16).groups == 1


def test_rows_pages_apart() -> None:
    shape = (1, 20, 2, 512)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype("float32") for s in (shape, (1, 1024, 2, 512))]
    x, y = relay.var("x", shape=shape), relay.var("y", shape=(1, 1024, 2, 512))
    main = relay.transform.FuseOps(2)(
        tvm.IRModule.from_expr(relay.Function((x, y), call("nn.attention", x, y, y, scale=0.05)))
    )["main"]
    lowered = lower_kernel(main.body.op, "kernel", Processor(512, 32))
    assert int(lowered.choices["tile"].split(" x ")[0]) <= 8
    out = tvm.nd.empty(shape)
    arguments = [given[0], given[1], given[1]][: len(main.body.op.params)]
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, arguments), out)
    np.testing.assert_allclose(out.numpy(), interpret(main.body.op, *arguments),
                               rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("queries", "way"), [(64, "packed"), (1, "where they lie")])
def test_values_are_packed_where_many_queries_read_them(queries: int, way: str) -> None:
    shapes = ((1, queries, 4, 32), (1, 160, 4, 32), (1, 160, 4, 32))
    params = [relay.var(n, shape=s) for n, s in zip("qkv", shapes, strict=True)]
    given = [np.random.default_rng(i).standard_normal(s).astype("float32")
             for i, s in enumerate(shapes)]
    func = relay.Function(tuple(params), call("nn.attention", *params, scale=0.2))
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(func))["main"]
    lowered = lower_kernel(main.body.op, "kernel", Processor(128, 32))
    assert str(lowered.decisions["values"]).startswith(way)
    out = tvm.nd.empty(shapes[0])
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    np.testing.assert_allclose(
        out.numpy(), interpret(main.body.op, *given), rtol=1e-4, atol=1e-5
    )


def test_a_row_that_is_masked_everywhere_is_not_a_number() -> None:
    params = [relay.var(n, shape=(1, 3, 1, 4)) for n in "qkv"]
    seen = relay.var("m", shape=(3, 3), dtype="bool")
    func = relay.Function((*params, seen), call("nn.masked_attention", *params, seen))
    given = [np.random.default_rng(i).standard_normal((1, 3, 1, 4)).astype("float32")
             for i in range(3)]
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(func))["main"]
    loops = lower_kernel(main.body.op, "kernel", Processor(256, 16)).function
    out = tvm.nd.empty((1, 3, 1, 4))
    tvm.build(loops, target="llvm")["kernel"](*map(tvm.nd.array, [*given, mask]), out)
    made = out.numpy()
    assert np.isnan(made[0, 1]).all()
    assert np.isfinite(made[0, [0, 2]]).all()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4, 5), (2, 3, 4, 6), (2, 3, 4, 5)), "the width of key"),
        (((2, 3, 4, 5), (2, 3, 2, 5), (2, 3, 4, 5)), "the heads of key"),
        (((2, 3, 4, 5), (2, 3, 4, 5), (2, 4, 4, 5)), "value's length"),
    ],
)
def test_operands_must_fit(shapes: Any, message: str) -> None:
    params = [relay.var(n, shape=s) for n, s in zip("qkv", shapes, strict=True)]
    with pytest.raises(Exception, match=message):
        relay.transform.InferType()(tvm.IRModule.from_expr(call("nn.attention", *params)))


# ---- heads that lie one after the other, and widths that fill no vectors ----


def whole_heads(queries: int, keys: int, width: int, values: int | None = None) -> relay.Function:
    """Attention of two heads, whose operands are of (1, 2, length, width)."""
    q = relay.var("q", shape=(1, 2, queries, width))
    k = relay.var("k", shape=(1, 2, width, keys))
    v = relay.var("v", shape=(1, 2, keys, values or width))
    scores = relay.nn.batch_matmul(q, k, transpose_b=False) * relay.const(0.125)
    return relay.Function(
        (q, k, v), relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False)
    )


@pytest.mark.parametrize(("queries", "keys", "width", "values", "way", "fused"), [
    (20, 37, 16, 16, "head by head", True), (20, 37, 16, 16, "product by product", False),
    (20, 37, 10, 16, "head by head", False), (7, 48, 32, 32, "head by head", True),
    (20, 37, 16, 62, "head by head", True), (20, 37, 16, 3, "head by head", False),
])
def test_heads_are_a_batch_where_scores_leave_the_cache(
    queries: int, keys: int, width: int, values: int, way: str, fused: bool
) -> None:
    mod = tvm.IRModule.from_expr(whole_heads(queries, keys, width, values))
    with tvm.transform.PassContext(opt_level=3), answering({"scores": way}):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    assert ("nn.attention" in text) == fused
    rng = np.random.default_rng(0)
    shapes = [(1, 2, queries, width), (1, 2, width, keys), (1, 2, keys, values)]
    q, k, v = given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(**dict(zip("qkv", given, strict=True)))
    power = np.exp(q @ k * 0.125)
    np.testing.assert_allclose(
        m.get_output(0).numpy(), power / power.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("shapes", [
    ((6, 20, 16), (6, 37, 16), (6, 37, 16)), ((6, 20, 16), (6, 37, 16), (6, 37, 40)),
    ((6, 20, 16), (1, 37, 16), (6, 37, 16)), ((6, 20, 16), (6, 37, 16), (1, 37, 16)),
    ((2, 3, 20, 16), (2, 3, 37, 16), (1, 3, 37, 16)),
    ((2, 3, 20, 16), (1, 3, 37, 16), (2, 3, 37, 16)),
    ((1, 3, 20, 16), (1, 3, 37, 16), (2, 3, 37, 16)),
])
@pytest.mark.parametrize("transposed", [False, True])
def test_batches_of_heads_are_fused_unless_one_is_broadcast(
    shapes: tuple[tuple[int, ...], ...], transposed: bool
) -> None:
    q, k, v = (relay.var(name, shape=shape) for name, shape in zip("qkv", shapes, strict=True))
    order = (*range(len(shapes[1]) - 2), -1, -2)
    keys = relay.transpose(k, axes=order) if transposed else k
    weights = relay.nn.softmax(
        relay.nn.batch_matmul(q, keys, transpose_b=not transposed) / relay.const(4.0))
    body = relay.nn.batch_matmul(weights, v, transpose_b=False)
    mod = tvm.IRModule.from_expr(relay.Function((q, k, v), body))
    with tvm.transform.PassContext(opt_level=3), answering({"scores": "head by head"}):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    is_whole = len({shape[:-2] for shape in shapes}) == 1
    assert ("nn.attention" in text) == is_whole
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(**dict(zip("qkv", given, strict=True)))
    power = np.exp(given[0] @ given[1].swapaxes(-1, -2) / 4)
    np.testing.assert_allclose(
        m.get_output(0).numpy(), power / power.sum(-1, keepdims=True) @ given[2],
        rtol=1e-4, atol=1e-5,
    )


@pytest.mark.parametrize("target", [
    "llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu",
    "llvm -mcpu=icelake-server -mtriple=x86_64-linux-gnu",
])
def test_long_scores_stay_in_the_cache(target: str) -> None:
    for keys, width, fused in ((1500, 64, True), (1500, 40, True), (64, 64, False)):
        mod = tvm.IRModule.from_expr(whole_heads(keys, keys, width))
        assert ("nn.attention" in str(relay.optimize(mod, target)[0])) == fused
