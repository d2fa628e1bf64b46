"""Implementations by tensor expressions: a plan says how the operator writes its sum.

    direct(weights=OHWI16o), direct(weights=OHWI16o, flat=1), direct(weights=OHWI8o, chunk=64),
    split_k(weights=OHWI32o), blocked_gemm(weights=OI16o)

The plan's name says which schedule places the loops.
"""

from dataclasses import dataclass

from sterna.relay.layout import Layout, expect_axes, layout_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Plan
from sterna.schedule.sum_of_products import DIRECT

CHOICES = ("weights", "chunk", "flat")


@dataclass(frozen=True, slots=True)
class Expression:
    """How a sum of products is written."""

    weights: str = ""
    """The layout of packed weights; none: that of the call."""
    chunk: int = 0
    """Products that are summed in the type of the result, their sums in a wider one; 0: none."""
    flat: bool = False
    """Whether the pixels of an image are one row, with windows of single pixels."""
    schedule: str = DIRECT
    """The implementation whose schedule places its loops."""

    @staticmethod
    def of(plan: Plan) -> "Expression":
        """What a plan says."""
        given = dict(plan.choices)
        if not given.keys() <= {*CHOICES}:
            raise ValueError(f"its choices are {', '.join(CHOICES)}, not {', '.join(given)}")
        chunk, flat = (plan.integer(name) if name in given else 0 for name in CHOICES[1:])
        if flat not in (0, 1):
            raise ValueError(f"flat is 0 or 1, not {flat}")
        return Expression(plan.text("weights"), chunk, bool(flat), plan.name)

    def plan(self, name: str) -> Plan:
        """The plan of an implementation that writes a sum so."""
        more = {"chunk": self.chunk, "flat": int(self.flat)}
        return Plan.of(name, weights=self.weights, **{n: v for n, v in more.items() if v})

    @property
    def width(self) -> int | None:
        """The columns of the register tile that weights are packed for; None if for none."""
        return next(iter(layout_of(self.weights).blocks_of("O")), None)

    @property
    def in_groups(self) -> bool:
        """Whether several input channels lie together: the bytes of a dot product."""
        return bool(layout_of(self.weights).blocks_of("I"))


def weight_axes(made: Contraction) -> str:
    """The axes of a contraction's weights; those of a product of matrices have no window."""
    return "OI" if made.is_matrix else f"O{made.spatial}I"


def weight_layout(made: Contraction, how: Expression) -> Layout:
    """The layout of packed weights, checked."""
    return expect_axes(layout_of(how.weights), weight_axes(made), "weights")
