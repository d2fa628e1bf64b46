"""The graph executor from Python, held against NumPy."""

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna.contrib import graph_executor
from sterna.runtime.params import save_param_dict
from tests.runtime.graphs import SHAPE, Graph, kernels, sample, small_graph

CPU = tvm.cpu(0)
COUNT = SHAPE[0] * SHAPE[1]


def module_of(**functions: Any) -> tvm.Module:
    """A module of Python functions."""

    class Functions:
        def find(self, name: str) -> tvm.runtime.PackedFunc | None:
            return tvm.runtime.PackedFunc(functions[name]) if name in functions else None

    module: tvm.Module = tvm.runtime._core.make_module(tvm.Module, Functions())
    return module


def make(graph: Graph | None = None) -> graph_executor.GraphModule:
    return graph_executor.create((graph or small_graph()).planned_json(), kernels(), CPU)


def check(m: graph_executor.GraphModule, x: Any, w: Any) -> None:
    """The small graph's outputs are right."""
    total = np.asarray(x, "float32") + np.asarray(w, "float32")
    np.testing.assert_array_equal(m.get_output(1).numpy(), total)
    np.testing.assert_array_equal(m.get_output(0).numpy(), total.ravel() * np.float32(0.5))


# ---- any graph ----


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs with shared entries, views, copies, several outputs, and outputs given twice."""
    graph = Graph()
    entries = [graph.input(f"x{i}") for i in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["add", "subtract", "halve", "both", "row", "__copy"]))
        first = draw(st.sampled_from(entries))
        if kind == "row":
            (row,) = graph.call("__nop", first, outputs=[(COUNT,)])
            (half,) = graph.call("halve_row", row)
            entries += graph.call("__nop", half, outputs=[SHAPE])
        elif kind == "both":
            entries += graph.call(kind, first, outputs=[SHAPE, SHAPE])
        elif kind in ("halve", "__copy"):
            entries += graph.call(kind, first)
        else:
            entries += graph.call(kind, first, draw(st.sampled_from(entries)))
    graph.heads = draw(st.lists(st.sampled_from(range(len(graph.places))), min_size=1, max_size=4))
    return graph


@settings(max_examples=150)
@given(graphs(), st.booleans(), st.data())
def test_any_graph_gives_what_numpy_gives(graph: Graph, planned: bool, data: st.DataObject) -> None:
    text = graph.planned_json() if planned else graph.json()
    m = graph_executor.create(text, kernels(), CPU)
    names = [graph.nodes[i]["name"] for i in graph.inputs]
    outputs = range(len(graph.heads))
    bound = {i: tvm.nd.empty(graph.shapes[graph.heads[i]], "float32") for i in outputs}
    for turn in range(3):
        values = {name: sample(turn * 10 + i) for i, name in enumerate(names)}
        for name in names:
            if data.draw(st.booleans()):
                m.set_input_zero_copy(name, values[name])
            else:
                m.set_input(name, values[name])
        here = {i for i in outputs if data.draw(st.booleans())}
        for i in outputs:
            m.set_output_zero_copy(i, bound[i] if i in here else None)
        m.run()
        for i, want in enumerate(graph.evaluate(values)):
            np.testing.assert_array_equal(m.get_output(i).numpy(), want)
            if i in here:
                np.testing.assert_array_equal(bound[i].numpy(), want)


# ---- inputs and outputs ----


def test_values_are_set_by_name_by_number_and_by_keyword() -> None:
    m, x, w = make(), sample(1), sample(2)
    m.set_input("x", x)
    m.set_input(1, tvm.nd.array(w))
    m.run()
    check(m, x, w)
    m.set_input(x=w, w=x)
    m.run()
    check(m, w, x)
    m.run(x=x)
    check(m, x, x)


def test_numpy_values_are_converted() -> None:
    m = make()
    x = np.arange(COUNT).reshape(SHAPE)
    m.run(x=x, w=[[1] * SHAPE[1]] * SHAPE[0])
    check(m, x, np.ones(SHAPE))
    m.run(x=sample(1, SHAPE[::-1]).T, w=np.float64(3) * np.ones(SHAPE))
    check(m, sample(1, SHAPE[::-1]).T, 3 * np.ones(SHAPE))
    frozen = sample(4)
    frozen.flags.writeable = False
    m.run(x=frozen)
    check(m, frozen, 3 * np.ones(SHAPE))


def test_unknown_names_are_left_out_of_keywords_but_not_elsewhere() -> None:
    m = make()
    m.run(x=sample(1), nothing=3, w=sample(2))
    check(m, sample(1), sample(2))
    for call in (
        lambda: m.set_input("nothing", sample()),
        lambda: m.set_input_zero_copy("nothing", sample()),
        lambda: m.get_input("nothing"),
    ):
        with pytest.raises(RuntimeError, match="Could not find 'nothing' in graph's inputs"):
            call()
    with pytest.raises(RuntimeError, match="Could not find 'nothing' in graph's outputs"):
        m.set_output_zero_copy("nothing", sample())
    assert m.get_input_index("nothing") == m.get_output_index("nothing") == -1


def test_what_does_not_fit_is_refused_by_name() -> None:
    m = make()
    with pytest.raises(ValueError, match=r"input 'x' has the shape \(3, 5\), but \(5,\) was given"):
        m.set_input("x", np.zeros(5))
    with pytest.raises(ValueError, match=r"'x' is float32\[3, 5\], but int32\[3, 5\] was given"):
        m.set_input("x", tvm.nd.array(np.zeros(SHAPE, "int32")))
    with pytest.raises(ValueError, match=r"'x' is float32\[3, 5\], but float64\[3, 5\] was given"):
        m.set_input_zero_copy("x", np.zeros(SHAPE))
    with pytest.raises(ValueError, match=r"output 'add2' is float32\[3, 5\], but float32\[15\]"):
        m.set_output_zero_copy(1, np.zeros(COUNT, "float32"))
    shifted = np.zeros(COUNT * 4 + 1, "uint8")[1:].view("float32").reshape(SHAPE)
    with pytest.raises(ValueError, match="input 'x' is not aligned"):
        m.set_input_zero_copy("x", shifted)
    frozen = tvm.nd.from_dlpack(_frozen(np.zeros(SHAPE, "float32")))
    with pytest.raises(ValueError, match="output 'add2' is read-only"):
        m.set_output_zero_copy(1, frozen)
    m.set_input_zero_copy("x", frozen)
    with pytest.raises(IndexError, match="no output 2"):
        m.get_output(2)
    with pytest.raises(IndexError, match="no input 9"):
        m.get_input(9)


def _frozen(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values.flags.writeable = False
    return values


def test_counts_and_info() -> None:
    m = make()
    assert (m.get_num_inputs(), m.get_num_outputs()) == (2, 2)
    assert (m.get_input_index("w"), m.get_output_index("add2")) == (1, 1)
    assert m.get_input_info() == ({"x": SHAPE, "w": SHAPE}, {"x": "float32", "w": "float32"})
    m.load_params(save_param_dict({"w": sample()}))
    assert m.get_input_info() == ({"x": SHAPE}, {"x": "float32"})


def test_outputs_are_views_that_the_next_run_overwrites() -> None:
    m = make()
    m.run(x=sample(1), w=sample(2))
    view, copy = m.get_output(1), m.get_output(1, tvm.nd.empty(SHAPE))
    m.run(x=sample(3))
    np.testing.assert_array_equal(view.numpy(), sample(3) + sample(2))
    np.testing.assert_array_equal(copy.numpy(), sample(1) + sample(2))
    del m
    np.testing.assert_array_equal(view.numpy(), sample(3) + sample(2))


def test_inputs_are_fetched_and_written_to() -> None:
    m = make()
    m.set_input("x", sample(1))
    np.testing.assert_array_equal(m.get_input("x").numpy(), sample(1))
    m.get_input(1)[:] = sample(2)
    m.run()
    check(m, sample(1), sample(2))
    copy = m.get_input("x", tvm.nd.empty(SHAPE))
    np.testing.assert_array_equal(copy.numpy(), sample(1))


def test_a_state_is_fed_back_without_copies() -> None:
    m = make()
    state = tvm.nd.array(np.zeros(SHAPE, "float32"))
    m.set_input("w", np.ones(SHAPE))
    m.set_input_zero_copy("x", state)
    m.set_output_zero_copy("add2", state)
    for turn in range(1, 5):
        m.run()
        np.testing.assert_array_equal(state.numpy(), np.full(SHAPE, turn))
    with pytest.raises(ValueError, match="own memory"):
        m.set_input_zero_copy("x", make_output_of(m))


def make_output_of(m: graph_executor.GraphModule) -> tvm.NDArray:
    m.set_output_zero_copy("add2", None)
    return m.get_output(1)


# ---- parameters ----


def test_parameters_are_loaded_and_replaced_for_one_executor() -> None:
    m, second = make(), make()
    params = save_param_dict({"w": sample(2), "unknown": np.zeros(3)})
    m.load_params(params)
    second.share_params(m, params)
    assert m.get_input("w").data_ptr() == second.get_input("w").data_ptr()
    with pytest.raises(ValueError, match="read-only"):
        m.get_input("w")[:] = 0
    m.run(x=sample(1), w=sample(3))
    second.run(x=sample(1))
    check(m, sample(1), sample(3))
    check(second, sample(1), sample(2))
    m.reset()
    m.run()
    check(m, np.zeros(SHAPE), sample(2))


@pytest.mark.parametrize("broken", [b"", b"nonsense", "cut", "longer"])
def test_broken_parameters_are_refused(broken: bytes | str) -> None:
    m = make()
    params = save_param_dict({"w": sample(2)})
    given_bytes = {"cut": params[:-5], "longer": params + b"x"}.get(str(broken), broken)
    with pytest.raises(ValueError, match="no complete parameters"):
        m.load_params(bytearray(given_bytes))  # type: ignore[arg-type]
    m.run()
    check(m, np.zeros(SHAPE), np.zeros(SHAPE))


# ---- threads ----


def test_executors_run_side_by_side_over_one_copy_of_the_parameters() -> None:
    first = make()
    params = save_param_dict({"w": sample(2)})
    first.load_params(params)
    failures: list[Exception] = []

    def work(m: graph_executor.GraphModule, seed: int) -> None:
        try:
            for turn in range(50):
                m.run(x=sample(seed + turn))
                check(m, sample(seed + turn), sample(2))
        except Exception as error:
            failures.append(error)

    executors = [make() for _ in range(4)]
    for m in executors:
        m.share_params(first, params)
    threads = [threading.Thread(target=work, args=(m, 100 * i)) for i, m in enumerate(executors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_executor_serves_one_thread_at_a_time() -> None:
    graph = Graph()
    x = graph.input("x")
    graph.heads = graph.call("again", x)
    with pytest.raises(ValueError, match="lacks functions that the graph calls: 'again'"):
        graph_executor.create(graph.json(), module_of(), CPU)
    calls: dict[str, Any] = {}
    functions = module_of(again=lambda *_: calls["m"].run())
    calls["m"] = graph_executor.create(graph.json(), functions, CPU)
    with pytest.raises(RuntimeError, match="node 'again1': the executor is in use"):
        calls["m"].run()


# ---- errors ----


def test_errors_of_a_node_name_it_and_keep_their_cause() -> None:
    graph = Graph()
    x = graph.input("x")
    graph.heads = graph.call("fail", x)

    def fail(*_: Any) -> None:
        raise KeyError("the weather")

    m = graph_executor.create(graph.json(), module_of(fail=fail), CPU)
    with pytest.raises(KeyError, match="node 'fail1': 'the weather'") as caught:
        m.run()
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_kernel_that_does_not_fit_its_node_is_named() -> None:
    graph = Graph()
    x = graph.input("x", (4, 4))
    graph.heads = graph.call("halve", x)
    m = graph_executor.create(graph.json(), kernels(), CPU)
    with pytest.raises(ValueError, match=r"node 'halve1': halve\(A: float32\[3, 5\]"):
        m.run()


def test_what_is_no_executor_is_refused() -> None:
    with pytest.raises(TypeError, match=r'GraphModule\(lib\["default"\]\(dev\)\)'):
        graph_executor.GraphModule(kernels())
    with pytest.raises(ValueError, match="JSON text, not dict"):
        graph_executor.create({}, kernels(), CPU)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no JSON object"):
        graph_executor.create("[]", kernels(), CPU)
    with pytest.raises(RuntimeError, match="cuda"):
        graph_executor.create(small_graph().json(), kernels(), tvm.cuda(7))
    broken = json.loads(small_graph().json())
    broken["heads"] = [[99, 0, 0]]
    with pytest.raises(ValueError, match="to node 99"):
        graph_executor.create(json.dumps(broken), kernels(), CPU)


# ---- timing ----


def test_benchmark_sets_inputs_and_times() -> None:
    m = make()
    result = m.benchmark(CPU, repeat=3, number=2, x=sample(1), w=sample(2))
    assert len(result.results) == 3
    check(m, sample(1), sample(2))
    assert m.benchmark(CPU, repeat=1, number=1, end_to_end=True, x=sample(1)).mean > 0
    assert m.module.time_evaluator("run", CPU, number=2, repeat=2)().min > 0
    assert m["get_num_outputs"]() == 2


def test_caches_are_written_over_before_each_repeat() -> None:
    seen: list[int] = []
    tvm.register_func("test.before_a_repeat", lambda *args: seen.append(len(args)))
    try:
        timed = make().module.time_evaluator(
            "run", CPU, number=1, repeat=3, cache_flush_bytes=1 << 20,
            f_preproc="test.before_a_repeat",
        )
        assert timed().min > 0
    finally:
        tvm.remove_global_func("test.before_a_repeat")
    assert seen == [0, 0, 0]
    with pytest.raises(ValueError, match="cache_flush_bytes=-1"):
        make().module.time_evaluator("run", CPU, cache_flush_bytes=-1)


def test_a_node_costs_little() -> None:
    graph = Graph()
    x = graph.input("x")
    for _ in range(1000):
        (x,) = graph.call("halve", x)
    graph.heads = [x]
    m = make(graph)
    best = min(m.benchmark(CPU, repeat=20, number=5).results)
    assert best / 1000 < 200e-9


def test_an_input_that_would_wrap_around_is_named() -> None:
    x = tvm.relay.var("x", shape=(2,), dtype="int8")
    built = tvm.relay.build(tvm.IRModule.from_expr(x + x), "llvm")
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    with pytest.raises(ValueError, match="input 'x': 300 does not fit in int8, which holds -128"):
        module.set_input("x", [1, 300])
