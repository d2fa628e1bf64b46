"""How kernels run on the target toy where that differs from other processors."""

from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import schedule_for


@schedule_for("nn.dense", "toy")
def schedule_dense(kernel: Kernel) -> None:
    """The loops as they are written: an interpreter has no registers and no vectors."""
    kernel.choices["loops"] = len(kernel.schedule.stages)
