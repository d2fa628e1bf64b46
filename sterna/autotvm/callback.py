"""What is called after each measurement."""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from io import TextIOBase
from typing import Any

from sterna.autotvm.measure import MeasureInput, MeasureResult, seconds_of
from sterna.autotvm.record import add_lines, encode

logger = logging.getLogger("autotvm")
PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "K": 1e3, "": 1.0}

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


def log_to_file(file_out: str | os.PathLike[str] | TextIOBase, protocol: str = "json") -> Callback:
    """Add each measurement to a log, at once: what is killed later has lost nothing."""

    def call(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [encode(i, r, protocol) for i, r in zip(inputs, results, strict=True)]
        if isinstance(file_out, TextIOBase):
            file_out.write("".join(f"{line}\n" for line in lines))
        else:
            add_lines(file_out, lines)

    return call


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Print one line that tells how far the search is, and the best so far."""
    if si_prefix not in PREFIXES:
        raise ValueError(f"si_prefix '{si_prefix}' is none of {', '.join(PREFIXES)}")
    begin, done = time.time(), 0

    def call(tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal done
        done += len(inputs)
        scale, unit = PREFIXES[si_prefix], f"{si_prefix}FLOPS"
        now = max((i.task.flop / seconds_of(r) for i, r in zip(inputs, results, strict=True)),
                  default=0.0)
        print(f"\r{prefix} Current/Best: {now / scale:7.2f}/{tuner.best_flops / scale:7.2f} {unit} "
              f"| Progress: ({done}/{total}) | {time.time() - begin:.2f} s",
              end="\n" if done >= total else "", file=sys.stdout, flush=True)

    return call


class Monitor:
    """Keeps what was measured."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, _: Any, inputs: Sequence[MeasureInput],
                 results: Sequence[MeasureResult]) -> None:
        for asked, result in zip(inputs, results, strict=True):
            failed = result.error_no != 0
            self.scores.append(0.0 if failed else asked.task.flop / seconds_of(result))
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> list[float]:
        """Operations per second of each trial."""
        return self.scores

    def trial_timestamps(self) -> list[float]:
        """When each trial ended."""
        return self.timestamps
