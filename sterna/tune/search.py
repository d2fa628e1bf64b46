"""The search: rounds of trials for all layers at once, from the analytic answer on.

A round changes one answer of every layer that is worth it, builds the network with all of them and
times it beside the incumbent: each layer is judged by its own kernels, in the place where they run.
What is faster is built and timed once more before it becomes part of the incumbent. Answers that
change a graph (implementations, layouts, chains) have rounds of their own; one that makes its layer
another is tried alone, and judged by all kernels that changed. The caches that everything is cut
for come first, where nobody is sure of them. In the end the whole network must be faster than the
untuned one in a process that has seen neither, else nothing is kept.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from sterna.schedule.caches import MACHINE
from sterna.tune.candidates import (
    Candidate,
    Key,
    Outlook,
    fraction_of,
    gain_ahead,
    parts_of,
    scope_of,
)
from sterna.tune.database import Trial
from sterna.tune.measure import Measured, Times
from sterna.tune.statistics import Comparison, Verdict, combined, compare
from sterna.tune.workers import OUTCOMES, Request, TrialError, Workers, once_more

# When the whole network is expected to gain less than this, the search ends.
LEAST_GAIN = 0.01
# A layer that takes a smaller part of the time is left alone.
LEAST_FRACTION = 0.002
# Seconds that a trial may take at the end of a search.
LEAST_TIMEOUT = 60.0
# How often a candidate is looked at that seems faster and is not known to be.
LOOKS = 5
# A second look: how many standard errors below no gain.
CONFIRMED = 2.0


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
class LayerProgress:
    """How far a layer is."""

    fraction: float
    """Of the network's time, as it is now."""
    trials: int
    ratio: float
    """Its time over that of the untuned one."""


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
    untuned_seconds: float = 0.0
    """Of the network, as it was seen first."""
    layers: Mapping[str, LayerProgress] = field(default_factory=dict)
    tried: Sequence[Trial] = ()
    """In this round."""


Watch = Callable[[Progress, list[Trial]], None]


@dataclass(slots=True)
class Search:
    """The state of a search, which can be told what was found before."""

    worker: Workers
    budget: Budget = field(default_factory=Budget)
    incumbent: dict[str, str] = field(default_factory=dict)
    outlook: Outlook = field(default_factory=Outlook)
    tried: set[Key] = field(default_factory=set)
    alone: set[Key] = field(default_factory=set)
    """What changes more than its layer, and is tried without others."""
    looks: dict[Key, list[Comparison]] = field(default_factory=dict)
    """At candidates of which it is not known yet whether they are faster."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Of what was found: its time over that of what it replaced."""
    trials: dict[str, int] = field(default_factory=dict)
    """How many there were of each layer."""
    log_ratio: float = 0.0
    rounds: int = 0
    ends: float = math.inf
    """When all seconds of the budget are over."""
    first: float = 0.0
    """Seconds until the untuned network was built and timed, as the proof in the end will do."""
    only: frozenset[str] | None = None
    """The layers that are tuned, if not all are."""
    asked: set[str] = field(default_factory=set)
    """What builds of this network asked; records may answer other networks' questions as well."""

    stale: dict[str, str] = field(default_factory=dict)
    """What was recorded and does not hold any more: by question, why."""

    @property
    def answers(self) -> dict[str, str]:
        """Of the incumbent, to what this network asks."""
        return {q: a for q, a in self.incumbent.items() if q in self.asked}

    def know(self, trials: list[Trial]) -> None:
        """Take in what was tried before."""
        for each in trials:
            self.tried.add((each.question, each.answer))
            self.outlook.know(each)

    def run(self, watch: Watch = lambda progress, trials: None) -> dict[str, str]:
        """Search until there is little to be gained, or the budget is spent; the answers found."""
        begin = time.monotonic()
        self.ends = begin + self.budget.seconds
        now = self._begin()
        self.first = time.monotonic() - begin
        untuned, took = median(now.total.incumbent), [0.0]
        while time.monotonic() + self.first + max(took[-3:]) < self.ends:
            offered = self._candidates(now)
            expected = gain_ahead(offered, self.budget.trials)
            spent = sum(self.trials.values()) >= self.budget.all_trials
            if expected < LEAST_GAIN or not offered or spent:
                break
            self.rounds, started = self.rounds + 1, time.monotonic()
            trials, now = self._round(now, offered)
            took.append(time.monotonic() - started)
            wins = sum(trial.outcome == Verdict.FASTER.value for trial in trials)
            watch(Progress(self.rounds, math.exp(self.log_ratio), expected,
                           sum(self.trials.values()), wins, time.monotonic() - begin, untuned,
                           self._layers(now), tuple(trials)), trials)
        return self.incumbent

    def _layers(self, now: Measured) -> dict[str, LayerProgress]:
        """How far each layer is that was tried, the greatest first."""
        ratios: dict[str, float] = {}
        for question, ratio in self.ratios.items():
            scope = scope_of(question)
            ratios[scope] = ratios.get(scope, 1.0) * ratio
        return {
            scope: LayerProgress(fraction, self.trials[scope], ratios.get(scope, 1.0))
            for scope, fraction in sorted(now.fractions.items(), key=lambda pair: -pair[1])
            if scope in self.trials
        }

    def _begin(self) -> Measured:
        """The incumbent's times, without what was recorded and no longer holds."""
        recorded = dict(self.incumbent)
        try:
            now = self._measure(self.incumbent)
        except TrialError as error:
            if not recorded:
                raise
            self.incumbent = {}
            now = self._measure({})
            self.stale = {q: str(error) for q in recorded if q in self.asked}
            self.incumbent = {q: a for q, a in recorded.items() if q not in self.asked}
            return now
        taken = now.questions.taken
        self.stale = {q: f"'{a}' is no longer offered" for q, a in recorded.items()
                      if taken.get(q, a) != a}
        self.incumbent = {q: a for q, a in recorded.items() if q not in self.stale}
        return now

    # ---- one round ----

    def _round(self, now: Measured, offered: list[Candidate]) -> tuple[list[Trial], Measured]:
        trials = self._try(self._promising(now, offered))
        won = _fastest(trials)
        return trials, self._confirm(won, now) if won else now

    def _promising(self, now: Measured, offered: list[Candidate]) -> list[list[Candidate]]:
        """The groups of a round: what all layers depend on first, then what promises most.

        Answers that change the graph are a round of their own, and those whose layer became
        another are tried one at a time.
        """
        of_all = [each for each in offered
                  if scope_of(each.question) == MACHINE and each.gain >= LEAST_GAIN]
        alone = [each for each in offered if (each.question, each.answer) in self.alone]
        changing = {each for each in offered if each.answers.keys() & now.questions.graph.keys()}
        wanted = changing.difference(alone)
        graph = [each for each in offered if each in wanted
                 and scope_of(each.question) != MACHINE]
        local = [each for each in offered if each not in changing]
        singles = sorted(of_all or alone, key=lambda each: each.gain, reverse=True)
        kinds = [[[each] for each in singles[: self.worker.width]],
                 _best_of_layers(local, self.worker.width),
                 _best_of_layers(graph, self.worker.width)]
        gains = [sum(each.gain for each in groups[0]) if groups else 0.0 for groups in kinds]
        return kinds[0 if of_all else gains.index(max(gains))]

    def _try(self, groups: list[list[Candidate]]) -> list[Trial]:
        """Groups of candidates at once; where one fails, halves of it, down to what is bad."""
        trials: list[Trial] = []
        while groups:
            self.tried |= {(each.question, each.answer) for group in groups for each in group}
            requests = [self._request({q: a for each in group for q, a in each.answers.items()})
                        for group in groups]
            results = self.worker.compare_all(requests, self._timeout)
            halves: list[list[Candidate]] = []
            for group, found in zip(groups, results, strict=True):
                if isinstance(found, TrialError) and len(group) > 1:
                    middle = len(group) // 2
                    halves += [group[:middle], group[middle:]]
                elif isinstance(found, TrialError):
                    trials.append(_failed(group[0], found))
                    self._count(group[0].question)
                else:
                    trials += [self._judged(each, found, len(group) == 1) for each in group]
            groups = halves
        return trials

    def _judged(self, candidate: Candidate, found: Measured, alone: bool) -> Trial:
        scope = scope_of(candidate.question)
        times = found.changed if alone else found.layers.get(scope, found.changed)
        if not alone and scope not in found.layers and scope in found.gone:
            key = (candidate.question, candidate.answer)
            self.alone.add(key)
            self.tried.discard(key)
            return _trial(candidate, None, Verdict.OPEN, "its layer became another")
        if (not alone and scope not in found.layers) or not any(times.challenger):
            return _trial(candidate, None, Verdict.NOT_FASTER, "it made no difference")
        self._count(candidate.question)
        seen = compare(times.incumbent, times.challenger)
        together = self._look_again((candidate.question, candidate.answer), seen)
        self.outlook.learn(candidate, seen, together)
        return _trial(candidate, together, together.verdict)

    def _look_again(self, key: Key, seen: Comparison) -> Comparison:
        """All that was seen of a candidate; it is tried again while that leaves it open."""
        looks = self.looks.setdefault(key, [])
        looks.append(seen)
        together = combined(looks)
        if together.verdict is Verdict.OPEN and together.log_ratio < 0 and len(looks) < LOOKS:
            self.tried.discard(key)
        return together

    def _confirm(self, won: Sequence[Trial], now: Measured) -> Measured:
        """Build what won together, time it again, and keep what is faster once more.

        Every machine times it, and what most of them say counts: one that lies is not believed.
        """
        request = self._request({q: a for trial in won for q, a in _answers(trial).items()})
        try:
            found = self.worker.compare_everywhere(request, self._timeout)
        except TrialError:
            return now
        kept: dict[str, str] = {}
        gained: list[tuple[dict[str, str], float]] = []
        for trial in won:
            scope, answers = scope_of(trial.question), _answers(trial)
            seen = by_most([each.layers.get(scope, each.changed) for each in found])
            if seen.log_ratio + CONFIRMED * seen.error < 0:
                kept |= answers
                gained.append((answers, seen.log_ratio))
                for question in answers:
                    each = seen.ratio ** (1 / len(answers))
                    self.ratios[question] = each * self.ratios.get(question, 1.0)
            else:
                self._look_again((trial.question, trial.answer), seen)
        changed = by_most([each.changed for each in found])
        beside = any(question in now.questions.graph for question in kept) and changed.ratio >= 1
        if not kept or beside:  # what layers gain, others may lose where the graph changes
            return now
        self.tried |= {(q, taken) for q in kept if (taken := now.questions.taken.get(q))}
        self.incumbent |= kept
        for answers, log_ratio in gained:
            self.outlook.moved(answers, log_ratio)
        self.looks = {}  # they were beside another incumbent
        if len(gained) == len(won):
            self.log_ratio += by_most([each.total for each in found]).log_ratio
        try:
            return self._measure(self.incumbent)
        except TrialError:
            self.incumbent = {q: a for q, a in self.incumbent.items() if q not in kept}
            return now

    # ---- what may be tried ----

    def _candidates(self, now: Measured) -> list[Candidate]:
        """What was not tried yet, in layers that are worth it."""
        offers = now.questions.kernels | now.questions.graph
        open_ones = [q for q in offers if self._is_worth_it(scope_of(q), now)]
        return list(self.outlook.candidates(now, open_ones, self.tried))

    def _is_worth_it(self, scope: str, now: Measured) -> bool:
        wanted = self.only is None or scope in self.only
        left = self.trials.get(scope, 0) < self.budget.trials
        return wanted and left and fraction_of(scope, now) >= LEAST_FRACTION

    @property
    def _timeout(self) -> float:
        """For a trial: one that hangs may not take much more than what is left."""
        least = max(LEAST_TIMEOUT, 3 * self.first)
        return min(self.budget.timeout, max(least, self.ends - time.monotonic()))

    def _count(self, question: str) -> None:
        scope = scope_of(question)
        self.trials[scope] = self.trials.get(scope, 0) + 1

    def _measure(self, answers: Mapping[str, str]) -> Measured:
        """The incumbent beside itself: what it asks, and its layers' fractions of the time."""
        timeout = self.budget.timeout
        found = once_more(lambda: self.worker.compare(answers, answers, 0.0, timeout))
        self.asked |= set(found.questions.taken)
        return found

    def _request(self, answers: Mapping[str, str]) -> Request:
        """The incumbent, and the same with other answers."""
        challenger = self.incumbent | dict(answers)
        return Request(dict(self.incumbent), challenger, self.budget.round_seconds)


def _best_of_layers(candidates: list[Candidate], width: int = 1) -> list[list[Candidate]]:
    """The most promising candidates of each layer: groups with one of each, the best first."""
    by_layer: dict[str, list[Candidate]] = {}
    for each in sorted(candidates, key=lambda each: each.gain, reverse=True):
        by_layer.setdefault(scope_of(each.question), []).append(each)
    groups = [[of[place] for of in by_layer.values() if place < len(of)] for place in range(width)]
    return [group for group in groups if group]


def _fastest(trials: list[Trial]) -> list[Trial]:
    """What was found faster; one trial of each layer, as they were timed one by one."""
    won: dict[str, Trial] = {}
    for trial in trials:
        scope = scope_of(trial.question)
        if trial.outcome == Verdict.FASTER.value and trial.log_ratio is not None:
            best = won.get(scope)
            if best is None or best.log_ratio is None or trial.log_ratio < best.log_ratio:
                won[scope] = trial
    return [*won.values()]


def _answers(trial: Trial) -> dict[str, str]:
    return parts_of(trial.question, trial.answer)


def by_most(times: Sequence[Times]) -> Comparison:
    """What the greater part of the machines say at the least: the upper median of their ratios."""
    seen = sorted((compare(t.incumbent, t.challenger) for t in times), key=lambda s: s.log_ratio)
    return seen[len(seen) // 2]


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


def final_times(worker: Workers, answers: Mapping[str, str], budget: Budget) -> Times:
    """The untuned network and the tuned one in turns, each as a whole."""
    request = Request({}, answers, 3 * budget.round_seconds)
    seen = once_more(lambda: worker.compare_everywhere(request, budget.timeout))
    found = [each.total for each in seen]
    ratios = {place: compare(t.incumbent, t.challenger).ratio for place, t in enumerate(found)}
    return found[sorted(ratios, key=ratios.__getitem__)[len(ratios) // 2]]
