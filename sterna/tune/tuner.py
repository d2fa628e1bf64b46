"""Tuning a network: the search, its records, and the proof that the whole network gained."""

import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.structural import structural_hash
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.random_inputs import random_inputs
from sterna.target import Target
from sterna.tune.database import Trial, TuningDatabase
from sterna.tune.measure import RemoteDevice
from sterna.tune.search import Budget, Progress, Search, final_times
from sterna.tune.statistics import compare
from sterna.tune.worker import Worker, write_network
from sterna.tune.workers import TrialError, Workers


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
    def count(self) -> int:
        """How many trials told something: an answer that changes no kernel is none."""
        return self.history[-1].trials if self.history else 0

    @property
    def failed(self) -> dict[str, int]:
        """How many trials ended without a time, by what happened."""
        found: dict[str, int] = {}
        for trial in self.trials:
            if trial.outcome in ("wrong", "crashed", "hung", "refused"):
                found[trial.outcome] = found.get(trial.outcome, 0) + 1
        return found


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """What a network takes beside its parameters."""

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
    device: RemoteDevice | None = None,
    only: Collection[str] | None = None,
    workers: Callable[[Path], Workers] = Worker,
    board: str | None = None,
) -> Outcome:
    """Search faster answers for a network on this machine or on a device, and keep them.

    inputs: what it is run on; drawn at random where they are not given. only: the layers that are
    tuned, by their scopes; all if it is not given. workers: who builds and times, from the folder
    that describes the network; a process here if they are not given. board: a microcontroller's,
    such as mps2_an386, whose instructions QEMU counts. What the database knows is
    where the search begins; an interrupt (Ctrl-C) ends it with everything kept.
    """
    limits = budget or Budget()
    given = random_inputs(network_inputs(mod, params)) if inputs is None else inputs
    with tempfile.TemporaryDirectory(prefix="sterna-tune-") as name:
        folder = Path(name)
        write_network(folder, mod, params, target, given, opt_level, threads, device, board)
        worker = workers(folder)
        try:
            return search_network(
                worker, target, database, limits, watch, str(structural_hash(mod)), only
            )
        finally:
            worker.close()


def network_inputs(mod: IRModule, params: Mapping[str, Any]) -> list[NetworkInput]:
    """The inputs of a network that are no parameters."""
    found = []
    for param in mod["main"].params:
        kind = param.type_annotation
        if param.name_hint not in params:
            assert isinstance(kind, TensorType)
            found.append(NetworkInput(param.name_hint, kind.concrete_shape, str(kind.dtype)))
    return found


def search_network(
    worker: Workers,
    target: Target,
    database: TuningDatabase,
    budget: Budget,
    watch: Callable[[Progress], None] = lambda progress: None,
    digest: str = "",
    only: Collection[str] | None = None,
) -> Outcome:
    """The same for a network that a worker knows; digest: what it is called in the records."""
    search = Search(worker, budget, dict(database.answers(target)))
    search.only = None if only is None else frozenset(only)
    search.know(database.trials(target))
    trials: list[Trial] = []
    history: list[Progress] = []
    known = dict(search.incumbent)

    def noted(progress: Progress, seen: list[Trial]) -> None:
        _set_stale_aside(search, database, target)
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
    _set_stale_aside(search, database, target)
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


def _set_stale_aside(search: Search, database: TuningDatabase, target: Target) -> None:
    """Say which records do not hold any more, and use them no longer."""
    if search.stale:
        database.set_aside(target, search.stale, database.answers(target))
        warnings.warn(
            f"{len(search.stale)} of the tuning records in '{database.path}' no longer hold and "
            f"were set aside: {'; '.join(f'{q}: {why}' for q, why in search.stale.items())}",
            stacklevel=4,
        )
        search.stale = {}


def _proved(
    search: Search, target: Target, database: TuningDatabase, budget: Budget, digest: str,
    trials: list[Trial], history: list[Progress], interrupted: bool,
) -> Outcome:
    """The outcome, after a fresh process has timed the whole network with and without answers."""
    search.worker.refresh()
    answers = search.answers
    try:
        times = final_times(search.worker, answers, budget)
    except TrialError as error:
        database.set_aside(target, dict.fromkeys(answers, str(error)), answers)
        answers = {}
        times = final_times(search.worker, answers, budget)
    whole = compare(times.incumbent, times.challenger)
    default, tuned = median(times.incumbent), median(times.challenger)
    ratio = whole.ratio if answers else 1.0
    if answers and ratio >= 1.0:
        why = dict.fromkeys(answers, "the whole network was not faster")
        database.set_aside(target, why, answers)
        answers, tuned, ratio = {}, default, 1.0
    database.add_network(digest, target, default, tuned, ratio)
    return Outcome(answers, default, tuned, ratio, tuple(trials), tuple(history), interrupted)
