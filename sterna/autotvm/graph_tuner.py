"""The classic graph tuner's names: which of a network's schedules go together.

Layouts are questions of the network itself here, and layers are timed inside of it, with what lies
between them. So nothing is left to do for graphs: the best of what was measured is written down.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sterna.autotvm.record import best_records, encode, load_from_file
from sterna.ir.module import IRModule
from sterna.relay.expr import Function
from sterna.support.write_aside import write_text_aside


class BaseGraphTuner:
    """Writes the best records of a network's layers, by the steps that programs take."""

    def __init__(
        self, graph: IRModule | Function, input_shapes: Mapping[str, Sequence[int]], records: Any,
        target_ops: Sequence[Any], target: Any, max_sch_num: int = 20, dtype: str = "float32",
        verbose: bool = True, log_file: str | os.PathLike[str] | None = None,
        log_level: int = 0, name: str = "graph_tuner",
    ) -> None:
        main = graph["main"] if isinstance(graph, IRModule) else graph
        known = {param.name_hint for param in main.params}
        unknown = [given for given in input_shapes if given not in known]
        if unknown:
            raise ValueError(f"the graph has no input '{unknown[0]}'; it has {', '.join(known)}")
        is_file = isinstance(records, str | os.PathLike)
        self._records = list(load_from_file(records) if is_file else records)
        self._best: list[str] | None = None

    def benchmark_layout_transform(self, *options: Any, **more: Any) -> None:
        """Layers are timed with the layouts between them already."""

    def run(self, **options: Any) -> None:
        """Pick the best of what was measured."""
        self._best = [encode(*record) for record in best_records(self._records).values()]

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log"
    ) -> None:
        """Write what was picked as a log, which apply_graph_best takes."""
        if self._best is None:
            raise RuntimeError("nothing was picked yet; call run() before")
        write_text_aside(record_file, "".join(f"{line}\n" for line in self._best))


class DPTuner(BaseGraphTuner):
    """By this name in programs that asked for dynamic programming."""


class PBQPTuner(BaseGraphTuner):
    """By this name in programs that asked for a quadratic problem's solver."""
