"""Direct: sums of products in register tiles, computed by tensor expressions and their schedule.

Every contraction can run this way; the layout passes have packed its weights for it.
"""

from collections.abc import Sequence

from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import direct_cycles
from sterna.schedule.implementation import Candidate, Implementation, Plan
from sterna.schedule.kernel import Processor


class Direct(Implementation):
    """The call as it stands."""

    name = "direct"

    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        return [Candidate(Plan(self.name), direct_cycles(made, processor))]


IMPLEMENTATION = Direct()
