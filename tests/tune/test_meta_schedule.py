"""The classic names of meta_schedule: tasks, trials, records as files, builds that use them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import meta_schedule as ms
from sterna import relay, te
from sterna.ir.serialize import load_json, save_json
from sterna.meta_schedule.testing.local_rpc import LocalRPC
from sterna.rpc import connect_tracker
from tests.schedule.implemented import run_built

TARGET = tvm.target.Target("llvm -mcpu=native")


@pytest.fixture(scope="module")
def network() -> tuple[Any, dict[str, Any]]:
    data = relay.var("data", shape=(1, 8, 10, 10))
    weight = relay.var("w", shape=(16, 8, 3, 3))
    body = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.conv2d(data, weight, padding=1)))
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype("float32")
    return tvm.IRModule.from_expr(body), {"w": weights}


@pytest.fixture(scope="module")
def tuned(network: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ms.Database]:
    mod, params = network
    folder = tmp_path_factory.mktemp("tuned")
    with ms.Profiler() as profiler:
        found = ms.relay_integration.tune_relay(
            mod, params, TARGET, folder, 4, max_trials_per_task=2, num_trials_per_iter=2
        )
    assert {"Total", "TaskExtraction", "Tuning"} <= set(profiler.get())
    assert "TaskExtraction" in profiler.table()
    return folder, found


def test_tasks(network: Any) -> None:
    mod, params = network
    tasks = ms.relay_integration.extract_tasks(mod, TARGET, params)
    names = [task.task_name for task in tasks]
    assert any("conv2d" in name for name in names) and len(set(names)) == len(names)
    assert all(task.weight >= 1 and task.dispatched for task in tasks)
    contexts, weights = ms.relay_integration.extracted_tasks_to_tune_contexts(tasks, "work")
    assert [c.task_name for c in contexts] == names and len(weights) == len(names)


def test_a_tuned_network_is_built(network: Any, tuned: Any) -> None:
    mod, params = network
    database = tuned[1]
    x = np.random.default_rng(1).standard_normal((1, 8, 10, 10)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        want = run_built(relay.build(mod, target=TARGET, params=params), data=x)
    lib = ms.relay_integration.compile_relay(database, mod, TARGET, params)
    np.testing.assert_allclose(run_built(lib, data=x), want, rtol=1e-4, atol=1e-6)
    assert not ms.is_meta_schedule_enabled()
    with database, tvm.transform.PassContext(opt_level=3):
        assert ms.is_meta_schedule_enabled() and ms.Database.current() is database
        again = relay.build(mod, target=TARGET, params=params)
    np.testing.assert_allclose(run_built(again, data=x), want, rtol=1e-4, atol=1e-6)


def test_records_are_two_files_of_lines(network: Any, tuned: Any) -> None:
    folder, database = tuned
    rows = [json.loads(line) for line in
            (folder / "database_tuning_record.json").read_text().splitlines()]
    assert len(rows) == len(database) and all(row[0] == 0 for row in rows)
    again = ms.JSONDatabase(work_dir=folder, allow_missing=False)
    assert again.has_workload(network[0]) and len(again) == len(database)
    assert again.answers(TARGET) == database.answers(TARGET)
    pruned = ms.MemoryDatabase()
    again.dump_pruned(pruned)
    assert len(pruned) == 1
    best = again.query_tuning_record(network[0], TARGET)
    assert best is not None and best.run_secs is not None and best.run_secs[0] > 0
    assert again.query_tuning_record(network[0], "llvm -mtriple=riscv64-linux-gnu") is None


def test_answers_hold_through_other_contexts() -> None:
    data, weight = relay.var("data", shape=(1, 10, 10, 8)), relay.var("w", shape=(3, 3, 8, 16))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(data, weight, padding=1, **layouts))
    params = {"w": np.ones((3, 3, 8, 16), "float32")}
    database = ms.MemoryDatabase()
    workload = database.commit_workload(mod)
    tasks = ms.relay_integration.extract_tasks(mod, TARGET, params)
    (scope,) = [task.scope for task in tasks if "conv2d" in task.task_name]
    answers = {f"{scope}/implementation": "direct"}
    database.commit_tuning_record(
        ms.TuningRecord.of_answers(answers, workload, [1e-5], TARGET))
    with database, tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=TARGET, params=params)
    told = [text for note in lib.kernel_notes.values() for text in note.decisions.values()]
    assert any("direct" in text and "as answered" in text for text in told), told


def test_older_spellings(network: Any, tmp_path: Path) -> None:
    mod, params = network
    config = ms.TuneConfig(strategy="evolutionary", num_trials_per_iter=8, max_trials_per_task=1,
                           max_trials_global=1)
    database = ms.tune_tvm(mod, TARGET, config, tmp_path, params=params)
    assert len(database) == 2
    with ms.ApplyHistoryBest(database):
        assert ms.is_meta_schedule_enabled()


def test_bad_arguments(network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mod, params = network
    with pytest.raises(ValueError, match="strategy 'guess' is unknown; there are evolutionary"):
        ms.tune_tvm(mod, TARGET, ms.TuneConfig(strategy="guess"), tmp_path, params=params)
    with pytest.raises(ValueError, match="max_trials_per_task=0 must be a number of at least 1"):
        ms.TuneConfig(max_trials_per_task=0).check()
    with pytest.raises(ValueError, match="runner 'cloud' is unknown; there are local, rpc"):
        ms.Runner.of("cloud")
    with pytest.raises(ValueError, match="f_build and f_export have no part in it"):
        ms.LocalBuilder(f_build=print)
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT", "TVM_TRACKER_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="lacks tracker_port, tracker_key: give them, or set TVM_"):
        ms.RPCRunner(ms.RPCConfig(tracker_host="here")).device()
    (tmp_path / "database_workload.json").write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"database_workload\.json', line 1 is no record"):
        ms.JSONDatabase(work_dir=tmp_path)
    with pytest.raises(ValueError, match="give work_dir, or path_workload"):
        ms.JSONDatabase()
    with pytest.raises(ValueError, match="tasks are what extract_tasks gave"):
        ms.tune_tasks(tasks=[], work_dir=tmp_path, max_trials_global=4)
    with pytest.raises(TypeError, match="EvolutionarySearch has no option size; there are popul"):
        ms.search_strategy.EvolutionarySearch(size=5)
    with pytest.raises(ValueError, match="sch_rules: spaces are what the compiler's schedules ask"):
        ms.space_generator.PostOrderApply(sch_rules=[])
    with pytest.raises(TypeError, match="cost_model is a name or a CostModel, not 5"):
        ms.tune_tir(product(4), TARGET, tmp_path, 1, cost_model=5)
    with pytest.raises(ValueError, match="measure_callbacks 'mine' is unknown; there are default"):
        ms.tune_tir(product(4), TARGET, tmp_path, 1, measure_callbacks="mine")
    with pytest.raises(TypeError, match="written to a database, not to several"):
        ms.database.UnionDatabase().commit_tuning_record(record_of(ms.MemoryDatabase(), 1.0))


def product(n: int) -> Any:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c])


def expect_product(mod: Any, n: int) -> None:
    built = tvm.build(mod, target="llvm")
    x, y = (np.random.default_rng(seed).random((n, n), "float32") for seed in range(2))
    out = tvm.nd.array(np.zeros((n, n), "float32"))
    built["main"](tvm.nd.array(x), tvm.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-4)


QUICK_RUNNER = ms.LocalRunner(evaluator_config=ms.EvaluatorConfig(1, 1, 0, False))


@ms.derived_object
class Heard(ms.measure_callback.PyMeasureCallback):
    """What callbacks are told."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Any]] = []

    def apply(
        self, task_scheduler: Any, task_id: int, measure_candidates: Any, builder_results: Any,
        runner_results: Any,
    ) -> None:
        assert len(measure_candidates) == len(builder_results) == len(runner_results)
        assert task_scheduler.tasks
        self.seen += [(task_id, result.run_secs) for result in runner_results]


def test_functions_of_tensors_are_tuned(tmp_path: Path) -> None:
    func, heard = product(32), Heard()
    database = ms.tune_tir(
        tvm.IRModule({"main": func}), "llvm", str(tmp_path), 3, runner=QUICK_RUNNER,
        space=ms.space_generator.PostOrderApply(), cost_model=ms.CostModel.create("random"),
        strategy=ms.search_strategy.EvolutionarySearch(population_size=8),
        measure_callbacks=[heard, *ms.MeasureCallback.create("default")],
        task_scheduler=ms.TaskScheduler.create("round-robin"),
    )
    assert len(database) == 3 and len(heard.seen) == 3 and heard.seen[0][1][0] > 0
    whole = tvm.IRModule({"main": func})
    expect_product(database.query(whole, "llvm", kind="ir_module"), 32)
    assert database.query(whole, "llvm").trace.as_python()
    read = ms.JSONDatabase(work_dir=tmp_path)
    assert len(read) == 3, "what was found is in the two files"
    best = ms.tir_integration.compile_tir(read, func, "llvm")
    assert best is not None
    expect_product(best.mod, 32)
    assert ms.tir_integration.compile_tir(read, product(16), "llvm") is None


def test_the_older_spelling_gives_a_schedule(tmp_path: Path) -> None:
    config = ms.TuneConfig(max_trials_global=2)
    best = ms.tune_tir(product(16), target="llvm", config=config, work_dir=tmp_path,
                       runner=QUICK_RUNNER)
    expect_product(best.mod, 16)


def record_of(database: ms.Database, seconds: float, size: int = 4) -> ms.TuningRecord:
    workload = database.commit_workload(tvm.IRModule({"main": product(size)}))
    return ms.TuningRecord.of_answers({"q": str(seconds)}, workload, [seconds], TARGET)


def test_two_programs_write_one_database(tmp_path: Path) -> None:
    first, second = ms.JSONDatabase(work_dir=tmp_path), ms.JSONDatabase(work_dir=tmp_path)
    first.commit_tuning_record(record_of(first, 3.0, size=2))
    for database, seconds in ((second, 2.0), (first, 1.0), (second, 4.0)):
        database.commit_tuning_record(record_of(database, seconds))
    records = tmp_path / "database_tuning_record.json"
    records.write_bytes(records.read_bytes() + b"[1, [[[")  # whoever wrote this was killed
    with pytest.warns(UserWarning, match="line 5 was cut and is left out"):
        read = ms.JSONDatabase(work_dir=tmp_path)
    assert [len(read), len(read.workloads)] == [4, 2]
    read.commit_tuning_record(record_of(read, 5.0))
    with pytest.warns(UserWarning, match="line 5 was cut"):
        again = ms.JSONDatabase(work_dir=tmp_path)
    assert sorted(r.mean_seconds for r in again.get_all_tuning_records()) == [1, 2, 3, 4, 5]
    other, small = ms.MemoryDatabase(), tvm.IRModule({"main": product(4)})
    other.commit_tuning_record(record_of(other, 0.5))
    for kind, want in (("union", 0.5), ("ordered_union", 1.0)):
        both = ms.Database.create(kind, again, other)
        found = both.query_tuning_record(small, TARGET)
        assert found is not None and found.mean_seconds == want and len(both) == 6
        assert both.answers(TARGET) == {"q": str(want)}


def test_loops_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    func = product(16)
    copy = load_json(save_json(tvm.IRModule({"main": func})))
    with pytest.raises(TypeError, match=r"'main' were not made by te\.create_prim_func"):
        ms.tune_tir(copy, "llvm", tmp_path, 2)
    with pytest.raises(ValueError, match="max_trials_global=0"):
        ms.tune_tir(func, "llvm", tmp_path, 0)


def test_programs_that_measure_by_a_tracker_of_their_own() -> None:
    with LocalRPC(silent=True) as rpc:
        session = connect_tracker(rpc.tracker_host, rpc.tracker_port)
        with session.request(rpc.tracker_key, session_timeout=20) as remote:
            assert remote.cpu().exist
        session.close()
