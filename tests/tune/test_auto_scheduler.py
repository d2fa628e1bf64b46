"""The auto-scheduler's classic names: searching workloads, logs as steps, networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import auto_scheduler, relay, te
from sterna.auto_scheduler.sketch import Sketch
from sterna.auto_scheduler.steps import KINDS, step_of_json
from sterna.target import Target


@auto_scheduler.register_workload
def product_and_sum(n: int, m: int, k: int) -> list[te.Tensor]:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    c = te.placeholder((n, m), name="C")
    r = te.reduce_axis((0, k), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    return [a, b, c, te.compute((n, m), lambda i, j: product[i, j] + c[i, j], name="out")]


@auto_scheduler.register_workload("softmax_rows")
def softmax(n: int, m: int) -> list[te.Tensor]:
    x = te.placeholder((n, m), name="x")
    r, q = te.reduce_axis((0, m), name="r"), te.reduce_axis((0, m), name="q")
    most = te.compute((n,), lambda i: te.max(x[i, r], axis=r), name="most")
    power = te.compute((n, m), lambda i, j: te.exp(x[i, j] - most[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, q], axis=q), name="total")
    return [x, te.compute((n, m), lambda i, j: power[i, j] / total[i], name="rows")]


def product_alone() -> list[te.Tensor]:
    product = product_and_sum(8, 16, 12)[3].op.input_tensors[0]
    return [*product.op.input_tensors, product]


def padded_convolution() -> list[te.Tensor]:
    x = te.placeholder((1, 3, 8, 8), name="x")
    w = te.placeholder((4, 3, 3, 3), name="w")
    pad = te.compute(
        (1, 3, 10, 10),
        lambda n, c, y, z: te.if_then_else(
            te.all(y > 0, y < 9, z > 0, z < 9), x[n, c, y - 1, z - 1], 0.0
        ),
        name="pad",
    )
    c, p, q = (te.reduce_axis((0, 3), name=name) for name in "cpq")
    conv = te.compute(
        (1, 4, 8, 8),
        lambda n, o, y, z: te.sum(pad[n, c, y + p, z + q] * w[o, c, p, q], axis=[c, p, q]),
        name="conv",
    )
    return [x, w, te.compute((1, 4, 8, 8), lambda *i: te.max(conv(*i), 0.0), name="relu")]


WORKLOADS = {
    "product": lambda: product_and_sum(12, 20, 9), "softmax": lambda: softmax(6, 10),
    "convolution": padded_convolution, "product alone": product_alone,
}


def arrays_of(tensors: list[te.Tensor]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    shapes = [tuple(int(str(extent)) for extent in tensor.shape) for tensor in tensors]
    return [rng.random(shape, "float32") for shape in shapes]


def results(schedule: te.Schedule, args: list[te.Tensor], target: str) -> np.ndarray[Any, Any]:
    made = sterna.build(schedule, args, target)
    device = sterna.device(Target(target).kind.name if target == "opencl" else "cpu")
    given = [sterna.nd.array(array, device) for array in arrays_of(args)]
    made(*given)
    return given[-1].numpy()


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_every_point_computes_the_same(name: str, target: str) -> None:
    tensors = WORKLOADS[name]()
    dag = auto_scheduler.ComputeDAG(tensors)
    sketch = Sketch(dag, Target(target))
    expected = results(te.create_schedule(tensors[-1].op), tensors, "llvm")
    rng, tried = np.random.default_rng(3), 0
    for point in [0, *rng.integers(0, len(sketch.space), 4 if target == "llvm" else 1)]:
        try:
            state = sketch.state(sketch.space.get(int(point)))
        except ValueError as error:
            assert "threads" in str(error)
            continue
        again = auto_scheduler.loop_state.State(
            dag, [step_of_json(json.loads(json.dumps(s.to_json()))) for s in state.transform_steps]
        )
        np.testing.assert_allclose(results(*again.apply(), target), expected, rtol=1e-5)
        tried += 1
    assert tried


def test_a_workload_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = auto_scheduler.SearchTask(func=product_and_sum, args=(32, 32, 32), target="llvm")
    assert str(task.compute_dag).splitlines() == [
        "A = PLACEHOLDER [32, 32]", "B = PLACEHOLDER [32, 32]",
        "product(i, j) += A[i, k]*B[k, j]", "C = PLACEHOLDER [32, 32]",
        "out(i, j) = product[i, j] + C[i, j]",
    ]
    assert task.compute_dag.flop_ct == 2 * 32**3 + 32**2
    log = tmp_path / "product.json"
    options = auto_scheduler.TuningOptions(
        num_measure_trials=3, verbose=1, measure_callbacks=[auto_scheduler.RecordToFile(log)],
        runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
    )
    task.tune(options)
    assert capsys.readouterr().out.count("trial") == 3
    records = list(auto_scheduler.load_records(log))
    assert len(records) == 3 and all(result.error_no == 0 for _, result in records)
    row = json.loads(log.read_text().splitlines()[0])
    assert row["i"][0][0] == '["product_and_sum", 32, 32, 32]' and row["v"] == "v0.6"
    schedule, args = task.apply_best(log)
    given = arrays_of(args)
    sterna.build(schedule, args, "llvm")(*given)
    np.testing.assert_allclose(given[3], given[0] @ given[1] + given[2], rtol=1e-5)
    assert "own_schedule([A, B, C, out], " in task.print_best(log)
    auto_scheduler.measure_record.distill_record_file(log, tmp_path / "best.json")
    assert len((tmp_path / "best.json").read_text().splitlines()) == 1
    # What is in a log is not measured again.
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.XGBModel(), verbose=0,
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)],
    )
    options.num_measure_trials, options.verbose = 1, 0
    task.tune(options, search_policy=policy)
    steps = [asked.state.transform_steps for asked, _ in auto_scheduler.load_records(log)]
    assert len(steps) == 4 and len(set(steps)) == 4


def test_steps_of_another_log_are_replayed() -> None:
    """Steps as another program wrote them: follow splits, caches, rfactor, all annotations."""
    tensors = product_and_sum(16, 32, 8)
    dag = auto_scheduler.ComputeDAG(tensors)
    rows = [
        ["CHW", 2, "local"], ["SP", 5, 0, 16, [2, 4], 1], ["SP", 5, 3, 32, [16], 0],
        ["SP", 2, 0, 16, [4], 1], ["FSP", 3, 0, 1, 2], ["FFSP", 3, 2, [1], 1, 1],
        ["CI", 3], ["CR", 3],
        ["CHR", 0, "local", [2]],
    ]
    state = auto_scheduler.loop_state.State(dag, [step_of_json(row) for row in rows])
    expected = results(te.create_schedule(tensors[-1].op), tensors, "llvm")
    np.testing.assert_allclose(results(*state.apply(), "llvm"), expected, rtol=1e-5)
    other = auto_scheduler.ComputeDAG(tensors).init_state
    outer, inner = other.split(2, 2, [4])
    partial = other.rfactor(2, inner, 2)
    assert other.stage_ops.index(partial.op) == 2 and outer is not inner
    np.testing.assert_allclose(results(*other.apply(), "llvm"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["XX", 0], "is no step"), (["SP", 0, 0, 4, [2]], "it takes"), ([1], "is no step"),
        (["SP", 9, 0, 4, [2], 1], "no stage 9"), (["SP", 2, 7, 4, [2], 1], "no loop 7"),
        (["SP", 2, 0, 4, [0], 1], "split by"), (["RE", 2, [0, 0, 1]], "has 3 loops"),
        (["FU", 2, [0, 2]], "neighbouring"), (["AN", 2, 0, 99], "no annotation"),
        (["AN", 2, 0, 11], "by hand"), (["CA", 2, 4, 9], "no loop 9"),
        (["FSP", 2, 0, 5, 1], "no split"),
        (["CHR", 0, "local", [77]], "no such reader"),
    ],
)
def test_steps_that_do_not_fit_are_refused(row: list[Any], said: str) -> None:
    dag = auto_scheduler.ComputeDAG(product_and_sum(4, 4, 4))
    with pytest.raises(ValueError, match=said):
        dag.init_state.take(step_of_json(row))


def test_lines_that_are_no_records_are_named(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text('# a comment\n{"i": [["no key", "llvm", [], "", 0, []], [[], []]], "r": 1}\n')
    with pytest.raises(ValueError, match="line 2"):
        list(auto_scheduler.load_records(log))
    log.write_text('{"i": [["no key", "ll')
    with pytest.warns(UserWarning, match="line 1 was cut and is left out"):
        assert not list(auto_scheduler.load_records(log))
    task = auto_scheduler.SearchTask(func="softmax_rows", args=(4, 4), target="llvm")
    log.write_text("")
    with pytest.raises(RuntimeError, match="no valid schedule"):
        task.apply_best(log)
    assert set(KINDS) >= {"SP", "RE", "FU", "AN", "PR", "CA", "CI", "CR", "CHR", "CHW", "RF"}


def test_layers_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = relay.var("x", shape=(1, 8, 10, 10), dtype="float32")
    w = relay.const(np.random.default_rng(1).random((16, 8, 3, 3), "float32"))
    body = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    mod = sterna.IRModule.from_expr(relay.Function((x,), body))
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], {}, "llvm")
    assert tasks and len(tasks) == len(weights) and "conv2d" in str(tasks[0].compute_dag)
    tuner = auto_scheduler.TaskScheduler(tasks, weights)
    log = tmp_path / "network.json"
    tuner.tune(auto_scheduler.TuningOptions(
        num_measure_trials=2 * len(tasks), verbose=0,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    ))
    assert "EstimatedLatency" in (tmp_path / "total_latency.tsv").read_text()
    again = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=str(log), callbacks=[])
    assert again.best_costs == tuner.best_costs, "what the log knows"
    given = np.random.default_rng(2).random((1, 8, 10, 10), "float32")
    config = {"relay.backend.use_auto_scheduler": True}
    with auto_scheduler.ApplyHistoryBest(log) as applied, sterna.transform.PassContext(
        opt_level=3, config=config
    ):
        library = relay.build(mod, target="llvm")
    assert applied.answers
    model = sterna.contrib.graph_executor.GraphModule(library["default"](sterna.cpu()))
    model.set_input("x", given)
    model.run()
    plain = relay.create_executor("graph", mod, target="llvm").evaluate()(given)
    np.testing.assert_allclose(model.get_output(0).numpy(), plain.numpy(), rtol=1e-4)


@auto_scheduler.register_workload
def chosen_rows(n: int) -> list[te.Tensor]:
    data = te.placeholder((n,), name="data")
    rows = te.placeholder((n,), "int32", name="rows")
    return [data, rows, te.compute((n,), lambda i: data[rows[i]], name="chosen")]


def test_a_workload_is_measured_with_arrays_of_the_users(tmp_path: Path) -> None:
    rows = sterna.nd.array(np.arange(64)[::-1].astype("int32"))
    task = auto_scheduler.SearchTask(
        func=chosen_rows, args=(64,), target="llvm", task_inputs={"rows": rows},
        task_inputs_overwrite=True,
    )
    again = auto_scheduler.SearchTask(
        func=chosen_rows, args=(64,), target="llvm", task_inputs=["rows"]
    )
    assert again.inputs["rows"] is task.inputs["rows"] is rows
    runner = auto_scheduler.LocalRunner(number=1)
    log = auto_scheduler.RecordToFile(tmp_path / "log.json")
    task.tune(auto_scheduler.TuningOptions(1, measure_callbacks=[log], runner=runner, verbose=0))
    task.inputs = {"rows": rows.numpy()[:5]}
    said = r"no schedule of .* ran: the array for rows is int32\[5\], not int32\[64\]"
    with pytest.raises(RuntimeError, match=said):
        task.tune(auto_scheduler.TuningOptions(
            1, measure_callbacks=[log], runner=runner, verbose=0))
    records = auto_scheduler.load_records(tmp_path / "log.json")
    assert [result.error_no == 0 for _, result in records] == [True, False]
    with pytest.raises(ValueError, match="the workload has no tensor row, only chosen, data, rows"):
        auto_scheduler.SearchTask(
            func=chosen_rows, args=(64,), target="llvm", task_inputs={"row": rows}
        )
    with pytest.raises(ValueError, match="no array is registered for data"):
        auto_scheduler.SearchTask(
            func=chosen_rows, args=(64,), target="llvm", task_inputs=["data"]
        )
