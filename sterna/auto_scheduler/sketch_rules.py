"""Sketches of a user's own: rules that take steps of some stages, with lengths left open.

A rule is asked for each stage, from the last one on: whether it has something to do there, and
what becomes of the loops. Lengths of splits that it leaves open (None) are what is searched.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import AT_ROOT, State
from sterna.auto_scheduler.sketch import LARGEST_TILE, MOST_LANES, Sketch
from sterna.auto_scheduler.steps import Annotate, Split
from sterna.autotvm.space import Config, ConfigSpace
from sterna.target import Target
from sterna.te import IterVar
from sterna.te.tensor import DATA_PAR

SKETCH = "sketch"

Meets = Callable[[Any, State, int], int]
Applies = Callable[[Any, State, int], Sequence[Sequence[Any]]]


class PreloadCustomSketchRule:
    """A rule: what it is asked with, and what it does.

    meet_condition_func(policy, state, stage) gives PASS, APPLY or APPLY_AND_SKIP_REST;
    apply_func(policy, state, stage) gives pairs of a state and the stage that comes next, which is
    -1 where nothing is left to do.
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self, meet_condition_func: Meets, apply_func: Applies, rule_name: str = "CustomSketchRule"
    ) -> None:
        self.meets, self.applies, self.rule_name = meet_condition_func, apply_func, rule_name

    def asked(self, policy: Any, state: State, stage: int) -> int:
        """What it says to a stage."""
        said = self.meets(policy, state, stage)
        if said not in (self.PASS, self.APPLY, self.APPLY_AND_SKIP_REST):
            raise ValueError(
                f"the sketch rule '{self.rule_name}' says {said!r} to stage {stage}; "
                "PASS, APPLY and APPLY_AND_SKIP_REST are what it may say"
            )
        return said

    def applied(self, policy: Any, state: State, stage: int) -> list[tuple[State, int]]:
        """What becomes of the loops, and which stage comes next."""
        made = [tuple(pair) for pair in self.applies(policy, state, stage)]
        for pair in made:
            if len(pair) != 2 or not isinstance(pair[0], State) or not isinstance(pair[1], int):
                raise TypeError(
                    f"the sketch rule '{self.rule_name}' gives pairs [state.state_object, next "
                    f"stage], not {pair!r}"
                )
        return [(state, stage) for state, stage in made]


class RuleSpace:
    """The sketches that rules make of a workload, with the lengths that they leave open."""

    def __init__(
        self, policy: Any, dag: ComputeDAG, target: Target,
        rules: Sequence[PreloadCustomSketchRule],
    ) -> None:
        self._plain, self._skips = Sketch(dag, target), True
        self._dag, self._rules = dag, rules
        self.sketches = self._made(policy)
        self.space = ConfigSpace()
        if self.sketches:
            self.state(self.space)

    @property
    def is_all(self) -> bool:
        """Whether rules asked that nothing else is searched."""
        return bool(self.sketches) and self._skips

    def _made(self, policy: Any) -> list[State]:
        """All that the rules make of the loops as they are."""
        found: list[State] = []
        first = self._dag.init_state
        left = [(first, len(first.stages) - 1, False)]
        while left:
            state, stage, is_changed = left.pop()
            if stage < 0:
                found += [state] if is_changed else []
                continue
            if stage >= len(state.stages):
                raise ValueError(f"a sketch rule goes on with stage {stage}, which there is not")
            said = [(rule, rule.asked(policy, state, stage)) for rule in self._rules]
            taking = [(rule, answer) for rule, answer in said if answer]
            for rule, answer in taking:
                self._skips &= answer == rule.APPLY_AND_SKIP_REST
                made = rule.applied(policy, state.copy(), stage)
                left += [(after, following, True) for after, following in reversed(made)]
                if answer == rule.APPLY_AND_SKIP_REST:
                    break
            if not taking:
                after = state.copy()
                op = after.stages[stage].op
                if op in self._dag.ops and self._plain.is_inlined(op):
                    after.compute_inline(stage)
                left.append((after, stage - 1, is_changed))
        return found

    def state(self, config: Config) -> State:
        """The loops of a point, or while the space is collected of its first point."""
        config.define_knob(SKETCH, list(range(len(self.sketches))))
        made = []
        for number, sketch in enumerate(self.sketches):
            steps = [
                _closed(config, f"{number}.{place}", step) if isinstance(step, Split) else step
                for place, step in enumerate(sketch.transform_steps)
            ]
            made.append(steps)
        chosen = State(self._dag, made[int(config[SKETCH].val)])
        if not any(isinstance(step, Annotate) for step in chosen.transform_steps):
            _annotate(chosen)
        return chosen


def _closed(config: Config, name: str, step: Split) -> Split:
    """A split whose open lengths are those of a point."""
    open_ones = [place for place, length in enumerate(step.lengths) if length is None]
    if not open_ones:
        return step
    if step.extent is None:
        raise ValueError(f"{step.to_json()}: lengths of a loop that itself is open cannot be")
    known = math.prod(step.sizes)
    config.define_split(name, max(1, step.extent // known), num_outputs=len(open_ones) + 1,
                        max_factor=LARGEST_TILE)
    sizes = iter(config[name].size[1:])
    lengths = [next(sizes) if length is None else length for length in step.lengths]
    return replace(step, lengths=tuple(lengths))


def _annotate(state: State) -> None:
    """Threads for the outermost loops of what is computed at the root, lanes for the innermost."""
    for number, stage in enumerate(state.stages):
        if not stage.op.input_tensors or not stage.iters:
            continue
        first, last = stage.iters[0], stage.iters[-1]
        if stage.compute_at == AT_ROOT and _is_spatial(first):
            state.parallel(number, 0)
        length = state.length(last)
        if last is not first and _is_spatial(last) and 1 < (length or 1) <= MOST_LANES:
            state.vectorize(number, len(stage.iters) - 1)


def _is_spatial(axis: IterVar) -> bool:
    return axis.iter_type == DATA_PAR
