"""Search strategies by name: the engine has one, from the analytic answer on."""

from dataclasses import dataclass
from typing import Any

from sterna.meta_schedule.names import Named


@dataclass(frozen=True)
class MeasureCandidate:
    """What is measured: a schedule or the answers of one, and what its function takes."""

    sch: Any
    args_info: Any = None


class SearchStrategy(Named):
    """Decides what is measured next."""

    what = "strategy"


class PySearchStrategy(SearchStrategy):
    """A strategy of the user's: the engine keeps to its own."""


class EvolutionarySearch(SearchStrategy):
    """By this name in most programs."""

    options_known = ("population_size", "init_measured_ratio", "init_min_unmeasured",
                     "max_fail_count", "genetic_num_iters", "genetic_mutate_prob",
                     "genetic_max_fail_count", "eps_greedy")


class ReplayTrace(SearchStrategy):
    """By this name in programs that asked for draws."""

    options_known = ("max_fail_count",)


class ReplayFunc(SearchStrategy):
    """By this name in programs that asked for draws."""


SearchStrategy.kinds = {
    "evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc,
    "replay_trace": ReplayTrace, "replay_func": ReplayFunc,
}
create = SearchStrategy.create
