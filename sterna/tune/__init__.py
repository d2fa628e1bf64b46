"""Tuning: a search that starts from the analytic answers, proves its gains and never loses.

Schedules and layout passes ask for what they decide (`sterna.schedule.choose`), and an untuned
build takes the cheapest candidate by the cost model. The tuner gives other answers and times them:

- `network.py` builds a network under answers, and knows its questions and its layers;
- `measure.py` runs two builds in turns and gives the times of their layers in pairs, after it has
  compared their results; `statistics.py` says when one is faster;
- `worker.py` does both in a process of its own: a crash or a hang costs one trial; `pool.py` has
  many machines do so at once, such as the nodes of a Ray cluster (`ray_cluster.py`);
- `correction.py` learns across layers where the cost model is off on this machine;
- `search.py` decides what is tried next, and when to stop;
- `database.py` keeps what was found and what was tried; `tuner.py` puts all of it together.

The names are loaded when they are first used.
"""

from typing import TYPE_CHECKING, Any

from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.tune.database import DatabaseError, Trial, TuningDatabase
    from sterna.tune.search import Budget, Progress
    from sterna.tune.tuner import Outcome, tune

_WHERE = {
    "Budget": "sterna.tune.search:Budget",
    "DatabaseError": "sterna.tune.database:DatabaseError",
    "Outcome": "sterna.tune.tuner:Outcome",
    "Progress": "sterna.tune.search:Progress",
    "Trial": "sterna.tune.database:Trial",
    "TuningDatabase": "sterna.tune.database:TuningDatabase",
    "tune": "sterna.tune.tuner:tune",
}

__all__ = ["Budget", "DatabaseError", "Outcome", "Progress", "Trial", "TuningDatabase", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.tune' has no attribute '{name}'")
    return load_name(_WHERE[name])
