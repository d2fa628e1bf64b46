"""If nodes of which only a run tells which branch they take."""

from collections.abc import Sequence

from onnx import NodeProto

from sterna.frontend.graph_importer import ABSENT
from sterna.frontend.open_shapes import UndecidedError
from sterna.relay.expr import If, RelayExpr, Tuple, TupleGetItem


class BranchesDiffer(UndecidedError):
    """The branches of an If give results of different types, and only a run tells which."""

    def __init__(
        self, node: NodeProto, flag: RelayExpr, yes: list[RelayExpr], no: list[RelayExpr]
    ) -> None:
        self.node, self.flag, self.yes, self.no = node, flag, yes, no
        super().__init__(f"node '{node.name}' (If): its branches are of different types")
        self.refusal = (
            f"node '{node.name}' (If): what follows is not compiled for the branch that it takes"
        )


def are_alike(yes: Sequence[RelayExpr], no: Sequence[RelayExpr]) -> bool:
    """Whether two branches give results of the same types."""
    is_absent = ABSENT in (*yes, *no)
    return not is_absent and all(
        a.checked_type == b.checked_type for a, b in zip(yes, no, strict=True)
    )


def chosen(flag: RelayExpr, yes: Sequence[RelayExpr], no: Sequence[RelayExpr]) -> list[RelayExpr]:
    """One If for all results: what a branch computes for several is computed in it."""
    if len(yes) == 1:
        return [If(flag, yes[0], no[0])]
    both = If(flag, Tuple(tuple(yes)), Tuple(tuple(no)))
    return [TupleGetItem(both, place) for place in range(len(yes))]
