"""What tuning gains: each network untuned and tuned, in turns, in one run.

    python benchmarks/tuning.py MODEL.onnx... [--minutes 10] [--trials 64] [--unknown] [--threads 1]
    python benchmarks/tuning.py --te [--trials 64] [--threads 1]
    python benchmarks/tuning.py --layers [PLACE...] [--trials 64] [--draws 1000] [--minutes 10]

The tuned network may never take longer. --unknown compiles as if the processor's caches were others
than they are. --te tunes products, convolutions and softmax that are written in te, and shows what
they reach of our own kernels' speed. --layers tunes single layers by one thread, each for some
minutes, and shows what that reaches of the best of very many draws.
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import geometric_mean

from rows import Row, show_rows
from tuning_draws import layer_rows
from tuning_te import te_rows

from sterna.model.import_model import import_model
from sterna.runtime import set_num_threads
from sterna.target import Target
from sterna.tune import Budget, Outcome, TuningDatabase, tune

NATIVE = "llvm -mcpu=native"
# Its caches are others than this machine's, as of a processor that the tables do not know.
UNKNOWN = f"{NATIVE} -l1_cache_size_bytes=4096 -l2_cache_size_bytes=16384"
# What a network gains at the least: nothing may be lost. And what several gain together.
LEAST, TOGETHER, TOGETHER_UNKNOWN = 1.0, 1.05, 1.15


def tuned(
    path: Path, minutes: float, trials: int, target: Target, threads: int | None
) -> Outcome:
    """A network, tuned with records of its own."""
    with tempfile.TemporaryDirectory() as folder:
        database = TuningDatabase(Path(folder) / "t.db")
        budget = Budget(trials, seconds=minutes * 60)
        return tune(*import_model(path, None, None), target, database, budget=budget,
                    threads=threads)


def row_of(path: Path, found: Outcome) -> Row:
    """What one network gained."""
    told = (f"{found.default_seconds * 1e3:.3f} / {found.seconds * 1e3:.3f} ms, "
            f"{found.count} trials, {len(found.answers)} answers")
    return Row(f"{path.stem}, untuned over tuned", 1 / found.ratio, "x", LEAST, False, told)


def together(rows: list[Row], is_unknown: bool) -> list[Row]:
    """The geometric mean of what several networks gained."""
    if len(rows) < 2:
        return []
    mean = geometric_mean([row.value for row in rows])
    aim = TOGETHER_UNKNOWN if is_unknown else TOGETHER
    return [Row("geometric mean, untuned over tuned", mean, "x", aim, False, "")]


def main() -> int:
    """Tune every model that was named; 1 if one became slower, or all gained too little."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--te", action="store_true")
    parser.add_argument("--layers", nargs="*", type=int)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", type=int, help="one does best beside other work")
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    target = Target(UNKNOWN if options.unknown else NATIVE)
    if options.layers is not None:
        options.threads = 1
    if options.threads is not None:
        os.environ["STERNA_NUM_THREADS"] = str(options.threads)  # of processes that measure
        set_num_threads(options.threads)
    rows = [
        row_of(path, tuned(path, options.minutes, options.trials, target, options.threads))
        for path in options.models
    ]
    rows += together(rows, options.unknown)
    rows += te_rows(options.trials, target) if options.te else []
    if options.layers is not None:
        rows += layer_rows(options.layers, target, options.trials, options.draws,
                           options.minutes * 60)
    return show_rows("Tuning", rows, options.markdown)


if __name__ == "__main__":
    raise SystemExit(main())
