"""What a search may still gain: what is expected of candidates, alone, again and two at once.

A candidate that nobody tried is judged by the analytic cost and what was learned of it. One that
was tried beside other answers is judged by what was seen then: its level, the logarithm of what it
takes over what the untuned answer to its question does, and a doubt, as answers hinder and help
each other. Two answers to questions of one layer are taken to do what both do, with the same doubt.
How large doubts are is learned while trying: where candidates are farther from what was expected,
more is expected of the others.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from sterna.schedule.caches import MACHINE
from sterna.tune.correction import FARTHEST, NOISE, Correction, Expected
from sterna.tune.database import Trial
from sterna.tune.measure import Measured
from sterna.tune.network import Questions
from sterna.tune.statistics import Comparison

# What a rule of thumb is taken to cost for each candidate that it prefers to another.
BY_RANK = 0.02
# How far answers to several questions are from doing together what each does.
TOGETHER = 0.04
# And what was seen from what will be.
LEAST_SPREAD = 0.001
# The most promising answers to each question that are tried together with others.
JOINED = 3
# Trials of a layer whose gain is looked at when it is asked whether to go on.
AHEAD = 8
# How much larger doubts are taken to be for that: a search goes on while a gain is plausible.
PLAUSIBLE = 1.5
# Doubts are as large as they are taken to be at first by so many trials, and change at most so.
TRUSTED, LEAST_DOUBT, MOST_DOUBT = 4, 0.25, 3.0
# Between the names of questions that are answered at once, and between their answers.
AND = " & "
_GRID = np.linspace(0.0, 0.6, 121)

Key = tuple[str, str]
Context = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Other answers to questions of a layer, and what is expected of them."""

    question: str
    answer: str
    predicted: float
    expected: Expected
    fraction: float
    """Of the network's time, which it could change."""
    beside: Context = ()
    """What else is answered for its layer."""
    doubt: str = ""
    """What tells whose doubts are alike."""

    @property
    def gain(self) -> float:
        """Of the network."""
        return self.expected.gain * self.fraction

    @property
    def answers(self) -> dict[str, str]:
        """By question."""
        return parts_of(self.question, self.answer)


def parts_of(question: str, answer: str) -> dict[str, str]:
    """The answers to all questions that were answered at once."""
    scope, _, names = question.rpartition("/")
    parts = zip(names.split(AND), answer.split(AND), strict=True)
    return {f"{scope}/{name}": text for name, text in parts}


def scope_of(question: str) -> str:
    """What a question was asked for."""
    return question.rpartition("/")[0]


def fraction_of(scope: str, now: Measured) -> float:
    """The part of the network's time that answers of a scope could change."""
    return 1.0 if scope == MACHINE else now.fractions.get(scope, 0.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a candidate."""

    level: float
    error: float
    beside: Context


@dataclass(slots=True)
class Outlook:
    """What is expected of candidates, by all that was seen."""

    correction: Correction = field(default_factory=Correction)
    levels: dict[str, float] = field(default_factory=dict)
    """By question, the logarithm of what its answer takes over what the untuned one does."""
    seen: dict[Key, Seen] = field(default_factory=dict)
    _off: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Trials of each kind, and the squares of how many spreads they were off."""

    def know(self, trial: Trial) -> None:
        """Learn from what was tried in an earlier search."""
        if trial.log_ratio is not None and trial.error is not None and AND not in trial.question:
            self.correction.note(trial.question, trial.answer, trial.predicted, trial.log_ratio,
                                 trial.error)

    def learn(self, candidate: Candidate, found: Comparison, together: Comparison) -> None:
        """Learn from one look at a candidate; together: all looks at it."""
        expected, doubt = candidate.expected, candidate.doubt
        if doubt:
            spread = math.hypot(expected.spread / self._scale(doubt), NOISE / 2, found.error)
            count, squares = self._off.get(doubt, (0, 0.0))
            off = (found.log_ratio - expected.mean) / spread
            self._off[doubt] = count + 1, squares + off * off
        if len(candidate.answers) == 1:
            self.correction.note(candidate.question, candidate.answer, candidate.predicted,
                                 found.log_ratio, found.error)
        level = self._level(candidate.question) + together.log_ratio
        key = candidate.question, candidate.answer
        self.seen[key] = Seen(level, together.error, candidate.beside)

    def moved(self, answers: Mapping[str, str], log_ratio: float) -> None:
        """A layer has other answers, with which it takes so much less."""
        for question in answers:
            self.levels[question] = self.levels.get(question, 0.0) + log_ratio / len(answers)

    def _level(self, question: str) -> float:
        """Of the incumbent's answers to one question, or to several at once."""
        scope, _, names = question.rpartition("/")
        return sum(self.levels.get(f"{scope}/{name}", 0.0) for name in names.split(AND))

    def candidates(
        self, now: Measured, questions: Sequence[str], tried: set[Key]
    ) -> Iterator[Candidate]:
        """What may be tried: one answer, or two to different questions of a layer."""
        offers = now.questions.kernels | now.questions.graph
        offered = [(question, *each) for question in questions
                   for each in predicted(offers[question], now.questions, question)]
        made: dict[str, dict[str, list[Candidate]]] = {}
        for each in self._expected(offered, now):
            if self._is_open(each, tried):
                yield each
            of_layer = made.setdefault(scope_of(each.question), {})
            of_layer.setdefault(each.question, []).append(each)
        taken = _taken_by_layer(now.questions)
        for scope, of_layer in made.items():
            for some, others in combinations(map(self._best_seen, of_layer.values()), 2):
                for one, other in product(some, others):
                    both = self._joined(one, other, taken[scope])
                    if self._is_open(both, tried):
                        yield both

    def _best_seen(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those answers to a question that were tried and did best."""
        known = [each for each in candidates if (each.question, each.answer) in self.seen]
        return sorted(known, key=lambda each: each.expected.mean)[:JOINED]

    def _is_open(self, candidate: Candidate, tried: set[Key]) -> bool:
        """Whether it was not tried yet, or only beside other answers."""
        key = candidate.question, candidate.answer
        known = self.seen.get(key)
        return key not in tried or (known is not None and known.beside != candidate.beside)

    def _expected(
        self, offered: Sequence[tuple[str, str, float]], now: Measured
    ) -> Iterator[Candidate]:
        """What is expected of answers, each with its question and its predicted ratio."""
        taken = _taken_by_layer(now.questions)
        beside = {question: _beside(taken[scope_of(question)], question)
                  for question in dict.fromkeys(question for question, _, _ in offered)}
        learned = self.correction.expected_of(offered)
        for (question, answer, ratio), expected in zip(offered, learned, strict=True):
            known, doubt = self.seen.get((question, answer)), question.rpartition("/")[2]
            if known is not None:
                again = known.beside != beside[question]
                doubt = "again" if again else ""
                expected = self._as_seen(question, known, TOGETHER if again else 0.0)
            fraction = fraction_of(scope_of(question), now)
            yield Candidate(question, answer, ratio, self._scaled(expected, doubt), fraction,
                            beside[question], doubt)

    def _joined(self, one: Candidate, other: Candidate, taken: Iterable[Key]) -> Candidate:
        question = one.question + AND + other.question.rpartition("/")[2]
        spread = math.hypot(one.expected.spread, other.expected.spread)
        own = TOGETHER * self._scale(AND)
        expected = Expected(one.expected.mean + other.expected.mean, math.hypot(spread, own))
        answer = one.answer + AND + other.answer
        beside = _beside(taken, question)
        known = self.seen.get((question, answer))
        if known is not None and known.beside == beside:
            expected = self._as_seen(question, known)
        return Candidate(question, answer, one.predicted + other.predicted, expected, one.fraction,
                         beside, AND)

    def _as_seen(self, question: str, known: Seen, doubt: float = 0.0) -> Expected:
        """What was seen of a candidate, beside the incumbent as it is now."""
        spread = math.hypot(known.error, LEAST_SPREAD, doubt)
        return Expected(known.level - self._level(question), spread)

    def _scaled(self, expected: Expected, doubt: str) -> Expected:
        return Expected(expected.mean, expected.spread * self._scale(doubt))

    def _scale(self, doubt: str) -> float:
        """How many times as large doubts of a kind are as they were taken to be."""
        count, squares = self._off.get(doubt, (0, 0.0))
        scale = math.sqrt((TRUSTED + squares) / (TRUSTED + count))
        return min(max(scale, LEAST_DOUBT), MOST_DOUBT)


def _beside(taken: Iterable[Key], question: str) -> Context:
    """What a layer's other questions are answered, of all that it answers."""
    scope, _, names = question.rpartition("/")
    own = {f"{scope}/{name}" for name in names.split(AND)}
    return tuple(each for each in taken if each[0] not in own)


def _taken_by_layer(questions: Questions) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for question, answer in sorted(questions.taken.items()):
        found.setdefault(scope_of(question), []).append((question, answer))
    return found


def predicted(
    offered: Mapping[str, float], questions: Questions, question: str
) -> Iterator[tuple[str, float]]:
    """What is offered beside what is taken: the logarithm of the ratio of their costs.

    Costs of rules are distances from what they prefer, and are told by their order alone.
    """
    taken = questions.taken[question]
    own = offered.get(taken, 0.0)
    is_rule = min(offered.values(), default=0.0) <= 0 or own <= 0
    others = sorted((answer for answer in offered if answer != taken), key=offered.__getitem__)
    for rank, answer in enumerate(others, 1):
        cost = offered[answer]
        if not math.isfinite(cost):
            yield answer, math.log(FARTHEST)
        elif is_rule or not math.isfinite(own):
            yield answer, BY_RANK * rank
        else:
            yield answer, math.log(cost / own)


def gain_ahead(candidates: Iterable[Candidate], trials: float) -> float:
    """What a network is expected to gain by the next trials of all its layers."""
    by_layer: dict[str, list[Candidate]] = {}
    for each in candidates:
        by_layer.setdefault(scope_of(each.question), []).append(each)
    count = int(min(AHEAD, trials))
    return sum(_gain_of_best(of, count) for of in by_layer.values())


def _gain_of_best(candidates: list[Candidate], count: int) -> float:
    """What the best of some trials is expected to gain, if each tells nothing of the others."""
    best = sorted(candidates, key=lambda each: each.expected.gain, reverse=True)[:count]
    below = np.ones_like(_GRID)
    for each in best:
        at = (_GRID + each.expected.mean) / (PLAUSIBLE * each.expected.spread * math.sqrt(2))
        below *= [(1 + math.erf(x)) / 2 for x in at]
    return float((1 - below).mean() * _GRID[-1]) * best[0].fraction
