"""Two builds of a network in turns: what each of their layers takes, side by side.

Each pair of runs gives a pair of times for every layer. Kernels that both builds share are the
control, but for the neighbours of changed ones, which find other things in the caches: what they
took more in one run than in the other is the machine's doing, and is taken out.
Where weights and results lie in memory may make one copy of a network faster than another, for as
long as it lives; so both are set up anew after every few pairs.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.relay.arrays import Array
from sterna.rpc.client import RPCSession
from sterna.rpc.tracker_client import connect_tracker
from sterna.target import Target
from sterna.tune.network import (
    Answers,
    BuiltNetwork,
    Described,
    KnownKernels,
    Questions,
    RunningNetwork,
    answers_text,
)
from sterna.tune.statistics import BATCH, LEAST_PAIRS, Verdict, compare

# Builds that are kept: the incumbent, the default and some challengers.
KEPT = 4
MOST_PAIRS = 200
# A pair whose shared kernels took so many times as long in one run as in the other says nothing.
DISTURBED = 1.25
# Shared kernels that take a smaller part of the network's time tell more of themselves than of the
# machine.
LEAST_CONTROL = 0.1
# Bytes that lie before a network at most, so that its next copy lies elsewhere.
MOST_ROOM = 1 << 21
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
    fractions: Mapping[str, float]
    """Which part of the incumbent's time each of its layers takes."""
    gone: Sequence[str] = ()
    """Layers of the incumbent that the challenger has not."""


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    """A device that a tracker lends."""

    host: str
    port: int
    key: str
    session_seconds: int = 60
    priority: int = 1

    @contextmanager
    def session(self) -> Iterator[RPCSession]:
        """One with the device, which is given back in the end."""
        tracker = connect_tracker(self.host, self.port)
        with tracker.request(
            self.key, priority=self.priority, session_timeout=self.session_seconds
        ) as session:
            yield session


class Bench:
    """A network that is built again and again, and timed beside itself, here or on a device."""

    def __init__(
        self, mod: IRModule, params: Mapping[str, Any], target: Target,
        inputs: Mapping[str, Array], opt_level: int = 3, device: RemoteDevice | None = None,
    ) -> None:
        self.mod, self.params, self.target = mod, params, target
        self.opt_level, self.device = opt_level, device
        self.check = ResultCheck(inputs)
        self._built: OrderedDict[str, BuiltNetwork] = OrderedDict()
        self._known = KnownKernels()

    def compare(self, incumbent: Answers, challenger: Answers, seconds: float) -> Measured:
        """Run both in turns until every layer's test has said something, or time is over."""
        ours, theirs = self.built(incumbent), self.built(challenger)
        self.built({})
        if self.device is None:
            if not self.check.is_known:
                self.check.know(self.built({}).here())
            return in_turns(set_up_anew(ours.here, theirs.here, self.check), seconds)
        with self.device.session() as session:
            if not self.check.is_known:
                self.check.know(self.built({}).there(session, "default"))
            first, second = ours.there(session, "incumbent"), theirs.there(session, "challenger")
            self.check.expect_right(first)
            self.check.expect_right(second)
            return in_turns(repeat((first, second)), seconds)

    def built(self, answers: Answers) -> BuiltNetwork:
        """The network under answers."""
        key = answers_text(answers)
        if key not in self._built:
            self._built[key] = BuiltNetwork.build(
                self.mod, self.params, self.target, answers, self.opt_level, self._known
            )
        self._built.move_to_end(key)
        while len(self._built) > KEPT:
            self._built.popitem(last=False)
        return self._built[key]


class ResultCheck:
    """What the untuned network computes, which every other build must compute as well."""

    def __init__(self, inputs: Mapping[str, Array]) -> None:
        self.inputs = inputs
        self._want: list[Array] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the untuned network has run."""
        return self._want is not None

    def know(self, untuned: RunningNetwork) -> None:
        """Run the untuned network."""
        self._want = untuned.outputs(self.inputs)

    def expect_right(self, made: RunningNetwork) -> None:
        """Raise WrongResult if a build gives other numbers; it has its inputs then."""
        assert self._want is not None
        for place, (got, want) in enumerate(
            zip(made.outputs(self.inputs), self._want, strict=True)
        ):
            expect_close(place, got, want)


Pair = tuple[RunningNetwork, RunningNetwork]


def set_up_anew(
    ours: Callable[[], RunningNetwork], theirs: Callable[[], RunningNetwork], check: ResultCheck
) -> Iterator[Pair]:
    """Two networks that give the right numbers, again and again; on a GPU they stay.

    Each is the first in memory as often as the other.
    """
    elsewhere = np.random.default_rng(0)
    for turn in count():
        room = np.ones(int(elsewhere.integers(MOST_ROOM)), "uint8")
        made = [make() for make in (ours, theirs)[:: 1 if turn % 2 else -1]]
        for each in made:
            check.expect_right(each)
        pair = (made[0], made[1]) if turn % 2 else (made[1], made[0])
        yield from repeat(pair) if pair[0].is_on_gpu else [pair]
        del made, each, pair, room


def in_turns(pairs: Iterator[Pair], seconds: float) -> Measured:
    """Run two networks in turns until every layer's test has said something, or time is over.

    Both have run before, for their results. The same kernels in both have nothing to tell.
    """
    runs: list[tuple[Array, Array]] = []
    begin = time.perf_counter()
    while True:
        ours, theirs = next(pairs)
        end = begin + (0.0 if ours.described.is_same(theirs.described) else seconds)
        for _ in range(BATCH):
            if len(runs) % 2:
                second = theirs.run()
                runs.append((ours.run(), second))
            else:
                first = ours.run()
                runs.append((first, theirs.run()))
        if len(runs) >= LEAST_PAIRS:
            found = by_layer(ours.described, theirs.described, runs)
            over = len(runs) >= MOST_PAIRS or time.perf_counter() > end
            if over or _all_said(found):
                return found
        del ours, theirs


def expect_close(place: int, got: Array, want: Array) -> None:
    """Raise WrongResult if an output is not near enough to what is right."""
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


def by_layer(
    ours: Described, theirs: Described, runs: Sequence[tuple[Array, Array]]
) -> Measured:
    """The times by layer, without what the machine did to one run of a pair."""
    first = np.array([run for run, _ in runs])
    second = np.array([run for _, run in runs])
    changed, new = ours.own_nodes(theirs), theirs.own_nodes(ours)
    calm = np.ones(len(runs))
    control = _far_kernels(ours.kernels, changed) & _far_kernels(theirs.kernels, new)
    before, after = (np.array([k in control for k in side.kernels]) for side in (ours, theirs))
    if first[:, before].sum() > LEAST_CONTROL * first.sum():
        calm = second[:, after].sum(1) / first[:, before].sum(1)
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
    named = [scope for scope in dict.fromkeys(ours.scopes) if scope]
    fractions = {scope: float(first[:, own == scope].sum()) / whole for scope in named}
    return Measured(
        layers, _times(first, changed, second, new),
        _times(first, everything[0], second, everything[1]), theirs.questions, fractions,
        sorted({*ours.scopes} - {*theirs.scopes}),
    )


def _far_kernels(kernels: Sequence[str], changed: Array) -> set[str]:
    """Those that never run beside one that changed, which leaves other things in the caches."""
    near = changed.copy()
    near[1:] |= changed[:-1]
    near[:-1] |= changed[1:]
    return set(kernels) - {k for k, is_near in zip(kernels, near, strict=True) if is_near}


def _times(first: Array, ours: Array, second: Array, theirs: Array) -> Times:
    return Times(first[:, ours].sum(1).tolist(), second[:, theirs].sum(1).tolist())
