"""The search on layers whose truth is known: what it finds, how soon, what it does not believe."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from sterna.target import Target
from sterna.tune import Budget, TuningDatabase
from sterna.tune.measure import Measured, Times
from sterna.tune.network import Questions
from sterna.tune.search import Search
from sterna.tune.tuner import search_network
from sterna.tune.workers import Crashed, Hung, Refused, TrialError, Wrong
from tests.tune.simulated import (
    Layer,
    SimulatedWorker,
    best_draw,
    best_time,
    random_layer,
    whole_time,
    wrong_layer,
)

TARGET = Target("llvm")


def network(layers: int = 12, seed: int = 0, noise: float = 0.02) -> SimulatedWorker:
    order = random.Random(seed)
    return SimulatedWorker({f"layer {i}": random_layer(order) for i in range(layers)}, noise)


@pytest.mark.parametrize("seed", range(4))
def test_most_of_what_can_be_gained_is_found(seed: int) -> None:
    worker = network(seed=seed)
    search = Search(worker, Budget(trials=64))
    found = search.run()
    default, best = whole_time(worker, {}), best_time(worker)
    assert whole_time(worker, found) < default
    assert best / whole_time(worker, found) > 0.95
    assert max(search.trials.values()) <= 64


def test_64_trials_reach_what_many_draws_do() -> None:
    reached = []
    for seed in range(3):
        layer = wrong_layer(random.Random(seed))
        search = Search(SimulatedWorker({"layer": layer}), Budget(trials=64))
        found = layer.time(search.run(), "layer")
        reached.append(best_draw(layer, "layer", 300, random.Random(seed)) / found)
        assert sum(search.trials.values()) <= 64
    assert min(reached) > 0.9 and sum(reached) / len(reached) > 0.95


def layer_of_two(alone: dict[tuple[str, str], float], both: float) -> SimulatedWorker:
    """Two questions with two answers each, whose others do something else together."""
    costs = {"tile": {"4 x 4": 1000.0, "8 x 8": 1010.0}, "panel": {"1": 1000.0, "2": 1010.0}}
    pair = frozenset([("tile", "8 x 8"), ("panel", "2")])
    return SimulatedWorker({"layer": Layer(1e-3, costs, alone, {pair: both})}, noise=0.005)


def test_answers_that_only_help_together_are_found() -> None:
    worker = layer_of_two({("tile", "8 x 8"): 1.02, ("panel", "2"): 1.01}, both=0.9)
    assert Search(worker, Budget(trials=16)).run() == {"layer/tile": "8 x 8", "layer/panel": "2"}


def test_what_was_slower_is_tried_again_beside_another_incumbent() -> None:
    worker = layer_of_two({("tile", "8 x 8"): 1.02, ("panel", "2"): 0.95}, both=0.93)
    search = Search(worker, Budget(trials=16))
    assert search.run() == {"layer/tile": "8 x 8", "layer/panel": "2"}
    assert worker.comparisons < 24, "and nothing else is left"


def test_a_search_ends_in_time_for_its_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, clock = network(layers=4), [0.0]
    monkeypatch.setattr("sterna.tune.search.time.monotonic", lambda: clock[0])
    compare, timeouts = worker.compare, []

    def slow(
        incumbent: Mapping[str, str], challenger: Mapping[str, str], seconds: float, timeout: float
    ) -> Measured:
        clock[0] += 10.0
        timeouts.append(timeout)
        return compare(incumbent, challenger, seconds, timeout)

    monkeypatch.setattr(worker, "compare", slow)
    search = Search(worker, Budget(trials=64, seconds=200.0))
    search.run()
    assert search.rounds > 3 and clock[0] + 10.0 <= 200.0
    assert min(timeouts) < 100.0, "a trial that hangs is not waited for any longer"


def test_noise_alone_finds_nothing() -> None:
    worker = network(noise=0.1)
    for layer in worker.layers.values():
        layer.effects = {}
    found = Search(worker, Budget(trials=16)).run()
    assert whole_time(worker, found) == whole_time(worker, {})


@pytest.mark.parametrize("failure", [Wrong, Crashed, Hung, Refused])
def test_a_bad_candidate_costs_its_own_trial(failure: type[TrialError]) -> None:
    worker = network(layers=6)
    bad = {("layer 2/unrolled steps", "8"), ("layer 4/unrolled steps", "8")}
    worker.bad = dict.fromkeys(bad, failure)
    search = Search(worker, Budget(trials=48))
    seen = []
    found = search.run(lambda _, trials: seen.extend(trials))
    failed = {(t.question, t.answer) for t in seen if t.outcome == failure.__name__.lower()}
    assert failed <= bad and not bad & set(found.items())
    assert found, "the others are found all the same"


def test_a_worker_that_lies_does_not_win(tmp_path: Path) -> None:
    worker = network(layers=4)
    for layer in worker.layers.values():  # nothing is to be gained but by lies
        layer.effects = {(q, a): max(f, 1.05) for (q, a), f in layer.effects.items()}
        for question, costs in layer.costs.items():
            layer.effects[question, min(costs, key=costs.__getitem__)] = 1.0
    worker.lies = {("layer 1/unrolled steps", "8")}
    database = TuningDatabase(tmp_path / "t.db")
    outcome = search_network(worker, TARGET, database, Budget(trials=16))
    assert outcome.answers == {} and outcome.ratio == 1.0
    assert database.answers(TARGET) == {}


def test_a_second_search_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    first = search_network(network(), TARGET, database, Budget(trials=8))
    again = network()
    second = search_network(again, TARGET, TuningDatabase(tmp_path / "t.db"), Budget(trials=8))
    assert set(first.answers) <= set(second.answers)
    tried = {(t.question, t.answer) for t in first.trials if t.outcome != "open"}
    assert not tried & {(t.question, t.answer) for t in second.trials if t.outcome != "open"}
    assert whole_time(again, second.answers) <= whole_time(again, first.answers)


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    database, worker = TuningDatabase(tmp_path / "t.db"), network()

    def stop_at_six(progress: object) -> None:
        if worker.comparisons > 6:
            raise KeyboardInterrupt

    outcome = search_network(worker, TARGET, database, Budget(), watch=stop_at_six)
    assert outcome.interrupted and outcome.answers
    assert database.answers(TARGET) == outcome.answers


def test_a_record_that_no_longer_holds_is_set_aside_and_said(tmp_path: Path) -> None:
    database, worker = TuningDatabase(tmp_path / "t.db"), network(layers=4)
    worker.bad = {("layer 1/tile", "2 x 4"): Crashed}
    database.keep(TARGET, {"layer 1/tile": ("2 x 4", 0.9), "another layer/tile": ("4 x 8", 0.9)})
    with pytest.warns(UserWarning, match=r"1 of the tuning records .* layer 1/tile: it fails at"):
        search_network(worker, TARGET, database, Budget(trials=2))
    found = database.answers(TARGET)
    assert found["another layer/tile"] == "4 x 8" and found.get("layer 1/tile") != "2 x 4"


def test_records_of_other_networks_are_left_alone(tmp_path: Path) -> None:
    worker = network(layers=2)
    for layer in worker.layers.values():
        layer.effects = {}
    database = TuningDatabase(tmp_path / "t.db")
    database.keep(TARGET, {"another layer/tile": ("4 x 8", 0.9)})
    outcome = search_network(worker, TARGET, database, Budget(trials=2))
    assert outcome.answers == {} and outcome.ratio == 1.0
    assert database.answers(TARGET) == {"another layer/tile": "4 x 8"}


CACHES, PLAN, TILE = "machine/caches", "a layer/implementation", "a layer/tile"


def found_of(gone: tuple[str, ...] = ()) -> Measured:
    """A network of one layer, whose caches nobody is sure of."""
    kernels = {TILE: {"4 x 16": 1.0, "8 x 8": 1.1}}
    graph = {PLAN: {"direct": 1.0, "im2col": 1.1},
             CACHES: {"4 + 16 KiB": 0.0, "64 + 512 KiB": 1.0}}
    taken = {TILE: "4 x 16", PLAN: "direct", CACHES: "4 + 16 KiB"}
    times = Times([1.0] * 8, [1.0] * 8)
    return Measured({}, times, times, Questions(taken, kernels, graph), {"a layer": 0.5}, gone)


def test_what_all_layers_depend_on_is_tried_first() -> None:
    search = Search(network())
    (first,), = search._promising(found_of(), search._candidates(found_of()))
    assert (first.question, first.answer, first.fraction) == (CACHES, "64 + 512 KiB", 1.0)
    search.tried.add((CACHES, "64 + 512 KiB"))
    (second,), = search._promising(found_of(), search._candidates(found_of()))
    assert second.question in (TILE, PLAN)


def test_an_answer_that_makes_its_layer_another_is_tried_alone() -> None:
    search = Search(network())
    search.tried |= {(CACHES, "64 + 512 KiB"), (TILE, "8 x 8")}
    plan, = search._candidates(found_of())
    trial = search._judged(plan, found_of(gone=("a layer",)), alone=False)
    assert (trial.outcome, trial.reason) == ("open", "its layer became another")
    assert search._promising(found_of(), search._candidates(found_of())) == [[plan]]
