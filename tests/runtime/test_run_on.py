"""Runs on the caller's arrays, and arrays that must not be written to."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.runtime.ndarray import numpyasarray
from tests.runtime.graphs import SHAPE, Array, Graph, kernels, sample, small_graph
from tests.runtime.test_graph_executor import CPU, check, graphs, make, module_of


def run_on(m: graph_executor.GraphModule, *arrays: Any) -> None:
    """One run on arrays: the inputs, then the outputs."""
    m["run_on"](*arrays)


def outputs_of(graph: Graph) -> list[Array]:
    """Room for what a graph computes."""
    return [np.empty(graph.shapes[head], "float32") for head in graph.heads]


@settings(max_examples=60)
@given(graphs(), st.booleans())
def test_any_graph_gives_what_numpy_gives(graph: Graph, planned: bool) -> None:
    text = graph.planned_json() if planned else graph.json()
    m = graph_executor.create(text, kernels(), CPU)
    for turn in range(2):
        values = {
            graph.nodes[node]["name"]: sample(10 * turn + place)
            for place, node in enumerate(graph.inputs)
        }
        before = {name: value.copy() for name, value in values.items()}
        for value in values.values():
            value.flags.writeable = False
        results = outputs_of(graph)
        run_on(m, *values.values(), *results)
        for result, want in zip(results, graph.evaluate(values), strict=True):
            np.testing.assert_array_equal(result, want)
        for name, value in values.items():
            np.testing.assert_array_equal(value, before[name])


def test_what_was_bound_before_is_bound_after() -> None:
    m = make()
    m.set_input("x", sample(1))
    bound = np.zeros(SHAPE, "float32")
    m.set_output_zero_copy("add2", bound)
    results = outputs_of(small_graph())
    run_on(m, sample(3), sample(4), *results)
    np.testing.assert_array_equal(results[1], sample(3) + sample(4))
    assert not bound.any()
    m.run(w=sample(2))
    check(m, sample(1), sample(2))
    np.testing.assert_array_equal(bound, sample(1) + sample(2))


def test_parameters_stay() -> None:
    m = make()
    m["give_params"]([["w", tvm.nd.array(sample(2))]])
    results = outputs_of(small_graph())
    run_on(m, sample(1), *results)
    np.testing.assert_array_equal(results[1], sample(1) + sample(2))


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    m = make()
    m.run(x=sample(1), w=sample(2))
    x, w = sample(3), sample(4)
    row, total = outputs_of(small_graph())
    frozen = np.frombuffer(bytes(total.nbytes), "float32").reshape(SHAPE)
    odd = np.zeros(total.nbytes + 1, np.uint8)[1:].view("float32").reshape(SHAPE)
    cases = [
        ((x, w, row), TypeError, "takes 2 inputs and 2 outputs, not 3 arrays"),
        ((x, 1, row, total), TypeError, "expected an array"),
        ((x, w, row, None), TypeError, "expected an array"),
        ((x, w.astype("float64"), row, total), ValueError, "input 'w' is float32"),
        ((x, w, total, row), ValueError, "output 'halve_row.*' is float32"),
        ((x, w, row, frozen), ValueError, "the array given for output 'add2' is read-only"),
        ((x, w, row, odd), ValueError, "output 'add2' is not aligned"),
        ((x, w, row, x), ValueError, "'add2' shares memory with an input"),
        ((x, w, total.ravel(), total), ValueError, "'add2' shares memory with .* another output"),
        ((x, m.get_output(1), row, total), ValueError, "input 'w' lies in the executor's own"),
        ((x, w, row, m.get_output(1)), ValueError, "output 'add2' lies in the executor's own"),
    ]
    for arrays, kind, message in cases:
        with pytest.raises(kind, match=message):
            run_on(m, *arrays)
    assert not frozen.any()
    m.run()
    check(m, sample(1), sample(2))


def test_an_executor_is_usable_after_a_node_failed() -> None:
    graph = Graph()
    graph.heads = graph.call("sometimes", graph.input("x"))

    def sometimes(x: tvm.NDArray, out: tvm.NDArray) -> None:
        if x.numpy().any():
            raise KeyError("the weather")
        out[:] = 7

    m = graph_executor.create(graph.json(), module_of(sometimes=sometimes), CPU)
    result = np.zeros(SHAPE, "float32")
    with pytest.raises(KeyError, match="the weather"):
        run_on(m, np.ones(SHAPE, "float32"), result)
    run_on(m, np.zeros(SHAPE, "float32"), result)
    assert (result == 7).all()
    m.run()  # on zeros of its own
    assert (m.get_output(0).numpy() == 7).all()


# ---- memory that must not be written to ----


def test_read_only_arrays_are_refused_wherever_something_is_written(tmp_path: Path) -> None:
    m = make()
    m.run(x=sample(1), w=sample(2))
    (tmp_path / "numbers").write_bytes(bytes(sample().nbytes))
    mapped = np.memmap(tmp_path / "numbers", "float32", "r", shape=SHAPE)
    locked = np.zeros(SHAPE, "float32")
    locked.flags.writeable = False
    for frozen in (mapped, locked, np.frombuffer(bytes(locked.nbytes), "float32").reshape(SHAPE)):
        shared = tvm.nd.from_dlpack(frozen)
        with pytest.raises(ValueError, match="'add2' is read-only"):
            m["get_output"](1, frozen)
        with pytest.raises(ValueError, match="'add2' is read-only"):
            m.set_output_zero_copy(1, frozen)
        with pytest.raises(ValueError, match="read-only"):
            shared.copyfrom(sample())
        with pytest.raises(ValueError, match="read-only"):
            m.get_output(1).copyto(shared.reshape(SHAPE))
        assert not frozen.any() and shared.is_read_only
        assert not np.from_dlpack(shared).flags.writeable
        m.set_input_zero_copy("x", frozen)
        m.run(w=sample(2))
        check(m, frozen, sample(2))
        m.set_input_zero_copy("x", None)
    times = np.zeros(len(m["get_node_names"]()), np.int64)
    times.flags.writeable = False
    with pytest.raises(ValueError, match="writable array int64"):
        m["run_timed"](times)


# ---- elements that NumPy lacks ----


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_elements_of_ml_dtypes_are_set_and_bound(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    x = relay.var("x", shape=(2, 4), dtype=dtype)
    graph = tvm.IRModule.from_expr(relay.Function((x,), relay.reverse(x, axis=1)))
    m = graph_executor.GraphModule(relay.build(graph, target="llvm")["default"](CPU))
    values = np.arange(8).reshape(2, 4).astype(kind)
    result = np.zeros((2, 4), kind)
    for lent in (values, np.asfortranarray(values), values.astype("float32")):
        m.set_input("x", lent)
        m.run()
        np.testing.assert_array_equal(
            m.get_output(0).numpy().view(kind).astype("float32"),
            values[:, ::-1].astype("float32"),
        )
    m.set_input_zero_copy("x", values)
    m.set_output_zero_copy(0, result)
    values[:] = values + values
    m.run()
    np.testing.assert_array_equal(result.astype("float32"), values[:, ::-1].astype("float32"))


def test_packed_elements_cannot_be_shared() -> None:
    with pytest.raises(TypeError, match="each int4 a byte, so its memory cannot be shared"):
        numpyasarray(np.zeros(4, ml_dtypes.int4))
