"""Tuning a small network on this machine, its records, and builds that use them."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sterna
from sterna import relay
from sterna.relay.random_inputs import random_inputs
from sterna.target import Target
from sterna.tune import Budget, TuningDatabase, tune
from sterna.tune.tuner import network_inputs
from sterna.tune.worker import Worker, read_inputs, read_network, write_network
from sterna.tune.workers import Crashed, Hung, Refused
from tests.tune.networks import INPUT, LAYER, two_convolutions

TARGET = Target("llvm -mcpu=native")
QUICK = Budget(trials=2, seconds=120, round_seconds=0.02)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution and a pointwise one."""
    return two_convolutions(tmp_path)


def imported(path: Path) -> tuple[Any, Any]:
    mod, params = relay.frontend.from_onnx(onnx.load(path))
    return mod, params


def written(path: Path, folder: Path) -> Worker:
    mod, params = imported(path)
    inputs = {i.name: np.ones(i.shape, i.dtype) for i in network_inputs(mod, params)}
    write_network(folder, mod, params, TARGET, inputs)
    return Worker(folder)


def test_a_network_is_tuned_and_built_from_its_records(model: Path, tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    outcome = tune(*imported(model), TARGET, database, budget=QUICK)
    assert 0 < outcome.ratio <= 1.0 and outcome.seconds > 0
    assert outcome.trials and not outcome.failed and not outcome.interrupted
    assert database.answers(TARGET) == outcome.answers
    assert len(database.networks(TARGET)) == 1
    questions = {trial.question.rpartition("/")[0] for trial in outcome.trials}
    assert LAYER in questions


def test_records_choose_the_kernels_that_are_built(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal(INPUT).astype("float32")
    plain = sterna.compile(model)
    want = plain(x)
    database = TuningDatabase(tmp_path / "small.tuned.db")  # beside the model: found by itself
    database.keep(TARGET, {f"{LAYER}/implementation": ("direct", 0.9)})
    tuned = sterna.compile(model)
    np.testing.assert_allclose(tuned(x), want, rtol=1e-4, atol=1e-4)
    told = [text for kernel in tuned.report().kernels for text in kernel.decisions.values()]
    assert any(text.startswith("direct") and "as answered" in text for text in told), told


def test_records_that_no_longer_fit_are_set_aside_and_said(model: Path, tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    question = f"{LAYER}/implementation"
    database.keep(TARGET, {question: ("by hand", 0.5)})
    with pytest.warns(UserWarning, match=r"1 of the tuning records in '.*t\.db' no longer fit"):
        sterna.compile(model, tuned=tmp_path / "t.db")
    assert database.answers(TARGET) == {}


def test_records_of_another_machine_are_not_used(model: Path, tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    database.keep(Target("llvm -mtriple=riscv64-linux-gnu"), {"a/tile": ("2 x 4", 0.5)})
    with pytest.warns(UserWarning, match="has no tuning records for llvm"):
        sterna.compile(model, tuned=tmp_path / "t.db")
    with pytest.raises(FileNotFoundError, match="there are no tuning records"):
        sterna.compile(model, tuned=tmp_path / "none.db")


def test_a_process_that_dies_costs_one_trial(model: Path, tmp_path: Path) -> None:
    worker = written(model, tmp_path)
    try:
        worker.compare({}, {}, 0.0, 120)
        assert worker.lines.process is not None
        os.kill(worker.lines.process.pid, signal.SIGKILL)
        with pytest.raises(Crashed, match="the process ended with status -9"):
            worker.compare({}, {}, 0.0, 120)
        again = worker.compare({}, {}, 0.0, 120)
        assert LAYER in again.fractions and again.layers == {}
    finally:
        worker.close()


def test_a_process_that_hangs_is_ended(model: Path, tmp_path: Path) -> None:
    worker = written(model, tmp_path)
    try:
        worker.compare({}, {}, 0.0, 120)
        assert worker.lines.process is not None
        held = worker.lines.process
        os.kill(held.pid, signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(Hung, match="no answer within 1 s"):
            worker.compare({}, {}, 0.0, 1.0)
        assert time.monotonic() - begin < 30 and held.poll() is not None
    finally:
        worker.close()


def test_what_cannot_be_built_is_refused(model: Path, tmp_path: Path) -> None:
    worker = written(model, tmp_path)
    about = json.loads((tmp_path / "about.json").read_text())
    (tmp_path / "about.json").write_text(json.dumps(about | {"opt_level": "high"}))
    try:
        with pytest.raises((Refused, Crashed)):
            worker.compare({}, {}, 0.0, 120)
    finally:
        worker.close()


def test_an_interrupt_ends_the_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = written(model, tmp_path)

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    worker.compare({}, {}, 0.0, 120)
    held = worker.lines.process
    assert held is not None
    monkeypatch.setattr("sterna.tune.lines._line", interrupted)  # while it waits for the answer
    with pytest.raises(KeyboardInterrupt):
        worker.compare({}, {}, 0.0, 120)
    assert worker.lines.process is None and held.poll() is not None


def test_narrow_inputs_reach_the_process(tmp_path: Path) -> None:
    x = relay.var("x", shape=(8, 32), dtype="bfloat16")
    w = relay.var("w", shape=(64, 32), dtype="bfloat16")
    module = sterna.IRModule.from_expr(relay.Function((x, w), relay.nn.dense(x, w)))
    given = random_inputs(network_inputs(module, {}))
    write_network(tmp_path, module, {}, TARGET, given)
    read = read_inputs(tmp_path)
    assert set(read) == {"x", "w"}
    for name, array in given.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    bench = read_network(tmp_path)
    assert bench.compare({}, {}, 0.0).fractions
    assert [str(out.dtype) for out in bench.built({}).here().outputs(given)] == ["bfloat16"]
