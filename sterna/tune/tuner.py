"""Tuning a network: the search, its records, and the proof that the whole network gained."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.structural import structural_hash
from sterna.relay.arrays import Array
from sterna.relay.random_inputs import random_inputs
from sterna.target import Target
from sterna.tune.database import Trial, TuningDatabase
from sterna.tune.search import Budget, Progress, Search, final_times
from sterna.tune.statistics import compare
from sterna.tune.worker import TrialError, Worker, write_network


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tuning a network came to."""

    answers: dict[str, str]
    """What is to be answered where the network is built; none if nothing is faster."""
    default_seconds: float
    seconds: float
    ratio: float
    """The tuned network's time over the untuned one's, as a whole, in turns."""
    trials: tuple[Trial, ...]
    history: tuple[Progress, ...]
    interrupted: bool = False

    @property
    def failed(self) -> dict[str, int]:
        """How many trials ended without a time, by what happened."""
        found: dict[str, int] = {}
        for trial in self.trials:
            if trial.outcome in ("wrong", "crashed", "hung", "refused"):
                found[trial.outcome] = found.get(trial.outcome, 0) + 1
        return found


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    shape: tuple[int, ...]
    dtype: str


def tune(
    mod: IRModule,
    params: Mapping[str, Any],
    target: Target,
    database: TuningDatabase,
    inputs: Mapping[str, Array] | None = None,
    budget: Budget | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    opt_level: int = 3,
    threads: int | None = None,
) -> Outcome:
    """Search faster answers for a network on this machine, and keep them in a database.

    inputs: what it is run on; drawn at random where they are not given. What the database knows is
    where the search begins; an interrupt (Ctrl-C) ends it with everything kept.
    """
    limits = budget or Budget()
    given = draw_inputs(mod, params) if inputs is None else inputs
    with tempfile.TemporaryDirectory(prefix="sterna-tune-") as name:
        folder = Path(name)
        write_network(folder, mod, params, target, given, opt_level, threads)
        worker = Worker(folder)
        try:
            return _tuned(worker, target, database, limits, watch, str(structural_hash(mod)))
        finally:
            worker.close()


def draw_inputs(mod: IRModule, params: Mapping[str, Any]) -> dict[str, Array]:
    """Random arrays for what a network takes beside its parameters."""
    free = [param for param in mod["main"].params if param.name_hint not in params]
    specs = [
        _Input(p.name_hint, tuple(p.type_annotation.concrete_shape), str(p.type_annotation.dtype))
        for p in free
    ]
    return random_inputs(specs)


def _tuned(
    worker: Worker, target: Target, database: TuningDatabase, budget: Budget,
    watch: Callable[[Progress], None], digest: str,
) -> Outcome:
    search = Search(worker, budget, dict(database.answers(target)))
    search.know(database.trials(target))
    trials: list[Trial] = []
    history: list[Progress] = []
    known = dict(search.incumbent)

    def noted(progress: Progress, seen: list[Trial]) -> None:
        database.add_trials(target, seen)
        _keep(search, database, target, known)
        trials.extend(seen)
        history.append(progress)
        watch(progress)

    interrupted = False
    try:
        search.run(noted)
    except KeyboardInterrupt:
        interrupted = True
    _keep(search, database, target, known)
    return _proved(search, target, database, budget, digest, trials, history, interrupted)


def _keep(
    search: Search, database: TuningDatabase, target: Target, known: dict[str, str]
) -> None:
    """Write down what the search has found since it was asked last."""
    new = {q: (a, search.ratios.get(q, 1.0)) for q, a in search.incumbent.items()
           if known.get(q) != a}
    if new:
        database.keep(target, new)
        known.update({question: answer for question, (answer, _) in new.items()})


def _proved(
    search: Search, target: Target, database: TuningDatabase, budget: Budget, digest: str,
    trials: list[Trial], history: list[Progress], interrupted: bool,
) -> Outcome:
    """The outcome, after a fresh process has timed the whole network with and without answers."""
    search.worker.close()
    answers = dict(search.incumbent)
    try:
        times = final_times(search.worker, answers, budget)
    except TrialError as error:
        database.set_aside(target, dict.fromkeys(answers, str(error)))
        answers = {}
        times = final_times(search.worker, answers, budget)
    whole = compare(times.incumbent, times.challenger)
    default, tuned = median(times.incumbent), median(times.challenger)
    ratio = whole.ratio if answers else 1.0
    if answers and ratio >= 1.0:
        database.set_aside(target, dict.fromkeys(answers, "the whole network was not faster"))
        answers, tuned, ratio = {}, default, 1.0
    database.add_network(digest, target, default, tuned, ratio)
    return Outcome(answers, default, tuned, ratio, tuple(trials), tuple(history), interrupted)
