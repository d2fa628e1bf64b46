"""Two builds of a network in turns: what each of their layers takes, side by side.

Each pair of runs gives a pair of times for every layer. Kernels that both builds share are the
control: what they took more in one run than in the other is the machine's doing, and is taken out.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.relay.arrays import Array
from sterna.target import Target
from sterna.tune.network import Answers, BuiltNetwork, Questions, answers_text
from sterna.tune.statistics import LEAST_PAIRS, Verdict, compare

# Builds that are kept: the incumbent, the default and some challengers.
KEPT = 4
MOST_PAIRS = 200
# A pair whose shared kernels took so many times as long in one run as in the other says nothing.
DISTURBED = 1.25
# How far results may lie from the default's, by the largest of them.
TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}


class WrongResult(RuntimeError):
    """A build gives other numbers than the default."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of pairs of runs."""

    incumbent: Sequence[float]
    challenger: Sequence[float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What pairs of runs took."""

    layers: Mapping[str, Times]
    """By scope, of those that both builds have and whose kernels differ."""
    changed: Times
    """All kernels together that one build has and the other has not."""
    total: Times
    questions: Questions
    """The challenger's."""
    shares: Mapping[str, float]
    """Which part of the incumbent's time each of its layers takes."""


class Bench:
    """A network that is built again and again, and timed beside itself."""

    def __init__(
        self, mod: IRModule, params: Mapping[str, Any], target: Target,
        inputs: Mapping[str, Array], opt_level: int = 3,
    ) -> None:
        self.mod, self.params, self.target = mod, params, target
        self.inputs, self.opt_level = inputs, opt_level
        self._built: OrderedDict[str, BuiltNetwork] = OrderedDict()
        self._want: list[Array] | None = None

    def built(self, answers: Answers) -> BuiltNetwork:
        """The network under answers, which gives the numbers that it gives without any."""
        key = answers_text(answers)
        if key not in self._built:
            made = BuiltNetwork.build(
                self.mod, self.params, self.target, answers, self.opt_level
            )
            self._expect_right(made)
            self._built[key] = made
            while len(self._built) > KEPT:
                self._built.popitem(last=False)
        self._built.move_to_end(key)
        return self._built[key]

    def _expect_right(self, made: BuiltNetwork) -> None:
        if self._want is None:
            default = BuiltNetwork.build(self.mod, self.params, self.target, {}, self.opt_level)
            self._want = default.outputs(self.inputs)
        for place, (got, want) in enumerate(
            zip(made.outputs(self.inputs), self._want, strict=True)
        ):
            _expect_close(place, got, want)

    def compare(self, incumbent: Answers, challenger: Answers, seconds: float) -> Measured:
        """Run both in turns until every layer's test has said something, or time is over."""
        ours, theirs = self.built(incumbent), self.built(challenger)
        runs: list[tuple[Array, Array]] = []
        ours.run(), theirs.run()
        end = time.perf_counter() + seconds
        while len(runs) < MOST_PAIRS and (len(runs) < LEAST_PAIRS or time.perf_counter() < end):
            if len(runs) % 2:
                second = theirs.run()
                runs.append((ours.run(), second))
            else:
                first = ours.run()
                runs.append((first, theirs.run()))
            if len(runs) % LEAST_PAIRS == 0 and _all_said(found := _sorted(ours, theirs, runs)):
                return found
        return _sorted(ours, theirs, runs)


def _expect_close(place: int, got: Array, want: Array) -> None:
    limit = TOLERANCE.get(str(want.dtype), 0.0)
    if got.shape != want.shape:
        raise WrongResult(f"output {place} has the shape {got.shape}, not {want.shape}")
    left, right = np.asarray(got, "float64"), np.asarray(want, "float64")
    finite = np.isfinite(right)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        raise WrongResult(f"output {place} has other infinities or NaNs than the default's")
    scale = np.abs(right[finite]).max(initial=0.0)
    off = np.abs(left[finite] - right[finite]).max(initial=0.0)
    if not off <= limit * scale:
        raise WrongResult(f"output {place} is off by {off:.3g}, of numbers up to {scale:.3g}")


def _all_said(found: Measured) -> bool:
    pairs = [*found.layers.values(), found.total]
    return all(
        compare(each.incumbent, each.challenger).verdict is not Verdict.OPEN for each in pairs
    )


def _sorted(
    ours: BuiltNetwork, theirs: BuiltNetwork, runs: Sequence[tuple[Array, Array]]
) -> Measured:
    """The times by layer, without what the machine did to one run of a pair."""
    first = np.array([run for run, _ in runs])
    second = np.array([run for _, run in runs])
    changed, new = ours.own_nodes(theirs), theirs.own_nodes(ours)
    calm = np.ones(len(runs))
    if not changed.all() and first[:, ~changed].sum() > 0:
        calm = second[:, ~new].sum(1) / first[:, ~changed].sum(1)
    kept = np.abs(np.log(calm)) < np.log(DISTURBED)
    if kept.sum() < LEAST_PAIRS:
        kept[:] = True
    first, second = first[kept], second[kept] / calm[kept, None]
    own = np.array(ours.scopes)
    scopes = {s for s, c in zip(ours.scopes, changed, strict=True) if c and s}
    scopes &= {s for s, c in zip(theirs.scopes, new, strict=True) if c and s}
    layers = {
        scope: _times(first, own == scope, second, np.array(theirs.scopes) == scope)
        for scope in sorted(scopes)
    }
    everything = np.ones_like(changed), np.ones_like(new)
    whole = float(first.sum()) or 1.0
    shares = {s: float(first[:, own == s].sum()) / whole for s in dict.fromkeys(ours.scopes) if s}
    return Measured(
        layers, _times(first, changed, second, new),
        _times(first, everything[0], second, everything[1]), theirs.questions, shares,
    )


def _times(first: Array, ours: Array, second: Array, theirs: Array) -> Times:
    return Times(first[:, ours].sum(1).tolist(), second[:, theirs].sum(1).tolist())
