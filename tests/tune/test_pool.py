"""Many machines that time at once: one that lies, one that is lost, one that is far off."""

import random
from pathlib import Path

import pytest

from sterna.target import Target
from sterna.tune import Budget, TuningDatabase
from sterna.tune.measure import Measured
from sterna.tune.pool import Pool
from sterna.tune.tuner import search_network
from sterna.tune.workers import Crashed, Lost, NoWorkersError, Refused, Request
from tests.tune.simulated import SimulatedWorker, best_time, random_layer, scaled, whole_time

TARGET = Target("llvm")


class SimulatedMachine:
    """A machine of a pool; what it does wrong is set from outside."""

    def __init__(self, name: str, layers: int = 6, speed: float = 1.0) -> None:
        order = random.Random(7)
        self.name, self.speed = name, speed
        self.worker = SimulatedWorker({f"layer {i}": random_layer(order) for i in range(layers)})
        self.lies = False
        self.dies_at: set[int] = set()
        self.is_gone = False
        self.comparisons = 0

    def compare(self, request: Request, timeout: float) -> Measured:
        self.comparisons += 1
        if self.is_gone or self.comparisons in self.dies_at:
            raise Lost(f"{self.name} does not answer")
        found = self.worker.compare(request.incumbent, request.challenger, request.seconds, timeout)
        tenfold = 0.1 if self.lies and request.incumbent != request.challenger else 1.0
        return scaled(found, 1 / self.speed, tenfold)

    def renew(self) -> bool:
        return not self.is_gone

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass


def pool_of(*machines: SimulatedMachine) -> Pool:
    made = Pool(machines)
    made.calibrate(1.0)
    return made


REQUEST = Request({}, {"layer 0/unrolled steps": "8"}, 0.0)


def test_many_machines_find_what_one_finds(tmp_path: Path) -> None:
    machines = [SimulatedMachine(f"machine {i}") for i in range(3)]
    database = TuningDatabase(tmp_path / "t.db")
    found = search_network(pool_of(*machines), TARGET, database, Budget(trials=48))
    worker = machines[0].worker
    assert best_time(worker) / whole_time(worker, found.answers) > 0.95
    assert all(machine.comparisons > 5 for machine in machines)
    rounds = len(found.history)
    alone = search_network(pool_of(SimulatedMachine("alone")), TARGET,
                           TuningDatabase(tmp_path / "alone.db"), Budget(trials=48))
    assert rounds < len(alone.history), "three machines need fewer rounds"


@pytest.mark.filterwarnings("ignore:tuning goes on without machine 0")
@pytest.mark.parametrize("machines", [2, 3])
def test_a_machine_that_lies_tenfold_does_not_win(machines: int, tmp_path: Path) -> None:
    made = [SimulatedMachine(f"machine {i}") for i in range(machines)]
    for machine in made:  # nothing is to be gained but by lies
        for layer in machine.worker.layers.values():
            layer.effects = {}
    made[0].lies = True
    database = TuningDatabase(tmp_path / "t.db")
    pool = pool_of(*made)
    found = search_network(pool, TARGET, database, Budget(trials=8))
    assert pool.width == 2, "one of three that is alone with what it says is left out"
    assert any(trial.outcome == "faster" for trial in found.trials), "it was tried"
    assert found.answers == {} and database.answers(TARGET) == {}


def test_a_lost_machine_loses_one_trial() -> None:
    machines = [SimulatedMachine(f"machine {i}") for i in range(2)]
    pool = pool_of(*machines)
    machines[1].dies_at = {machines[1].comparisons + 1}
    assert all(isinstance(found, Measured) for found in pool.compare_all([REQUEST] * 4, 1.0))
    assert pool.width == 2
    machines[0].is_gone = True
    with pytest.warns(UserWarning, match="tuning goes on without machine 0: it is gone"):
        assert all(isinstance(found, Measured) for found in pool.compare_all([REQUEST] * 4, 1.0))
    assert pool.width == 1 and len(pool.compare_everywhere(REQUEST, 1.0)) == 1
    machines[1].is_gone = True
    with pytest.raises(NoWorkersError, match="no machine is left"), pytest.warns(UserWarning):
        pool.compare_all([REQUEST], 1.0)


def test_a_candidate_that_ends_every_process_is_the_one_that_is_bad() -> None:
    machines = [SimulatedMachine(f"machine {i}") for i in range(2)]
    pool = pool_of(*machines)
    for machine in machines:
        machine.dies_at = set(range(100))
    (found,) = pool.compare_all([REQUEST], 1.0)
    assert isinstance(found, Crashed) and pool.width == 2
    with pytest.raises(Crashed, match="the processes of all machines ended"):
        pool.compare_everywhere(REQUEST, 1.0)


def test_what_a_machine_refuses_is_refused() -> None:
    machine = SimulatedMachine("machine")
    machine.worker.bad = {("layer 0/unrolled steps", "8"): Refused}
    pool = pool_of(machine)
    with pytest.raises(Refused, match="it fails at"):
        pool.compare(REQUEST.incumbent, REQUEST.challenger, 0.0, 1.0)


def test_the_anchor_makes_times_of_machines_comparable() -> None:
    machines = [SimulatedMachine("a"), SimulatedMachine("b", speed=1.3), SimulatedMachine("c")]
    found = pool_of(*machines).compare_everywhere(REQUEST, 1.0)
    seconds = [sum(each.total.incumbent) for each in found]
    assert max(seconds) / min(seconds) < 1.05


def test_machines_of_another_kind_and_liars_are_left_out() -> None:
    machines = [SimulatedMachine(name) for name in "abc"]
    machines[1].speed = 3.0
    with pytest.warns(UserWarning, match=r"without b: the untuned network takes 0\.33 times"):
        assert pool_of(*machines).width == 2
    uneven = SimulatedMachine("uneven")
    uneven.compare = lambda request, timeout: scaled(  # type: ignore[method-assign]
        uneven.worker.compare({}, {}, 0.0, 1.0), 1.0, 0.1
    )
    with (pytest.raises(NoWorkersError),
          pytest.warns(UserWarning, match="it times one network 10.* times as long as itself")):
        pool_of(uneven)
