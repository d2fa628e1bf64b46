"""Products with operands that only the run knows: every way of reading them gives the same."""

import itertools
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.ir.pass_context import PassContext
from sterna.schedule.config import ANSWERS
from sterna.schedule.register_tile import TileSpace, vectors_of

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake"
WAYS = ["as it lies", "panels", "dot products", "streamed"]
SHAPES = [
    (33, 40, 1), (8, 3, 16), (4, 2, 4), (1, 64, 48), (1, 37, 51), (3, 64, 70), (9, 128, 40),
    (40, 81, 33),
]


def product(
    rows: int, depth: int, columns: int, turned: bool, batch: tuple[int, ...]
) -> relay.Function:
    """A matrix times a matrix, both inputs, with an epilogue."""
    a = relay.var("a", shape=(*batch, rows, depth))
    b = relay.var("b", shape=(*batch, columns, depth) if turned else (*batch, depth, columns))
    if batch:
        made = relay.nn.batch_matmul(a, b, transpose_b=turned)
    else:
        made = relay.nn.dense(a, b) if turned else relay.nn.matmul(a, b)
    return relay.Function((a, b), relay.nn.relu(made))


def run(func: relay.Function, inputs: list[Any], answers: dict[str, str]) -> Any:
    with PassContext(opt_level=3, config={ANSWERS: answers}):
        made = relay.build(sterna.IRModule.from_expr(func), target="llvm -mcpu=native")
    executor = sterna.contrib.graph_executor.GraphModule(made["default"](sterna.cpu()))
    executor.run(a=inputs[0], b=inputs[1])
    return executor.get_output(0).numpy()


@pytest.mark.parametrize(("shape", "turned"), [*itertools.product(SHAPES, (False, True))])
def test_products(shape: tuple[int, int, int], turned: bool) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(rows * depth)
    batch = (2,) if rows == 9 else ()
    a = rng.standard_normal((*batch, rows, depth)).astype("float32")
    b = rng.standard_normal((*batch, depth, columns)).astype("float32")
    expected = np.maximum(a @ b, 0)
    given = np.ascontiguousarray(b.swapaxes(-1, -2)) if turned else b
    func = product(rows, depth, columns, turned, batch)
    for way in WAYS:
        got = run(func, [a, given], {"free operand": way})
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=way)


@pytest.mark.parametrize("way", ["as it lies", "panels"])
def test_matrices_in_several_axes(way: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, 3, *s)).astype("float32") for s in ((17, 20), (20, 32)))
    got = run(product(17, 20, 32, False, (2, 3)), [a, b], {"free operand": way})
    np.testing.assert_allclose(got, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [336, 333])
@pytest.mark.parametrize("turned", [False, True])
def test_large_results_are_made_row_by_row(turned: bool, columns: int) -> None:
    """They leave the second cache; with each way of running tiles the numbers are the same."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 301, 24)).astype("float32")
    b = rng.standard_normal((4, 24, columns)).astype("float32")
    given = np.ascontiguousarray(b.swapaxes(-1, -2)) if turned else b
    func = product(301, 24, columns, turned, (4,))
    for way in ("rows", "columns"):
        got = run(func, [a, given], {"free operand": "panels", "tiles outside": way})
        np.testing.assert_allclose(got, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4, err_msg=way)


def test_rows_run_outside_where_the_result_is_large() -> None:
    """Not where it stays in the second cache, nor where weights would leave it again and again."""
    for rows, depth, units, way in ((4096, 96, 384, "rows"), (256, 96, 384, None),
                                    (2048, 768, 384, None)):
        x, weight = relay.var("x", shape=(rows, depth)), np.ones((units, depth), "float32")
        func = relay.Function((x,), relay.nn.dense(x, relay.const(weight)))
        made = sterna.compile(sterna.IRModule.from_expr(func), target=AVX512)
        (kernel,) = made.report().kernels
        taken = kernel.decisions.get("tiles outside")
        assert taken is None if way is None else str(taken).startswith(way)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("way", ["dot products", "streamed"])
def test_threads_share_the_columns_of_one_row(way: str, batch: tuple[int, ...]) -> None:
    func = product(1, 512, 1000, way == "dot products", batch)
    with PassContext(opt_level=3, config={ANSWERS: {"free operand": way}}):
        made = relay.build(sterna.IRModule.from_expr(func), target="llvm -num-cores=8")
    assert "parallel" in made.get_lib().get_source("ll")


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("depth", [8, 20, 32])
def test_a_row_times_any_number_of_columns(heads: int, depth: int) -> None:
    """A decoder's query reads its keys as they lie, however many there are."""
    keys = relay.Any("keys")
    a = relay.var("a", shape=(heads, 1, depth))
    b = relay.var("b", shape=(heads, keys, depth))
    turned = relay.transpose(b, (0, 2, 1))
    made = relay.nn.relu(relay.nn.batch_matmul(a, turned, transpose_b=False))
    module = sterna.IRModule.from_expr(relay.Function((a, b), made))
    run_it = sterna.compile(module)
    rng = np.random.default_rng(depth)
    for count in (1, 7, 8, 9, 31, 64, 77):
        given = rng.standard_normal((heads, 1, depth)).astype("float32")
        held = rng.standard_normal((heads, count, depth)).astype("float32")
        want = np.maximum(given @ held.swapaxes(-1, -2), 0)
        got = np.asarray(run_it(a=given, b=held))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(count))


def test_a_transposition_becomes_part_of_the_product() -> None:
    """Of the last two axes; one that also moves others is left."""
    for axes, left in (((0, 1, 3, 2), 0), ((0, 2, 3, 1), 1)):
        a, b = relay.var("a", shape=(2, 4, 1, 16)), relay.var("b", shape=(2, 4, 5, 16))
        turned = relay.transpose(b, axes)
        if left:
            a = relay.var("a", shape=(2, 5, 1, 16))
        made = relay.nn.batch_matmul(a, turned, transpose_b=False)
        module = sterna.IRModule.from_expr(relay.Function((a, b), made))
        with sterna.target.Target("llvm -mcpu=native"), PassContext(opt_level=3):
            text = str(relay.optimize(module, "llvm -mcpu=native")[0])
        assert text.count("transpose(") == left, text


def test_a_dense_layer_reads_weights_as_they_lay_before() -> None:
    """Gemm of ONNX without transB is a dense layer of weights whose axes changed places."""
    a, b = relay.var("a", shape=(5, 48)), relay.var("b", shape=(48, 70))
    made = relay.nn.relu(relay.nn.dense(a, relay.transpose(b, (1, 0))))
    run_it = sterna.compile(sterna.IRModule.from_expr(relay.Function((a, b), made)))
    assert [kernel.anchor for kernel in run_it.report().kernels] == ["nn.matmul"]
    rng = np.random.default_rng(0)
    rows, weights = (rng.standard_normal(s).astype("float32") for s in ((5, 48), (48, 70)))
    want = np.maximum(rows @ weights, 0)
    np.testing.assert_allclose(np.asarray(run_it(rows, weights)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [85, 91, 75, 45, 197, 500])
def test_the_last_columns_stay_in_registers(columns: int) -> None:
    """Parts of vectors take a register each: of a high tile they would be loaded and stored."""
    space = TileSpace(400, columns, 16, 31, ragged=True)
    tile = space.cheapest()
    vectors = vectors_of(columns % tile.columns, 16)
    assert (tile.rows + 1) * vectors < 31
