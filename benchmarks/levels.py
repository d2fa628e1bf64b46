"""The ladder of optimisation levels: what each step from level 0 to level 3 brings.

    python benchmarks/levels.py MODEL.onnx... [--turns 9] [--markdown]

The levels of a model take turns. Level 0 may take at most four times as long as level 3 and level
2, that of a build without a PassContext, at most 1.3 times; no step may lead down. Times are those
of all processors together, which a busy machine changes less than those on the clock; run it with
STERNA_NUM_THREADS=1, since threads that wait for work count as well.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from measure import turns_of
from rows import Row, show_rows

import sterna
from sterna.relay.random_inputs import random_inputs

LEVELS = range(4)
FIRST, DEFAULT, BEST = 0, 2, 3
# How much longer one level may take than another.
AT_MOST = {(FIRST, BEST): 4.0, (DEFAULT, BEST): 1.3}
NOISE = 1.05


def ladder(path: Path, turns: int) -> list[float]:
    """Milliseconds of a run at each level."""
    measures: dict[str, Callable[[], float]] = {}
    for level in LEVELS:
        model = sterna.compile(path, opt_level=level)
        inputs = random_inputs(model.inputs)

        def measure(model: sterna.CompiledModel = model, inputs: Mapping[str, Any] = inputs) -> float:
            model.run(inputs)
            start = time.process_time()
            model.run(inputs)
            return (time.process_time() - start) * 1e3

        measures[str(level)] = measure
    return [min(found) for found in turns_of(measures, turns).values()]


def rows_of(name: str, times: list[float]) -> list[Row]:
    """A model's levels and their bounds."""
    told = " / ".join(f"{each:.1f}" for each in times) + " ms"
    rows = [
        Row(f"{name}, level {a} over {b}", times[a] / times[b], "x", most, True, told)
        for (a, b), most in AT_MOST.items()
    ]
    steps = [(a, a + 1) for a in LEVELS[:-1]]
    return rows + [
        Row(f"{name}, level {b} over {a}", times[b] / times[a], "x", NOISE, True) for a, b in steps
    ]


def main() -> int:
    """Measure every model that was named; 1 if a bound was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    rows = [row for path in args.models for row in rows_of(path.stem, ladder(path, args.turns))]
    return show_rows("Levels", rows, args.markdown)


if __name__ == "__main__":
    raise SystemExit(main())
