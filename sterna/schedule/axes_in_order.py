"""Which of the last axes of a stage may be fused: rows of 14 pixels become one row of 196."""

from sterna.ir.node import Node
from sterna.te import ComputeOp, Stage
from sterna.te.tensor import ProducerLoad


def axes_in_order(stage: Stage) -> int:
    """How many of them: what is read along them lies in the same order, or is a single number.

    So may the numbers that say where else is read.
    """
    assert isinstance(stage.op, ComputeOp)
    most = len(stage.op.axis)
    return next(n for n in range(most, 0, -1) if n == 1 or _in_order(stage, stage.op, n))


def _in_order(stage: Stage, op: ComputeOp, count: int) -> bool:
    """Whether that holds of so many axes of an operation, and of those computed where it reads."""
    assert stage.schedule is not None
    axes, shape = [axis.var for axis in op.axis[-count:]], [*op.output(0).shape[-count:]]
    left: list[Node] = list(op.body)
    while left:
        node = left.pop()
        if not isinstance(node, ProducerLoad):
            if any(node is axis for axis in axes):
                return False  # a number that is computed with
            left.extend(node.children())
            continue
        whole = list(node.indices[-count:]) == axes
        left.extend(node.indices[:-count] if whole else node.indices)
        if whole and [*node.tensor.shape[-count:]] != shape:
            return False
        maker = stage.schedule.stage_map.get(node.tensor.op)
        if whole and maker is not None and maker.attach_type == "inline":
            assert isinstance(maker.op, ComputeOp), "what is computed where it is read"
            if not _in_order(stage, maker.op, count):
                return False
    return True
