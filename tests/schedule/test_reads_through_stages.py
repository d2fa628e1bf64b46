"""What a stage reads through the stages that are computed where they are read."""

from sterna import te
from sterna.schedule.reads import reads_of
from sterna.te import Tensor


def squared(x: Tensor) -> Tensor:
    made: Tensor = te.compute((8,), lambda i: x[i] * x[i])
    return made


def test_many_ways_to_one_element_are_one_read() -> None:
    x = te.placeholder((8,), name="x")
    stages = [x]
    for _ in range(40):  # 2 ** 40 ways lead to x
        stages.append(squared(stages[-1]))
    schedule = te.create_schedule(stages[-1].op)
    for stage in stages[1:-1]:
        schedule[stage].compute_inline()
    reads = reads_of(schedule[stages[-1]])
    assert {read.tensor for read in reads} == {x} and len(reads) == 2
