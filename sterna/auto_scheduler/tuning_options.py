"""How long is searched, who builds and runs, and who hears of it."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.auto_scheduler.measure import MeasureResult, option_of


class TuningOptions:
    """How long is searched, and who builds and runs."""

    def __init__(
        self, num_measure_trials: int = 0, early_stopping: int | None = None,
        num_measures_per_round: int = 64, verbose: int = 1, builder: Any = "local",
        runner: Any = "local",
        measure_callbacks: Sequence[Callable[[Any, Any], None]] | None = None,
    ) -> None:
        if num_measure_trials < 0 or num_measures_per_round < 1:
            raise ValueError("num_measure_trials and num_measures_per_round count measurements")
        self.num_measure_trials = num_measure_trials
        self.early_stopping = early_stopping
        self.num_measures_per_round = num_measures_per_round
        self.verbose = verbose
        self.measure_option = option_of(builder, runner)
        self.measure_callbacks = list(measure_callbacks or ())

    def tell(self, inputs: Sequence[Any], results: Sequence[MeasureResult]) -> None:
        """Call back after measurements."""
        for callback in self.measure_callbacks:
            callback(inputs, results)
