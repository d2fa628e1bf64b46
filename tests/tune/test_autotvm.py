"""The classic names of AutoTVM: templates, spaces, tuners, logs, layers of networks."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import autotvm, micro, relay, te
from sterna.autotvm.layers import LayerTask
from sterna.autotvm.measure import Measurer
from sterna.autotvm.run_process import _run, in_turns
from sterna.autotvm.space import FallbackConfigEntity, reorder_candidates
from sterna.runtime import Module
from sterna.tune.measure import Measured, Times
from sterna.tune.network import Questions
from tests.schedule.implemented import run_built
from tests.support import require_program

TARGET = tvm.target.Target("llvm -mcpu=native")


@autotvm.template("tests/matmul")
def matmul(rows: int, columns: int, depth: int) -> Any:
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    y, x = s[c].op.axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    cfg.define_knob("unroll", [False, True])
    cfg.define_reorder("order", [y, x], policy="all")
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    (k,) = s[c].op.reduce_axis
    s[c].reorder(yo, xo, k, yi, xi)
    if cfg["unroll"].val:
        s[c].unroll(yi)
    cfg.add_flop(2 * rows * columns * depth)
    return s, [a, b, c]


def task() -> Any:
    return autotvm.task.create("tests/matmul", args=(16, 24, 8), target=TARGET)


def test_a_space() -> None:
    space = task().config_space
    assert space.dims == [5, 8, 2, 2] and len(space) == 160
    for point in (0, 7, 159):
        assert space.knob2point(space.point2knob(point)) == point
    assert space.get(1)["tile_y"].size == [-1, 2]
    assert space.random_walk(5) != 5 and len(space.sample_ints(20)) == 20
    assert "tile_x: 8 candidates" in str(space)
    with pytest.raises(IndexError, match="the space has the points 0 to 159, not 160"):
        space.get(160)
    with pytest.raises(KeyError, match="there is no knob 'tile_z'; there are tile_y, tile_x"):
        space.get(0)["tile_z"]
    assert task().flop == 2 * 16 * 24 * 8


def knobs(space: autotvm.ConfigSpace, name: str) -> list[Any]:
    return list(space.space_map[name])


def test_policies_of_splits() -> None:
    space = autotvm.ConfigSpace()
    space.define_split("power", space.axis(12), policy="power2", num_outputs=2)
    assert [entity.size[1] for entity in knobs(space, "power")] == [1, 2, 4, 8]
    space.define_split("three", space.axis(8), num_outputs=3, max_factor=4)
    assert all(8 % (a * b) == 0 and max(a, b) <= 4
               for _, a, b in (entity.size for entity in knobs(space, "three")))
    space.define_annotate("ann", [1, 2], policy="try_unroll_vec")
    assert ["unroll", "vec"] in [entity.anns for entity in knobs(space, "ann")]
    with pytest.raises(ValueError, match="policy 'guess' is unknown; loops are split by factors"):
        space.define_split("bad", space.axis(8), policy="guess")


@pytest.mark.parametrize("tuner", [autotvm.XGBTuner, autotvm.RandomTuner, autotvm.GridSearchTuner])
def test_a_template_is_tuned(
    tuner: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, best = tmp_path / "matmul.log", tmp_path / "best.log"
    search = tuner(task())
    option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=2, repeat=2))
    search.tune(4, option, callbacks=[autotvm.callback.log_to_file(log),
                                      autotvm.callback.progress_bar(4, prefix="[Task]")])
    assert "[Task] Current/Best:" in capsys.readouterr().out
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 4 and all(line["result"][1] == 0 for line in lines)
    autotvm.record.pick_best(log, best)
    (only,) = autotvm.record.load_from_file(best)
    assert only[0].config.to_json_dict() == search.best_config.to_json_dict()
    a, b = np.random.rand(16, 8).astype("float32"), np.random.rand(8, 24).astype("float32")
    with autotvm.apply_history_best(best), TARGET:
        built = tvm.build(*matmul(16, 24, 8))
    c = tvm.nd.empty((16, 24))
    built(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)


def test_without_a_log_the_first_candidates_are_taken() -> None:
    seen = []

    @autotvm.template("tests/seen")
    def own(n: int) -> Any:
        cfg = autotvm.get_config()
        cfg.define_split("tile", autotvm.ConfigSpace.axis(n), num_outputs=2)
        seen.append((cfg.is_fallback, cfg["tile"]))
        a = te.placeholder((n,), name="a")
        b = te.compute((n,), lambda i: a[i] + 1)
        return te.create_schedule(b.op), [a, b]

    own(8)
    assert seen[0][0] and seen[0][1].size == [-1, 1]
    fallback = FallbackConfigEntity()
    fallback.fallback_split("tile", [-1, 4])
    assert fallback["tile"].size == [-1, 4]


def test_failures_are_results() -> None:
    @autotvm.template("tests/fails")
    def own(how: str) -> Any:
        a = te.placeholder((4,), name="a")
        b = te.compute((4,), lambda i: a[i] + 1)
        cfg = autotvm.get_config()
        cfg.define_knob("point", [0, 1])
        if cfg["point"].val and how == "refuse":
            cfg.raise_error("not this one")
        if cfg["point"].val and how == "raise":
            raise RuntimeError("a mistake in the template")
        return te.create_schedule(b.op), [a, b]

    numbers = {"refuse": autotvm.MeasureErrorNo.INSTANTIATION_ERROR,
               "raise": autotvm.MeasureErrorNo.COMPILE_HOST}
    for how, number in numbers.items():
        seen: list[Any] = []
        search = autotvm.GridSearchTuner(autotvm.create("tests/fails", (how,), TARGET))
        option = autotvm.measure_option(runner=autotvm.LocalRunner(number=1, repeat=1))

        def keep(_: Any, __: Any, results: Any, into: list[Any] = seen) -> None:
            into.extend(results)

        search.tune(2, option, callbacks=[keep])
        assert [result.error_no for result in seen] == [0, number]


def test_a_process_that_dies_costs_one_trial() -> None:
    search = autotvm.GridSearchTuner(task())
    option = autotvm.measure_option(runner=autotvm.LocalRunner(number=1, repeat=1))
    measurer = autotvm.measure.Measurer(search.task, option)
    try:
        assert measurer.measure(search.space.get(0))[1].error_no == 0
        process = measurer._process.process.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        _, dead = measurer.measure(search.space.get(1))
        assert dead.error_no == autotvm.MeasureErrorNo.RUNTIME_DEVICE
        assert measurer.measure(search.space.get(1))[1].error_no == 0
    finally:
        measurer.close()


def test_lines_that_are_none(tmp_path: Path) -> None:
    log = tmp_path / "bad.log"
    log.write_text('# a comment\n{"input": [1]}\n')
    with pytest.raises(ValueError, match="line 2: this is no line of a tuning log"):
        list(autotvm.record.load_from_file(log))
    with pytest.raises(ValueError, match="there is no template 'tests/none'"):
        autotvm.create("tests/none", (1,), TARGET)
    with pytest.raises(RuntimeError, match="get_config is for templates"):
        autotvm.get_config()
    with pytest.raises(ValueError, match="runner='cloud' is none of local"):
        autotvm.measure_option(runner="cloud")


def test_orders_of_loops() -> None:
    y, x, k = (te.reduce_axis((0, 4), name=name) for name in "yxk")
    kinds: dict[str, Any] = {
        "interval_all": {"interval": (1, 3)}, "candidate": {"candidate": [[k, y, x], [0, 2, 1]]},
        "interleave": {"spatial": [[y, x]], "reduce": [[k]]},
        "interleave_cuda": {"spatial": [[y, x]], "reduce": [[k]]},
    }
    found = {policy: [each.perm for each in reorder_candidates([y, x, k], policy, **options)]
             for policy, options in kinds.items()}
    assert found == {
        "interval_all": [[0, 1, 2], [0, 2, 1]], "candidate": [[2, 0, 1], [0, 2, 1]],
        "interleave": [[0, 1, 2], [0, 2, 1]], "interleave_cuda": [[0, 2, 1]],
    }
    with pytest.raises(ValueError, match="is none of the loops that are ordered"):
        reorder_candidates([y, x], "candidate", candidate=[[k]])
    space = task().config_space
    space.multi_filter(lambda point: point["tile_y"].size[-1] == 4)
    assert space.get_next_index(0) == 2 and space.get_next_index(2, -1) is None
    assert space.get_rand_index() % 5 == 2


def test_operators_of_ones_own() -> None:
    @autotvm.register_topi_compute("tests/scaled")
    def scaled(cfg: Any, x: te.Tensor) -> te.Tensor:
        made: te.Tensor = te.compute(x.shape, lambda i: x[i] * 3.0, name="scaled")
        return made

    @autotvm.register_topi_schedule("tests/scaled")
    def schedule(cfg: Any, outs: list[te.Tensor]) -> te.Schedule:
        s = te.create_schedule([out.op for out in outs])
        cfg.define_split("tile", s[outs[0]].op.axis[0], num_outputs=2)
        if cfg.is_fallback:
            cfg["tile"] = autotvm.task.space.SplitEntity([-1, 2])
        cfg["tile"].apply(s, outs[0], s[outs[0]].op.axis[0])
        return s

    x = te.placeholder((8,), name="x")
    found = autotvm.task.create("tests/scaled", args=(x,), target=TARGET)
    assert len(found.config_space) == 4 and found.flop == 8, "counted where nobody says it"
    s, args = found.instantiate(found.config_space.get(1))
    out = tvm.nd.array(np.zeros(8, "float32"))
    tvm.build(s, list(args), target=TARGET)(tvm.nd.array(np.ones(8, "float32")), out)
    assert out.numpy().tolist() == [3.0] * 8
    assert len(schedule([scaled(x)]).stages[-1].leaf_iter_vars) == 2


def test_lines_that_were_cut(tmp_path: Path) -> None:
    log = tmp_path / "cut.log"
    asked = autotvm.MeasureInput(TARGET, task(), task().config_space.get(3))
    result = autotvm.MeasureResult((1.0,), 0, 0.1, 0.0)
    line = autotvm.record.encode(asked, result)
    log.write_text(f"{line}\n{line[:50]}")
    autotvm.callback.log_to_file(log)(None, [asked], [result])
    with pytest.warns(UserWarning, match="line 2 of a tuning log was cut and is left out"):
        assert len(list(autotvm.record.load_from_file(log))) == 2
    with pytest.warns(UserWarning, match="before version 0.2 are not read"):
        assert autotvm.record.decode('{"v": 0.1, "i": []}') is None


def test_a_layer_counts_by_the_untuned_one() -> None:
    """A candidate is believed to be faster only if it surely is, whatever the machine does."""
    nothing = Questions({}, {}, {})
    network: Any = SimpleNamespace(questions=nothing)
    layer = LayerTask("a * b", TARGET, network, 8.0)
    point = layer.config_space.get(0)

    def measured(layers: dict[str, Times], changed: Times, whole: float) -> None:
        total = Times([whole] * 8, [whole] * 8)
        found = Measured(layers, changed, total, nothing, {"a * b": 0.5})
        network.compare = lambda *_: found

    same = Times([0.0] * 8, [0.0] * 8)
    measured({}, same, 2.0)
    assert layer.seconds(point) == [1.0], "nothing changed: half of the network's time"
    measured({"a * b": Times([5.0] * 8, [4.0] * 8)}, same, 10.0)
    assert layer.seconds(point) == pytest.approx([0.8] * 8), "by the ratio, on a slower machine"
    measured({"a * b": Times([5.0, 4.0] * 4, [4.0, 4.4] * 4)}, same, 10.0)
    assert layer.seconds(point) == [1.0] * 8, "not known to be faster"
    measured({}, Times([3.0] * 8, [3.5] * 8), 2.0)
    assert layer.seconds(point) == pytest.approx([1.5] * 8), "with what else changed"


def test_layers_of_a_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(1, 8, 9, 9))
    weight = relay.const(rng.standard_normal((16, 8, 3, 3)).astype("float32"))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(x, weight, padding=1))
    layers = autotvm.task.extract_from_program(mod, {}, TARGET, ops=[relay.op.get("nn.conv2d")])
    assert [each.flop for each in layers] == [2.0 * 9 * 9 * 16 * 8 * 9]
    layer = next(each for each in layers if " * " in each.scope)
    log = tmp_path / "layers.log"
    search = autotvm.XGBTuner(layer)
    search.tune(2, autotvm.measure_option(), callbacks=[autotvm.callback.log_to_file(log)])
    layer.network.close()
    given = rng.standard_normal((1, 8, 9, 9)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        want = run_built(relay.build(mod, target=TARGET), x=given)
    with autotvm.apply_history_best(log), tvm.transform.PassContext(opt_level=3):
        got = run_built(relay.build(mod, target=TARGET), x=given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_layers_for_a_board_are_counted(tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    x = relay.var("x", shape=(1, 4, 6, 6))
    weight = relay.const(np.ones((8, 4, 3, 3), "float32"))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(x, weight, padding=1))
    target = tvm.target.Target("c -mcpu=cortex-m4")
    layer = next(each for each in autotvm.task.extract_from_program(mod["main"], {}, target)
                 if " * " in each.scope)
    with pytest.raises(ValueError, match="does not run here; LocalRunner"):
        layer.network.compare({}, 0.0)
    loader = micro.AutoTvmModuleLoader("baremetal", {"board": "mps2_an386"})
    option = autotvm.measure_option(
        autotvm.LocalBuilder(build_func=micro.autotvm_build_func),
        autotvm.LocalRunner(number=1, repeat=1, module_loader=loader),
    )
    log = tmp_path / "layers.log"
    autotvm.RandomTuner(layer).tune(1, option, callbacks=[autotvm.callback.log_to_file(log)])
    layer.network.close()
    ((_, result),) = autotvm.record.load_from_file(log)
    assert result.error_no == 0 and 1e-5 < result.costs[0] < 1e-3, "instructions as nanoseconds"
    with pytest.raises(ValueError, match="there is no board 'mps9'"):
        micro.AutoTvmModuleLoader("baremetal", {"board": "mps9"})


def test_graph_tuners_write_the_best(tmp_path: Path) -> None:
    task = autotvm.task.create("tests/matmul", args=(8, 8, 8), target=TARGET)
    costs = {0: 2.0, 1: 1.0, 2: 3.0}
    records = [
        (autotvm.MeasureInput(TARGET, task, task.config_space.get(point)),
         autotvm.MeasureResult((cost,), 0, 0.1, 0.0)) for point, cost in costs.items()
    ]
    x = relay.var("x", shape=(8, 8))
    tuner = autotvm.graph_tuner.DPTuner(relay.Function((x,), x), {"x": (8, 8)}, records, [], TARGET)
    tuner.benchmark_layout_transform(min_exec_num=100)
    with pytest.raises(RuntimeError, match="call run"):
        tuner.write_opt_sch2record_file(tmp_path / "best.log")
    tuner.run()
    tuner.write_opt_sch2record_file(tmp_path / "best.log")
    ((asked, _),) = autotvm.record.load_from_file(tmp_path / "best.log")
    assert asked.config.index == 1
    with autotvm.apply_graph_best(str(tmp_path / "best.log")), TARGET:
        matmul(8, 8, 8)
    with autotvm.FallbackContext():
        matmul(8, 8, 8)
    with pytest.raises(ValueError, match="no input 'y'; it has x"):
        autotvm.graph_tuner.PBQPTuner(relay.Function((x,), x), {"y": (8, 8)}, [], [], TARGET)


def test_one_lucky_turn_makes_no_winner_and_one_unlucky_turn_no_loser() -> None:
    order = np.random.default_rng(0)

    def ratio_of(ratio: float, *first_turn: float) -> float:
        noise = iter([*first_turn, *(1.0 + order.exponential(0.05, 100))])
        turns = in_turns(lambda: next(noise), lambda: ratio * next(noise), 1)
        assert len(turns.incumbent) == len(turns.costs) == 1
        assert turns.is_faster == (ratio < 1)
        return turns.costs[0] / turns.incumbent[0]

    assert ratio_of(1.3, 9.0, 1.0) == pytest.approx(1.3, rel=0.15)
    assert ratio_of(0.7, 1.0, 9.0) == pytest.approx(0.7, rel=0.15)


def test_what_is_faster_by_noise_takes_as_long_as_the_fastest(tmp_path: Path) -> None:
    option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner())
    measurer = Measurer(task(), option)
    paths = [str(tmp_path / f"{n}.tar") for n in range(4)]
    for path in paths:
        Path(path).touch()

    def costs(place: int, seconds: float, is_faster: bool) -> list[float]:
        return measurer._beside_best([2.0], [seconds], is_faster, paths[place])

    try:
        assert costs(0, 1.0, False) == [1.0]
        assert costs(1, 1.9, False) == [1.0]     # 0.95 of the fastest, by chance
        assert costs(2, 1.0, True) == [0.5]
        assert costs(3, 2.2, False) == [pytest.approx(0.55)]
        assert [Path(path).exists() for path in paths] == [True, False, True, False]
    finally:
        measurer.close()


def test_arrays_of_the_users_are_measured() -> None:
    product = task()
    args = product.instantiate(product.config_space.get(0))[1]
    arrays = [np.ones([int(str(e)) for e in each.shape], "float32") for each in args]
    for given, error in ((arrays, None), (arrays[:1], "ref_input has 1 arrays for 3 arguments")):
        runner = autotvm.LocalRunner(number=1, ref_input=given)
        measurer = Measurer(product, autotvm.measure_option(runner=runner))
        _, result = measurer.measure(product.config_space.get(0))
        measurer.close()
        assert (result.error_no == 0) == (error is None) and (error or "") in str(result.costs)


def test_caches_are_emptied_before_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    evaluator = Module.time_evaluator

    def recorded(*args: Any, **options: Any) -> Any:
        asked.append(options.get("cache_flush_bytes", 0))
        return evaluator(*args, **options)

    monkeypatch.setattr(Module, "time_evaluator", recorded)
    product = task()
    for flushes in (False, True):
        runner = autotvm.LocalRunner(number=8, repeat=2, enable_cpu_cache_flush=flushes)
        measurer = Measurer(product, autotvm.measure_option(runner=runner))
        monkeypatch.setattr(measurer._process, "ask", lambda bench, _: asdict(_run(bench)))
        _, result = measurer.measure(product.config_space.get(0))
        measurer.close()
        assert result.error_no == 0 and len(result.costs) == 2
        assert asked and all((count >= 1 << 20) == flushes for count in asked)
        asked.clear()


def test_a_runner_says_settings_only() -> None:
    class Own(autotvm.LocalRunner):
        def run(self, inputs: Any, built: Any) -> Any:
            raise AssertionError

    with pytest.raises(ValueError, match="the method run or build of Own would not be called"):
        autotvm.measure_option(runner=Own())
