"""The search: rounds of trials for all layers at once, from the analytic answer on.

A round changes one answer of every layer that is worth it, builds the network with all of them and
times it beside the incumbent: each layer is judged by its own kernels, in the place where they run.
What is faster is built and timed once more before it becomes part of the incumbent. Answers that
change a graph (implementations, layouts, chains) are tried one at a time, and judged by all kernels
that changed. In the end the whole network must be faster than the untuned one in a process that has
seen neither, else nothing is kept.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sterna.tune.correction import Correction, Expected
from sterna.tune.database import Trial
from sterna.tune.measure import Measured, Times
from sterna.tune.network import Questions
from sterna.tune.statistics import Comparison, Verdict, combined, compare
from sterna.tune.worker import Crashed, Hung, Refused, TrialError, Worker, Wrong

# When the whole network is expected to gain less than this, the search ends.
LEAST_GAIN = 0.01
# A layer that takes a smaller part of the time is left alone.
LEAST_SHARE = 0.002
# What a rule of thumb is taken to cost for each candidate that it prefers to another.
BY_RANK = 0.02
# Every so many rounds one tries an answer that changes the graph.
GRAPH_EVERY = 3
# How often a candidate is looked at that seems faster and is not known to be.
LOOKS = 3
# A second look: how many standard errors below no gain.
CONFIRMED = 2.0

OUTCOMES: dict[type[TrialError], str] = {
    Wrong: "wrong", Crashed: "crashed", Hung: "hung", Refused: "refused"
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may take."""

    trials: int = 64
    """For each layer."""
    all_trials: float = math.inf
    """For all of them together."""
    seconds: float = math.inf
    round_seconds: float = 1.0
    """For timing, beside building."""
    timeout: float = 300.0
    """For building and timing; a process that takes longer hangs."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a search tells after each round."""

    round: int
    ratio: float
    """The network's time over that of the untuned one, as far as it is known."""
    expected: float
    """What it may still gain."""
    trials: int
    wins: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another answer to a question, and what is expected of it."""

    question: str
    answer: str
    predicted: float
    expected: Expected
    share: float
    """Of the network's time, which it could change."""

    @property
    def gain(self) -> float:
        """Of the network."""
        return self.expected.gain * self.share


Watch = Callable[[Progress, list[Trial]], None]


@dataclass(slots=True)
class Search:
    """The state of a search, which can be told what was found before."""

    worker: Worker
    budget: Budget = field(default_factory=Budget)
    incumbent: dict[str, str] = field(default_factory=dict)
    correction: Correction = field(default_factory=Correction)
    tried: set[tuple[str, str]] = field(default_factory=set)
    looks: dict[tuple[str, str], list[Comparison]] = field(default_factory=dict)
    """At candidates of which it is not known yet whether they are faster."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Of what was found: its time over that of what it replaced."""
    trials: dict[str, int] = field(default_factory=dict)
    """How many there were of each layer."""
    log_ratio: float = 0.0
    rounds: int = 0
    only: frozenset[str] | None = None
    """The layers that are tuned, if not all are."""

    def know(self, trials: list[Trial]) -> None:
        """Take in what was tried before."""
        for each in trials:
            self.tried.add((each.question, each.answer))
            if each.log_ratio is not None and each.error is not None:
                self._learn(each.question, each.answer, each.predicted,
                            Comparison(each.log_ratio, each.error, 0))

    def run(self, watch: Watch = lambda progress, trials: None) -> dict[str, str]:
        """Search until there is little to be gained, or the budget is spent; the answers found."""
        begin = time.monotonic()
        now = self._measure(self.incumbent)
        while time.monotonic() - begin < self.budget.seconds:
            offered = self._candidates(now)
            expected = sum(each.gain for each in _best_of_layers(offered))
            spent = sum(self.trials.values()) >= self.budget.all_trials
            if expected < LEAST_GAIN or not offered or spent:
                break
            self.rounds += 1
            trials, now = self._round(now, offered)
            wins = sum(trial.outcome == Verdict.FASTER.value for trial in trials)
            watch(Progress(self.rounds, math.exp(self.log_ratio), expected,
                           sum(self.trials.values()), wins, time.monotonic() - begin), trials)
        return self.incumbent

    # ---- one round ----

    def _round(self, now: Measured, offered: list[Candidate]) -> tuple[list[Trial], Measured]:
        graph = [each for each in offered if each.question in now.questions.graph]
        local = [each for each in offered if each.question not in now.questions.graph]
        if graph and (self.rounds % GRAPH_EVERY == 0 or not local):
            chosen = [max(graph, key=lambda each: each.gain)]
        else:
            chosen = _best_of_layers(local)
        trials = [trial for part in self._try(chosen) for trial in part]
        won = {t.question: t.answer for t in trials if t.outcome == Verdict.FASTER.value}
        return trials, self._confirm(won, now) if won else now

    def _try(self, chosen: list[Candidate]) -> Iterator[list[Trial]]:
        """Candidates together; where that fails, halves of them, down to the one that is bad."""
        challenger = self.incumbent | {each.question: each.answer for each in chosen}
        for each in chosen:
            self.tried.add((each.question, each.answer))
        try:
            found = self._compare(challenger)
        except TrialError as error:
            if len(chosen) == 1:
                yield [_failed(chosen[0], error)]
                self._count(chosen[0].question)
            else:
                yield from self._try(chosen[: len(chosen) // 2])
                yield from self._try(chosen[len(chosen) // 2 :])
            return
        yield [self._judged(each, found, len(chosen) == 1) for each in chosen]

    def _judged(self, candidate: Candidate, found: Measured, alone: bool) -> Trial:
        self._count(candidate.question)
        scope = candidate.question.rpartition("/")[0]
        times = found.changed if alone else found.layers.get(scope, found.changed)
        if (not alone and scope not in found.layers) or not any(times.challenger):
            return _trial(candidate, None, Verdict.NOT_FASTER, "it made no difference")
        seen = compare(times.incumbent, times.challenger)
        self._learn(candidate.question, candidate.answer, candidate.predicted, seen)
        key = candidate.question, candidate.answer
        looks = self.looks.setdefault(key, [])
        looks.append(seen)
        together = combined(looks)
        if together.verdict is Verdict.OPEN and together.log_ratio < 0 and len(looks) < LOOKS:
            self.tried.discard(key)
        return _trial(candidate, together, together.verdict)

    def _confirm(self, won: Mapping[str, str], now: Measured) -> Measured:
        """Build what won together, time it again, and keep what is faster once more."""
        try:
            found = self._compare(self.incumbent | dict(won))
        except TrialError:
            return now
        kept = {}
        for question, answer in won.items():
            times = found.layers.get(question.rpartition("/")[0], found.changed)
            seen = compare(times.incumbent, times.challenger)
            if seen.log_ratio + CONFIRMED * seen.error < 0:
                kept[question] = answer
                self.ratios[question] = seen.ratio * self.ratios.get(question, 1.0)
        if not kept:
            return now
        self.incumbent |= kept
        self.looks = {}  # they were beside another incumbent
        if len(kept) == len(won):
            whole = compare(found.total.incumbent, found.total.challenger)
            self.log_ratio += whole.log_ratio
        try:
            return self._measure(self.incumbent)
        except TrialError:
            self.incumbent = {q: a for q, a in self.incumbent.items() if q not in kept}
            return now

    # ---- what may be tried ----

    def _candidates(self, now: Measured) -> list[Candidate]:
        """What was not tried yet, in layers that are worth it."""
        offers = now.questions.kernels | now.questions.graph
        found = []
        for question, offered in offers.items():
            scope = question.rpartition("/")[0]
            share = now.shares.get(scope, 0.0)
            if self.only is not None and scope not in self.only:
                continue
            if share < LEAST_SHARE or self.trials.get(scope, 0) >= self.budget.trials:
                continue
            for answer, predicted in _predicted(offered, now.questions, question):
                if (question, answer) in self.tried:
                    continue
                expected = self.correction.expected(question, answer, predicted)
                found.append(Candidate(question, answer, predicted, expected, share))
        return found

    def _learn(self, question: str, answer: str, predicted: float, seen: Comparison) -> None:
        self.correction.note(question, answer, predicted, seen.log_ratio, seen.error)

    def _count(self, question: str) -> None:
        scope = question.rpartition("/")[0]
        self.trials[scope] = self.trials.get(scope, 0) + 1

    def _measure(self, answers: Mapping[str, str]) -> Measured:
        """The incumbent beside itself: what it asks, and its layers' shares of the time."""
        return self.worker.compare(answers, answers, 0.0, self.budget.timeout)

    def _compare(self, challenger: Mapping[str, str]) -> Measured:
        return self.worker.compare(
            self.incumbent, challenger, self.budget.round_seconds, self.budget.timeout
        )


def _best_of_layers(candidates: list[Candidate]) -> list[Candidate]:
    """The most promising candidate of each layer."""
    best: dict[str, Candidate] = {}
    for each in candidates:
        scope = each.question.rpartition("/")[0]
        if scope not in best or each.gain > best[scope].gain:
            best[scope] = each
    return list(best.values())


def _predicted(
    offered: Mapping[str, float], questions: Questions, question: str
) -> Iterator[tuple[str, float]]:
    """What is offered beside what is taken: the logarithm of the ratio of their costs.

    Costs of rules are distances from what they prefer, and are told by their order alone.
    """
    taken = questions.taken[question]
    own = offered.get(taken, 0.0)
    others = sorted((answer for answer in offered if answer != taken), key=offered.__getitem__)
    for rank, answer in enumerate(others, 1):
        cost = offered[answer]
        known = own > 0 and cost >= own and math.isfinite(cost)
        yield answer, math.log(cost / own) if known else BY_RANK * rank


def _trial(
    candidate: Candidate, seen: Comparison | None, verdict: Verdict, reason: str = ""
) -> Trial:
    return Trial(
        candidate.question, candidate.answer, candidate.predicted,
        None if seen is None else seen.log_ratio, None if seen is None else seen.error,
        verdict.value, reason,
    )


def _failed(candidate: Candidate, error: TrialError) -> Trial:
    return Trial(
        candidate.question, candidate.answer, candidate.predicted, None, None,
        OUTCOMES[type(error)], str(error),
    )


def final_times(worker: Worker, answers: Mapping[str, str], budget: Budget) -> Times:
    """The untuned network and the tuned one in turns, each as a whole."""
    seconds = 3 * budget.round_seconds
    return worker.compare({}, answers, seconds, budget.timeout).total
